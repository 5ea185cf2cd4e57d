// Three nodes on a real engine with faults from a seed, clients of all protocols that roam between them, and a checker of all that
// they received.
//
//   node chaos/world.mjs [--seed N] [--seconds N] [--engine redis|sentinel|nats] [--history] [--loses] [--room_members N] [--logs FILE]
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { setTimeout as passed } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { JOIN, serve, website } from '../harness.mjs';
import { freePorts } from '../proxies.mjs';
import { random as randomFrom } from '../proxy.mjs';
import { nats } from '../nats.mjs';
import { redis, sentinel } from '../redis.mjs';
import { continuous, followed, Order, ordered, timesForgotten } from './check.mjs';
import { follower, member, publish, publisher, socketIoMember } from './clients.mjs';
import { faults, link } from './faults.mjs';

const ENGINES = { redis, sentinel, nats };
const NODES = ['a', 'b', 'c'];
const ROOMS = ['red', 'green'];
const FEED = 'game';
const CHANGE_MS = 200;
const POLL_MS = 100;
/** Everything is current this long after the last fault. */
const SETTLE_MS = 10_000;
/** How long a node may still send a message whose publisher gave up: it is stopped for up to 8 s, and then tries for 4 s. */
const LATER_MS = 12_000;

const config = (engine, name, upstream, history) => `
[cluster]
engine = "${engine}"
node = "${name}"
secret = "known-to-all-nodes"
wait = true
[heartbeat]
interval = "1s"
timeout = "2s"
${history ? '[rooms]\nhistory_length = 10000\n' : ''}
[[feeds]]
name = "all"
prefix = ""
url = "${upstream}/${name}/"
poll_interval = "${POLL_MS}ms"
${JOIN}`;

/** An upstream whose document has another version every CHANGE_MS. */
async function changing(cleanup, random) {
  const digest = (value) => createHash('sha256').update(JSON.stringify(value)).digest('base64');
  const value = { version: 0, values: Array.from({ length: 50 }, (_, n) => ({ n, value: 0 })) };
  const digests = new Map();
  const it = { version: 0, fetches: 0, overlaps: 0, has: (value) => digests.get(value.version) === digest(value) };
  const change = () => {
    value.version = ++it.version;
    value.values[Math.floor(random() * 50)].value = it.version;
    digests.set(it.version, digest(value));
  };
  change();
  const timer = setInterval(change, CHANGE_MS);
  let inFlight = 0;
  it.url = await website({ after: (end) => cleanup.push(end) }, async (_, response) => {
    it.fetches += 1;
    if (inFlight++ > 0) it.overlaps += 1;
    const body = JSON.stringify(value);
    await passed(20);
    inFlight -= 1;
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(body);
  });
  cleanup.push(() => clearInterval(timer));
  return it;
}

/** A node that can be killed, stopped and started again, at the same addresses. */
async function node(cleanup, name, engine, upstream, history) {
  const [listen, admin] = await freePorts(2);
  const it = { name, incarnation: 0, link: await link(cleanup, engine.port), http: `http://127.0.0.1:${listen}`, ws: `ws://127.0.0.1:${listen}`, admin: `http://127.0.0.1:${admin}` };
  let running;
  it.start = async () => {
    it.incarnation += 1;
    running = await serve({ after: (end) => cleanup.push(end) }, {
      listen: `127.0.0.1:${listen}`, admin: `127.0.0.1:${admin}`, args: ['--cores', '1'], config: config(engine.url.replace(`:${engine.port}`, `:${it.link.port}`), name, upstream.url, history),
    });
  };
  it.signal = (signal) => running.child.kill(signal);
  it.kill = async () => {
    it.signal('SIGKILL');
    await running.closed;
  };
  it.log = () => running.log;
  await it.start();
  return it;
}

/** A publisher's message that members beside it, on the same node all the while, didn't receive. */
function localLosses(publications, members) {
  const stays = members.flatMap(({ name, room, log }) => log.filter((entry) => entry.stay).map(({ stay }) => ({ name, room, ...stay })));
  // A stay ends when the client leaves: what was published a moment before may still be under way.
  const covers = (stay, { room, node, incarnation, from, to }) => stay.room === room && stay.node === node && stay.incarnation === incarnation && stay.from < from && stay.to > to + 4000;
  return publications.filter(({ outcome }) => outcome === 'ok')
    .flatMap((entry) => stays.filter((stay) => covers(stay, entry) && !stay.received.has(entry.id)).map(({ name }) => `${name} didn't receive ${entry.id} of its own node ${entry.node.name}`));
}

