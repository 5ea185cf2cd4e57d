// @stentor/client/shared: the tabs of a browser share one connection.
//
//   tab: connection ── member ──┐                            ┌── hub ── carrier ── server
//   tab: connection ── member ──┼── BroadcastChannel ────────┘  (in the tab that leads)
//   tab: connection ── member ──┘
//
// Each tab has a connection as any other. Its carriers are members of a group: the tabs with the same server, transport and options. The tab that
// holds the group's Web Lock leads. Its hub (hub.js) opens a carrier of the transport, and members use it by messages. When that tab ends, the lock goes to the
// next one. Members then connect to its hub, with the positions that they have, as after any lost connection.
//
// A tab that leads and is frozen keeps its lock. Members ask a hub that is silent, and one that gets no answer steals the lock.

import { now } from './clock.js';
import { Connection } from './connection.js';
import { StentorError } from './error.js';
import { openHub } from './hub.js';

/** Time between two looks at the hub, and how many of them may find it silent. A tab in the background looks less often; a frozen one doesn't at all. */
const LOOK_MS = 1_000;
const LOOKS_MAX = 3;
/** Members that find the hub silent at the same time don't all steal the lock. */
const STEAL_MS = 500;
/** Time in which a tab whose connection is lost may return before it leaves the group. */
const LINGER_MS = 3_000;

/** Requests of a carrier. */
const REQUESTS = ['subscribe', 'unsubscribe', 'join', 'leave', 'watch', 'members', 'publish'];

/** Connects as `connect()`. Tabs with the same address and options, whose user the server takes for the same, share one connection. */
export function connectShared(url, options = {}) {
  const groups = new Map();
  const shared = (open, name, base, link, { token, ...rest }) => {
    const { BroadcastChannel = globalThis.BroadcastChannel, locks = globalThis.navigator?.locks } = options;
    // Insecure pages have no locks.
    if (!BroadcastChannel || !locks) return open(base, link, { ...rest, token });
    const direct = (link, token) => open(base, link, { ...rest, token });
    if (!groups.has(name)) groups.set(name, newGroup(`stentor 1 ${name} ${base} ${JSON.stringify(rest)}`, direct, rest, BroadcastChannel, locks));
    return member(groups.get(name), link, token);
  };
  const connection = new Connection(url, { ...options, shared });
  connection.on('state', (state) => {
    if (/paused|refused|closed/.test(state)) groups.forEach((group) => group.leave());
  });
  return connection;
}

/** A tab's part in a group of tabs: it waits for the lock, and has a hub while it holds it. `open(link, token)` opens a carrier. */
function newGroup(name, open, options, BroadcastChannel, locks) {
  let timer;
  let closeHub;
  /** Ends the request for the lock, and releases it. `undefined`: the tab neither leads nor waits. */
  let stop;
  const group = {
    name, open, options, locks,
    channel: () => new BroadcastChannel(name),
    /** The members of this tab. */
    members: new Set(),

    /** The number of this tab's hub, if it leads. */
    hub: undefined,

    join(id) {
      clearTimeout(timer);
      group.members.add(id);
      if (!stop) group.lead();
    },

    /** A member has ended. Another one may follow. */
    part(id) {
      group.members.delete(id);
      if (!group.members.size) timer = setTimeout(group.leave, LINGER_MS);
    },

    /** Neither leads nor waits any more. */
    leave() {
      clearTimeout(timer);
      stop?.();
      closeHub?.();
      stop = closeHub = group.hub = undefined;
    },

    /** Waits for the lock, or steals it. */
    lead(steal) {
      group.leave();
      const waiting = new AbortController();
      let release;
      const own = stop = () => {
        waiting.abort();
        release?.();
      };
      locks.request(name, steal ? { steal } : { signal: waiting.signal }, () => {
        if (stop !== own) return undefined;
        group.hub = `${Math.random()}`;
        closeHub = openHub(group);
        return new Promise((resolve) => { release = resolve; });
      // Another tab has stolen the lock. Other errors are the browser's refusal, as for the locks of members.
      }).catch(({ name }) => name === 'AbortError' && stop === own && group.lead());
    },
  };
  return group;
}

