// Workers beside two nodes on a real Redis. all/link-nodes.test.mjs has NATS, and nodes and engines that are lost.
import { test } from 'node:test';
import { workersSpanNodes } from './link-nodes.mjs';
import { missing, redis } from './redis.mjs';

test('workers beside two nodes are one application', { skip: missing }, (t) => workersSpanNodes(t, redis));
