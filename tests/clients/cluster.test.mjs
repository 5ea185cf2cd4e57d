// Two nodes on a real Redis, with real clients on each. all/cluster.test.mjs has three nodes, and NATS.
import test from 'node:test';
import { commandsSpanNodes, roomsSpanNodes } from './nodes.mjs';
import { missing, redis } from './redis.mjs';

test('rooms span two nodes, for every protocol and publisher', { skip: missing }, (t) => roomsSpanNodes(t, redis, ['a', 'b']));

test('commands of the admin API concern the sessions of both nodes', { skip: missing }, (t) => commandsSpanNodes(t, redis, ['a', 'b']));