/** A carrier by way of the group's hub. */
function member(group, link, token) {
  const id = `${Math.random()}`;
  const channel = group.channel();
  /** Requests until a hub has accepted this member, then its number. */
  let queue = [];
  let hub;
  /** This member's own carrier: it isn't the same user as the others. */
  let direct;
  let isClosed = false;
  let leave;
  let receivedAt = now();
  // Looks that found the hub silent.
  let looks = 0;
  // Handlers of answers, and of confirmed requests to watch the members of a room.
  const calls = new Map();
  const watching = new Map();
  let lastCall = 0;

  const post = (what, args = [], call) => channel.postMessage({ by: id, what, args, call });
  const hello = () => post('hello', [token]);
  const request = (name, args) => {
    if (direct) return direct[name](...args);
    if (hub === undefined) return queue.push([name, args]);
    const [first] = args;
    let answered = args.find((arg) => typeof arg === 'function');
    let rest = args.filter((arg) => arg !== answered || !arg);
    if (name === 'watch') {
      watching.set(first, answered);
      answered = undefined;
    } else if (name === 'publish') {
      rest = [first.text];
      answered = (error, data) => (error ? first.reject(error) : first.resolve(data));
    }
    if (answered) calls.set(++lastCall, answered);
    return post(name, rest, answered && lastCall);
  };

  /** The member has no hub any more. */
  const part = () => {
    isClosed = true;
    clearInterval(timer);
    post('bye');
    channel.close();
    leave?.();
    group.part(id);
    for (const answered of calls.values()) answered(new StentorError('connection_lost', 'the connection was lost', true));
    calls.clear();
  };
  const end = (why) => {
    if (isClosed) return;
    part();
    if (why) link('lost', why);
  };

  const on = {
    // Another hub, or an answer to a look.
    leads: (who) => {
      if (hub === undefined) hello();
      else if (hub !== who) end({ code: 1001, reason: 'another tab has the connection now' });
    },
    accepted: (who) => {
      if (hub !== undefined) return on.leads(who);
      hub = who;
      for (const [name, args] of queue.splice(0)) request(name, args);
      return undefined;
    },
    refused: () => {
      part();
      group.leave();
      try {
        direct = group.open(link, token);
      } catch ({ message }) {
        return link('lost', { reason: message, retry: false });
      }
      for (const [name, args] of queue.splice(0)) request(name, args);
      return undefined;
    },
  };

  channel.onmessage = ({ data: { hub: who, to, what, args, errorAt, call } }) => {
    // From another member, or for others only.
    if (who === undefined || isClosed) return;
    if (who === hub || hub === undefined) looks = 0;
    if (to && !to.includes(id)) return;
    if (on[what]) return on[what](who);
    if (who !== hub) return;
    receivedAt = now();
    if (errorAt >= 0) args[errorAt] = new StentorError(...args[errorAt]);
    if (call) {
      const answered = calls.get(call);
      calls.delete(call);
      answered?.(...args);
    } else if (what === 'watched') {
      watching.get(args[0])?.(args[1]);
    } else if (what === 'expiring') {
      link(what, (token) => post('renew', [token]));
    } else if (what === 'lost') {
      end(...args);
    } else {
      link(what, ...args);
    }
  };

  const timer = setInterval(() => {
    if (hub !== undefined && hub === group.hub) return;
    looks += 1;
    if (looks > 1) post('look');
    if (looks > LOOKS_MAX) setTimeout(() => !isClosed && looks > LOOKS_MAX && group.lead(true), Math.random() * STEAL_MS);
  }, LOOK_MS);
  // The hub learns from this lock when the tab has ended. Some pages may have none, such as those in a sandboxed frame.
  group.locks.request(`${group.name} ${id}`, () => {
    if (isClosed) return undefined;
    hello();
    return new Promise((resolve) => { leave = resolve; });
  }).catch(() => isClosed || on.refused());
  group.join(id);

  const carrier = {
    get isHttp() { return direct ? direct.isHttp : true; },
    get isShared() { return !direct; },
    check(silenceMs) {
      if (direct) return direct.check(silenceMs);
      if (now() - receivedAt < silenceMs) return false;
      post('check');
      return true;
    },
    forget() {
      if (direct) direct.forget();
      queue = [];
      calls.clear();
    },
    close() {
      if (direct) direct.close();
      else end();
    },
  };
  for (const name of REQUESTS) carrier[name] = (...args) => request(name, args);
  return carrier;
}
