// @stentor/client: live documents and rooms of a Stentor server. README.md is the guide, index.d.ts the API.
//
//   index ── connection ──┬── transports/*      one carrier per transport; all deliver the messages of stentor.v1
//                         ├── attempts          by which transport the next attempt is, and when
//                         ├── candidate         a connection that opens beside the current one
//                         ├── subscriptions ─┬─ feed ── patch     a live document
//                         │                  └─ room ── presence  a publish/subscribe channel, and its members
//                         ├── page              its address and events
//                         └── outbox            publications that wait for a connection or an answer
//
// Entry points of their own: react ── store      values that frameworks render
//                            shared ── hub       one connection for the tabs of a browser

import { Connection } from './connection.js';

export { Connection } from './connection.js';
export { StentorError } from './error.js';
export { Feed } from './feed.js';
export { applyPatch } from './patch.js';
export { Presence } from './presence.js';
export { Room } from './room.js';
export { UTF8_KEYS } from './keys.js';

/** Connects to a server, and reconnects until `close()`. */
export function connect(url, options) {
  return new Connection(url, options);
}
