// The lists below the charts: sorted by what hurts, searched, and opened one by one, with actions that are confirmed.

import { ask } from './api.js';
import { at, bytes, choice, duration, element, moment, show, time, words } from './dom.js';

const LISTED_MAX = 1000;
/** Rows that are shown of a list. */
const ROWS_MAX = 200;

/** A cell whose text is right-aligned, and by which rows are sorted. */
const number = (value, text = show(value)) => ({ text, isNumber: true });
const age = (since) => (since === undefined ? number(0, '–') : number(0, duration(Math.max(0, Date.now() / 1000 - since))));
const queued = (sessions) => sessions.reduce((sum, session) => sum + session.send_buffer_bytes, 0);
const byQueue = (sessions) => sessions.sort((a, b) => b.send_buffer_bytes - a.send_buffer_bytes || (a.since ?? 0) - (b.since ?? 0));
const plural = (count, noun) => `${show(count)} ${noun}${count === 1 ? '' : noun.endsWith('s') ? 'es' : 's'}`;
const namespace = () => at('namespace').value.trim() || '/';

/* ---- Tables ---- */

function cell(kind, value, properties = {}) {
  const { text, isNumber, open } = typeof value === 'object' ? value : { text: value };
  const made = element(kind, { ...properties, className: isNumber ? 'number' : '' });
  if (open) {
    const button = element('button', { type: 'button', textContent: show(text) });
    button.addEventListener('click', open);
    made.append(button);
  } else {
    made.textContent = show(text);
  }
  return made;
}

/** Fills a table. The focus stays at the row with the same name. */
function fill(table, head, rows, empty = 'None') {
  const focused = table.contains(document.activeElement) ? document.activeElement.textContent : undefined;
  const isNumber = (column) => rows[0]?.[column]?.isNumber;
  const titles = element('tr', {}, ...head.map((text, column) => cell('th', { text, isNumber: isNumber(column) }, { scope: 'col' })));
  const lines = rows.map(([name, ...values]) => element('tr', {}, cell('th', name, { scope: 'row' }), ...values.map((value) => cell('td', value))));
  if (!lines.length) lines.push(element('tr', {}, element('td', { textContent: empty, colSpan: Math.max(1, head.length) })));
  table.replaceChildren(...(head.length ? [element('thead', {}, titles)] : []), element('tbody', {}, ...lines));
  if (focused !== undefined) [...table.querySelectorAll('button')].find((button) => button.textContent === focused)?.focus();
}

/* ---- Confirmation ---- */

/** Asks a question with input fields `{ name: value }`. Returns their values, or `undefined` if it is cancelled. */
function confirm(question, label, fields = {}) {
  at('question').textContent = question;
  at('sure').textContent = label;
  const inputs = Object.entries(fields).map(([name, value]) => {
    const input = element('input', { id: `field-${name}`, value, autocomplete: 'off', spellcheck: false, required: true });
    at('fields').append(element('label', { htmlFor: input.id, textContent: words(name) }), input);
    return [name, input];
  });
  const dialog = at('confirm');
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue ? Object.fromEntries(inputs.map(([name, input]) => [name, input.value])) : undefined);
      at('fields').replaceChildren();
    }, { once: true });
  });
}

const json = (text) => { try { return JSON.parse(text); } catch { return text; } };
/** What an action did to sessions: `Disconnected 2 sessions.` */
const did = (what, { sessions, missing_nodes: missing }) => [
  sessions ? what(plural(sessions, 'session')) : 'No session was left, so nothing was done.',
  ...(missing ? [`${missing.join(', ')} didn’t answer.`] : []),
].join(' ');
const disconnected = (sessions) => `Disconnected ${sessions}.`;
const sent = (sessions) => `The message is sent to ${sessions}.`;
const MISSING = 'Some nodes don’t answer. Their sessions would stay connected.';
const MESSAGE = { event: 'test', data: '{"text":"hello"}' };

