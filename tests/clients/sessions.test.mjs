// Commands of a backend for single clients, which it names by `socket.id`: socket.io-client 4.8, 3.1 and 2.5.
import assert from 'node:assert/strict';
import test from 'node:test';
import { io as io4 } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import io3 from 'socket.io-client-3';
import { admin } from './admin.mjs';
import { clock, event, serve } from './harness.mjs';

const versions = { 4.8: io4, 3.1: io3, 2.5: io2 };
const config = '[socketio]\nnamespaces = ["/chat"]\n';

for (const [version, io] of Object.entries(versions)) {
  for (const way of ['polling', 'websocket']) {
    test(`${version} by ${way}: a backend sends to a client, and ends its connection`, async (t) => {
      const server = await serve(t, { config });
      const happened = clock();
      const command = (name, body) => admin(server, name, body);
      const options = { transports: [way], reconnectionDelay: 10 };
      const main = io(server.http, options);
      t.after(() => main.io.engine && main.disconnect());
      await event(main, 'connect');
      const chat = main.io.socket('/chat');
      await event(chat, 'connect');

      const told = event(main, 'told');
      assert.deepEqual(await command('emit', { sessions: [main.id], event: 'told', data: { only: 'you' } }), { sessions: 1 });
      assert.deepEqual((await told)[0], { only: 'you' });
      const { sessions } = await command('sessions', { namespace: '/chat' });
      const [{ since, ...listed }, ...others] = sessions;
      assert.deepEqual([listed, others], [{ id: chat.id, protocol: 'socketio', rooms: [], address: '127.0.0.1', send_buffer_bytes: 0 }, []]);
      assert.ok(happened(since * 1000), `${since}`);
      assert.deepEqual(await command('join', { namespace: '/chat', sessions: [chat.id], join: ['lobby'] }), { sessions: 1 });
      const said = event(chat, 'said');
      assert.deepEqual(await command('emit', { namespace: '/chat', rooms: ['lobby'], event: 'said', data: 7 }), { sessions: 1 });
      assert.equal((await said)[0], 7);

      // Both sockets are told, so that the client doesn't reconnect.
      const ended = [main, chat].map((socket) => event(socket, 'disconnect'));
      assert.deepEqual(await command('disconnect', { sessions: [main.id], close: true }), { sessions: 1 });
      for (const [reason] of await Promise.all(ended)) assert.equal(reason, 'io server disconnect');
      assert.equal((await command('sessions', { namespace: '/' })).count, 0);
    });
  }
}
