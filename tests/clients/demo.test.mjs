// The demo's page in Chromium. all/demo-browser.test.mjs has Firefox, and the rest of the page.
import test from 'node:test';
import { missing } from './browsers.mjs';
import { showsMatches } from './demo.mjs';

test('live matches, by every transport', { skip: missing('Chromium') }, (t) => showsMatches(t, 'Chromium'));