/**
 * Runs for `seconds`, then heals everything and looks: { wrong, notes, counts }. `history`: rooms keep history. `loses`: the engine forgets
 * when it is killed. `room_members`: members of each room by `stentor.v1`. After `settle_ms` everything has to be current.
 */
export async function chaos({ seed, seconds, engine: kind = 'redis', history, loses, room_members = 4, settle_ms = SETTLE_MS }) {
  const cleanup = [];
  const notes = [];
  const begun = Date.now();
  const note = (text) => notes.push(`${((Date.now() - begun) / 1000).toFixed(1)} s: ${text}`);
  const random = randomFrom(seed);
  const own = () => randomFrom(Math.floor(random() * 2 ** 32));
  try {
    const engine = await ENGINES[kind]({ after: (end) => cleanup.push(end) }, { keeps: !loses });
    const upstream = await changing(cleanup, own());
    const nodes = [];
    for (const name of NODES) nodes.push(await node(cleanup, name, engine, upstream, history));
    let finish;
    const world = { engine, upstream, nodes, loses, deaths: [], isOver: false, isSettling: false, over: new Promise((resolve) => { finish = resolve; }) };
    const members = ROOMS.flatMap((room) => [
      ...Array.from({ length: room_members }, (_, n) => member(world, own(), `member ${n} of ${room}`, room, ['/ws', '/sockjs/websocket'][n % 2])),
      ...['websocket', 'polling'].map((transport) => socketIoMember(world, own(), `${transport} of ${room}`, room, transport)),
    ]);
    world.hasMembers = () => members.every(({ log }) => log.some(({ stay }) => stay));
    const followers = [...[1, 2, 3].map((n) => follower(world, own(), `follower ${n}`, FEED, 'stentor.v1')), follower(world, own(), 'follower by SSE', FEED, 'SSE')];
    const publishers = [1, 2, 3].map((n) => publisher(world, own(), `p${n}`, ROOMS, history ? undefined : nodes[n - 1]));
    const all = [...members, ...followers, ...publishers];
    const failed = Promise.all(all.map(({ running }) => running));
    failed.catch(() => {});
    const end = Date.now() + seconds * 1000;
    const fetched = { from: Date.now(), count: -upstream.fetches };
    await Promise.race([failed, faults(world, own(), note, () => Date.now() > end)]);
    const wrong = [];
    fetched.count += upstream.fetches;
    fetched.until = Date.now();
    // Nothing more is published but marks, so that all that is there is known.
    world.isSettling = true;
    // The newest version, but for what the last changes need.
    const behind = () => followers.map(({ name, log }) => [name, log.findLast(({ version }) => version !== undefined)?.version]).filter(([, version]) => !(version > upstream.version - 5));
    const healed = Date.now();
    while (behind().length && Date.now() - healed < settle_ms) await Promise.race([failed, passed(100)]);
    const settled_ms = Date.now() - healed;
    wrong.push(...behind().map(([name, version]) => `${name} has version ${version}, the upstream ${upstream.version}`));
    // Each member hears from each node, once that is connected again.
    const marks = [];
    const deaf = () => members.flatMap(({ name, room, log }) => nodes.filter((at) => !log.some(({ id }) => id?.startsWith(`mark ${at.name} ${room}:`))).map((at) => `${name} doesn't receive what ${at.name} publishes after the faults`));
    for (const last = Date.now() + settle_ms; deaf().length && Date.now() < last;) {
      for (const room of ROOMS) for (const at of nodes) await publish(world, marks, `mark ${at.name} ${room}`, marks.length, room, at);
      await passed(500);
    }
    wrong.push(...deaf());
    world.isOver = true;
    finish();
    await failed;

    const order = new Order();
    const publications = [...publishers.flatMap(({ log }) => log), ...marks];
    const unsure = new Set(publications.filter(({ outcome }) => outcome !== 'ok').map(({ id }) => id));
    // An engine that keeps what it has, keeps the idempotency keys.
    const deaths = loses || kind === 'sentinel' ? world.deaths : [];
    const forgotten = new Map(publications.map((entry) => [entry.id, timesForgotten(entry, deaths, LATER_MS)]));
    const timesOf = (id) => forgotten.get(id) ?? 0;
    for (const { name, log, protocol } of members) {
      if (history && protocol === 'stentor.v1') {
        wrong.push(...continuous(log, name));
        for (const entry of log) if (entry.id) order.saw(entry, name);
      } else {
        // Of one stay at a time: who begins anew may be told again, or of what is older.
        let stay = [];
        for (const entry of [...log, { open: null }]) {
          if ('open' in entry) {
            wrong.push(...ordered(stay, name, unsure, timesOf));
            stay = [];
          } else if (entry.id) stay.push(entry.id);
        }
      }
    }
    wrong.push(...order.wrong, ...order.publishers(unsure), ...order.repeated(timesOf));
    if (history && !loses) {
      // Who has received a message of a room receives all that follow, or hears of a gap: an engine that is killed begins another epoch.
      const isAnnounced = ({ room, from, to }) => members.some((one) => one.room === room && one.log.some(({ gap, at }) => gap && at > from && at < to + SETTLE_MS));
      const first = (room) => Math.min(...members.filter((one) => one.room === room).flatMap(({ log }) => log.find(({ id }) => id)?.at ?? Infinity));
      const lost = publications.filter(({ id, room, from, to, outcome }) => outcome === 'ok' && from > first(room) && !order.has(id) && !isAnnounced({ room, from, to }));
      wrong.push(...lost.map(({ id, to }) => `${id} was accepted at ${((to - begun) / 1000).toFixed(1)} s, and nobody received it`));
    }
    if (!history) wrong.push(...localLosses(publications, members));
    for (const { name, log } of followers) wrong.push(...followed(log, name));
    // As many as one node makes in that time, with some reserve.
    const alone = (fetched.until - fetched.from) / POLL_MS;
    if (fetched.count > 1.1 * alone) wrong.push(`${fetched.count} fetches, one node alone makes ${Math.round(alone)}`);
    // One of a holder that has just lost its lease may be left. An engine that forgets also forgets who holds the lease, and so may a replica.
    if (upstream.overlaps > 3 && !loses && kind !== 'sentinel') wrong.push(`${upstream.overlaps} fetches while another one was in flight`);
    const outcomes = {};
    for (const { outcome } of publications) outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    const counts = {
      outcomes,
      messages: members.reduce((sum, { log }) => sum + log.filter(({ id }) => id).length, 0),
      stays: members.reduce((sum, { log }) => sum + log.filter(({ stay }) => stay).length, 0),
      repeated: order.repeated(() => 0).length,
      gaps: members.reduce((sum, { log }) => sum + log.filter(({ gap }) => gap).length, 0),
      versions: followers.map(({ log }) => log.length),
      fetched: fetched.count, overlaps: upstream.overlaps, settled_ms,
    };
    if (wrong.length) notes.push(...nodes.flatMap((it) => it.log().slice(-20).map((line) => `${it.name}: ${line}`)));
    const line = (entry) => JSON.stringify(entry.stay ? { stay: entry.stay.node.name, incarnation: entry.stay.incarnation } : entry);
    const logs = [...members, ...followers].map(({ name, log }) => `${name}\n${log.map(line).join('\n')}\n`).join('\n');
    return { wrong, notes, counts, logs };
  } finally {
    for (const end of cleanup.reverse()) await end();
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { values } = parseArgs({ options: { seed: { type: 'string' }, seconds: { type: 'string' }, room_members: { type: 'string' }, engine: { type: 'string' }, history: { type: 'boolean' }, loses: { type: 'boolean' }, logs: { type: 'string' } } });
  const seed = Number(values.seed ?? Date.now() % 100_000);
  const { wrong, notes, counts, logs } = await chaos({ ...values, seed, seconds: Number(values.seconds ?? 30), room_members: Number(values.room_members ?? 4) });
  if (values.logs) writeFileSync(values.logs, logs);
  console.log(`seed ${seed}\n${notes.join('\n')}\n${JSON.stringify(counts)}\n${wrong.slice(0, 40).join('\n')}\n${wrong.length} wrong`);
  process.exit(wrong.length ? 1 : 0);
}
