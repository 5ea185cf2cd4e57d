// `make run-cluster`: three nodes, an engine and HAProxy by one command; the demo's page goes on when a node dies.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { browserNames, launch, missing as missingBrowser } from '../browsers.mjs';
import { errorsOf, inRoom, libraries, workerPackages } from '../demo.mjs';
import { PATIENCE_MS, binary, event, program, root, until, within } from '../harness.mjs';
import { missing as withoutNats } from '../nats.mjs';
import { missing as missingProxy } from '../proxies.mjs';
import { missing as missingRedis } from '../redis.mjs';

const script = path.join(root, 'scripts/run-cluster');
const skip = missingRedis || missingProxy('haproxy') || missingBrowser(browserNames[0]);

/** Starts the cluster: { url, nodes, engine, end }. */
async function start(t, packages = libraries, ...args) {
  const { says, text, end } = program(t, script, [...args, '--libraries', packages, binary]);
  const [, url] = await says(/^ready (http\S+)$/m);
  const said = text();
  const nodes = [...said.matchAll(/^node (\w) +pid (\d+) +(\S+) +admin (\S+)$/mg)].map(([, name, pid, http, admin]) => ({ name, pid: Number(pid), http, admin }));
  return { url, nodes, logs: /^logs +(\S+)$/m.exec(said)[1], says, end };
}

const connections = async ({ admin }) => {
  const { nodes } = await (await fetch(`${admin}/api/v1/nodes`)).json();
  return nodes.find((node) => node.this).connections;
};

const runs = (pid) => existsSync(`/proc/${pid}`);

test("the demo's page goes on when the node that serves it is killed", { skip }, async (t) => {
  const { url, nodes, logs, end } = await start(t);
  assert.deepEqual(nodes.map(({ name }) => name), ['a', 'b', 'c']);
  const browser = await launch(browserNames[0]);
  t.after(() => browser.close());
  const page = await browser.newPage();
  const errors = errorsOf(page);
  await page.goto(`${url}/`);
  await inRoom(page, 'stentor.js');
  const count = async () => parseInt(await page.locator('#count').textContent(), 10);
  const more = async (n) => {
    const least = (await count()) + n;
    await page.waitForFunction((least) => parseInt(document.querySelector('#count').textContent, 10) >= least, least, { timeout: PATIENCE_MS });
  };
  await more(3);
  const clock = async () => (await page.locator('#score').innerText()).replace(/\s+/g, ' ');
  const before = await clock();
  // Twice, so that at most one node is left that has served the page.
  for (let alive = nodes; alive.length > 1;) {
    const served = await Promise.all(alive.map(connections));
    const victim = alive[served.indexOf(Math.max(...served))];
    process.kill(victim.pid, 'SIGKILL');
    alive = alive.filter((node) => node !== victim);
    await within(more(5), 'the page goes on');
    await inRoom(page, 'stentor.js');
  }
  assert.equal((await clock()).split(' ')[0], before.split(' ')[0], 'the same match');
  assert.deepEqual(errors.filter((error) => !/WebSocket connection|ERR_|Failed to load resource/.test(error)), []);
  await end();
  await until('nobody is left behind', () => !nodes.some(({ pid }) => runs(pid)) && !existsSync(logs));
});

test('a visitor stops the node that fetches, and another one takes over', { skip }, async (t) => {
  const { url, nodes, end } = await start(t, workerPackages(t));
  const browser = await launch(browserNames[0]);
  t.after(() => browser.close());
  const page = await browser.newPage();
  await page.goto(`${url}/`);
  const shows = (id, pattern) => page.waitForFunction(([id, pattern]) => new RegExp(pattern).test(document.getElementById(id).textContent), [id, pattern], { timeout: PATIENCE_MS });
  await shows('stop', '^Stop node [abc]$');
  const fetching = (await page.locator('#stop').textContent()).at(-1);
  // The chat of the worker is one for all nodes.
  await shows('process', '^\\d+$');
  await page.locator('#restart').click();
  await shows('restarted', 'has continued for process');
  await page.locator('#stop').focus();
  await page.keyboard.press('Enter');
  await shows('stopped', `^Node ${fetching} has ended. Another node takes over within \\d+ s`);
  await until('the node has ended', () => !runs(nodes.find(({ name }) => name === fetching).pid));
  await shows('stopped', `^Node [^${fetching}] has taken over for node ${fetching} after`);
  await shows('stop', `^Stop node [^${fetching}]$`);
  await shows('workerstate', '^connected$');
  await end();
});

test("no other program can take a stopped node's ports", { skip: missingRedis || missingProxy('haproxy') }, async (t) => {
  const { nodes: [node], says, end } = await start(t);
  const ports = [node.http, node.admin].map((url) => Number(new URL(url).port));
  process.kill(node.pid, 'SIGKILL');
  await says(/^node a +has ended/m);
  for (const port of ports) {
    const [error] = await event(createServer().listen(port, '127.0.0.1'), 'error');
    assert.equal(error.code, 'EADDRINUSE');
    await assert.rejects(fetch(`http://127.0.0.1:${port}/healthz`));
  }
  await end();
});

test('it runs on NATS, too', { skip: withoutNats || missingProxy('haproxy') }, async (t) => {
  const { url, nodes, end } = await start(t, libraries, '--engine', 'nats');
  await until('the nodes know each other', async () => (await (await fetch(`${nodes[0].admin}/api/v1/nodes`)).json()).nodes.length === 3);
  // Through the balancer, each time at another node.
  for (let n = 0; n < 3; n++) {
    const document = await (await fetch(`${url}/feed/scoreboard/1`)).json();
    assert.equal(typeof document, 'object');
  }
  await end();
});

test('what is missing is named with what to install', { skip: !existsSync('/usr/bin/env') }, async (t) => {
  const { says, closed } = program(t, '/usr/bin/env', ['PATH=/nowhere', process.env.PYTHON ?? '/usr/bin/python3', '-c', `
import runpy, shutil, sys
shutil.which = lambda *_, **__: None
sys.argv = ['run-cluster', '/bin/true']
runpy.run_path(${JSON.stringify(script)}, run_name='__main__')`]);
  await says(/^run-cluster needs haproxy: install the package haproxy/);
  assert.equal((await closed)[0], 1);
});
