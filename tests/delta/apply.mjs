// Applies the cases on standard input, one a line, with npm fast-json-patch and with our own client, which must leave the old
// version as it was: each must give its new version.
import patches from 'fast-json-patch';
import { createInterface } from 'node:readline';
import { applyPatch } from '../../clients/js/src/index.js';

/** One text for all spellings of a value: members sorted, -0 as 0. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical)}]`;
  if (value === null || typeof value !== 'object') return typeof value === 'number' ? String(value) : JSON.stringify(value);
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`)}}`;
}

let cases = 0;
let operations = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { name, old, new: expected, patch } = JSON.parse(line);
  try {
    const invalid = patches.validate(patch);
    if (invalid) throw invalid;
    const before = JSON.stringify(old);
    if (canonical(applyPatch(old, patch)) !== canonical(expected)) throw new Error('another value by our client');
    if (JSON.stringify(old) !== before) throw new Error('our client has changed the old version');
    const { newDocument } = patches.applyPatch(old, patch);
    if (canonical(newDocument) !== canonical(expected)) throw new Error('another value');
  } catch (error) {
    console.error(`${name}: ${error.message}\n${line}`);
    process.exit(1);
  }
  cases += 1;
  operations += patch.length;
}
console.log(`fast-json-patch and our client: ${cases} cases, ${operations} operations`);
process.exit(cases > 0 ? 0 : 1);