const RECONNECTS = 'Clients reconnect, unless the application or a permission prevents it.';
const disconnect = (of, target) => ({
  label: 'Disconnect',
  question: `Disconnect ${of}? ${RECONNECTS}`,
  act: async () => did(disconnected, await ask('disconnect', { ...target, close: true })),
});
/** The fields of a command for sessions of an application's workers, or of Stentor itself. */
const targetOf = (app, inNamespace) => ({ ...(app === undefined ? {} : { app }), namespace: inNamespace });
/** Disconnects these sessions. Returns their number. */
async function disconnectAll(sessions) {
  let sum = 0;
  const targets = new Map(sessions.map(({ app, namespace: own }) => [JSON.stringify([app, own]), targetOf(app, own)]));
  for (const [name, target] of targets) {
    const meant = sessions.filter(({ app, namespace: own }) => JSON.stringify([app, own]) === name).map(({ id }) => id);
    sum += (await ask('disconnect', { ...target, sessions: meant, close: true })).sessions;
  }
  return sum;
}

/** Disconnects the sessions that match, unless nodes are missing. */
const disconnectFound = (of, found, findAgain) => ({
  label: 'Disconnect',
  question: `Disconnect ${plural(found.count, 'session')} of ${of}? ${RECONNECTS}`,
  refusal: found.missing ? MISSING : '',
  act: async () => {
    let done = 0;
    // A list has some of the sessions. Each round disconnects these, so no more rounds than lists at the beginning are needed.
    for (let left = found.count; left > 0;) {
      const { sessions, missing } = await findAgain();
      if (missing) throw new Error(MISSING);
      if (!sessions.length) break;
      done += await disconnectAll(sessions);
      left -= sessions.length;
    }
    return did(disconnected, { sessions: done });
  },
});
const refresh = (of, selector) => ({
  label: 'Refresh token',
  question: `Ask ${of} for a new token? Sessions that send none in time end.`,
  act: async () => did((sessions) => `Asked ${sessions} for a new token.`, await ask('revocations', { ...selector, action: 'refresh' })),
});
const publish = (of, send) => ({ label: 'Publish a test message', question: `Publish a message to ${of}?`, fields: MESSAGE, act: send });

/* ---- What is opened ---- */

let opened;

/**
 * Shows facts, a list of sessions and actions. `read` returns `{ facts, sessions, actions }`, or `undefined` if it is gone. A view with
 * `isSearched` isn't refreshed by itself, because a search looks at all sessions.
 */
async function open(title, read, isSearched = false) {
  opened = { title, read, isSearched };
  // Actions for what was open before must not be used below the new title.
  at('facts').replaceChildren();
  at('members').replaceChildren();
  at('memberslist').hidden = true;
  at('actions').replaceChildren();
  at('outcome').textContent = '';
  at('openedtitle').textContent = title;
  at('opened').hidden = false;
  await refreshOpened();
  at('openedtitle').focus();
}

async function refreshOpened() {
  if (!opened) return;
  const current = opened;
  try {
    const found = await current.read();
    if (opened !== current) return;
    const { facts = [], sessions, actions = [] } = found ?? { facts: [['state', 'It is gone.']] };
    fill(at('facts'), [], facts);
    at('memberslist').hidden = !sessions;
    if (sessions) fill(at('members'), SESSION_HEAD.slice(0, MEMBER_COLUMNS), sessions.slice(0, ROWS_MAX).map((session) => sessionRow(session).slice(0, MEMBER_COLUMNS)));
    // Buttons with the same names stay, and with them the focus.
    const names = JSON.stringify(actions.map(({ label, refusal }) => [label, refusal]));
    const isSame = current.names === names;
    Object.assign(current, { actions, names });
    if (!isSame) at('actions').replaceChildren(...actions.flatMap((action, i) => actionElements(current, action, i)));
  } catch (error) {
    if (opened === current) at('outcome').textContent = error.message;
  }
}

