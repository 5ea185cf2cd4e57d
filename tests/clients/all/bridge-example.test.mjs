// The commands of "Moving from Node, server by server" in docs/cluster.md, on free ports: clients go on while each server in Node is
// replaced.
import assert from 'node:assert/strict';
import { cpSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { metric } from '../admin.mjs';
import { binary, modules, program, root, temporary, until } from '../harness.mjs';
import { freePorts, missing as missingProxy } from '../proxies.mjs';
import { missing as missingRedis } from '../redis.mjs';

const PORTS = ['6379', '3000', '3001', '3002', '3003'];

/** The commands of the section's shell blocks. */
function commands() {
  const page = readFileSync(path.join(root, 'docs/cluster.md'), 'utf8');
  const [, section] = /^### Moving from Node, server by server\n(.*?)^## /ms.exec(page);
  return [...section.matchAll(/^ *```sh\n(.*?)^ *```/gms)].flatMap(([, text]) => text.trim().split('\n').map((line) => line.trim()));
}

/** A copy of the example on ports of its own, whose packages are those of these tests. */
async function example(t) {
  const folder = temporary(t);
  const own = path.join(folder, 'examples/from-node');
  cpSync(path.join(root, 'examples/from-node'), own, { recursive: true, filter: (name) => !name.includes('node_modules') });
  const ports = await freePorts(PORTS.length);
  const ported = (text) => PORTS.reduce((changed, port, n) => changed.replaceAll(port, `<${n}>`), text).replaceAll(/<(\d)>/g, (_, n) => ports[n]);
  for (const name of readdirSync(own)) {
    const file = path.join(own, name);
    const text = readFileSync(file, 'utf8');
    if (name !== 'package.json') writeFileSync(file, ported(text));
  }
  symlinkSync(modules, path.join(own, 'node_modules'));
  /** Runs a command of the page until the test ends: { news, stop, says }. */
  const run = (line, ...more) => {
    const words = [...ported(line).split(' ').map((word) => (word === "''" ? '' : word)), ...more];
    const variables = words[0].includes('=') ? [words.shift().split('=')] : [];
    const [name, ...args] = words;
    const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin`, ...Object.fromEntries(variables) };
    const { text, says, child, closed } = program(t, name === 'stentor' ? binary : name, args, { cwd: folder, env });
    const stop = async () => {
      child.kill('SIGKILL');
      await closed;
    };
    return { news: () => text().split('\n').filter((line) => line.startsWith('news')), stop, says: (wanted) => says(new RegExp(wanted)) };
  };
  return { run, packages: JSON.parse(readFileSync(path.join(root, 'examples/from-node/package.json'), 'utf8')).dependencies };
}

test('a team moves from Node to Stentor, server by server', { skip: missingRedis || missingProxy('haproxy') }, async (t) => {
  const { run, packages } = await example(t);
  const [install, redis, one, two, proxy, emitter, ada, bob, check, serve, ...others] = commands();
  assert.deepEqual(others, []);
  assert.equal(install, 'npm install --prefix examples/from-node');
  const installed = JSON.parse(readFileSync(path.join(root, 'tests/clients/package.json'), 'utf8')).devDependencies;
  for (const [name, version] of Object.entries(packages)) assert.equal(installed[name], version, name);

  await run(redis).says('Ready to accept connections');
  const nodes = [run(one), run(two)];
  for (const node of nodes) await node.says('ready');
  run(proxy);
  await run(emitter).says('ready');
  const clients = [];
  for (const line of [ada, bob]) {
    clients.push(run(line));
    await clients.at(-1).says('news');
  }
  await clients[0].says('Bob is here');

  await run(check).says('is valid');
  const [port] = await freePorts(1);
  const stentor = run(serve, '--admin', `127.0.0.1:${port}`);
  await stentor.says('ready http://');
  const server = { admin: `http://127.0.0.1:${port}` };
  await until('the bridge is up', async () => (await metric(server, 'bridge_up')) === 1);
  // One after the other, and each time the emitter reaches both clients again, wherever they are.
  for (const node of nodes) {
    const before = clients.map(({ news }) => news().length);
    await node.stop();
    await until('both hear the emitter', () => clients.every(({ news }, n) => news().length >= before[n] + 3));
  }
  await until('both are clients of Stentor', async () => (await metric(server, 'connections')) === 2);
  assert.equal(await metric(server, 'bridge_messages_refused_total'), 0);
  // Nobody has heard anything twice, nor in another order.
  for (const { news } of clients) {
    const numbers = news().map((line) => Number(line.split(' ')[1]));
    assert.deepEqual(numbers, [...new Set(numbers)].sort((a, b) => a - b));
  }
});
