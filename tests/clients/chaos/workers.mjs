// Workers of an application that crash, hang, lose their connection, hand over and join, at random, under clients of all transports. By the
// policy `on_crash`, clients notice nothing, or those with unanswered events are disconnected.
//
//   node tests/clients/chaos/workers.mjs --policy redeliver --seconds 600 --seed 1
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { io } from 'socket.io-client';
import { admin, metric, samples } from '../admin.mjs';
import { serve, temporary, until, ways } from '../harness.mjs';
import { proxy, random as seeded } from '../proxy.mjs';
import { between, chosen, pause } from './faults.mjs';

const WORKERS = 3;
const CLIENTS = 12;
const ROOMS = 5;
const WORKER_TIMEOUT_MS = 4_000;
const CONFIG = `[[links]]\napp = "faults"\nworker_timeout = "${WORKER_TIMEOUT_MS}ms"\n`;
/** Longest time between two events of a client. */
const PACE_MS = 120;
const FAULT_MS = [50, 700];

/** The change that a client's event makes. */
const roomOf = (client, n) => ({ room: `room-${(client * 7 + n * 3) % ROOMS}`, joins: (n * 5 + client) % 3 > 0 });

/** A process of a worker, which connects by a proxy. */
class Process {
  constructor({ policy, record }, name, instance, way) {
    Object.assign(this, { name, instance, way, record, isBusy: false });
    const env = { ...process.env, STENTOR: way.url.replace('http', 'ws'), NAME: name, INSTANCE: instance, POLICY: policy, RECORD: record };
    this.child = fork(fileURLToPath(new URL('worker.mjs', import.meta.url)), { env });
    this.exited = once(this.child, 'exit');
    // Another fault may end the process before it is ready.
    this.ready = Promise.race([once(this.child, 'message'), this.exited]);
  }

  note(text) {
    appendFileSync(this.record, `${this.instance} ${text}\n`);
  }

  async kill() {
    this.child.kill('SIGKILL');
    await this.exited;
  }

  async handOver() {
    this.child.kill('SIGTERM');
    await this.exited;
  }

  /** The ids and rooms of its sockets. */
  async rooms() {
    const answer = once(this.child, 'message');
    this.child.send('rooms');
    return (await answer)[0];
  }
}

/** A stock client that numbers its events, and checks the order of what it receives. */
class Client {
  constructor(world, number) {
    const kinds = Object.values(ways);
    Object.assign(this, { world, number, sent: 0, answered: -1, counted: -1, waiting: new Set(), ticks: new Map(), disconnects: 0, epoch: 0, isConnected: false });
    const { policy, wrong, seed } = world;
    this.random = seeded(seed * 1_000 + number);
    this.socket = io(world.stentor.http, { forceNew: true, reconnection: policy === 'disconnect', reconnectionDelay: 50, ...kinds[number % kinds.length] });
    this.socket.on('counted', (n) => this.check('counted', n));
    this.socket.on('tick', (instance, n) => this.tick(instance, n));
    this.socket.on('connect', () => { this.isConnected = true; });
    this.socket.on('connect_error', ({ message }) => wrong.push(`client ${number} can't connect: ${message}`));
    this.socket.on('disconnect', (reason) => {
      if (world.isOver) return;
      world.note(`client ${number} is disconnected with ${this.waiting.size} events in flight: ${reason}`);
      this.disconnects += 1;
      this.epoch += 1;
      this.ticks.clear();
      if (policy !== 'disconnect') wrong.push(`client ${number} is disconnected: ${reason}`);
      // Its CONNECT was in flight if it wasn't connected yet.
      else if (this.isConnected && this.waiting.size === 0) wrong.push(`client ${number} is disconnected without an event in flight: ${reason}`);
      this.waiting.clear();
      this.isConnected = false;
    });
  }

  send() {
    const { epoch, sent: n } = this;
    this.sent += 1;
    this.waiting.add(n);
    this.socket.emit('count', this.number, n, roomOf(this.number, n), () => {
      if (epoch !== this.epoch) return;
      this.check('answered', n);
      this.waiting.delete(n);
      // Earlier events were dropped.
      if (this.world.policy === 'drop') for (const earlier of this.waiting) if (earlier < n) this.waiting.delete(earlier);
    });
  }

  check(what, n) {
    if (!follows(this.world.policy, this[what], n)) this.world.wrong.push(`client ${this.number}: ${n} is ${what} after ${this[what]}`);
    this[what] = Math.max(this[what], n);
  }

  /** Broadcasts of a process arrive once and in order, and all of them if its connection isn't cut. */
  tick(instance, n) {
    const last = this.ticks.get(instance);
    this.ticks.set(instance, n);
    if (last === undefined || n === last + 1) return;
    if (n <= last || !this.world.unsteady.has(instance)) this.world.wrong.push(`client ${this.number}: broadcast ${n} of ${instance} after ${last}`);
    else this.world.counts.gaps += 1;
  }

  async run() {
    while (!this.world.isQuiet) {
      await pause(this.random() * PACE_MS);
      if (this.socket.connected) this.send();
    }
  }
}