/** The button of an action, and the reason if it is refused. */
function actionElements(current, { label, refusal }, i) {
  const button = element('button', { type: 'button', textContent: label, disabled: Boolean(refusal) });
  button.addEventListener('click', () => carryOut(current, current.actions[i]));
  return refusal ? [button, element('span', { className: 'note', textContent: refusal })] : [button];
}

async function carryOut(current, { label, question, fields, act }) {
  const values = await confirm(question, label, fields);
  const say = (text) => { if (opened === current) at('outcome').textContent = text; };
  if (!values) return say('Cancelled: nothing was done.');
  say('…');
  try {
    const outcome = await act(values);
    if (opened === current) await refreshOpened();
    say(outcome);
    // A list that is searched isn't refreshed by itself, and would still show what is gone.
    update();
  } catch (error) {
    say(error.message);
  }
  if (opened === current) at('outcome').scrollIntoView({ block: 'nearest' });
}

at('close').addEventListener('click', () => {
  opened = undefined;
  at('opened').hidden = true;
  at('query').focus();
});

/** The sessions that match exactly. `count` is the number of all, and `missing` is true if nodes don't answer. */
async function find(exactly) {
  const { sessions, count, missing_nodes: missing } = await ask(`sessions?${new URLSearchParams({ limit: LISTED_MAX, ...exactly })}`);
  return { sessions: byQueue(sessions), count, missing: Boolean(missing) };
}
const foundFacts = ({ sessions, count }) => [['sessions', count], [count > sessions.length ? `send buffers of ${show(sessions.length)} sessions` : 'send buffers', bytes(queued(sessions))]];

const openSession = (id, inNamespace, app, node) => open(`Session ${id}`, async () => {
  const target = { ...targetOf(app, inNamespace), sessions: [id] };
  const { sessions: [session], ended: [last] = [] } = await ask('sessions', target);
  if (!session) return last && { facts: endedFacts(last) };
  const { user, info, address, since } = session;
  return {
    facts: [
      ['id', session.id], ['namespace', inNamespace], ['protocol', session.protocol],
      ...(session.transport === undefined ? [] : [['transport', session.transport]]),
      ...(app === undefined ? [] : [['application', app]]), ...(node === undefined ? [] : [['node', node]]),
      ...(user ? [['user', { text: user.id, open: () => openUser(user) }], ['issuer', user.issuer]] : []),
      ...(info === undefined ? [] : [['info', JSON.stringify(info)]]),
      ...(address ? [['connected from', { text: address, open: () => openAddress(address) }]] : []),
      ...(since === undefined ? [] : [['since', moment(since)]]),
      ['send buffer', bytes(session.send_buffer_bytes)],
      ...(session.feeds ?? []).map(({ key, offset }) => [`feed, at version ${offset}`, { text: key, open: () => openKey(key) }]),
      ...timeline(session),
      ...session.rooms.map((name) => ['room', { text: name, open: () => openRoom(name, inNamespace, app) }]),
    ],
    actions: [
      disconnect(`session ${id}`, target),
      ...(user ? [refresh(`session ${id}`, { session: id })] : []),
      publish(`session ${id}`, async ({ event, data }) => did(sent, await ask('emit', { ...target, event, data: json(data) }))),
    ],
  };
});

/** The facts of a session that has ended. */
const endedFacts = (session) => [
  ['state', 'It has ended.'], ['id', session.id], ['protocol', session.protocol],
  ['connected from', { text: session.address, open: () => openAddress(session.address) }],
  ...timeline(session),
];

const EVENTS = {
  upgraded: (transport) => `changed to ${transport}`,
  subscription_refused: (code) => `subscription refused${code && `: ${code}`}`,
  publication_refused: (code) => `publication refused${code && `: ${code}`}`,
  request_refused: (code) => `request refused${code && `: ${code}`}`,
  rate_limited: (limit) => `messages above ${limit}`,
  deliveries_dropped: () => 'messages for the client dropped',
  protocol_error: () => 'error in the protocol',
  ended: (reason) => `ended: ${words(reason)}`,
};

