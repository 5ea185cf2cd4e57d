// A thread with some of a test's followers: runs them to their end, and tells what became of each.
import { isDeepStrictEqual } from 'node:util';
import { parentPort, workerData } from 'node:worker_threads';
import { setTimeout as passed } from 'node:timers/promises';
import { Follower } from './followers.mjs';
import { within } from './harness.mjs';

/** Long after the last of them should have it, also on a machine that is busy with other things. */
const ENDED_WITHIN_MS = 250_000;

const { url, clients, versions: texts, begin_ms } = workerData;
const versions = texts.map((text) => JSON.parse(text));
const sent = { snapshots: 0, deltas: 0 };
const followers = clients.map((client) => new Follower(url, client, versions, sent));
const failures = [];
await Promise.all(followers.map(async (follower) => {
  // Not all at once.
  await passed(begin_ms * Math.random());
  await within(follower.run(), 'the last version', ENDED_WITHIN_MS).catch((error) => failures.push(`${follower.protocol}: ${error.stack}`));
}));
const ends = followers.map(({ protocol, kept, cuts, resumed }) => ({
  protocol,
  hasLast: isDeepStrictEqual(kept?.data, versions.at(-1)),
  cutsLeft: cuts,
  resumed,
}));
parentPort.postMessage({ ends, sent, failures });
