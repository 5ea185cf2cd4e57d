// Workers beside two nodes: on a real NATS, and when an engine or a node is lost.
import { once } from 'node:events';
import { test } from 'node:test';
import { metric } from '../admin.mjs';
import { until, within } from '../harness.mjs';
import { clientsReturn, linkClient, linkNode, linkWorker, peers, workersSpanNodes } from '../link-nodes.mjs';
import { missing as withoutNats, nats } from '../nats.mjs';
import { known, onEachEngine } from '../nodes.mjs';

test('workers beside two nodes are one application (NATS)', { skip: withoutNats }, (t) => workersSpanNodes(t, nats));

onEachEngine('clients of workers are recovered at another node', clientsReturn);

onEachEngine('a node whose engine or neighbor is lost goes on alone', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = [await linkNode(t, engine, 'a'), await linkNode(t, engine, 'b')];
  const workers = await Promise.all(servers.map((server, n) => linkWorker(t, server, `worker ${n}`)));
  const clients = await Promise.all(servers.map((server, n) => linkClient(t, server, n, 'websocket', [])));
  const fetched = (count) => until(`${count} clients are known`, async () => (await workers[0].io.fetchSockets()).length === count);
  await peers(workers, 2);
  await fetched(2);

  await engine.stop();
  await peers(workers, 1);
  const alone = once(clients[0], 'alone');
  workers[0].io.emit('alone');
  await within(alone, 'the event at the own node');
  await fetched(1);
  await until('it is counted', async () => await metric(servers[0], 'link_cluster_entries_dropped_total') >= 1);
  await engine.start();
  await peers(workers, 2);
  await fetched(2);
  const again = clients.map((client) => once(client, 'again'));
  workers[0].io.emit('again');
  await within(Promise.all(again), 'the event at both nodes');

  await known(servers);
  servers[1].child.kill('SIGKILL');
  await peers([workers[0]], 1);
  await fetched(1);
});
