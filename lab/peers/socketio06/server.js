// npm `socket.io` 0.6 as a peer, by the documented interface: a message back to who sent it, or to everybody.
'use strict';
var elder = require('../elder.js');
var socketIo = require('socket.io');

var options = elder.options(process.argv);
var http = require('http').createServer();
var io = socketIo.listen(http, { transports: ['websocket'], flashPolicyServer: false, log: false });

io.on('connection', function (client) {
  client.on('message', function (text) {
    if (options.mode === 'echo') client.send(text);
    else if (options.mode === 'chat') io.broadcast(text);
  });
});

elder.listen('socketio06', http, options.port);
