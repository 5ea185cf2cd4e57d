// The transports, by their public names. All carry the messages of stentor.v1.
//
// Each is `(base, link, options) => carrier`. It connects at once to the server at `base`, and reports events with
// `link(what, …)`.
//
//   carrier.subscribe(key, position, subscribeOptions)   resumes from `position`, if any. Called again: replaces the document
//   carrier.unsubscribe(key)
//   carrier.join(room, position), .leave(room), .watch(room, presence, answered), .members(room, query, answered)
//   carrier.publish({ text, resolve, reject })   a publication or an event
//   carrier.isHttp                            it sends requests: they wait while the browser has no connection for them. A second carrier opens beside
//                                             it when the network changes, but not if it doesn't answer a check: then it is closed before
//   carrier.isShared                          several tabs use it (../shared.js): whether another one is needed isn't for one of them to decide
//   carrier.check(silenceMs)                  asks the server for a sign of life, unless there was one within that time; returns whether it asked
//   carrier.auth(token, answered)             presents a token of the same user
//   carrier.forget()                          drops the requests that wait until the carrier opens
//   carrier.close()                           nothing is reported after this
//
//   link('opened', session)                     the server has answered
//   link('received', message, chars)            a snapshot, delta, state or message of stentor.v1
//   link('confirmed', key)                      the server knows the client's version
//   link('refused', key, error)                 a subscription was refused
//   link('joined', room, error)                 a room was joined, or refused, or its membership has ended
//   link('unwatched', room, error)              the members of a room can't be read any more
//   link('alive')                               the answer to a check
//   link('woken')                               the page's timers were paused
//   link('silent')                              nothing has been received for a while
//   link('expiring', renew)                     the token expires soon: `renew(token)` passes a newer one on
//   link('failed', error)                       another request was refused
//   link('lost', { code, reason, retry, afterMs, token })  the end; `retry: false`: another attempt would end the same way; `token`: it was
//                                               `expired` or `refused`

import { StentorError } from '../error.js';
import { polling, sockjs, socketio, sse, websocket } from './v1.js';

export const transports = { websocket, sse, polling, 'socket.io': socketio, sockjs };

/** The transports of the option `transport`, the best one first. */
export function transportList(transport) {
  const names = transport === 'auto' ? ['websocket', 'sse', 'polling'] : [transport].flat();
  if (!names.length || !names.every((name) => Object.hasOwn(transports, name))) {
    throw new StentorError('no_transport', `no such transport: ${transport}`);
  }
  return names;
}

/** Opens a carrier of a transport, or the one that tabs share: `options.shared(open, name, base, link, options)`. */
export function openCarrier(name, base, link, options) {
  const open = transports[name];
  return options.shared ? options.shared(open, name, base, link, options) : open(base, link, options);
}