/** The facts of a session's timeline, each with its time. */
function timeline({ since, transport, timeline: events = [] }) {
  const polled = transport === 'polling' || transport === 'none' || events.some(({ event }) => event === 'upgraded');
  const begun = since === undefined ? [] : [[`event at ${time(since)}`, polled ? 'connected by polling' : 'connected']];
  const text = ({ event, reason = '', count, first, last }) => [
    (EVENTS[event] ?? (() => words(event)))(reason),
    ...(count > 1 ? [`${show(count)} times${last > first ? `, the last time at ${time(last)}` : ''}`] : []),
  ].join(', ');
  return [...begun, ...events.map((one) => [`event at ${time(one.first)}`, text(one)])];
}

const openRoom = (name, inNamespace, app) => open(`Room ${name}`, async () => {
  const target = { ...targetOf(app, inNamespace), rooms: [name] };
  const { sessions, count } = await ask('sessions', { ...target, limit: LISTED_MAX });
  return {
    facts: [...(app === undefined ? [] : [['application', app]]), ['namespace', inNamespace], ['sessions', count], ['send buffers', bytes(queued(sessions))]],
    sessions: byQueue(sessions).map((session) => ({ ...session, namespace: inNamespace, app })),
    actions: [
      publish(`room ${name} of namespace ${inNamespace}`, async ({ event, data }) => {
        if (app !== undefined) return did(sent, await ask('emit', { ...target, event, data: json(data) }));
        await ask('publish', { namespace: inNamespace, room: name, event, data: json(data) });
        return 'The message is published.';
      }),
      disconnect(`${plural(count, 'session')} of room ${name} of namespace ${inNamespace}`, target),
    ],
  };
});

const openUser = ({ id, issuer }) => open(`User ${id}`, async () => {
  const all = () => find({ user: id, issuer });
  const found = await all();
  if (!found.count && !found.missing) return undefined;
  return {
    facts: [['issuer', issuer], ...foundFacts(found)],
    sessions: found.sessions,
    actions: [disconnectFound(`user ${id}`, found, all), refresh(`the sessions of user ${id} on all nodes`, { subject: id, issuer })],
  };
}, true);

const openAddress = (address) => open(`Address ${address}`, async () => {
  const all = () => find({ address });
  const found = await all();
  if (!found.count && !found.missing) return undefined;
  return { facts: foundFacts(found), sessions: found.sessions, actions: [disconnectFound(`address ${address}`, found, all)] };
}, true);

const openUpstream = (name) => open(`Upstream ${name}`, async () => {
  const upstream = status.upstreams.find((other) => other.name === name);
  if (!upstream) return undefined;
  const { last_failure: failure } = upstream;
  return {
    facts: [
      ['fetches', upstream.fetches], ['failures', upstream.failures], ['in flight', upstream.in_flight], ['waiting keys', upstream.waiting],
      ['interval', `${show(upstream.effective_interval_seconds)} s, by ${upstream.interval_set_by}`],
      ...(upstream.limited_by ? [['limited by', upstream.limited_by]] : []),
      ...(upstream.retry_after_seconds ? [['pause asked for', duration(upstream.retry_after_seconds)]] : []),
      ...(failure ? [['last failure', `${failure.key}: ${failure.message} (${duration(failure.seconds_ago)} ago)`]] : []),
    ],
    actions: [{
      label: 'Fetch a key now',
      question: `Fetch a key from upstream ${name} once? The answer shows the request, the response, and why a feed is stale.`,
      fields: { key: failure?.key ?? '' },
      act: async ({ key }) => (await ask('fetch', { key })).text,
    }],
  };
});

