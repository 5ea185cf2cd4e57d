// `net` of the first Nodes as a peer: echo, chat (what anybody sends to everybody, sender included) and fanout (one document
// of B bytes, H times a second, to everybody), with no protocol at all: a message ends with a line feed, and the server
// doesn't look. In the JavaScript of their time.
'use strict';
var net = require('net');

var given = { mode: 'echo', port: '0', bytes: '1000', hz: '20' };
for (var i = 2; i < process.argv.length; i += 2) given[process.argv[i].slice(2)] = process.argv[i + 1];
var bytes = Math.max(36, Number(given.bytes));
var hz = Math.max(1, Number(given.hz));

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
  if (given.mode === 'echo') client.on('data', function (data) { client.write(data); });
  else if (given.mode === 'chat') client.on('data', toAll);
  else client.on('data', ignore);
});

server.on('error', function (error) {
  console.error('tcp-old: ' + error.message);
  process.exit(1);
});
server.listen(Number(given.port), '127.0.0.1', 4096, function () {
  console.log('ready http://127.0.0.1:' + server.address().port);
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
      var line = new Buffer(bytes + 1);
      line.fill('x');
      line.write(padded(sent, 16) + padded(due, 20), 0, 36, 'ascii');
      line[bytes] = 10;
      toAll(line);
      sent++;
    }
  }
  tick();
}
