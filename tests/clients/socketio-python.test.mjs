// python-socketio's client, as it comes from PyPI: see requirements.txt. Its connection is Engine.IO 4.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { fixture } from './harness.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const python = process.env.STENTOR_PYTHON ?? path.join(here, '.venv/bin/python');
const skip = !existsSync(python) && `there is no ${path.relative(here, python)}: python3 -m venv .venv && .venv/bin/pip install -r requirements.txt`;

const server = skip || await fixture({ after }, 'socketio-client');

for (const client of ['sync', 'async']) {
  for (const way of ['polling', 'websocket', 'upgrade']) {
    test(`python-socketio, ${client}, by ${way}`, { skip }, async () => {
      const child = spawn(python, [path.join(here, 'socketio_client.py'), client, way, server.http], { stdio: ['ignore', 'pipe', 'pipe'], timeout: 60_000 });
      let stdout = '';
      let stderr = '';
      child.stdout.on('data', (chunk) => (stdout += chunk));
      child.stderr.on('data', (chunk) => (stderr += chunk));
      const [code] = await once(child, 'close');
      assert.equal(code, 0, stdout + stderr);
      assert.deepEqual(JSON.parse(stdout), {
        transport: way === 'polling' ? 'polling' : 'websocket',
        echo: ['é€😀', { a: [1, null] }],
        bytes: [0, 1, 254, 255],
        doge: 'asdfasdf',
        ids: true,
        acknowledged: true,
        refusal: 'Auth failed (custom namespace)',
      });
    });
  }
}
