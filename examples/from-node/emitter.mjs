// A backend that counts in the lobby, once a second: node emitter.mjs
import { Emitter } from '@socket.io/redis-emitter';
import { createClient } from 'redis';

const client = createClient({ url: 'redis://127.0.0.1:6379' });
await client.connect();
const emitter = new Emitter(client);
let count = 0;
setInterval(() => emitter.to('lobby').emit('say', { room: 'lobby', text: `news ${++count}` }), 1000);
console.log('ready');
