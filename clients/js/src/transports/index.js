// The transports, by their public names.
//
// Each is `(base, link, options) => carrier`. It connects at once to the server at `base`, and reports events with
// `link(what, …)`.
//
//   carrier.subscribe(key, position, subscribeOptions)   resumes from `position`, if any. Called again: replaces the document
//   carrier.unsubscribe(key)
//   carrier.join(room, position), .leave(room), .publish({ text, resolve, reject })   only if the transport supports rooms
//   carrier.isPatient                         the carrier has its own timeout for an unreachable server
//   carrier.close()                           nothing is reported after this
//
//   link('opened', session)                     the server has answered
//   link('received', message, chars)            a snapshot, delta, state or message of stentor.v1
//   link('confirmed', key)                      the server knows the client's version
//   link('refused', key, error)                 a subscription was refused
//   link('expiring', renew)                     the token expires soon: `renew(token)` passes a newer one on
//   link('failed', error)                       another request was refused
//   link('lost', { code, reason, retry, afterMs })  the end; `retry: false`: another attempt would end the same way

import { polling } from './polling.js';
import { socketio } from './socketio.js';
import { sse } from './sse.js';
import { sockjs, websocket } from './v1.js';

export const transports = { websocket, sse, polling, 'socket.io': socketio, sockjs };
