// A client of the chat, which shows what it hears: node client.mjs NAME
import { io } from 'socket.io-client';

const name = process.argv[2];
const socket = io('http://127.0.0.1:3000', { transports: ['websocket'], reconnectionDelayMax: 1000 });
socket.on('connect', async () => {
  await socket.emitWithAck('join', 'lobby');
  console.log('connected');
  socket.emit('say', { room: 'lobby', text: `${name} is here` }, () => {});
});
socket.on('disconnect', () => console.log('disconnected'));
socket.on('say', (message) => console.log(message.text));
