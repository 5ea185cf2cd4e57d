// The entry of dist/stentor.js, for script tags.

import { connect, applyPatch, StentorError } from './index.js';

globalThis.Stentor = { connect, applyPatch, StentorError };
