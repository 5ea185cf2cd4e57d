// npm `sockjs` 0.3.1 as a peer, by the documented interface, its log silenced: a message back to who sent it, or to everybody.
'use strict';
var elder = require('../elder.js');
var sockjs = require('sockjs');

var options = elder.options(process.argv);
var http = require('http').createServer();
var service = sockjs.createServer({
  prefix: '/sockjs',
  websocket: options.protocol !== 'sockjs-streaming',
  log: function () {},
});
var clients = {};

service.on('connection', function (client) {
  clients[client.id] = client;
  client.on('close', function () {
    delete clients[client.id];
  });
  client.on('data', function (text) {
    if (options.mode === 'echo') client.write(text);
    else if (options.mode === 'chat') {
      for (var id in clients) clients[id].write(text);
    }
  });
});
service.installHandlers(http);

elder.listen('sockjs03old', http, options.port);
