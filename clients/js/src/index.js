// @stentor/client: documents and rooms of a Stentor server, live. README.md tells how it is used, index.d.ts what there
// is.
//
//   index ── connection ──┬── transports/*   one carrier per transport; all hand over the messages of stentor.v1
//                         ├── feed ── patch  a document, kept up to date
//                         ├── room           what is said in a room
//                         └── outbox         what is said while there is no connection

import { Connection } from './connection.js';

export { Connection } from './connection.js';
export { StentorError } from './error.js';
export { Feed } from './feed.js';
export { applyPatch } from './patch.js';
export { Room } from './room.js';

/** Connects to a server, and stays connected until `close()`. */
export function connect(url, options) {
  return new Connection(url, options);
}
