// The carrier that the tabs of a group share (shared.js), in the tab that leads.
//
// Its members subscribe, and the server has one subscription for all of them. A member whose version is the one that the others have receives what comes
// next; for any other, the server sends the whole document again. Members drop the versions that they have. A room is joined from the oldest
// position of its members, and each message goes to the members that don't have it.

import { StentorError } from './error.js';
import { CONNECT_TIMEOUT_MS } from './times.js';

/**
 * Time for a sign of life of the server, at first, and the longest one: it doubles each time that there was none. Less than that of a connection, which then
 * finds that there is no carrier any more.
 */
const CHECK_MS = 2_500;
const CHECK_MAX_MS = 20_000;
/** Messages of a room that are kept for members that join from an earlier position. */
const RECENT_MAX = 200;

const SILENT = { reason: 'the server is silent' };
const ignore = () => {};
/** Opens the hub of a group. Returns how to close it. */
export function openHub({ hub: id, name: groupName, channel: newChannel, open: openCarrier, locks, options, members: own }) {
  const channel = newChannel();
  const closing = new AbortController();
  const members = new Set();
  /** By key: `tabs`, and whether each has the version at `position`; `isPending`: the server hasn't answered; `text` of the options; `state`: the last message about it. */
  const feeds = new Map();
  /** By name: `tabs` and their positions; `last`: the position of the newest message; `recent` messages; `watchers`: members that are notified of others. */
  const rooms = new Map();
  /** The tokens of the carrier's user. */
  const tokens = new Set();
  let carrier;
  /** The callback of the carrier. Those of earlier ones are ignored. */
  let link;
  let session;
  let opening;
  let checking;
  let checkMs = CHECK_MS;
  let renew;

  /** Sends an event to members, or to all. Channels carry no classes: `errorAt` says which detail is a StentorError. */
  const send = (to, what, args, call) => {
    const errorAt = args.findIndex((arg) => arg instanceof StentorError);
    const { code, message, retry } = args[errorAt] ?? {};
    if (code) args[errorAt] = [code, message, retry];
    channel.postMessage({ hub: id, to: to && [...to], what, args, errorAt, call });
  };
  const post = (to, what, ...args) => send(to, what, args);
  /** The handler of an answer for a member's request. */
  const answers = (by, call) => (error, data) => send([by], 'answer', [error, data], call);

  /** Ends the carrier. */
  const drop = () => {
    clearTimeout(opening);
    clearTimeout(checking);
    const last = carrier;
    carrier = link = session = checking = undefined;
    last?.close();
    for (const all of [members, feeds, rooms, tokens]) all.clear();
  };

  /** Opens the carrier for its first member. */
  const open = (token) => {
    const report = link = (what, ...details) => link === report && on[what](...details);
    tokens.add(token);
    opening = setTimeout(report, options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS, 'lost', SILENT);
    try {
      carrier = openCarrier(report, token);
    } catch ({ message }) {
      carrier = { close: ignore };
      setTimeout(report, 0, 'lost', { reason: message, retry: false });
    }
  };

  const accept = (by) => {
    members.add(by);
    post([by], 'accepted');
    if (session !== undefined) post([by], 'opened', session);
    // A tab that ends without a word releases its lock.
    locks.request(`${groupName} ${by}`, { signal: closing.signal }, () => requests.bye(by)).catch(ignore);
  };

  const watch = (name, watchers) => carrier.watch(name, true, (error) => post(watchers, 'watched', name, error));

  /** Sends a message of a room to those members that don't have it. */
  const deliver = ({ tabs }, message, all = tabs.keys()) => {
    const { epoch, offset } = message;
    const to = [...all].filter((by) => {
      const position = tabs.get(by);
      return offset === undefined || position?.epoch !== epoch || position.offset < offset;
    });
    if (offset !== undefined) for (const by of to) tabs.set(by, { epoch, offset });
    post(to, 'received', message);
  };

  /** Requests of members, with the member first. */
  const requests = {
    look: () => post(undefined, 'leads'),

    hello(by, token) {
      if (members.has(by)) return;
      if (!carrier) open(token);
      if (tokens.has(token)) return accept(by);
      // An anonymous session must not become a user's.
      if (!token || tokens.has(undefined)) return post([by], 'refused');
      carrier.auth(token, (error) => {
        if (!error) {
          tokens.add(token);
          return accept(by);
        }
        const { code, message } = error;
        if (code === 'not_allowed') return post([by], 'refused');
        // The member tries again, with another token if this one is at fault.
        const fault = code === 'token_expired' ? 'expired' : code.startsWith('token_') ? 'refused' : undefined;
        post([by], 'accepted');
        post([by], 'lost', { reason: message, retry: fault !== 'refused', token: fault });
      });
    },

    bye(by) {
      if (!members.delete(by)) return;
      for (const key of feeds.keys()) requests.unsubscribe(by, key);
      for (const name of rooms.keys()) requests.leave(by, name);
      if (!members.size) drop();
    },

    subscribe(by, key, position, subscribeOptions = {}) {
      const text = JSON.stringify(subscribeOptions);
      let feed = feeds.get(key);
      const isFirst = !feed;
      if (isFirst) feeds.set(key, feed = { tabs: new Map(), position, text });
      const { tabs, isPending } = feed;
      const isCurrent = feed.text === text && position?.offset === feed.position?.offset && position?.epoch === feed.position?.epoch;
      tabs.set(by, isCurrent);
      if (isFirst || !isCurrent || !(position || isPending)) {
        // Unless it is the first one, the whole document comes for all.
        Object.assign(feed, { text, isPending: true, position: isFirst ? position : undefined });
        carrier.subscribe(key, feed.position, subscribeOptions);
      } else if (!isPending) {
        post([by], 'confirmed', key);
        if (feed.state) post([by], 'received', feed.state);
      }
    },

    unsubscribe(by, key) {
      const tabs = feeds.get(key)?.tabs;
      if (!tabs?.delete(by) || tabs.size) return;
      feeds.delete(key);
      carrier.unsubscribe(key);
    },

    join(by, name, position) {
      let room = rooms.get(name);
      const isFirst = !room;
      if (isFirst) rooms.set(name, room = { tabs: new Map(), last: position, recent: [], watchers: new Set() });
      const { tabs, last, recent, watchers } = room;
      // Without a position, it needs no earlier messages.
      tabs.set(by, position ?? last);
      if (isFirst) return carrier.join(name, position);
      const { epoch, offset } = position ?? {};
      const hasAll = !position || (last?.epoch === epoch && last.offset <= offset);
      if (!hasAll && !(recent[0]?.epoch === epoch && recent[0].offset <= offset + 1)) {
        room.isJoined = false;
        carrier.leave(name);
        carrier.join(name, position);
        if (watchers.size) watch(name, watchers);
      } else if (room.isJoined) {
        post([by], 'joined', name);
        if (!hasAll) for (const message of recent) deliver(room, message, [by]);
      }
    },

    leave(by, name) {
      const tabs = rooms.get(name)?.tabs;
      if (!tabs?.delete(by)) return;
      requests.watch(by, name);
      if (tabs.size) return;
      rooms.delete(name);
      carrier.leave(name);
    },

    watch(by, name, isOn) {
      const watchers = rooms.get(name)?.watchers;
      if (isOn) {
        watchers?.add(by);
        watch(name, [by]);
      } else if (watchers?.delete(by) && !watchers.size) {
        carrier.watch(name, false);
      }
    },

    members: (by, name, query, call) => carrier.members(name, query, answers(by, call)),

    publish(by, text, call) {
      const answered = answers(by, call);
      carrier.publish({ text, resolve: (data) => answered(undefined, data), reject: answered });
    },

    check() {
      if (checking) return;
      const report = link;
      checking = setTimeout(() => {
        checkMs = Math.min(2 * checkMs, CHECK_MAX_MS);
        report('lost', SILENT);
      }, checkMs);
      carrier.check(0);
    },

    renew(_, token) {
      tokens.add(token);
      renew?.(token);
    },
  };

  /** Events of the carrier. */
  const on = {
    opened(opened) {
      clearTimeout(opening);
      session = opened;
      post(members, 'opened', session);
    },

    lost(details) {
      const to = [...members];
      drop();
      post(to, 'lost', details);
    },

    received(message, chars) {
      const { type, room: name, feed: key, state, reason } = message;
      const room = rooms.get(name);
      const feed = feeds.get(key);
      if (name === undefined && key === undefined) {
        post(members, 'received', message, chars);
      } else if (type === 'presence') {
        post(room?.watchers ?? [], 'received', message);
      } else if (room) {
        keep(room, message);
        deliver(room, message);
      } else if (feed) {
        const { tabs } = feed;
        const isDelta = type === 'delta';
        const to = [...tabs.keys()].filter((by) => !isDelta || tabs.get(by));
        if (!isDelta) feed.isPending = false;
        feed.state = !isDelta && state && state !== 'live' ? { type: 'state', feed: key, state, reason } : undefined;
        if (type !== 'state') {
          feed.position = { epoch: message.epoch, offset: message.offset };
          for (const by of to) tabs.set(by, true);
        }
        // The subscription has ended.
        if (state === 'not_found') feeds.delete(key);
        post(to, 'received', message, chars);
      }
    },

    confirmed(key) {
      const feed = feeds.get(key);
      if (!feed) return;
      if (feed.position) feed.isPending = false;
      post([...feed.tabs.keys()].filter((by) => feed.tabs.get(by)), 'confirmed', key);
    },

    refused(key, error) {
      const feed = feeds.get(key);
      feeds.delete(key);
      if (feed) post(feed.tabs.keys(), 'refused', key, error);
    },

    joined(name, error) {
      const room = rooms.get(name);
      if (!room) return;
      room.isJoined = true;
      if (error && error.code !== 'history_expired') rooms.delete(name);
      post(room.tabs.keys(), 'joined', name, error);
    },

    unwatched: (name, error) => post(rooms.get(name)?.watchers ?? [], 'unwatched', name, error),

    alive() {
      clearTimeout(checking);
      checking = undefined;
      checkMs = CHECK_MS;
      post(members, 'alive');
    },

    woken: () => post(members, 'woken'),

    // One check is for all members.
    silent: () => requests.check(),

    // One member renews the token for all: this tab isn't frozen.
    expiring(by) {
      renew = by;
      const [first] = members;
      post([[...members].find((member) => own.has(member)) ?? first], 'expiring');
    },

    failed: (error) => post(members, 'failed', error),
  };

  /** Keeps a message of a room, without a gap, so that it is known what a member has missed. */
  const keep = (room, message) => {
    const { recent, last } = room;
    const { epoch, offset } = message;
    if (offset === undefined || (last?.epoch === epoch && offset <= last.offset)) return;
    if (last?.epoch !== epoch || last.offset + 1 !== offset) recent.length = 0;
    recent.push(message);
    if (recent.length > RECENT_MAX) recent.shift();
    room.last = { epoch, offset };
  };

  channel.onmessage = ({ data: { by, what, args, call } }) => {
    if (by !== undefined && (members.has(by) || what === 'hello' || what === 'look')) requests[what](by, ...args, call);
  };
  requests.look();

  return () => {
    drop();
    closing.abort();
    channel.close();
  };
}