/** `true` if a client's event, or its answer, may come after the last one. */
function follows(policy, last, n) {
  if (policy === 'redeliver') return n <= last + 1;
  return n > last;
}

/** Checks the order of the events that workers have handled. Gives the rooms of each client. */
function checkRecord({ record, policy, wrong }) {
  const last = new Map();
  const rooms = new Map();
  /** Processes that were stopped or cut: they may handle what others have been given meanwhile. */
  const apart = new Set();
  let events = 0;
  for (const line of readFileSync(record, 'utf8').trim().split('\n')) {
    const [instance, what, client, n] = line.split(' ').map((word, at) => (at < 2 ? word : Number(word)));
    if (what === 'apart') apart.add(instance);
    if (what === 'together' || what === 'up' || what === 'resumed') apart.delete(instance);
    if (what !== 'count') continue;
    events += 1;
    const before = last.get(client) ?? -1;
    if (!apart.has(instance) && !follows(policy, before, n)) wrong.push(`${instance} handles ${n} of client ${client} after ${before}`);
    last.set(client, Math.max(before, n));
    const own = rooms.get(client) ?? rooms.set(client, new Set()).get(client);
    const { room, joins } = roomOf(client, n);
    if (joins) own.add(room);
    else own.delete(room);
  }
  return { events, rooms };
}

class World {
  constructor(t, { policy, seed, note }) {
    Object.assign(this, { t, policy, seed, note, random: seeded(seed), wrong: [], processes: [], unsteady: new Set(), isQuiet: false, isOver: false, started: 0 });
    this.counts = { gaps: 0, faults: {} };
    this.record = path.join(temporary(t), 'record');
    writeFileSync(this.record, '');
  }

  async start(name) {
    this.started += 1;
    const way = await proxy(this.t, this.stentor.admin);
    const started = new Process(this, name, `${name}.${this.started}`, way);
    this.t.after(() => started.kill());
    this.processes.push(started);
    started.isBusy = true;
    await started.ready;
    started.isBusy = false;
    return started;
  }

  end(process) {
    this.processes.splice(this.processes.indexOf(process), 1);
  }

  /** Starts the next process of a worker that has crashed. */
  async replace(process) {
    this.end(process);
    await pause(between(this.random, 0, 600));
    await this.start(process.name);
  }

  get kinds() {
    const { random } = this;
    return {
      crash: async (process) => {
        await process.kill();
        await this.replace(process);
      },
      hang: async (process) => {
        this.unsteady.add(process.instance);
        process.child.kill('SIGSTOP');
        process.note('apart');
        await pause(WORKER_TIMEOUT_MS + between(random, 100, 3_000));
        if (random() < 0.5) return process.child.kill('SIGCONT');
        await process.kill();
        return this.replace(process);
      },
      stall: async (process) => {
        process.child.kill('SIGSTOP');
        await pause(between(random, 20, 1_000));
        process.child.kill('SIGCONT');
      },
      cut: async (process) => {
        this.unsteady.add(process.instance);
        process.note('apart');
        process.way.cut();
        // Longer than `rejoin` in half of the cases.
        if (random() < 0.5) return;
        process.way.refuses = () => true;
        await pause(between(random, 0, 1_500));
        process.way.refuses = () => false;
      },
      handover: async (process) => {
        const isEarly = random() < 0.5;
        if (isEarly) await this.start(process.name);
        await process.handOver();
        this.end(process);
        if (!isEarly) await pause(between(random, 0, 300)).then(() => this.start(process.name));
      },
      // A worker that joins gets sessions of the others. It leaves later.
      join: async () => {
        const joined = await this.start('guest');
        joined.isBusy = true;
        await pause(between(random, 0, 2_000));
        await joined.handOver();
        this.end(joined);
      },
    };
  }

  /** Faults, one after the other; some last while the next begins. At least one worker is ready and well. */
  async faults(time_ms) {
    const { kinds, random } = this;
    const lasting = new Set();
    for (let passed_ms = 0; passed_ms < time_ms;) {
      const next_ms = between(random, ...FAULT_MS);
      passed_ms += next_ms;
      await pause(next_ms);
      const well = this.processes.filter(({ isBusy }) => !isBusy);
      if (well.length < 2 || lasting.size > 2) continue;
      const process = chosen(random, well);
      const kind = chosen(random, Object.keys(kinds));
      this.note(`${Math.round(passed_ms)} ms: ${kind} ${kind === 'join' ? '' : process.instance}`);
      this.counts.faults[kind] = (this.counts.faults[kind] ?? 0) + 1;
      // A worker that joins is another process.
      const concerned = kind === 'join' ? {} : process;
      concerned.isBusy = true;
      const fault = kinds[kind](process).catch((error) => this.wrong.push(`${kind}: ${error.message}`)).finally(() => {
        concerned.isBusy = false;
        lasting.delete(fault);
      });
      lasting.add(fault);
    }
    await Promise.all(lasting);
  }

