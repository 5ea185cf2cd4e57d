// npm `socket.io` 1.7 as a peer, by the documented interface: the event `message` back to who sent it, or to everybody.
// Compression is off; by default it is on.
'use strict';
var elder = require('../elder.js');
var socketIo = require('socket.io');

var options = elder.options(process.argv);
var http = require('http').createServer();
var transports = { 'socketio2': ['websocket'], 'socketio2-polling': ['polling'] };
var io = socketIo(http, {
  transports: transports[options.protocol] || ['polling', 'websocket'],
  allowUpgrades: options.protocol === '',
  perMessageDeflate: false,
  httpCompression: false,
  serveClient: false,
  maxHttpBufferSize: 16 * 1024 * 1024,
});

io.on('connection', function (socket) {
  socket.on('message', function (text) {
    if (options.mode === 'echo') socket.emit('message', text);
    else if (options.mode === 'chat') io.emit('message', text);
  });
});

elder.listen('socketio1', http, options.port);
