// What tests of deploys share: the configuration of a node whose clients can resume, the feed that its clients follow, and whether they have missed anything.
import { upstream, until, JOIN } from './harness.mjs';
import { KINDS, lost } from './members.mjs';

/** Time between two versions of the feed. */
export const PERIOD_MS = 500;

/** The configuration of a node with an engine. `server`: lines of `[server]`. */
export const config = (engine, api, server) => `
[server]
${server}
[cluster]
engine = "${engine.url}"
secret = "known-to-all-nodes"
[rooms]
history_length = 1000
[socketio]
recovery_ttl = "2min"
[[feeds]]
name = "all"
prefix = ""
url = "${api.url}/"
poll_interval = "${PERIOD_MS}ms"
${JOIN}`;

/** An upstream with the feed `scores`, whose document { n } changes with each request. */
export async function scores(t) {
  const api = await upstream(t);
  let n = 0;
  api.documents.set('scores', () => ({ n: ++n }));
  return { url: api.url, newest: () => n };
}

/** Fails unless all clients have everything in the end. `last`: the number of the last message to each room. */
export async function assertNothingLost(logs, last, api) {
  const newest = api.newest();
  const wrong = () => logs.flatMap((log) => lost(log, KINDS[log.kind].topic === 'feed' ? newest : last));
  await until(() => `nothing is lost: ${wrong().length} in all, ${wrong().slice(0, 20).join()}`, () => wrong().length === 0);
}
