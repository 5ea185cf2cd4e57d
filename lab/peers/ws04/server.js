// npm `ws` 0.4 on Node 0.10 as a peer: echo and chat (each message to everybody, sender included), by the documented
// interface. In the JavaScript of its time.
'use strict';
var elder = require('../elder.js');
var http = require('http');
var WebSocketServer = require('ws').Server;

var options = elder.options(process.argv);

// A server of our own, since that of `ws` takes no backlog.
var listener = http.createServer();
var server = new WebSocketServer({ server: listener, disableHixie: true });
function ignore() {}

// It throws where a client is just closing.
function send(client, data, binary) {
  if (client.readyState === client.OPEN) client.send(data, { binary: binary });
}

// A string would be encoded once for each client.
function toAll(data, binary) {
  var buffer = Buffer.isBuffer(data) ? data : new Buffer(data);
  for (var i = 0; i < server.clients.length; i++) send(server.clients[i], buffer, binary);
}

server.on('connection', function (client) {
  client.on('error', ignore);
  if (options.mode === 'echo') {
    client.on('message', function (data, flags) { send(client, data, !!flags.binary); });
  } else {
    client.on('message', function (data, flags) { toAll(data, !!flags.binary); });
  }
});

elder.listen('ws04', listener, options.port);
