// The transports, by the names that people write.
//
// Each is `(base, link, options) => carrier`: it connects at once to the server at `base`, and tells the connection by
// `link(what, …)` what happens.
//
//   carrier.subscribe(key, position, terms)   from `position` on, if there is one; again: what is there is no good
//   carrier.unsubscribe(key)
//   carrier.join(room, position), .leave(room), .publish({ text, resolve, reject })   where rooms are carried
//   carrier.isPatient                         it finds out by itself whether there is a server
//   carrier.close()                           nothing is told any more
//
//   link('opened', session)                     the server has answered
//   link('received', message, chars)            snapshot, delta, state or message, as stentor.v1 has them
//   link('confirmed', key)                      the server knows what we have of it
//   link('refused', key, error)                 a feed can't be had
//   link('erred', error)                        something else was refused
//   link('lost', { code, reason, again, afterMs })  the end; with `again: false` another attempt would end the same way

import { polling } from './polling.js';
import { socketio } from './socketio.js';
import { sse } from './sse.js';
import { sockjs, websocket } from './v1.js';

export const transports = { websocket, sse, polling, 'socket.io': socketio, sockjs };
