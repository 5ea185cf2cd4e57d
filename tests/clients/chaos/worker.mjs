// A worker of workers.mjs. It records each event that it handles before its effects, so that a crash can't hide one: `INSTANCE count CLIENT NUMBER`.
import { openSync, writeSync } from 'node:fs';
import { Server } from 'socket.io';
import { attach } from '../../../clients/socketio-server/src/index.js';

const { STENTOR, NAME, INSTANCE, POLICY, RECORD } = process.env;
/** Events for each broadcast. */
const BROADCAST_EVENTS = 5;

const record = openSync(RECORD, 'a');
const note = (...words) => writeSync(record, `${[INSTANCE, ...words].join(' ')}\n`);
const io = new Server();
const link = attach(io, STENTOR, { name: NAME, onCrash: POLICY, settle: 20 });
link.on('up', ({ resumed }) => note(resumed ? 'resumed' : 'up'));
link.on('error', ({ code, message }) => note('error', code, message));
let events = 0;
io.on('connection', (socket) => {
  socket.on('count', (client, n, { room, joins }, answer) => {
    note('count', client, n);
    if (joins) socket.join(room);
    else socket.leave(room);
    socket.emit('counted', n);
    answer(n);
    events += 1;
    if (events % BROADCAST_EVENTS === 0) io.emit('tick', INSTANCE, events / BROADCAST_EVENTS);
  });
});
process.on('message', () => process.send([...io.sockets.sockets.values()].map(({ id, rooms }) => [id, [...rooms].sort()])));
process.on('disconnect', () => process.exit());
await link.listen();
process.send('ready');
