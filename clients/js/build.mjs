// Makes dist/stentor.js, the build for script tags: all of src in one file, which makes the global `Stentor`. `node build.mjs`
// writes it; with `--check` it fails where the file isn't what would be written.
import { build } from 'esbuild';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

/** What the file may have, deflated as servers and proxies do it. */
const GZIPPED_BYTES_MAX = 10_000;

/** Properties that only this package uses. Their names are shortened. */
const INTERNAL = /^(isPatient|handles|needsSnapshot|disconnected|become|receive|drain|subscribeOptions|subscribe|unsubscribe|leave|position|afterMs|timer|delayMs|reset)$/;

const file = fileURLToPath(new URL('dist/stentor.js', import.meta.url));
const { outputFiles } = await build({
  entryPoints: [fileURLToPath(new URL('src/script.js', import.meta.url))],
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  charset: 'utf8',
  legalComments: 'none',
  banner: { js: '/* @stentor/client, MIT OR Apache-2.0 */' },
  write: false,
  mangleProps: INTERNAL,
});
const [{ text }] = outputFiles;
const bytes = gzipSync(text, { level: 9 }).length;
console.log(`dist/stentor.js: ${text.length} bytes, ${bytes} gzipped`);
if (bytes > GZIPPED_BYTES_MAX) {
  console.error(`at most ${GZIPPED_BYTES_MAX} are allowed`);
  process.exit(1);
}
if (!process.argv.includes('--check')) {
  writeFileSync(file, text);
} else if (readFileSync(file, 'utf8') !== text) {
  console.error('dist/stentor.js is not what its sources make: run `npm run build` in clients/js');
  process.exit(1);
}
