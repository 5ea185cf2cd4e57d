// Primus's client as npm's `primus` generates it: for Node, and as the file that pages load.
import { EventEmitter } from 'node:events';
import Generator from 'primus';

const generator = new Generator(new EventEmitter(), { transformer: 'websockets', parser: 'JSON', pathname: '/primus' });
// It is no server here.
clearInterval(generator.heartbeatInterval);

/** The client for Node. */
export const Primus = generator.Socket;

/** The client for pages, as text. */
export const library = generator.library();

/** Values that come back as they were. */
export const VALUES = ['text', '', 'é😀\u2028', 7, true, { a: [null, { b: 'c' }] }, [], 'x'.repeat(50_000)];
