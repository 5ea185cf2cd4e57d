// Shows that each peer does what the lab expects of it, with the client that its users have (npm `ws`,
// `socket.io-client`, `engine.io-client`, `sockjs-client`, `primus`, `faye`; lines over a socket): echo of every length, chat
// to everybody, feeds, SIGTERM. Peers whose clients don't run on this Node aren't here. Run after the
// install scripts:
//     node lab/peers/smoke.mjs [PEER …]
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const from = (peer, name) => createRequire(`${here}${peer}/`)(name);
const usual = { echo, chat };
const peers = {
  'bare-epoll': { run: ['bare', '--io', 'epoll'] },
  'bare-sendfile': { run: ['bare', '--io', 'sendfile'] },
  'bare-uring': { run: ['bare', '--io', 'uring'] },
  'bare-direct': { run: ['bare', '--io', 'direct'] },
  'uws-cpp': { run: ['uws-cpp'] },
  ws8: { run: ['ws8'] },
  uws10: { run: ['uws10'] },
  'bun-uws': { run: ['bun-uws'] },
  'py-websockets': { run: ['py-websockets'] },
  'py-picows': { run: ['py-picows'] },
  nchan: { run: ['nchan'] },
  ws04: { run: ['ws04'] },
  'rust-tungstenite': { run: ['rust-tungstenite'] },
  'rust-fastws': { run: ['rust-fastws'] },
  'go-gws': { run: ['go-gws'] },
  'go-gorilla': { run: ['go-gorilla'] },
  'go-gobwas': { run: ['go-gobwas'] },
  socketio4: { run: ['socketio4'], client: socketIo('websocket') },
  'socketio4, websocket': { run: ['socketio4', '--protocol', 'socketio'], client: socketIo('websocket') },
  'socketio4, polling': { run: ['socketio4', '--protocol', 'socketio-polling'], client: socketIo('polling') },
  'socketio4, engine.io': { run: ['socketio4', '--protocol', 'engineio'], client: engineIo },
  'socketio2, websocket': { run: ['socketio2', '--protocol', 'socketio2'], client: socketIo('websocket', 'socketio2') },
  'socketio2, polling': { run: ['socketio2', '--protocol', 'socketio2-polling'], client: socketIo('polling', 'socketio2') },
  'socketio2, engine.io': { run: ['socketio2', '--protocol', 'engineio3'], client: engineIo3 },
  'socketio1, websocket': { run: ['socketio1', '--protocol', 'socketio2'], client: socketIo('websocket', 'socketio1') },
  'socketio1, polling': { run: ['socketio1', '--protocol', 'socketio2-polling'], client: socketIo('polling', 'socketio1') },
  'socketio09, websocket': { run: ['socketio09', '--protocol', 'socketio09'], client: socketIo09('websocket') },
  'socketio09, polling': { run: ['socketio09', '--protocol', 'socketio09-polling'], client: socketIo09('xhr-polling') },
  'socketio08, websocket': { run: ['socketio08', '--protocol', 'socketio09'], client: socketIo09('websocket') },
  'socketio08, polling': { run: ['socketio08', '--protocol', 'socketio09-polling'], client: socketIo09('xhr-polling') },
  engineio07: { run: ['engineio07'], client: engineIo3 },
  primus15: { run: ['primus15'], client: primus('primus15') },
  primus8: { run: ['primus8'], client: primus('primus8') },
  faye: { run: ['faye'], client: bayeux },
  sockjs02: { run: ['sockjs02'], client: sockJs('websocket') },
  sockjs03old: { run: ['sockjs03old'], client: sockJs('websocket') },
  'socketio4-bun': { run: ['socketio4-bun'], client: socketIo('websocket') },
  'socketio4-bun, polling': { run: ['socketio4-bun'], client: socketIo('polling') },
  'java-nettysio': { run: ['java-nettysio'], client: socketIo('websocket') },
  'socketio4-redis': { run: ['socketio4-redis'], client: socketIo('websocket') },
  'socketio2-redis, websocket': {
    run: ['socketio2-redis', '--protocol', 'socketio2'],
    client: socketIo('websocket', 'socketio2-redis'),
  },
  'socketio2-redis, polling': {
    run: ['socketio2-redis', '--protocol', 'socketio2-polling'],
    client: socketIo('polling', 'socketio2-redis'),
  },
  socketioxide: { run: ['socketioxide', '--protocol', 'socketio'], client: socketIo('websocket') },
  'socketioxide, polling': { run: ['socketioxide', '--protocol', 'socketio-polling'], client: socketIo('polling') },
  'sockjs-node': { run: ['sockjs-node'], client: sockJs('websocket') },
  'sockjs-node, xhr_streaming': {
    run: ['sockjs-node', '--protocol', 'sockjs-streaming'],
    client: sockJs('xhr-streaming'),
  },
  'sockjs-tornado-pypy45': { run: ['sockjs-tornado-pypy45'], client: sockJs('websocket') },
  'sockjs-tornado': { run: ['sockjs-tornado'], client: sockJs('websocket') },
  'sockjs-tornado, xhr_streaming': {
    run: ['sockjs-tornado', '--protocol', 'sockjs-streaming'],
    client: sockJs('xhr-streaming'),
  },
  tcp: { run: ['tcp'], client: lines },
  'tcp-node08': { run: ['tcp-old', '--node', '0.8'], client: lines },
  'tcp-node010': { run: ['tcp-old', '--node', '0.10'], client: lines },
  'feeds-node': {
    run: ['feeds-node'],
    client: (address, path) => webSocket(address, path, 'feeds-node'),
    modes: { feed },
  },
};

