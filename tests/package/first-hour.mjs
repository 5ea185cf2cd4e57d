// The pages of a reader's first hour, pasted block by block into a shell of a root file system that has nothing but the packages and what its page says it
// needs. PACKAGE_OUTPUT names the folder with the packages. `first-hour` runs this file: it needs a network namespace of its own.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, readlinkSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import { missing, sharedBrowsers } from '../clients/browsers.mjs';
import { talk } from '../clients/chat.mjs';
import { modules, root as checkout, until } from '../clients/harness.mjs';
import { emptyRoot, noChroot, registry, run, stopwatch, which } from './roots.mjs';

const output = process.env.PACKAGE_OUTPUT;
assert.ok(output, 'PACKAGE_OUTPUT is not set: run `make test-all`');
const read = (name) => readFileSync(path.join(checkout, name), 'utf8');
const [, version] = /^\[workspace\.package\]\nversion = "(.+)"/m.exec(read('Cargo.toml'));
const shared = sharedBrowsers({ after });
/** Goal: the first message in the page, installation included. */
const FIRST_MESSAGE_S = 300;

/** Programs that every system has. */
const SYSTEM = ['bash', 'cat', 'chmod', 'grep', 'ls', 'mkdir', 'rm', 'sed', 'sleep'];
/** Names of requirements in pages, and their programs. */
const NEEDS = { Node: ['node'], 'Python 3': ['python3'], curl: ['curl'], OpenSSL: ['openssl'] };

/** A page's blocks in order, without their indentation: the language, the text, and the text between the block and the one before. */
function blocks(page) {
  const found = [];
  let end = 0;
  for (const match of page.matchAll(/^( *)```(\w*)\n(.*?)^ *```$/gms)) {
    const [whole, indentation, language, text] = match;
    found.push({ language, text: text.replaceAll(new RegExp(`^${indentation}`, 'gm'), ''), before: page.slice(end, match.index) });
    end = match.index + whole.length;
  }
  return found;
}

/** The file that a block is for, in the folder of a reader, as the paragraph before the block says. */
function fileOf({ language, before }) {
  const names = [...before.trimEnd().split('\n\n').at(-1).matchAll(/`([\w./-]+)`/g)].map(([, name]) => name);
  const file = names.find((name) => [language, `c${language}`].includes(path.extname(name).slice(1)));
  const folder = names.find((name) => name.includes('/') && !path.extname(name));
  return file && path.join(folder ?? '', file);
}

/** Ends the programs in a root file system, also those that have left their shell, such as PM2. */
function endAll(root) {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    // A process may have ended meanwhile.
    try { if (readlinkSync(`/proc/${pid}/root`) === root) process.kill(Number(pid), 'SIGKILL'); } catch {}
  }
}

/** A root file system with a checkout, the packages in it, and the programs that a page needs. */
async function fresh(t, needs) {
  const programs = new Map([...SYSTEM, ...needs.flatMap((name) => NEEDS[name])].map((name) => [name, realpathSync(which(name))]));
  const folders = [];
  if (programs.has('python3')) {
    // `python3` may be a script that chooses one.
    const [program, library] = run('python3', '-c', 'import os, sys, sysconfig; print(os.path.realpath(sys.executable), sysconfig.get_paths()["stdlib"])').trim().split(' ');
    programs.set('python3', program);
    folders.push(library);
  }
  const npm = programs.has('node') && path.dirname(path.dirname(realpathSync(which('npm'))));
  if (npm) folders.push(npm);
  let root = '';
  t.after(() => root && endAll(root));
  const empty = emptyRoot(t, [...programs.values()], folders);
  root = realpathSync(empty.root);
  const link = (name, target) => symlinkSync(target, path.join(root, 'usr/bin', name));
  for (const [name, file] of programs) if (path.basename(file) !== name) link(name, file);
  if (npm) for (const name of ['npm', 'npx']) link(name, path.join(npm, `bin/${name}-cli.js`));
  if (programs.has('openssl')) {
    const [, folder] = /"(.+)"/.exec(run('openssl', 'version', '-d'));
    cpSync(path.join(folder, 'openssl.cnf'), path.join(root, folder, 'openssl.cnf'), { dereference: true });
  }
  const home = path.join(root, 'home/stentor');
  for (const name of ['examples', 'clients/socketio-server', 'clients/backend']) {
    cpSync(path.join(checkout, name), path.join(home, name), { recursive: true, filter: (file) => !/node_modules|\.venv|build$/.test(file) });
  }
  mkdirSync(path.join(home, 'target/package'), { recursive: true });
  for (const name of readdirSync(output).filter((name) => name.endsWith('.tgz'))) cpSync(path.join(output, name), path.join(home, 'target/package', name));
  const served = await registry(t, output, version, [modules, path.join(checkout, 'tests/clients/pm2/node_modules')]);
  writeFileSync(path.join(root, 'home/.npmrc'), `registry=${served.npm}\nupdate-notifier=false\naudit=false\nfund=false\n`);
  return { command: empty.command, home };
}

