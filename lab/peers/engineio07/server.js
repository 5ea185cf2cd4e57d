// npm `engine.io` 0.7 as a peer, by the documented interface: a message back to who sent it, or to everybody.
'use strict';
var elder = require('../elder.js');
var engineIo = require('engine.io');

var options = elder.options(process.argv);
var http = require('http').createServer();
var engine = engineIo.attach(http, { transports: ['websocket'], allowUpgrades: false });

function toAll(text) {
  for (var id in engine.clients) engine.clients[id].send(text);
}

engine.on('connection', function (socket) {
  socket.on('message', function (text) {
    if (options.mode === 'echo') socket.send(text);
    else toAll(text);
  });
});

elder.listen('engineio07', http, options.port);
