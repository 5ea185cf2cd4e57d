// What a page gets by a script tag: dist/stentor.js is made from this.

import { connect, applyPatch, StentorError } from './index.js';

globalThis.Stentor = { connect, applyPatch, StentorError };
