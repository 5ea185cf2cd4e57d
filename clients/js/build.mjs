// Makes dist/stentor.js, the build for script tags: all of src in one file, which makes the global `Stentor`. `node build.mjs`
// writes it; with `--check` it fails where the file isn't what would be written.
import { build } from 'esbuild';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { minify } from 'terser';

/** What the file may have, deflated as servers and proxies do it, and what an entry point for frameworks may add to an application. */
const GZIPPED_BYTES_MAX = 10_000;
const ENTRY_BYTES_MAX = 1_500;

/** Properties that only this package uses. Their names are shortened. */
const INTERNAL = /^(isPatient|handles|needsSnapshot|disconnected|become|receive|drain|subscribeOptions|subscribe|unsubscribe|leave|position|afterMs|timer|delayMs|reset|carrier|link|isRace|isHttp|watch|check|fail|forget|suspend|ask)$/;

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
for (const entry of ['react', 'store']) await bundle(`src/${entry}.js`, entry, ENTRY_BYTES_MAX, { format: 'esm', external: ['react'] });
if (!process.argv.includes('--check')) writeFileSync(file, text);
else if (readFileSync(file, 'utf8') !== text) fail('dist/stentor.js is not what its sources make: run `npm run build` in clients/js');