  /** Waits until each client's last event is answered. */
  async answered(clients) {
    await until('all clients are connected', () => clients.every(({ socket }) => socket.connected));
    for (const client of clients) client.send();
    const unanswered = () => clients.filter(({ waiting }) => waiting.size > 0).map(({ number, waiting }) => `${[...waiting].slice(0, 3)}… of client ${number}`);
    await until(() => `the answers: ${unanswered()}`, () => unanswered().length === 0);
  }

  /** Rooms are the same in Stentor, in the workers, and, if each event is handled, in the record. */
  async checkRooms(clients, recorded) {
    const sorted = (entries) => [...entries].map(([id, rooms]) => `${id}: ${[...rooms].sort()}`).sort();
    const expected = clients.map(({ socket, number }) => [socket.id, [socket.id, ...(recorded.get(number) ?? [])]]);
    const look = async () => {
      const { sessions } = await admin(this.stentor, 'sessions', { app: 'faults', namespace: '/', limit: 1_000 });
      const inWorkers = (await Promise.all(this.processes.map((process) => process.rooms()))).flat();
      return [sorted(sessions.map(({ id, rooms }) => [id, rooms])), sorted(inWorkers), ...(this.policy === 'redeliver' ? [sorted(expected)] : [])];
    };
    let all;
    const isSame = async () => (all = await look()).every((one) => String(one) === String(all[0]));
    await until(() => `rooms are the same in Stentor, in workers and in the record: ${JSON.stringify(all)}`, isSame);
  }
}

/** Runs workers under faults. Gives what is wrong, and counts. */
export async function chaos({ policy, seed, seconds, note = () => {} }) {
  const cleanup = [];
  const t = { after: (end) => cleanup.push(end) };
  const world = new World(t, { policy, seed, note });
  const { wrong, counts } = world;
  try {
    const stentor = world.stentor = await serve(t, { config: CONFIG, args: ['--cores', '2'] });
    for (let n = 0; n < WORKERS; n++) await world.start(`worker-${n}`);
    const clients = Array.from({ length: CLIENTS }, (_, n) => new Client(world, n));
    t.after(() => clients.forEach(({ socket }) => socket.close()));
    await until('all clients are connected', () => clients.every(({ socket }) => socket.connected));
    const running = clients.map((client) => client.run());
    await world.faults(seconds * 1_000);
    world.isQuiet = true;
    await Promise.all(running);
    await until('all workers are up', async () => await metric(stentor, 'link_workers', 'state="up"') === WORKERS);
    await world.answered(clients);
    const { events, rooms } = checkRecord(world);
    await world.checkRooms(clients, rooms);

    // A worker that joins gets its share.
    await world.start('last');
    await until('the last worker has its share', async () => {
      const sessions = (await admin(stentor, 'links')).links.map((link) => link.sessions);
      return sessions.length === WORKERS + 1 && Math.max(...sessions) - Math.min(...sessions) <= 1;
    });
    await world.answered(clients);
    for (const reason of ['no_worker', ...(policy === 'disconnect' ? [] : ['crash'])]) {
      const lost = await metric(stentor, 'link_sessions_lost_total', `reason="${reason}"`);
      if (lost > 0) wrong.push(`${lost} sessions are lost: ${reason}`);
    }
    Object.assign(counts, { events, sent: clients.reduce((sum, { sent }) => sum + sent, 0), disconnects: clients.reduce((sum, { disconnects }) => sum + disconnects, 0) });
    for (const name of ['sessions_moved', 'sessions_resumed']) counts[name] = await metric(stentor, `link_${name}_total`);
    counts.crash_messages = await metric(stentor, 'link_crash_messages_total');
    counts.ends = await samples(stentor, 'link_ends_total');
    // Faults break no rule of the protocol.
    wrong.push(...stentor.log.filter((line) => line.includes('a link was ended because of its worker')));

    world.isOver = true;
    for (const { socket } of clients) socket.close();
    await Promise.all(world.processes.map((process) => process.handOver()));
    const held = () => metric(stentor, 'memory_bytes', 'class="link"');
    let bytes;
    await until(() => `nothing is held for the link, but ${bytes} bytes are`, async () => (bytes = await held()) === 0);
  } catch (error) {
    wrong.push(error.message);
  } finally {
    if (wrong.length > 0) Object.assign(counts, { log: world.stentor?.log.slice(-40), record: readFileSync(world.record, 'utf8') });
    world.isQuiet = world.isOver = true;
    for (const end of cleanup.reverse()) await end();
  }
  return { wrong, counts };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { policy: { type: 'string', default: 'redeliver' }, seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: '1' }, record: { type: 'string' } } });
  const { wrong, counts: { log, record, ...counts } } = await chaos({ ...values, seed: Number(values.seed), seconds: Number(values.seconds), note: console.log });
  if (values.record && record) writeFileSync(values.record, record);
  console.log([values.policy, `seed ${values.seed}`, JSON.stringify(counts), ...wrong.slice(0, 40), ...(log ?? []), `${wrong.length} wrong`].join('\n'));
  process.exit(wrong.length ? 1 : 0);
}
