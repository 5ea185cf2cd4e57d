// The members of a room: a list, kept current by notices. docs/protocol.md, "Presence", has the rules.
//
//   stale ── the server confirms the subscription ──► reading ── the last page, then the notices that came meanwhile ──► current
//     ▲                                                  ▲                                                                  │
//     ├──────────── the connection is lost ◄─────────────┴── a notice is missing, or doesn't list all: after a while ◄──────┤
//     └─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘

import { Handle, emit } from './emitter.js';

/** Members per page. */
const PAGE = 1_000;
/** Least time until the members are read again; at most three times this, so that not all clients do so at once. */
const REPEAT_MS = 1_000;

/** The users and anonymous sessions of a list that aren't in the other one, as one of their sessions each. */
function missing(list, other) {
  // No session's id has a space.
  const who = ({ session, user }) => (user === undefined ? session : `user ${user}`);
  const byName = (members) => new Map([...members.values()].map((member) => [who(member), member]));
  const others = byName(other);
  return [...byName(list)].flatMap(([name, member]) => (others.has(name) ? [] : member));
}

/** The members of a room, shared by all `Presence`s of its name. */
export class PresenceState {
  handles = new Set();
  members = new Map();
  count = 0;
  isCurrent = false;
  #hasRead = false;
  #version = 0;
  /** Notices that came while the members are read; `null` at other times. */
  #early = null;
  /** Answers to earlier questions are ignored. */
  #run = 0;
  #timer;

  constructor(room) {
    this.room = room;
  }

  /** Reads the members by `ask(query, answered)`. */
  read(ask) {
    clearTimeout(this.#timer);
    this.ask = ask;
    const run = ++this.#run;
    const members = new Map();
    let version;
    this.#early = [];
    const next = (after) => ask({ after, limit: PAGE }, (error, page) => {
      if (run !== this.#run) return;
      if (error) return this.failed(error);
      version ??= page.version;
      for (const member of page.members ?? []) members.set(member.session, member);
      if (page.next) return next(page.next);
      const early = this.#early;
      this.#early = null;
      this.#become(members, page.count, version ?? 0);
      for (const notice of early) this.receive(notice);
    });
    next();
  }

  /** Takes over a list. A user joins with the first of their sessions, and leaves with the last. */
  #become(members, count, version) {
    const { members: before } = this;
    const hasRead = this.#hasRead;
    [this.members, this.count, this.#version] = [members, count, version];
    this.#hasRead = this.isCurrent = true;
    if (hasRead) {
      for (const member of missing(before, members)) this.#emit('leave', member);
      for (const member of missing(members, before)) this.#emit('join', member);
    }
    this.#emit('change');
  }

  receive(notice) {
    if (this.#early) return void this.#early.push(notice);
    const { version, count, joined, left, replaced = [], more } = notice;
    if (!this.isCurrent || version <= this.#version) return;
    const isNext = version === this.#version + 1;
    const members = new Map(this.members);
    for (const { session } of left) members.delete(session);
    for (const { replaces, ...member } of replaced) {
      members.delete(replaces);
      members.set(member.session, member);
    }
    for (const member of joined) members.set(member.session, member);
    this.#become(members, count, version);
    if (!isNext || more) this.#repeat();
  }

  #repeat() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read(this.ask), REPEAT_MS * (1 + 2 * Math.random()));
  }

  failed(error) {
    this.#early = null;
    this.#emit('error', error);
    if (error.retry && this.ask && error.code !== 'connection_lost') this.#repeat();
  }

  /** The connection is lost, or nobody needs the members any more. */
  disconnected() {
    clearTimeout(this.#timer);
    this.#run += 1;
    this.#early = this.ask = null;
    this.isCurrent = false;
  }

  #emit(event, ...details) {
    for (const handle of this.handles) emit(handle, event, ...details);
  }
}

export class Presence extends Handle {
  #state;

  constructor(state, release) {
    super(state, release);
    this.#state = state;
    this.room = state.room;
  }

  get count() { return this.#state.count; }
  get members() { return [...this.#state.members.values()]; }
  get isCurrent() { return this.#state.isCurrent; }
}
