// @stentor/client under random events, on a virtual clock.
import assert from 'node:assert/strict';
import test from 'node:test';
import { World, live, records } from './client-world.mjs';

/** Transports of the random tests: the default, and others. */
const RANDOM = [undefined, 'websocket', ['websocket', 'sse', 'polling'], ['sse', 'polling'], 'polling'];

/** Tests with the seeds from 1 to `seeds`. */
export function randomTests(seeds) {
  test('random events: the state tells the truth, documents are the newest in the end, messages come once and in order, attempts are bounded', async (t) => {
    for (let seed = 1; seed <= seeds; seed++) {
      const world = new World(t, seed);
      const transport = RANDOM[seed % RANDOM.length];
      const { connection, feed } = await live(t, world, { transport });
      let newest = 1;
      feed.on('change', ({ n }) => {
        assert.ok(n > newest, `seed ${seed}: ${n} after ${newest}`);
        newest = n;
      });
      const chance = (limit) => Math.floor(world.random() * limit);
      const room = connection.room('lobby');
      // Of the server and of the client: the order of each is kept.
      const said = { server: 0, client: 0 };
      const heard = { server: 0, client: 0 };
      room.on('message', ([who, n]) => {
        assert.ok(n > heard[who], `seed ${seed}: message ${n} after ${heard[who]} of the ${who}`);
        heard[who] = n;
      });
      const publish = () => connection.publish('lobby', ['client', ++said.client], undefined, { timeoutMs: 5_000 }).then(() => 'published', ({ outcome }) => outcome);
      const outcomes = [];
      // Since when the feed is said to be live while a newer version exists, and since when the browser has reported nothing and yet the network is another one.
      let wrongAt;
      let unreportedAt;
      let reportedAt = 0;
      const pass = async (ms) => {
        for (const end = world.nowMs + ms; world.nowMs < end;) {
          await world.pass(Math.min(500, end - world.nowMs));
          if (feed.state !== 'live' || feed.document.n === world.server.version) wrongAt = undefined;
          else wrongAt ??= world.nowMs;
          // Twice the server's `ping_ms` and a tick, then the time for a sign of life.
          const limitMs = (unreportedAt === undefined ? 3_000 : 60_000) + 4 * world.latencyMs + 500;
          assert.ok(wrongAt === undefined || world.nowMs - Math.max(wrongAt, reportedAt) <= limitMs, `seed ${seed}: ${world.nowMs - wrongAt} ms`);
        }
      };
      const reports = () => {
        world.say('online');
        unreportedAt = undefined;
        reportedAt = world.nowMs;
      };
      const events = [
        () => world.server.publish(),
        () => world.server.say('lobby', ['server', ++said.server]),
        () => { for (let n = chance(5); n >= 0; n--) outcomes.push(publish()); },
        () => world.server.isUp && world.server.stop(),
        () => { world.server.isUp = true; },
        () => { world.latencyMs = [5, 50, 500][chance(3)]; },
        () => { world.server.socketDelayMs = [0, 0, 2_000, 1_000_000][chance(4)]; },
        () => {
          world.hibernate(chance(1_000_000));
          unreportedAt ??= world.nowMs;
        },
        async () => {
          world.isOnline = false;
          world.say('offline');
          assert.notEqual(feed.state, 'live', `seed ${seed}`);
          await pass(chance(20_000));
          assert.notEqual(feed.state, 'live', `seed ${seed}`);
          world.isOnline = true;
          world.move();
          reports();
        },
        // Another network without a time between, or the same one.
        () => {
          if (chance(2)) world.move();
          reports();
        },
        // Nobody reports it.
        () => {
          world.move();
          unreportedAt ??= world.nowMs;
        },
      ];
      for (let step = 0; step < 20; step++) {
        await events[chance(events.length)]();
        await pass(chance(10_000));
      }
      world.server.isUp = true;
      world.server.socketDelayMs = 0;
      const { attempts, requests } = world.server;
      const before = attempts.length;
      await pass(120_000);
      assert.deepEqual([connection.state, feed.state, feed.document.n], ['open', 'live', world.server.version], `seed ${seed}`);
      const published = publish();
      world.server.say('lobby', ['server', ++said.server]);
      await pass(3_000);
      assert.deepEqual([await published, heard, room.state], ['published', said, 'joined'], `seed ${seed}`);
      for (const outcome of await Promise.all(outcomes)) assert.ok(['published', 'not_published', 'unknown'].includes(outcome));
      assert.ok(attempts.length - before <= 8, `seed ${seed}: ${attempts.length - before} attempts`);
      assert.ok(world.server.requests - requests <= 60, `seed ${seed}: ${world.server.requests - requests} requests`);
      // A better transport is found again.
      const states = records(feed, 'state');
      if (transport === undefined || transport[0] === 'websocket') {
        for (const end = world.nowMs + 900_000; connection.transport !== 'websocket' && world.nowMs < end;) await pass(10_000);
        assert.deepEqual([connection.transport, states], ['websocket', []], `seed ${seed}`);
      }
      connection.close();
    }
  });

  test('auto, at random: the first data comes soon, without a gap, a duplicate or a flicker', async (t) => {
    for (let seed = 1; seed <= seeds; seed++) {
      const world = new World(t, seed);
      const chance = (limit) => Math.floor(world.random() * limit);
      world.latencyMs = [5, 50, 200][chance(3)];
      world.server.socketDelayMs = chance(4_000);
      const connection = world.connect(t);
      const [feed, errors] = [connection.feed('a'), records(connection, 'error')];
      const [states, versions] = [records(feed, 'state'), records(feed, 'change')];
      const room = connection.room('lobby');
      const published = connection.publish('lobby', 1);
      const name = `seed ${seed}`;
      await world.pass(700 + 8 * world.latencyMs + 100);
      assert.equal(feed.state, 'live', name);
      // Versions are published while the feed moves.
      for (let n = 0; n < 10; n++) {
        await world.pass(chance(1_000));
        world.server.publish();
      }
      await world.pass(2_000);
      assert.ok(versions.every(({ n }, at) => at === 0 || n > versions[at - 1].n), name);
      assert.deepEqual([connection.transport, feed.document.n, states, room.state, errors], ['websocket', world.server.version, ['live'], 'joined', []], name);
      await world.pass(3_000);
      assert.deepEqual([world.server.streams.size, world.server.sockets.size], [0, 1], name);
      await published;
      connection.close();
    }
  });
}
