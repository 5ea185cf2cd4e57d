// The deploys of workers in docs/deploys.md: the page's own configurations and commands, while users talk in the chat.
// tests/package/kubernetes.test.mjs has that of Kubernetes.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { environment, example, talk } from '../chat.mjs';
import { program, root, serve } from '../harness.mjs';
import { missing, pm2 } from '../pm2.mjs';
import { freePorts } from '../proxies.mjs';

const page = readFileSync(path.join(root, 'docs/deploys.md'), 'utf8');
/** The text below a heading, up to the next one. */
const section = (title) => new RegExp(`^### ${title}\n(.*?)^##`, 'ms').exec(page)[1];
const blocks = (text, language) => [...text.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, 'gms'))].map(([, block]) => block);
const commands = (title) => blocks(section(title), 'sh').flatMap((block) => block.trim().split('\n'));

/** Stentor, and the chat's folder. */
async function chat(t) {
  const folder = example(t);
  const stentor = await serve(t, { config: readFileSync(path.join(folder, 'stentor.toml'), 'utf8') });
  return { folder, stentor };
}

for (const [mode, instances] of [['cluster', 2], ['fork', 1]]) {
  test(`PM2 in ${mode} mode`, { skip: missing }, async (t) => {
    const { folder, stentor } = await chat(t);
    const [ecosystem] = blocks(section('PM2'), 'js');
    const changed = ecosystem.replace("exec_mode: 'cluster'", `exec_mode: '${mode}'`).replace('instances: 2', `instances: ${instances}`);
    assert.equal(changed === ecosystem, mode === 'cluster');
    writeFileSync(path.join(folder, 'ecosystem.config.cjs'), changed);
    const [port] = await freePorts(1);
    const shell = pm2(t, { cwd: folder, env: environment(stentor, port) });
    // The copy of the folder has the packages, and PM2 is that of the tests.
    const prepared = ['cd examples/chat/socketio', 'npm install', 'npm install --global pm2'];
    const all = commands('PM2');
    assert.deepEqual(all.slice(0, prepared.length), prepared);
    const [start, ...deploys] = all.slice(prepared.length);
    await shell(start);
    assert.equal((await fetch(`http://127.0.0.1:${port}/ready`)).status, 200);
    const users = talk(t, stentor.http);
    await users.more(20);
    assert.ok(deploys.length > 0);
    for (const command of deploys) {
      await shell(command);
      await users.more(20);
    }
    await users.stop();
  });
}

test('systemd, which this test plays', async (t) => {
  const { folder, stentor } = await chat(t);
  const [unit] = blocks(section('systemd'), 'ini');
  const values = (name) => [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value]) => value);
  const running = new Map();
  const actions = {
    async start(name) {
      const [, instance] = /^chat@(\d)$/.exec(name);
      const [command, ...args] = values('ExecStart')[0].split(' ');
      assert.equal(command, '/usr/bin/node');
      const set = Object.fromEntries(values('Environment').map((value) => value.replace('%i', instance).split('=')));
      assert.equal(set.PORT, `300${instance}`);
      running.set(name, program(t, process.execPath, args, { cwd: folder, env: { ...process.env, ...set, ...environment(stentor, 0) } }));
    },
    // The signal is systemd's default, as the unit sets no other. systemd waits for the process.
    async restart(name) {
      assert.deepEqual(values('KillSignal'), []);
      const { end, child } = running.get(name);
      await end();
      assert.equal(child.exitCode, 0);
      await actions.start(name);
    },
  };
  const [reload, enable, ...deploys] = commands('systemd');
  assert.deepEqual([reload, enable], ['systemctl daemon-reload', 'systemctl enable --now chat@1 chat@2']);
  for (const name of ['chat@1', 'chat@2']) await actions.start(name);
  const users = talk(t, stentor.http);
  await users.more(20);
  assert.equal(deploys.length, 2);
  for (const command of deploys) {
    const [, action, name] = /^systemctl (restart) (\S+)$/.exec(command);
    await actions[action](name);
  }
  await users.more(20);
  await users.stop();

  // One worker is enough.
  await running.get('chat@2').end();
  const few = talk(t, stentor.http);
  await few.more(20);
  await actions.restart('chat@1');
  await few.more(20);
  await few.stop();
});
