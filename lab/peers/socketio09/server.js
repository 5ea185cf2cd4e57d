// npm `socket.io` 0.9 as a peer, by the documented interface: the event `message` back to who sent it, or to everybody.
'use strict';
var elder = require('../elder.js');
var socketIo = require('socket.io');

var options = elder.options(process.argv);
var http = require('http').createServer();
var polling = options.protocol === 'socketio09-polling';
var io = socketIo.listen(http, {
  transports: [polling ? 'xhr-polling' : 'websocket'],
  'browser client': false,
  'log level': -1,
});

io.sockets.on('connection', function (socket) {
  socket.on('message', function (text) {
    if (options.mode === 'echo') socket.emit('message', text);
    else io.sockets.emit('message', text);
  });
});

elder.listen('socketio09', http, options.port);
