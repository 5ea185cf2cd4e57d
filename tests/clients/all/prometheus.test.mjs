// The alert rules and the dashboard of docs/deploy: promtool reads the rules, a real Prometheus scrapes a running node, evaluates
// them, and answers every query of the dashboard.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { root, serve, temporary, until } from '../harness.mjs';
import { engineServer, find } from '../redis.mjs';

const docs = path.join(root, 'docs');
const rules = path.join(docs, 'deploy/prometheus/stentor.rules.yml');
const dashboard = JSON.parse(readFileSync(path.join(docs, 'deploy/grafana/stentor.json'), 'utf8'));
const queries = dashboard.panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr })));
const prometheus = find('prometheus');
const promtool = find('promtool');
const missing = !(prometheus && promtool) && "prometheus isn't installed";

/** What docs/metrics.md has: the labels' cells by name. */
const documented = new Map(
  [...readFileSync(path.join(docs, 'metrics.md'), 'utf8').matchAll(/^\| `(\w+)` \| (?:gauge|counter|histogram) \| (.*?) \|/gm)].map(([, name, labels]) => [name, labels]),
);

/** The metrics of a text with expressions, each with its selector. */
const used = (text) => [...text.matchAll(/\b((?:stentor|process)_[a-z_]+)\b(?:\{([^}]*)\})?/g)].map(([, name, selector = '']) => ({ name: name.replace(/_(bucket|sum|count)$/, ''), selector }));

/** Selectors of the labels that Prometheus adds. */
const added = /^(job|instance)$/;

test('every metric and label of the rules and the dashboard exists', () => {
  const expressions = [readFileSync(rules, 'utf8').replaceAll(/^\s*(summary|description):.*$/gm, '').replaceAll(/^#.*$/gm, ''), ...queries.map(({ expr }) => expr)];
  const all = expressions.flatMap(used);
  assert.ok(all.length > 50);
  for (const { name, selector } of all) {
    assert.ok(documented.has(name), `docs/metrics.md has no ${name}`);
    for (const [, label, value] of selector.matchAll(/(\w+)=~?"([^"]*)"/g)) {
      if (added.test(label)) continue;
      const cell = documented.get(name);
      assert.ok(cell.includes(`\`${label}\``), `${name} has no label ${label}`);
      assert.ok(new RegExp(`\`${value}\``).test(cell), `${name} has no ${label}="${value}"`);
    }
  }
});

test('promtool accepts the rules', { skip: missing }, () => {
  const said = execFileSync(promtool, ['check', 'rules', rules], { encoding: 'utf8' });
  assert.match(said, /SUCCESS/);
});

test('the alert of slow deliveries fires for slow ones only', { skip: missing }, (t) => {
  const folder = temporary(t);
  // Of 100 publications a minute, so many take more than half a second.
  const check = (slow, exp_alerts) => {
    const bucket = (le, count) => ({ series: `stentor_delivery_seconds_bucket{job="stentor",instance="a",core="0",le="${le}"}`, values: `0+${count}x30` });
    const input_series = [bucket('0.5', 100 - slow), bucket('1', 100), bucket('+Inf', 100)];
    const alert_rule_test = [{ eval_time: '20m', alertname: 'StentorDeliverySlow', exp_alerts }];
    writeFileSync(path.join(folder, 'test.yml'), JSON.stringify({ rule_files: [rules], tests: [{ interval: '1m', input_series, alert_rule_test }] }));
    const { status, stdout, stderr } = spawnSync(promtool, ['test', 'rules', path.join(folder, 'test.yml')], { encoding: 'utf8' });
    return `${status} ${stdout}${stderr}`;
  };
  assert.match(check(0, []), /^0 .*SUCCESS/s);
  assert.match(check(10, []), /^1 .*got:.*\{alertname="StentorDeliverySlow", instance="a", job="stentor", severity="ticket"\}/s);
});

test('a Prometheus scrapes a node, evaluates the rules and answers the dashboard', { skip: missing }, async (t) => {
  const node = await serve(t);
  const at = new URL(node.admin).host;
  const { port } = await engineServer(t, prometheus, (port, folder) => {
    // Every range has two samples after two seconds.
    const quick = readFileSync(rules, 'utf8').replaceAll(/for: \w+/g, 'for: 1s');
    writeFileSync(path.join(folder, 'rules.yml'), quick);
    const config = { global: { scrape_interval: '1s', evaluation_interval: '1s' }, rule_files: ['rules.yml'], scrape_configs: [{ job_name: 'stentor', static_configs: [{ targets: [at] }] }] };
    writeFileSync(path.join(folder, 'prometheus.yml'), JSON.stringify(config));
    return ['--config.file', path.join(folder, 'prometheus.yml'), '--storage.tsdb.path', path.join(folder, 'data'), '--web.listen-address', `127.0.0.1:${port}`];
  }, 'Server is ready to receive web requests', 'stderr');
  const ask = async (target) => (await fetch(`http://127.0.0.1:${port}/api/v1/${target}`)).json();
  const query = async (expr) => ask(`query?query=${encodeURIComponent(expr)}`);

  let scraped;
  await until(() => `the node is scraped: ${scraped?.lastError}`, async () => {
    [scraped] = (await ask('targets')).data.activeTargets;
    return scraped?.health === 'up';
  });
  await until('the sums of two scrapes', async () => (await query('rate(process_cpu_seconds_total[30s])')).data.result.length === 1);
  for (const { title, expr } of queries) {
    const filled = expr.replaceAll('$job', 'stentor').replaceAll('$instance', '.*').replaceAll('$__rate_interval', '30s');
    const answer = await query(filled);
    assert.equal(answer.status, 'success', `${title}: ${answer.error}`);
    // A node without upstreams, a cluster or sessions that ended has no such series.
    const optional = /stentor_(cluster|bridge|feed_\w*fetch|feed_failing|feed_upstream|turn_cpu|hook)/.test(expr);
    if (!optional) assert.ok(answer.data.result.length > 0, `${title}: no series for ${filled}`);
  }
  const states = async () => (await ask('rules')).data.groups.flatMap((group) => group.rules);
  let unwell;
  await until(() => `all rules are evaluated: ${JSON.stringify(unwell)}`, async () => {
    unwell = (await states()).filter(({ health }) => health !== 'ok').map(({ name, health, lastError }) => ({ name, health, lastError }));
    return unwell.length === 0;
  });
  const alarmed = (await states()).filter(({ state }) => state !== 'inactive').map(({ name }) => name);
  assert.deepEqual(alarmed, [], 'an idle node alarms nobody');

  node.child.kill('SIGTERM');
  await node.closed;
  await until('the alert of a node that is down', async () => (await states()).find(({ name }) => name === 'StentorDown').state === 'firing');
});
