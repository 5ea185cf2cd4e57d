// The clients' browser builds, in Chromium and Firefox: socket.io-client 4.8, 3.1 and 2.5, engine.io-client 6 and 3.5.
import assert from 'node:assert/strict';
import path from 'node:path';
import test, { after } from 'node:test';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { elsewhere, fixture, modules, ways, within } from '../harness.mjs';

const socketio = { 4.8: 'socket.io-client/dist/socket.io.min.js', 3.1: 'socket.io-client-3/dist/socket.io.min.js', 2.5: 'socket.io-client-2/dist/socket.io.js' };
const engineio = { 6: 'engine.io-client/dist/engine.io.min.js', 3.5: 'engine.io-client-3/engine.io.js' };

const shared = sharedBrowsers({ after });

// What the servers have to show: a refusal, which is a page of their origin.
const refusal = { socketio: '/socket.io/?EIO=4&transport=none', engineio: '/engine.io/?EIO=4&transport=none' };

const socketioServer = await fixture({ after }, 'socketio-client');
// Pings every 300 ms.
const engineioServer = await fixture({ after }, 'protocol-pings');

/** A page at an address, with a client's build in it. It has to be a real one: others may not open a WebSocket to loopback. */
const page = (t, browser, address, build) => openPage(t, shared(browser), address, { path: path.join(modules, build) });

/** Runs in the page: what a Socket.IO client sends and gets back, and the transport it ends with. */
async function useSocketIo({ url, options }) {
  const socket = window.io(url, { forceNew: true, ...options });
  const event = (emitter, name) => new Promise((resolve) => { emitter.once(name, (...args) => resolve(args)); });
  const ask = (...args) => new Promise((resolve) => socket.emit(...args, resolve));
  await event(socket, 'connect');
  const { engine } = socket.io;
  if (options.transports.length === 2 && engine.transport.name !== 'websocket') await event(engine, 'upgrade');
  socket.emit('doge');
  const [doge] = await event(socket, 'doge');
  socket.emit('jsonblob', { hello: 'lol', message: new Blob(['EEE']), goodbye: 'gotcha' });
  await event(socket, 'jsonblob-ack');
  const { bytes } = await ask('echo', { bytes: new Uint8Array([0, 1, 254, 255]).buffer });
  const text = await ask('echo', 'é€😀'.repeat(1_000));
  socket.on('ack', (answer) => answer(5, { test: true }));
  socket.emit('ack');
  await event(socket, 'got it');
  const foo = socket.io.socket('/foo');
  await event(foo, 'connect');
  const no = socket.io.socket('/no');
  const [error] = await Promise.race([event(no, 'connect_error'), event(no, 'error')]);
  const result = { transport: engine.transport.name, doge: new TextDecoder().decode(doge), bytes: [...new Uint8Array(bytes)], text: text.length, refusal: error.message ?? error };
  foo.disconnect();
  socket.disconnect();
  return result;
}

/** Runs in the page: the same for Engine.IO. */
async function useEngineIo({ url, options, heartbeats = 2 }) {
  const Socket = window.eio.Socket ?? window.eio;
  const socket = new Socket(url, options);
  const received = [];
  let wake = () => {};
  socket.on('message', (data) => { received.push(data); wake(); });
  const ended = new Promise((_, reject) => socket.once('close', (reason) => reject(new Error(`closed: ${reason}`))));
  ended.catch(() => {});
  const event = (name) => new Promise((resolve, reject) => {
    socket.once(name, (...args) => resolve(args));
    if (name !== 'close') ended.catch(reject);
  });
  await event('open');
  if (options.transports.length === 2) await event('upgrade');
  socket.send('é€😀');
  socket.send(new Uint8Array([0, 1, 254, 255]).buffer);
  socket.send(new Blob(['blob']));
  socket.send('last');
  while (received.length < 4) await Promise.race([ended, new Promise((resolve) => { wake = resolve; })]);
  for (let n = 0; n < heartbeats; n++) await event('pong');
  const bytes = async (data) => [...new Uint8Array(await new Response(data).arrayBuffer())];
  const closed = event('close');
  const result = { transport: socket.transport.name, texts: [received[0], received[3]], bytes: await bytes(received[1]), blob: await bytes(received[2]) };
  socket.close();
  return { ...result, closed: (await closed)[0] };
}

const expected = { doge: 'asdfasdf', bytes: [0, 1, 254, 255], text: 4_000, refusal: 'Auth failed (custom namespace)' };

for (const browser of browserNames) {
  for (const [version, build] of Object.entries(socketio)) {
    for (const [way, options] of Object.entries(ways)) {
      test(`${browser}: socket.io-client ${version} by ${way}`, { skip: missing(browser) }, async (t) => {
        const opened = await page(t, browser, socketioServer.http + refusal.socketio, build);
        const result = await within(opened.evaluate(useSocketIo, { url: socketioServer.http, options }), 'the result');
        assert.deepEqual(result, { ...expected, transport: way === 'polling' ? 'polling' : 'websocket' });
      });
    }
  }

  test(`${browser}: socket.io-client 2.5 from another origin by JSONP`, { skip: missing(browser) }, async (t) => {
    // Scripts are loaded from anywhere; forms are sent in a hidden frame.
    const opened = await page(t, browser, (await elsewhere(t)).address, socketio[2.5]);
    const result = await opened.evaluate(async (url) => {
      const socket = window.io(url, { forceNew: true, transports: ['polling'], forceJSONP: true });
      const answer = await new Promise((resolve, reject) => {
        socket.on('connect', () => socket.emit('echo', 'line\nend é\u2028😀\\n', resolve));
        for (const name of ['connect_error', 'error']) socket.on(name, (error) => reject(new Error(String(error.message ?? error))));
      });
      socket.disconnect();
      return answer;
    }, socketioServer.http);
    assert.equal(result, 'line\nend é\u2028😀\\n');
  });

  for (const [version, build] of Object.entries(engineio)) {
    for (const [way, options] of Object.entries(ways)) {
      test(`${browser}: engine.io-client ${version} by ${way}`, { skip: missing(browser) }, async (t) => {
        const opened = await page(t, browser, engineioServer.http + refusal.engineio, build);
        const result = await within(opened.evaluate(useEngineIo, { url: engineioServer.http, options }), 'the result');
        const transport = way === 'polling' ? 'polling' : 'websocket';
        assert.deepEqual(result, { transport, texts: ['é€😀', 'last'], bytes: [0, 1, 254, 255], blob: [...Buffer.from('blob')], closed: 'forced close' });
      });
    }
  }

  test(`${browser}: engine.io-client from another origin, by XHR, where it is allowed`, { skip: missing(browser) }, async (t) => {
    // Without credentials, which version 3 sends unless told otherwise: the fixture allows everybody, by an asterisk.
    for (const [version, build] of Object.entries(engineio)) {
      const opened = await page(t, browser, (await elsewhere(t)).address, build);
      const result = await opened.evaluate(useEngineIo, { url: engineioServer.http, options: { transports: ['polling'], withCredentials: false }, heartbeats: 0 });
      assert.deepEqual(result.texts, ['é€😀', 'last'], version);
    }
  });
}