/** A shell in the root file system, in whose text blocks are pasted. */
function terminal([program, ...args], folder) {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (text += chunk));
  const children = (pid) => readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  const descendants = (pid) => children(pid).flatMap((child) => [child, ...descendants(child)]);
  child.stdin.write(`cd ${folder}\ntrap 'printf "\\n[failed: %s] %s\\n" $? "$BASH_COMMAND"' ERR\n`);
  let number = 0;
  const self = {
    isBusy: false,
    text: () => text,
    /** Pastes a block. `ended()` waits for its end, and `prints(…)` for texts in its output, in this order. */
    paste(block) {
      const from = text.length;
      const mark = `[pasted ${++number}]`;
      child.stdin.write(`${block}\necho "${mark}"\n`);
      const printed = () => text.slice(from);
      const what = (wanted) => () => `${wanted} after\n${block}\nin:\n${printed()}`;
      self.isBusy = true;
      const ended = async () => {
        await until(what('the end'), () => text.includes(mark, from));
        self.isBusy = false;
        // curl ends with 28 at its maximum time.
        const failed = [...printed().matchAll(/^\[failed: (\d+)\] (.*)/gm)].filter(([, status, command]) => status !== '28' || !command.includes('--max-time'));
        assert.deepEqual(failed.map(([line]) => line), [], what('no failure')());
      };
      const prints = async (wanted) => {
        let at = from;
        for (const each of wanted) {
          at = await until(what(each), () => {
            const rest = text.slice(at);
            const found = typeof each === 'string' ? rest.indexOf(each) : rest.search(each);
            return found >= 0 && at + found + 1;
          });
        }
      };
      return { ended, prints, runs: () => !text.includes(mark, from) };
    },
    /** Ctrl+C. */
    async interrupt() {
      for (const pid of descendants(child.pid)) try { process.kill(pid, 'SIGINT'); } catch {}
      await until(() => `the end of what is in:\n${text}`, () => text.includes(`[pasted ${number}]`));
      self.isBusy = false;
    },
  };
  return self;
}

/** Opens a page in a browser. */
async function open(t, address) {
  const context = await (await shared('Chromium')).newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(address);
  return page;
}

/**
 * What happens to a page's blocks, in their order. Each has the texts that it `prints`, which its page has as well, or patterns where the page describes
 * them. A block that `keeps` running needs the next terminal. `before` and `then` are what the page asks its reader to do; `not` is the reason why a block isn't pasted.
 */
const READY = 'ready http://127.0.0.1:8000';
const NO_RUST = { not: 'needs Rust; `make test` installs the requirements and runs the tests itself' };
const NO_SYSTEMD = { not: "needs systemd; tests/clients/all/deploy.test.mjs verifies the units, and link-deploys.test.mjs runs the workers' commands" };
const NO_KUBERNETES = { not: 'needs a cluster; tests/package/kubernetes.test.mjs compares the commands with the manifests, and runs their pods' };
const DEMO = { keeps: true, prints: [READY], then: ({ interrupt }) => interrupt() };
const INSTALLED = { prints: [], then: ({ has }) => has('usr/bin/stentor') };