/** Actions and facts of a key that is fetched, or of one with a pushed document. */
const openKey = (key) => open(`Feed ${key}`, async () => {
  const { feeds, missing_nodes: missing } = await ask(`feeds?limit=${LISTED_MAX}&search=${encodeURIComponent(key)}`);
  const feed = feeds.find((other) => other.key === key);
  if (!feed) return undefined;
  const { node, failing_since: failing, last_success: succeeded, next_fetch: next } = feed;
  const subscribers = show(feed.subscribers ?? '–') + (missing ? `, without those of ${missing.join(', ')}, which didn’t answer` : '');
  const document = [['document', bytes(feed.document_bytes)], ['subscribers', subscribers]];
  if (feed.pushed) return { facts: [['state', feed.state], ['source', 'pushed by a backend'], ...document] };
  const left = next === undefined ? 0 : next - Date.now() / 1000;
  return {
    facts: [
      ['state', feed.state], ...(feed.reason ? [['reason', feed.reason]] : []),
      ...(failing === undefined ? [] : [[feed.state === 'stale' ? 'stale since' : 'failing since', moment(failing)]]),
      ['last success', succeeded === undefined ? 'none' : moment(succeeded)],
      ['next fetch', next === undefined ? (feed.state === 'complete' ? 'never' : 'now') : left < 1 ? 'now' : `in ${duration(left)}`],
      ...(node === undefined ? [] : [['fetched by node', node]]), ['upstream', feed.upstream], ...(feed.url ? [['URL', feed.url]] : []), ['failed fetches in a row', feed.failures],
      ['last fetch took', seconds(feed)], ...document,
    ],
    actions: [{
      label: 'Fetch it now',
      question: `Fetch ${key} once? The answer shows the request, the response, and why the feed is stale.`,
      act: async () => (await ask('fetch', { key })).text,
    }],
  };
});
const seconds = ({ fetch_seconds: took }) => (took ? `${show(Math.round(took * 1000))} ms` : '–');

/* ---- The lists ---- */

/** Columns of the sessions of what is opened. */
const MEMBER_COLUMNS = 6;
const SESSION_HEAD = ['session', 'send buffer', 'user', 'connected from', 'protocol', 'age', 'node', 'rooms'];
function sessionRow(session) {
  const { id, namespace: inNamespace = '/', app, node, user, address, protocol, since, rooms, send_buffer_bytes: waiting } = session;
  return [{ text: id, open: () => openSession(id, inNamespace, app, node) }, number(waiting, bytes(waiting)), user?.id ?? '–', address ?? '–', app === undefined ? protocol : `workers of ${app}`, age(since), node ?? '–', rooms.slice(0, 5).join(', ') + (rooms.length > 5 ? ` and ${rooms.length - 5} more` : '')];
}

/** The session with this id, if it has ended lately. */
async function endedSessions(id) {
  if (!/^[\w-]{20}$/.test(id)) return [];
  const { ended = [] } = await ask('sessions', { sessions: [id] });
  return ended.map((session) => ({ ...session, protocol: `${session.protocol}, ended`, rooms: [], send_buffer_bytes: 0 }));
}

/** Groups of sessions, the ones with the fullest send buffers first, then the largest. */
function groups(sessions, keyOf, opens) {
  const all = new Map();
  for (const session of sessions) {
    const key = keyOf(session);
    if (key !== undefined) all.set(key, [...(all.get(key) ?? []), session]);
  }
  const sorted = [...all.values()].sort((a, b) => queued(b) - queued(a) || b.length - a.length);
  return sorted.map((group) => [{ text: opens(group[0]).text, open: opens(group[0]).open }, number(group.length), number(queued(group), bytes(queued(group)))]);
}

const counts = (values = {}) => Object.entries(values).filter(([, value]) => value > 0).sort(([, a], [, b]) => b - a);
const ERRORS = ['protocol_errors', 'http_request_errors', 'connections_refused', 'connections_evicted', 'connections_limited', 'sessions_limited', 'messages_limited', 'tokens_refused', 'origins_refused', 'publications_refused', 'deliveries_dropped', 'deliveries_dropped_on_disconnect', 'connections_paused', 'memory_overloads', 'accept_errors', 'tls_errors'];

