// The chat as a worker of Stentor. To run it without Stentor, remove the lines marked with +, and use the one marked with -.
import { createServer } from 'node:http';
import express from 'express';
import session from 'express-session';
import { Server } from 'socket.io';
import { attach } from '@stentor/socket.io'; // +
import { chat } from './chat.mjs';

const { HOST = '127.0.0.1', PORT = '3000', STENTOR = 'ws://127.0.0.1:8001', STENTOR_TOKEN, CLIENTS = 'http://127.0.0.1:8000' } = process.env;

const app = express();
const http = createServer(app);
// Probes of a supervisor, before the sessions: they have none. docs/deploys.md describes them.
app.get('/ready', (request, response) => response.sendStatus(link.stats().isUp ? 200 : 503)); // +
const sessions = session({ secret: process.env.SESSION_SECRET ?? 'change me', resave: false, saveUninitialized: true });
app.use(sessions);
app.use(express.static(new URL('public', import.meta.url).pathname));
app.get('/server', (request, response) => response.json({ url: CLIENTS }));

// - const io = new Server(http);
const io = new Server(); // +
const link = attach(io, STENTOR, { token: STENTOR_TOKEN, http }); // +
io.engine.use(sessions);
chat(io);

http.listen(Number(PORT), HOST);
await link.listen(); // +
process.send?.('ready'); // +
console.log(`the chat is at http://127.0.0.1:${http.address().port}`);
