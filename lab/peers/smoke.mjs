// Shows that each peer does what the lab expects of it, with npm `ws` as the client: echo of every frame
// length, chat to everybody, documents in sequence, SIGTERM. Run after the install scripts:
//     node lab/peers/smoke.mjs [PEER …]
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const { WebSocket } = createRequire(`${here}ws8/server.mjs`)('ws');
const peers = {
  'bare-epoll': ['bare', '--io', 'epoll'],
  'bare-sendfile': ['bare', '--io', 'sendfile'],
  'bare-uring': ['bare', '--io', 'uring'],
  'bare-direct': ['bare', '--io', 'direct'],
  'uws-cpp': ['uws-cpp'],
  ws8: ['ws8'],
};

async function withServer(peer, extra, test) {
  const [folder, ...options] = peers[peer];
  const child = spawn(`${here}${folder}/run`, [...options, '--port', '0', ...extra], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  try {
    const [line] = await once(createInterface(child.stdout), 'line');
    const url = /^ready http:\/\/(.*)$/.exec(line);
    if (!url) throw new Error(`${peer} said ${line}`);
    await test(`ws://${url[1]}/ws`);
  } finally {
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), 2000);
    const [, signal] = await exited;
    clearTimeout(timer);
    if (signal === 'SIGKILL') throw new Error(`${peer} doesn't end on SIGTERM`);
  }
}

async function client(url) {
  const socket = new WebSocket(url, { perMessageDeflate: false });
  const waiting = [];
  const arrived = [];
  socket.on('message', (data) => (waiting.length ? waiting.shift()(data) : arrived.push(data)));
  socket.next = () =>
    arrived.length
      ? arrived.shift()
      : new Promise((resolve, reject) => {
          const timer = setTimeout(() => reject(new Error('nothing arrived within 5 s')), 5000);
          waiting.push((data) => (clearTimeout(timer), resolve(data)));
        });
  await once(socket, 'open');
  return socket;
}

function same(got, expected, what) {
  if (!Buffer.from(got).equals(Buffer.from(expected))) throw new Error(`${what}: ${got.length} bytes`);
}

async function echo(url) {
  const socket = await client(url);
  const lengths = [0, 1, 64, 125, 126, 127, 4000, 4096, 65535, 65536, 165000, 1000000];
  for (const n of lengths) socket.send('e'.repeat(n));
  for (const n of lengths) same(await socket.next(), 'e'.repeat(n), `echo of ${n}`);
  for (let i = 0; i < 1000; i++) socket.send(`message ${i}`);
  for (let i = 0; i < 1000; i++) same(await socket.next(), `message ${i}`, `echo ${i}`);
  const many = await Promise.all(Array.from({ length: 300 }, () => client(url)));
  for (const one of many) one.send('here');
  for (const one of many) same(await one.next(), 'here', 'many');
  for (const one of many) one.close();
  await Promise.all(many.map((one) => once(one, 'close')));
  socket.send('still here');
  same(await socket.next(), 'still here', 'after the others left');
  socket.terminate();
}

async function chat(url) {
  const all = await Promise.all(Array.from({ length: 50 }, () => client(url)));
  for (const n of [5, 200, 165000]) {
    all[7].send('c'.repeat(n));
    for (const one of all) same(await one.next(), 'c'.repeat(n), `chat of ${n}`);
  }
  for (const one of all.splice(10)) one.terminate();
  all[3].send('fewer');
  for (const one of all) same(await one.next(), 'fewer', 'after some left');
  for (const one of all) one.terminate();
}

async function fanout(url) {
  const all = await Promise.all(Array.from({ length: 20 }, () => client(url)));
  for (const one of all) {
    let last = -1;
    for (let i = 0; i < 10; i++) {
      const text = String(await one.next());
      const seq = Number(text.slice(0, 16));
      const age = Number(process.hrtime.bigint() - BigInt(text.slice(16, 36))) / 1e6;
      if (text.length !== 20000 || (last >= 0 && seq !== last + 1)) throw new Error(`${text.length} ${last} ${seq}`);
      if (!(age >= 0 && age < 2000)) throw new Error(`age ${age} ms`);
      last = seq;
    }
    one.terminate();
  }
}

const chosen = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(peers);
for (const peer of chosen) {
  await withServer(peer, ['--mode', 'echo'], echo);
  await withServer(peer, ['--mode', 'chat'], chat);
  await withServer(peer, ['--mode', 'fanout', '--bytes', '20000', '--hz', '20'], fanout);
  console.log(`${peer}: echo, chat, fanout`);
}