const limited = ({ sessions, count, missing_nodes: missing }) => [
  ...(count > sessions.length ? [` Shows ${show(sessions.length)} of ${plural(count, 'session')}: search to see others.`] : []),
  ...(missing ? [` Without those of ${missing.join(', ')}, which didn’t answer.`] : []),
].join('');

/** Each list: its title, the meaning of the search, and `{ head, rows, note }`. */
const VIEWS = {
  sessions: ['Sessions', 'Id, user or address', async (search) => {
    const found = await ask(`sessions?limit=${LISTED_MAX}&search=${encodeURIComponent(search)}`);
    const sessions = byQueue(found.sessions);
    if (!sessions.length && search) sessions.push(...await endedSessions(search));
    return { head: SESSION_HEAD, rows: sessions.map(sessionRow), note: `The fullest send buffers first.${limited(found)}` };
  }],
  rooms: ['Rooms', 'Beginning of the name', async (search) => {
    const inNamespace = namespace();
    const { rooms, next } = await ask(`rooms?limit=${LISTED_MAX}&namespace=${encodeURIComponent(inNamespace)}&prefix=${encodeURIComponent(search)}`);
    rooms.sort((a, b) => b.sessions - a.sessions);
    const rows = rooms.map(({ name, sessions }) => [{ text: name, open: () => openRoom(name, inNamespace) }, number(sessions)]);
    return { head: ['room', 'sessions'], rows, note: next ? `The first ${show(LISTED_MAX)} rooms by name, the largest first: search to see others.` : 'The largest first.' };
  }],
  feeds: ['Upstreams', 'Name', (search) => {
    const rows = status.upstreams.filter(({ name }) => name.includes(search)).sort((a, b) => b.failures - a.failures || b.waiting - a.waiting);
    const { feeds } = status;
    return {
      head: ['upstream', 'fetches', 'failures', 'waiting', 'last failure'],
      rows: rows.map(({ name, fetches, failures, waiting, last_failure: failure }) => [{ text: name, open: () => openUpstream(name) }, number(fetches), number(failures), number(waiting), failure ? `${failure.key}: ${failure.message} (${duration(failure.seconds_ago)} ago)` : '–']),
      note: `${plural(feeds.keys, 'key')}: ${show(feeds.live)} live, ${show(feeds.stale)} stale, ${show(feeds.cold)} waiting for a first document, ${show(feeds.not_found)} not found, ${show(feeds.complete)} complete. ${show(feeds.subscribed)} with subscribers, ${bytes(feeds.documents_bytes)} of documents.`,
    };
  }],
  keys: ['Feed keys', 'Part of the key', async (search) => {
    const { feeds, count, truncated, missing_nodes: missing } = await ask(`feeds?limit=${LISTED_MAX}&search=${encodeURIComponent(search)}`);
    const rows = feeds.map((feed) => [{ text: feed.key, open: () => openKey(feed.key) }, feed.state, number(feed.subscribers ?? '–'), number(feed.failures ?? 0), number(feed.fetch_seconds ?? 0, seconds(feed)), number(feed.document_bytes, bytes(feed.document_bytes)), feed.pushed ? 'pushed' : feed.upstream, feed.node ?? '–', feed.reason ?? '']);
    return { head: ['key', 'state', 'subscribers', 'failures', 'last fetch took', 'document', 'upstream', 'node', 'reason'], rows, note: `Failing keys first, then stale ones, then the slowest; then those with pushed documents.${truncated ? ` Shows ${show(feeds.length)} of ${plural(count, 'key')}: search to see others.` : ''}${missing ? ` Without those of ${missing.join(', ')}, which didn’t answer.` : ''}` };
  }],
  users: ['Users', 'Part of the user’s id', async (search) => {
    const found = await ask(`sessions?limit=${LISTED_MAX}&search=${encodeURIComponent(search)}`);
    // The search also finds sessions by their own ids and by addresses.
    const sessions = found.sessions.filter(({ user }) => user?.id.includes(search));
    const rows = groups(sessions, ({ user }) => JSON.stringify([user.issuer, user.id]), ({ user }) => ({ text: user.id, open: () => openUser(user) }));
    return { head: ['user', 'sessions', 'send buffers'], rows, note: `The fullest send buffers first.${limited(found)}` };
  }],
  addresses: ['Addresses', 'Address', async (search) => {
    const found = await ask(`sessions?limit=${LISTED_MAX}&search=${encodeURIComponent(search)}`);
    const rows = groups(found.sessions, ({ address }) => address, ({ address }) => ({ text: address, open: () => openAddress(address) }));
    return { head: ['address', 'sessions', 'send buffers'], rows, note: `IPv4 addresses and IPv6 /64 networks, the fullest send buffers first.${limited(found)}` };
  }],
  cluster: ['Nodes and workers', 'Name', async (search) => {
    const [{ nodes }, { links, missing_nodes: missing = [] }] = await Promise.all([ask('nodes'), ask('links')]);
    const rows = [
      ...links.map(({ node, app, worker, state, sessions, unacknowledged_bytes: waiting }) => [worker, `worker of ${app}${node ? `, node ${node}` : ''}`, state, number(sessions), number(waiting, bytes(waiting))]),
      ...nodes.map((node) => [node.this ? `${node.name} (this node)` : node.name, `node, version ${node.version}`, `up ${duration(node.uptime_seconds)}`, number(node.connections), number(0, '–')]),
    ];
    return { head: ['name', 'kind', 'state', 'sessions', 'unacknowledged'], rows: rows.filter(([name]) => name.includes(search)), note: missing.length ? `No answer from ${missing.join(', ')}, whose workers aren't listed.` : nodes.length ? '' : 'This node is in no cluster.' };
  }],
  errors: ['Errors', 'Name', (search) => {
    const { data_plane: figures } = status;
    const rows = [...ERRORS.filter((name) => figures[name] > 0).map((name) => [words(name), number(figures[name])]), ...counts(figures.disconnects).map(([name, value]) => [`disconnects: ${words(name)}`, number(value)])];
    return { head: ['error', 'since the start'], rows: rows.filter(([name]) => name.includes(search)).sort((a, b) => b[1].text.localeCompare(a[1].text, 'en', { numeric: true })), note: '' };
  }],
};

