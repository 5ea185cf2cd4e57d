// npm `faye` as a peer, by the documented interface: what is published to `/room` goes to everybody who is subscribed to
// it (chat). Bayeux has no answer to one client alone, so for echo an extension gives each client a `/room` of its own.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import faye from 'faye';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
  },
});

const ROOM = '/room';
const http = createServer();
const bayeux = new faye.NodeAdapter({ mount: '/faye', timeout: 45 });
if (values.mode === 'echo') bayeux.addExtension({ incoming, outgoing });
bayeux.attach(http);

function incoming(message, callback) {
  if (message.channel === ROOM) message.channel = `${ROOM}/${message.clientId}`;
  else if (message.subscription === ROOM) message.subscription = `${ROOM}/${message.clientId}`;
  callback(message);
}

function outgoing(message, callback) {
  if (message.channel.startsWith(ROOM)) message.channel = ROOM;
  callback(message);
}

http.on('error', (error) => {
  console.error(`faye: ${error.message}`);
  process.exit(1);
});
http.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${http.address().port}`);
});

process.on('SIGTERM', () => process.exit(0));
