// Runs the clients of other languages: foreign/README.md has their commands and reports.
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { root, within } from './harness.mjs';

const here = path.join(root, 'tests/clients');
const at = (...parts) => path.join(here, ...parts);

const java = (project, name, memory = '128m') => {
  const target = at('foreign/java', project, 'target');
  // Many of them run at the same time, and none for long.
  const flags = ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', `-Xmx${memory}`, '-Xshare:auto'];
  return { command: ['java', ...flags, '-cp', `${target}/classes:${target}/lib/*`, name], needs: `${target}/classes/${name}.class` };
};
const python = (venv, program, ...args) => ({ command: [at(venv, 'bin/python'), at('foreign/python', program), ...args], needs: at(venv, 'bin/python') });
const built = (program) => ({ command: [at(program)], needs: at(program) });

export const programs = {
  'socket.io-client for Java 1.0.2': java('socketio-1', 'SocketIoClient'),
  'socket.io-client for Java 2.1.1': java('socketio-2', 'SocketIoClient'),
  'python-socketio 4, threads': python('.venv-4', 'socketio_client.py', 'threads'),
  'python-socketio 4, asyncio': python('.venv-4', 'socketio_client.py', 'asyncio'),
  'python-socketio 5, threads': python('.venv', 'socketio_client.py', 'threads'),
  'python-socketio 5, asyncio': python('.venv', 'socketio_client.py', 'asyncio'),
  'server of python-socketio 5': python('.venv', 'bridge_server.py', 'server'),
  'emitter of python-socketio 5': python('.venv', 'bridge_server.py', 'emitter'),
  'many clients of python-socketio 5': python('.venv', 'counting_clients.py'),
  'many clients of socket.io-client for Java 2.1.1': java('socketio-2', 'CountingClients', '1g'),
  rust_socketio: built('foreign/rust/target/debug/socketio-client'),
  'SockJsClient of Spring': java('streams', 'SpringSockJsClient'),
  'Netty, compressing': java('streams', 'NettyClient'),
  'Tyrus, compressing': java('streams', 'TyrusClient'),
  'okhttp-sse': java('streams', 'OkHttpSseClient'),
  'httpx-sse': python('.venv', 'httpx_sse_client.py'),
  'websocket-client for Python': python('.venv', 'websocket_client.py'),
  'r3labs/sse for Go': built('foreign/go/build/sse'),
};

/** Why a client's tests are skipped; `false` where it is installed. */
export const missing = (name) => !existsSync(programs[name].needs) && `${path.relative(here, programs[name].needs)} is not there: scripts/setup-tests installs it where it can`;

/**
 * Starts a client, which ends with the test: { send, next, forget, seen }. `next` takes the first report that `wanted` describes out of
 * what has come, or waits for it.
 */
export function startClient(t, name, ...args) {
  const [command, ...before] = programs[name].command;
  const child = spawn(command, [...before, ...args], { stdio: ['pipe', 'pipe', 'pipe'] });
  const closed = once(child, 'close');
  closed.catch(() => {});
  let stderr = '';
  let ended = false;
  let rest = '';
  let reports = [];
  // Several may wait for reports of different types.
  const changes = new EventEmitter().setMaxListeners(0);
  child.stderr.on('data', (chunk) => (stderr = (stderr + chunk).slice(-20_000)));
  child.stdout.setEncoding('utf8').on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    reports.push(...lines.map((line) => JSON.parse(line)));
    changes.emit('change');
  });
  child.on('close', () => { ended = true; changes.emit('change'); });
  child.on('error', (error) => { stderr += error.message; });
  child.stdin.on('error', () => {});
  t.after(async () => {
    child.stdin.end();
    child.kill('SIGKILL');
    await closed.catch(() => {});
  });
  const matches = (report, wanted) => Object.entries(wanted).every(([key, value]) => (typeof value === 'function' ? value(report[key]) : report[key] === value));
  return {
    send: (message) => child.stdin.write(`${JSON.stringify(message)}\n`),
    next(wanted) {
      const taken = async () => {
        for (;;) {
          const index = reports.findIndex((report) => matches(report, wanted));
          if (index >= 0) return reports.splice(index, 1)[0];
          if (ended) throw new Error(`the client ended: ${awaited()}`);
          await once(changes, 'change');
        }
      };
      const awaited = () => `a report ${JSON.stringify(wanted)}; reports: ${JSON.stringify(reports).slice(-2_000)}; standard error: ${stderr.slice(-4_000)}`;
      return within(taken(), awaited);
    },
    /** Drops the reports of a type that nobody has taken. */
    forget: (type) => { reports = reports.filter((report) => report.type !== type); },
    /** The reports of a type that nobody has taken. */
    seen: (type) => reports.filter((report) => report.type === type),
  };
}

/** Bytes as the clients' commands and reports have them. */
export const bytes = (buffer) => ({ $bytes: buffer.toString('base64') });
