// npm `primus` 8 with its transformer `websockets` (npm `ws` 8) as a peer: echo and chat (each message to everybody,
// sender included), by the documented interface.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import Primus from 'primus';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
  },
});

const http = createServer();
const primus = new Primus(http, { transformer: 'websockets', compression: false, maxLength: 16 * 1024 * 1024 });

primus.on('connection', (spark) => {
  if (values.mode === 'echo') spark.on('data', (data) => spark.write(data));
  else if (values.mode === 'chat') spark.on('data', (data) => primus.write(data));
});

http.on('error', (error) => {
  console.error(`primus8: ${error.message}`);
  process.exit(1);
});
http.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${http.address().port}`);
});

process.on('SIGTERM', () => process.exit(0));