async function withServer(peer, extra, test) {
  const [folder, ...options] = peers[peer].run;
  const child = spawn(`${here}${folder}/run`, [...options, '--port', '0', ...extra], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  // Also where a client's error ends us.
  const end = () => child.kill('SIGKILL');
  process.once('exit', end);
  try {
    const [line] = await once(createInterface(child.stdout), 'line');
    const url = /^ready http:\/\/(.*)$/.exec(line);
    if (!url) throw new Error(`${peer} said ${line}`);
    const client = peers[peer].client ?? webSocket;
    await test((path) => client(url[1], path));
  } finally {
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), 2000);
    const [, signal] = await exited;
    clearTimeout(timer);
    process.off('exit', end);
    if (signal === 'SIGKILL') throw new Error(`${peer} doesn't end on SIGTERM`);
  }
}

/// A client of any kind: `open`, `close` and what `arrives`, one after the other.
class Client extends EventEmitter {
  #waiting = [];
  #arrived = [];

  arrives(data) {
    if (this.#waiting.length) this.#waiting.shift()(data);
    else this.#arrived.push(data);
  }

  next() {
    if (this.#arrived.length) return Promise.resolve(this.#arrived.shift());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('nothing arrived within 5 s')), 5000);
      this.#waiting.push((data) => (clearTimeout(timer), resolve(data)));
    });
  }
}

async function webSocket(address, path = '/ws', peer = 'ws8') {
  const { WebSocket } = from(peer, 'ws');
  const socket = new WebSocket(`ws://${address}${path}`, { perMessageDeflate: false });
  const client = new Client();
  socket.on('message', (data) => client.arrives(data));
  socket.on('close', () => client.emit('close'));
  client.send = (text) => socket.send(text);
  client.close = () => socket.close();
  client.terminate = () => socket.terminate();
  await once(socket, 'open');
  return client;
}

function socketIo(transport, peer = 'socketio4') {
  return async (address) => {
    const library = from(peer, 'socket.io-client');
    const io = library.io ?? library;
    const socket = io(`http://${address}`, { transports: [transport], forceNew: true, reconnection: false });
    const client = new Client();
    socket.on('message', (text) => client.arrives(text));
    socket.on('disconnect', () => client.emit('close'));
    client.send = (text) => socket.emit('message', text);
    client.close = client.terminate = () => socket.disconnect();
    await once(socket, 'connect');
    return client;
  };
}

function socketIo09(transport) {
  return async (address) => {
    const io = from('socketio09', 'socket.io-client');
    const options = { transports: [transport], 'force new connection': true, reconnect: false };
    const socket = io.connect(`http://${address}`, options);
    const client = new Client();
    socket.on('message', (text) => client.arrives(text));
    socket.on('disconnect', () => client.emit('close'));
    client.send = (text) => socket.emit('message', text);
    client.close = client.terminate = () => socket.disconnect();
    await once(socket, 'connect');
    return client;
  };
}

function engineIo3(address) {
  return engineIo(address, 'socketio2');
}

async function engineIo(address, peer = 'socketio4') {
  const library = from(peer, 'engine.io-client');
  const socket = new (library.Socket ?? library)(`http://${address}`, { transports: ['websocket'] });
  const client = new Client();
  // An empty message comes without data.
  socket.on('message', (text) => client.arrives(text ?? ''));
  socket.on('close', () => client.emit('close'));
  client.send = (text) => socket.send(text);
  client.close = client.terminate = () => socket.close();
  await new Promise((resolve) => socket.on('open', resolve));
  return client;
}

function sockJs(transport) {
  return async (address) => {
    const SockJS = from('sockjs-node', 'sockjs-client');
    const socket = new SockJS(`http://${address}/sockjs`, null, { transports: [transport] });
    const client = new Client();
    socket.onmessage = ({ data }) => client.arrives(data);
    socket.onclose = () => client.emit('close');
    client.send = (text) => socket.send(text);
    client.close = client.terminate = () => socket.close();
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      client.once('close', () => reject(new Error('closed before it was open')));
    });
    return client;
  };
}

function primus(peer) {
  return async (address) => {
    const Socket = from(peer, 'primus').createSocket({ transformer: 'websockets' });
    const socket = new Socket(`http://${address}`, { strategy: false });
    const client = new Client();
    socket.on('data', (text) => client.arrives(text));
    socket.on('end', () => client.emit('close'));
    client.send = (text) => socket.write(text);
    client.close = client.terminate = () => socket.end();
    await new Promise((resolve) => socket.on('open', resolve));
    return client;
  };
}

