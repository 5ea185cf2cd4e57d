// PM2 with a daemon of its own, and the programs that it runs.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { root, within } from './harness.mjs';

const bin = path.join(root, 'tests/clients/pm2/node_modules/.bin');
export const missing = existsSync(path.join(bin, 'pm2')) ? false : 'PM2 is missing: run scripts/setup-tests all';

/** Runs shell commands for which `pm2` is PM2 with a daemon of its own, which ends with the test: gives their output. */
export function pm2(t, { cwd, env: more }) {
  const home = mkdtempSync(path.join(tmpdir(), 'stentor-'));
  const env = { ...process.env, ...more, PATH: `${bin}:${process.env.PATH}`, PM2_HOME: home, PM2_DISABLE_VERSION_CHECK: 'true', FORCE_COLOR: '0' };
  const run = async (commands, folder = cwd) => {
    const shell = spawn('sh', ['-euc', commands], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let text = '';
    for (const stream of [shell.stdout, shell.stderr]) stream.on('data', (chunk) => (text += chunk));
    const [code] = await within(once(shell, 'close'), () => `${commands}:\n${text}`);
    if (code !== 0) throw new Error(`${commands} ended with ${code}:\n${text}`);
    return text;
  };
  // The programs' own folder may be gone by then.
  t.after(async () => {
    await run('pm2 kill', root);
    rmSync(home, { recursive: true, force: true });
  });
  return run;
}