const PAGES = {
  'README.md': {
    needs: ['Node', 'Python 3', 'curl'],
    blocks: [
      DEMO,
      INSTALLED,
      NO_RUST,
      {
        keeps: true,
        prints: [READY],
        async then({ t, state, sinceBegin_s }) {
          state.tabs = await Promise.all([1, 2].map(() => open(t, 'http://127.0.0.1:3001')));
          const [first, second] = state.tabs;
          // A tab subscribes some time after it has loaded.
          await until('a message in the second tab', async () => {
            await first.fill('#say', 'the first message');
            await first.press('#say', 'Enter');
            return await second.locator('#log li').count() > 0;
          });
          const seconds = sinceBegin_s();
          t.diagnostic(`the first message in the page: ${seconds.toFixed(0)} s after the first command`);
          assert.ok(seconds < FIRST_MESSAGE_S, `${seconds} s`);
        },
      },
      {
        prints: ['{"published":1}'],
        async then({ state: { tabs } }) {
          for (const tab of tabs) await tab.locator('#log li', { hasText: 'hello from curl' }).waitFor();
        },
      },
    ],
  },
  'examples/chat/socketio/README.md': {
    needs: ['Node'],
    folder: 'examples/chat/socketio',
    blocks: [
      { keeps: true, prints: [READY] },
      {
        keeps: true,
        prints: ['the chat is at http://127.0.0.1:3000'],
        async then({ t, state, interrupt, pasteAgain }) {
          const page = await open(t, 'http://127.0.0.1:3000');
          await page.fill('#nickname', 'Ada');
          await page.press('#nickname', 'Enter');
          await page.fill('#text', 'hello');
          await page.press('#text', 'Enter');
          await page.locator('#log div', { hasText: 'Ada: hello' }).waitFor();
          const users = talk(t, 'http://127.0.0.1:8000');
          await users.more(5);
          await interrupt();
          await pasteAgain();
          await users.more(5);
          await users.stop();
          state.page = page;
        },
      },
    ],
  },
  'docs/live-in-five-minutes.md': {
    needs: ['Python 3', 'curl'],
    blocks: [
      { keeps: true, prints: ['http://127.0.0.1:3000/match/8'] },
      { prints: ['{"error":"token required"}', /"match": 8/] },
      { keeps: true, prints: ['matches: matches/{id}/live from http://127.0.0.1:3000/match/{id}', READY] },
      {
        prints: [/"match":8/, 'event: snapshot'],
        async then({ t, state }) {
          state.page = await open(t, 'http://127.0.0.1:3000/');
          await state.page.locator('#score', { hasText: /^\d+ : \d+, minute \d+$/ }).waitFor();
        },
      },
      { prints: ['stentor_feed_fetches_total', 'stentor_feed_subscribed_keys'] },
      {
        async before({ terminals: [api, server], state: { page } }) {
          await api.interrupt();
          await page.waitForFunction(() => document.title.startsWith('stale: '));
          await until('the log line', () => server.text().includes('fetches fail'));
        },
        prints: ['"stale":1'],
      },
      {
        async before({ terminals: [api], pasted: [start], state: { page } }) {
          await api.paste(start.text).prints(['http://127.0.0.1:3000/match/8']);
          await page.waitForFunction(() => !document.title.startsWith('stale: '));
        },
        prints: ['404'],
      },
      { prints: ['{"changed":true}', '{"headline":"Kick-off"}', '{"changed":true}', '{"changed":true}'] },
    ],
  },
  'docs/permissions.md': {
    needs: ['curl', 'OpenSSL'],
    blocks: [
      { prints: [READY] },
      { prints: ['{"changed":true}', /\{"changed":true\}/] },
      { prints: ['{"headline":"Kick-off"}', 'no permission allows to subscribe to this'] },
      { prints: ['This token is for development.', '{"unread":3}', 'no permission allows to subscribe to this'] },
      { prints: ['subscribe  allowed by [[permissions]] 1', '[[permissions]] 1: user/{sub} matches and allows subscribe, history', /subscribe {2}refused/] },
      { prints: ['{"unread":7}'] },
      { prints: ['{"sessions":0}', 'the token has been revoked', '"subject":"42"'] },
    ],
  },
  'docs/hooks.md': {
    needs: ['Node', 'curl'],
    blocks: [
      { keeps: true, prints: ['listening on 9000'] },
      { keeps: true, prints: ['hook chat: it answered 200 to a request without questions', READY] },
      { prints: ['{"type":"welcome",', 'log in first'] },
    ],
  },
  'docs/tls.md': {
    needs: ['curl', 'OpenSSL'],
    blocks: [
      { prints: [] },
      { prints: ['stentor.toml is valid', 'ready https://127.0.0.1:8000'] },
      { prints: ['ok', 'Plain HTTP was sent to a port that uses TLS.'] },
      { prints: ['ready https://127.0.0.1:8000'] },
      { prints: ['ready', 'No key has changed.'] },
      { prints: [] },
    ],
  },
  'docs/deploys.md': {
    needs: ['Node', 'curl'],
    blocks: [
      { keeps: true, prints: [READY] },
      { prints: [] },
      { prints: [] },
      NO_SYSTEMD,
      NO_SYSTEMD,
      NO_KUBERNETES,
      NO_KUBERNETES,
      NO_KUBERNETES,
      {
        async before({ terminals }) {
          for (const terminal of terminals) if (terminal.isBusy) await terminal.interrupt();
          // The commands for PM2 have changed the folder.
          terminals.length = 0;
        },
        keeps: true,
        prints: [READY],
      },
      { prints: ['applied: origins.allow\nrestart needed: heartbeat.interval'] },
      { keeps: true, prints: [READY] },
      { prints: ['ready'] },
      NO_SYSTEMD,
      NO_SYSTEMD,
      { prints: ['ready'] },
    ],
  },
};