async function bayeux(address) {
  const { Client: Bayeux } = from('faye', 'faye');
  const socket = new Bayeux(`http://${address}/faye`);
  const client = new Client();
  client.send = (text) => socket.publish('/room', text);
  client.close = client.terminate = () => socket.disconnect().then(() => client.emit('close'));
  await socket.subscribe('/room', (text) => client.arrives(text));
  return client;
}

async function lines(address) {
  const [host, port] = address.split(':');
  const socket = connect({ host, port: Number(port) });
  const client = new Client();
  createInterface({ input: socket, crlfDelay: Infinity }).on('line', (line) => client.arrives(line));
  socket.on('close', () => client.emit('close'));
  client.send = (text) => socket.write(`${text}\n`);
  client.close = client.terminate = () => socket.destroy();
  await once(socket, 'connect');
  // The client can't see when the server has accepted it.
  await new Promise((resolve) => setTimeout(resolve, 200));
  return client;
}

function same(got, expected, what) {
  if (!Buffer.from(got).equals(Buffer.from(expected))) throw new Error(`${what}: ${got.length} bytes`);
}

async function echo(client) {
  const socket = await client();
  const lengths = [0, 1, 64, 125, 126, 127, 4000, 4096, 65535, 65536, 165000, 1000000];
  for (const n of lengths) socket.send('e'.repeat(n));
  for (const n of lengths) same(await socket.next(), 'e'.repeat(n), `echo of ${n}`);
  for (let i = 0; i < 1000; i++) socket.send(`message ${i}`);
  for (let i = 0; i < 1000; i++) same(await socket.next(), `message ${i}`, `echo ${i}`);
  const many = [];
  // Not all at once: sockjs-client gives up on a server that is slow to answer.
  while (many.length < 300) many.push(...(await Promise.all(Array.from({ length: 30 }, () => client()))));
  for (const one of many) one.send('here');
  for (const one of many) same(await one.next(), 'here', 'many');
  const closed = Promise.all(many.map((one) => once(one, 'close')));
  for (const one of many) one.close();
  await closed;
  socket.send('still here');
  same(await socket.next(), 'still here', 'after the others left');
  socket.terminate();
}

async function chat(client) {
  const all = await Promise.all(Array.from({ length: 50 }, () => client()));
  for (const n of [5, 200, 165000]) {
    all[7].send('c'.repeat(n));
    for (const one of all) same(await one.next(), 'c'.repeat(n), `chat of ${n}`);
  }
  for (const one of all.splice(10)) one.terminate();
  all[3].send('fewer');
  for (const one of all) same(await one.next(), 'fewer', 'after some left');
  for (const one of all) one.terminate();
}

/// The n-th version of the document at a path.
function versionOf(path, n) {
  const rows = Array.from({ length: 100 }, (_, row) => ({ row, value: row === n % 100 ? n : 0 }));
  return JSON.stringify({ path, version: n, rows });
}

/// An HTTP API whose documents have a new version for each request.
async function startUpstream() {
  const requests = new Map();
  const server = createServer((request, response) => {
    const n = (requests.get(request.url) ?? 0) + 1;
    requests.set(request.url, n);
    response.setHeader('Content-Type', 'application/json');
    response.end(versionOf(request.url, n));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return server;
}

async function feed(client) {
  const { applyPatch } = from('feeds-node', 'fast-json-patch');
  const follow = async (key) => {
    const socket = await client(`/ws?feed=${key}`);
    let { offset, data, ...first } = JSON.parse(await socket.next());
    same(JSON.stringify(first), JSON.stringify({ type: 'snapshot', feed: key, epoch: 1, state: 'live' }), 'a snapshot');
    for (let versions = 0; versions < 5; versions++) {
      same(JSON.stringify(data), versionOf(`/${key}`, offset), `${key} at ${offset}`);
      const { base, patch, ...delta } = JSON.parse(await socket.next());
      same(JSON.stringify(delta), JSON.stringify({ type: 'delta', feed: key, epoch: 1, offset: base + 1 }), 'a delta');
      if (base !== offset) throw new Error(`a delta for ${base}, after ${offset}`);
      applyPatch(data, patch);
      offset = delta.offset;
    }
    return socket;
  };
  const both = await Promise.all([follow('bench/1'), follow('bench/2')]);
  const late = await follow('bench/1');
  for (const one of [...both, late]) one.terminate();
}

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
const chosen = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(peers);
const upstream = await startUpstream();
const options = { feed: ['--upstream', `http://127.0.0.1:${upstream.address().port}`, '--interval-ms', '10'] };
for (const peer of chosen) {
  const modes = peers[peer].modes ?? usual;
  for (const [mode, test] of Object.entries(modes)) {
    await withServer(peer, ['--mode', mode, ...(options[mode] ?? [])], test);
  }
  console.log(`${peer}: ${Object.keys(modes).join(', ')}`);
}
upstream.close();
