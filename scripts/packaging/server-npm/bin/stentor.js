#!/usr/bin/env node
// Starts the program of this platform's package, which npm installs as an optional dependency.
'use strict';
const { spawn } = require('node:child_process');
const { name, optionalDependencies = {}, version } = require('../package.json');

const platform = `${name}-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${platform}/bin/stentor`);
} catch {
  const known = Object.keys(optionalDependencies);
  console.error(known.includes(platform)
    ? `stentor: ${platform} ${version} isn't installed. Install ${name} again, without --omit=optional and --no-optional.`
    : `stentor: there is no program for ${process.platform}-${process.arch}, only ${known.map((one) => one.slice(name.length + 1)).join(' and ')}. On other systems, use a container or WSL2.`);
  process.exit(1);
}

const args = process.argv.slice(2);
if (process.execve) {
  // The program takes this process's place: signals, exit status and terminal are its own.
  process.execve(program, [program, ...args], process.env);
} else {
  // Node before 22.15. A terminal sends SIGINT to both processes, so it isn't passed on.
  const child = spawn(program, args, { stdio: 'inherit' });
  process.on('SIGINT', () => {});
  for (const signal of ['SIGTERM', 'SIGHUP', 'SIGUSR2']) process.on(signal, () => child.kill(signal));
  child.on('error', ({ message }) => {
    console.error(`stentor: ${program} can't be started: ${message}`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => {
    if (!signal) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
