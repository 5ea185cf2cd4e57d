// Tabs that share a connection (@stentor/client/shared) under random events, on a virtual clock.
import assert from 'node:assert/strict';
import test from 'node:test';
import { tabs } from './tabs-world.mjs';

/** Tests with the seeds from 1 to `seeds`. */
export function randomTests(seeds) {
  test('random events: tabs end, freeze, sign in and out; the state tells the truth, and messages come once and in order', async (t) => {
    for (let seed = 1; seed <= seeds; seed++) {
      const transport = ['websocket', 'websocket', 'sse'][seed % 3];
      const users = ['anna', 'anna', 'anna', 'ben'];
      const { world, server, browser, opened, open, check, connections } = await tabs(t, 0, { transport }, seed);
      const chance = (limit) => Math.floor(world.random() * limit);
      let said = 0;
      const name = (tab) => `seed ${seed}, tab ${opened.indexOf(tab)}`;
      const add = () => {
        const it = { user: users[chance(4)] };
        const tab = open({ getToken: () => `${it.user}.${world.nowMs}` });
        it.begun = undefined;
        let newest = 0;
        tab.feed.on('change', ({ n }) => {
          assert.ok(n > newest, `${name(tab)}: version ${n} after ${newest}`);
          newest = n;
        });
        tab.room.on('message', (data, { offset }) => {
          assert.ok(it.begun === undefined || offset === it.begun + 1, `${name(tab)}: message ${offset} after ${it.begun}`);
          it.begun = offset;
        });
        tab.connection.on('message', (user) => assert.equal(user, it.user, name(tab)));
        return Object.assign(tab, { it });
      };
      const living = () => opened.filter(({ isOver, isClosed }) => !isOver && !isClosed);
      const awake = () => living().filter(({ isFrozen }) => !isFrozen);
      const some = (list) => list[chance(list.length)];
      let wrong = new Map();
      const pass = async (ms) => {
        for (const end = world.nowMs + ms; world.nowMs < end;) {
          await world.pass(Math.min(500, end - world.nowMs));
          for (const tab of awake()) {
            if (tab.feed.state !== 'live' || tab.feed.document.n === server.version) wrong.delete(tab);
            else if (!wrong.has(tab)) wrong.set(tab, world.nowMs);
            // The time until a frozen leader is replaced.
            assert.ok(world.nowMs - (wrong.get(tab) ?? world.nowMs) <= 5_000, `${name(tab)}: says live`);
          }
        }
      };
      const outcomes = [];
      const events = [
        () => server.publish(),
        () => server.say('lobby', ++said),
        () => server.say('lobby', ++said),
        () => {
          const tab = some(awake());
          if (tab) outcomes.push([tab, tab.run(() => tab.connection.publish('lobby', ++said, undefined, { timeoutMs: 5_000 })).then(() => 'published', ({ outcome }) => outcome)]);
        },
        () => { for (const member of server.members) if (member.token) member.say({ type: 'message', data: member.token.split('.')[0] }); },
        () => living().length < 5 && add(),
        () => {
          const tab = some(living());
          if (tab && living().length > 1) browser.kill(tab);
        },
        () => {
          const tab = browser.leader(transport);
          if (tab && living().length > 1) browser.kill(tab);
        },
        () => {
          const tab = some(awake());
          if (!tab || living().length < 2) return;
          tab.run(() => tab.connection.close());
          tab.isClosed = true;
        },
        () => {
          const tab = transport === 'websocket' && (chance(2) ? browser.leader(transport) : some(awake()));
          if (tab && awake().length > 1) tab.isFrozen = true;
        },
        () => { for (const tab of living()) if (chance(2)) tab.isFrozen = false; },
        () => {
          const tab = some(awake());
          if (!tab) return;
          tab.it.user = some(users);
          tab.run(() => tab.connection.reconnect());
        },
        () => {
          server.stop();
          server.isUp = !!chance(2);
        },
        () => { server.isUp = true; },
        () => {
          world.move();
          world.say('online');
        },
      ];
      for (let n = 0; n < 3; n++) add();
      await pass(1_000);
      for (let step = 0; step < 25; step++) {
        events[chance(events.length)]();
        await pass(chance(6_000));
        if (!living().length) add();
      }
      server.isUp = true;
      for (const tab of living()) tab.isFrozen = false;
      wrong = new Map();
      await pass(120_000);
      server.say('lobby', ++said);
      server.publish();
      await pass(3_000);
      check(living(), `seed ${seed}`);
      // A tab that was another user's keeps its own connection until it connects again.
      for (const tab of living()) tab.run(() => tab.connection.reconnect());
      await pass(10_000);
      check(living(), `seed ${seed}, again`);
      const by = (user) => living().filter(({ it }) => it.user === user).length;
      const [anna, ben] = [by('anna'), by('ben')];
      assert.ok(connections() <= Math.max(1, anna && ben ? 1 + Math.max(anna, ben) : 1), `seed ${seed}: ${connections()} connections of ${anna} and ${ben} tabs`);
      const known = await Promise.all(outcomes.filter(([tab]) => !tab.isOver).map(([, outcome]) => outcome));
      for (const outcome of known) assert.ok(['published', 'not_published', 'unknown'].includes(outcome), `seed ${seed}: ${outcome}`);
      for (const tab of living()) tab.run(() => tab.connection.close());
    }
  });
}
