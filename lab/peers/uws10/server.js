// npm `uws` 10 on Node 10 as a peer: echo and chat (each message to everybody, sender included), by the documented interface:
// what goes to everybody is broadcast by the library.
'use strict';
const http = require('http');
const { Server } = require('uws');
const elder = require('../elder.js');

const options = elder.options(process.argv);

// A listener of our own, since that of `uws` takes no backlog.
const listener = http.createServer();
const server = new Server({ server: listener, maxPayload: 16 * 1024 * 1024 });
const binary = (data) => typeof data !== 'string';

server.on('connection', (client) => {
  if (options.mode === 'echo') client.on('message', (data) => client.send(data));
  else client.on('message', (data) => server.broadcast(data, { binary: binary(data) }));
});

elder.listen('uws10', listener, options.port);
