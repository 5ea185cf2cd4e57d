// Makes dist/stentor.js, the build for script tags: all of src in one file, which makes the global `Stentor`; beside it the same
// compressed, and its hash, as the server answers with them. `node build.mjs` writes them; with `--check` it fails if a file isn't what
// would be written.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib';
import { minify } from 'terser';

/** What the file may have, deflated as servers and proxies do it, and what an entry point may add to an application that has the client. */
const GZIPPED_BYTES_MAX = 10_000;
const ENTRIES_BYTES_MAX = { react: 1_500, store: 1_500, shared: 3_400 };
/** The client's modules that the entry points use. */
const CORE = ['clock', 'connection', 'error', 'times'].map((name) => `./${name}.js`);

/** Properties that only this package uses. Their names are shortened. */
const INTERNAL = /^(index|rooms|attempts|bytesMax|isInert|handles|needsSnapshot|disconnected|become|receive|drain|subscribeOptions|subscribe|unsubscribe|leave|position|afterMs|timer|delayMs|reset|carrier|link|isRace|isSilent|mayRace|isHttp|isShared|watch|check|fail|forget|suspend|unsuspend|ask|tokenFault|isAuto|isOpening|hold|drop|dropRace|dropFormer|retire|choose|preferredDelayMs|isRoundOver|waitMs|refuse)$/;

const path = (name) => fileURLToPath(new URL(name, import.meta.url));

/** A module and what it imports in one text. Fails if it is too large. */
async function bundle(name, output, bytesMax, options) {
  const { outputFiles: [bundled] } = await build({
    entryPoints: [path(name)],
    bundle: true,
    minify: true,
    target: 'es2022',
    charset: 'utf8',
    legalComments: 'none',
    write: false,
    ...options,
  });
  // Saves another four percent.
  const { code: text } = await minify(bundled.text, { ecma: 2020, module: options.format === 'esm', compress: { passes: 3 }, format: { comments: /stentor/ } });
  const bytes = gzipSync(text, { level: 9 }).length;
  console.log(`${output}: ${text.length} bytes, ${bytes} gzipped`);
  if (bytes > bytesMax) fail(`at most ${bytesMax} are allowed`);
  return text;
}

function fail(message) {
  console.error(message);
  process.exit(1);
}

const file = path('dist/stentor.js');
const banner = { js: '/* @stentor/client, MIT OR Apache-2.0 */' };
const text = await bundle('src/script.js', 'dist/stentor.js', GZIPPED_BYTES_MAX, { format: 'iife', banner, mangleProps: INTERNAL });
for (const [entry, bytesMax] of Object.entries(ENTRIES_BYTES_MAX)) await bundle(`src/${entry}.js`, entry, bytesMax, { format: 'esm', external: ['react', ...CORE] });
const integrity = `sha384-${createHash('sha384').update(text).digest('base64')}\n`;
const same = (read) => read;
/** What is written, and how it is read again for the check: versions of zlib compress differently. */
const files = [
  ['', text, text, same],
  ['.gz', gzipSync(text, { level: 9 }), text, gunzipSync],
  ['.br', brotliCompressSync(text), text, brotliDecompressSync],
  ['.integrity', integrity, integrity, same],
];
for (const [suffix, bytes, content, read] of files) {
  if (!process.argv.includes('--check')) writeFileSync(file + suffix, bytes);
  else if (read(readFileSync(file + suffix)).toString() !== content) fail(`dist/stentor.js${suffix} is not what its sources make: run \`npm run build\` in clients/js`);
}
