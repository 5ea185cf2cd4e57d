// `net` of the first Nodes as a peer: echo and chat (what anybody sends to everybody, sender included), with no protocol at
// all: a message ends with a line feed, and the server doesn't look. In the JavaScript of their time.
'use strict';
var elder = require('../elder.js');
var net = require('net');

var options = elder.options(process.argv);

// Each knows its place, so that leaving takes no search.
var clients = [];
function ignore() {}

function toAll(data) {
  for (var i = 0; i < clients.length; i++) clients[i].write(data);
}

function leave() {
  var last = clients.pop();
  if (last === this) return;
  last.place = this.place;
  clients[last.place] = last;
}

var server = net.createServer(function (client) {
  client.setNoDelay(true);
  client.place = clients.push(client) - 1;
  client.on('close', leave);
  client.on('error', ignore);
  if (options.mode === 'echo') client.on('data', function (data) { client.write(data); });
  else client.on('data', toAll);
});

elder.listen('tcp-old', server, options.port);
