// npm `uws` 10 on Node 10 as a peer: echo, chat (each message to everybody, sender included) and fanout (one document of B
// bytes, H times a second, to everybody), by the documented interface: what goes to everybody is broadcast by the library.
'use strict';
const http = require('http');
const { Server } = require('uws');

const given = { mode: 'echo', port: '0', bytes: '1000', hz: '20' };
for (let i = 2; i < process.argv.length; i += 2) given[process.argv[i].slice(2)] = process.argv[i + 1];
const bytes = Math.max(36, Number(given.bytes));
const hz = Math.max(1, Number(given.hz));

// A listener of our own, since that of `uws` takes no backlog.
const listener = http.createServer();
const server = new Server({ server: listener, maxPayload: 16 * 1024 * 1024 });
const binary = (data) => typeof data !== 'string';

server.on('connection', (client) => {
  if (given.mode === 'echo') client.on('message', (data) => client.send(data));
  else if (given.mode === 'chat') client.on('message', (data) => server.broadcast(data, { binary: binary(data) }));
});

server.on('error', (error) => {
  console.error(`uws10: ${error.message}`);
  process.exit(1);
});
listener.listen(Number(given.port), '127.0.0.1', 4096, () => {
  console.log(`ready http://127.0.0.1:${listener.address().port}`);
  if (given.mode === 'fanout') fanout();
});

process.on('SIGTERM', () => process.exit(0));

// A double holds the nanoseconds of 104 days since the machine started, and those of 208 to the nearest two.
function monotonicNs() {
  const [s, ns] = process.hrtime();
  return s * 1e9 + ns;
}

function fanout() {
  const started = monotonicNs();
  let sent = 0;
  const tick = () => {
    const now = monotonicNs();
    for (;;) {
      const due = started + Math.floor((sent * 1e9) / hz);
      if (due > now) {
        setTimeout(tick, Math.floor((due - now) / 1e6));
        return;
      }
      const head = String(sent).padStart(16, '0') + String(due).padStart(20, '0');
      server.broadcast(head.padEnd(bytes, 'x'), { binary: false });
      sent++;
    }
  };
  tick();
}