let view = 'sessions';
let status = { upstreams: [], feeds: {}, data_plane: {} };

/** Refreshes the chosen list, and what is opened. A search of sessions is made only when it is asked for, and after an action. */
export async function refreshLists() {
  if (!['sessions', 'users', 'addresses'].includes(view) || at('query').value.trim() === '') await showLists();
  if (!opened?.isSearched) await refreshOpened();
}

/** Reads and shows the chosen list. */
async function showLists() {
  const [title, , read] = VIEWS[view];
  const { head, rows, note } = await read(at('query').value.trim());
  if (VIEWS[view][0] !== title) return;
  fill(at('list'), head, rows.slice(0, ROWS_MAX));
  const more = rows.length > ROWS_MAX ? ` Only the first ${show(ROWS_MAX)} of ${show(rows.length)} rows are shown.` : '';
  if (at('note').textContent !== note + more) at('note').textContent = note + more;
}

/** Takes over a response of `GET /api/v1/status`, which some lists show. */
export function setStatus(next) {
  status = next;
}

function choose(name) {
  view = name;
  at('querylabel').textContent = VIEWS[name][1];
  const hasNamespace = name === 'rooms';
  at('namespace').hidden = !hasNamespace;
  at('search').querySelector('label[for="namespace"]').hidden = !hasNamespace;
  at('query').value = '';
  update();
}

const update = () => showLists().catch((error) => { at('note').textContent = error.message; });
for (const [name, [title]] of Object.entries(VIEWS)) choice('views', name, title, name === view, choose);
at('querylabel').textContent = VIEWS[view][1];
at('namespace').hidden = true;
at('search').querySelector('label[for="namespace"]').hidden = true;
at('search').addEventListener('submit', (event) => {
  event.preventDefault();
  update();
});
