// The entry of dist/stentor.js, for script tags.

import { connect as connectTo, applyPatch, StentorError } from './index.js';

const { document, location } = globalThis;
// Only while the script runs for the first time is it known which one it is.
const address = document?.currentScript?.src;
/** The path of the page's own server, such as `/rt/` of `/rt/stentor.js` (`[server] base_path`). A script of another server says nothing about it. */
const root = address?.startsWith(`${location.origin}/`) ? new URL('.', address).pathname : '/';

const connect = (url, options) => connectTo(url ?? root, options);

globalThis.Stentor = { connect, applyPatch, StentorError };
