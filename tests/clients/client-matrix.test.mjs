// @stentor/client in Node: everything that it can do, over each of its transports.
import test, { describe } from 'node:test';
import { io } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import { client, TRANSPORTS } from './client.mjs';
import { everything, open } from './matrix.mjs';

/** What each of them may be connected with beside its name. */
const variants = TRANSPORTS.map((transport) => [transport, { transport, io }]);
variants.push(
  ['socket.io by WebSocket only', { transport: 'socket.io', io, ioOptions: { transports: ['websocket'] } }],
  ['socket.io by polls only', { transport: 'socket.io', io, ioOptions: { transports: ['polling'] } }],
  ['socket.io-client 2', { transport: 'socket.io', io: io2 }],
);

describe('everything over each transport', { concurrency: true }, () => {
  for (const [name, more] of variants) {
    test(name, (t) => everything(t, more.transport, ({ options, ...details }) => {
      const it = open((url, options) => client(t, url, options), { ...details, options: { ...options, ...more } });
      return async (run, value) => run(it, value);
    }));
  }
});
