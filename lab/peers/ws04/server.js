// npm `ws` 0.4 on Node 0.10 as a peer: echo, chat (each message to everybody, sender included) and fanout (one document
// of B bytes, H times a second, to everybody), by the documented interface. In the JavaScript of its time.
'use strict';
var http = require('http');
var WebSocketServer = require('ws').Server;

var given = { mode: 'echo', port: '0', bytes: '1000', hz: '20' };
for (var i = 2; i < process.argv.length; i += 2) given[process.argv[i].slice(2)] = process.argv[i + 1];
var bytes = Math.max(36, Number(given.bytes));
var hz = Math.max(1, Number(given.hz));

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
  if (given.mode === 'echo') {
    client.on('message', function (data, flags) { send(client, data, !!flags.binary); });
  } else if (given.mode === 'chat') {
    client.on('message', function (data, flags) { toAll(data, !!flags.binary); });
  }
});

server.on('error', function (error) {
  console.error('ws04: ' + error.message);
  process.exit(1);
});
listener.listen(Number(given.port), '127.0.0.1', 4096, function () {
  console.log('ready http://127.0.0.1:' + listener.address().port);
  if (given.mode === 'fanout') fanout();
});

process.on('SIGTERM', function () { process.exit(0); });

function padded(number, digits) {
  var text = String(number);
  return new Array(digits - text.length + 1).join('0') + text;
}

// A double holds the nanoseconds of 104 days since the machine started, and those of 208 to the nearest two.
function monotonicNs() {
  var time = process.hrtime();
  return time[0] * 1e9 + time[1];
}

function fanout() {
  var started = monotonicNs();
  var sent = 0;
  function tick() {
    var now = monotonicNs();
    for (;;) {
      var due = started + Math.floor(sent * 1e9 / hz);
      if (due > now) {
        setTimeout(tick, Math.floor((due - now) / 1e6));
        return;
      }
      var document = new Buffer(bytes);
      document.fill('x');
      document.write(padded(sent, 16) + padded(due, 20), 0, 36, 'ascii');
      toAll(document, false);
      sent++;
    }
  }
  tick();
}