for (const [name, { needs, blocks: expected, folder = '' }] of Object.entries(PAGES)) {
  test(`${name}, pasted`, { skip: noChroot || missing('Chromium') }, async (t) => {
    const page = read(name);
    const all = blocks(page);
    const pasted = all.filter(({ language }) => language === 'sh');
    assert.equal(pasted.length, expected.length, `${name} has ${pasted.length} shell blocks: describe each of them in this test`);
    for (const need of needs) assert.ok(page.includes(need), `${name} doesn't say that it needs ${need}`);

    // The installation is a block of README.md, to which the other pages link.
    const install = blocks(read('README.md')).find(({ text }) => text.startsWith('npm install --global')).text;
    const isReadme = name === 'README.md';
    const { command, home } = await fresh(t, isReadme ? needs : ['Node', ...needs.filter((need) => need !== 'Node')]);
    const sinceBegin_s = stopwatch();
    const root = path.join(home, '../..');
    const has = (file) => realpathSync(path.join(root, file));
    const start = (folder) => terminal(command('bash'), path.join('/home/stentor', folder));
    const terminals = [];
    const free = () => {
      if (!terminals.some(({ isBusy }) => !isBusy)) terminals.push(start(folder));
      return terminals.find(({ isBusy }) => !isBusy);
    };
    if (!isReadme) {
      assert.match(page, /README\.md#install\)/);
      await start('').paste(install).ended();
    }
    const state = {};
    let at = 0;
    for (const block of all) {
      if (block.language !== 'sh') {
        const file = fileOf(block);
        if (file) writeFileSync(path.join(home, folder, file), block.text);
        continue;
      }
      const { not, before, keeps, prints, then } = expected[at++];
      if (not) {
        t.diagnostic(`not pasted: ${block.text.split('\n')[0]} (${not})`);
        continue;
      }
      for (const text of prints) if (typeof text === 'string') assert.ok(page.replaceAll('`', '').includes(text), `${name} doesn't say that a block prints ${text}`);
      await before?.({ t, terminals, pasted, state });
      const used = free();
      const paste = async () => {
        const going = used.paste(block.text);
        if (!keeps) await going.ended();
        await going.prints(prints);
        if (keeps) assert.ok(going.runs(), `it has ended:\n${used.text()}`);
      };
      await paste();
      await then?.({ t, state, has, sinceBegin_s, interrupt: used.interrupt, pasteAgain: paste });
    }
  });
}
