// docs/openapi.json is a valid OpenAPI document and describes a running server: every operation, status and code.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import Ajv2020 from 'ajv/dist/2020.js';
import { io } from 'socket.io-client';
import { issuer, ISSUER, token } from './admin.mjs';
import { clock, event, PATIENCE_MS, request, root, run, serve, until, upstream, within } from './harness.mjs';

const file = path.join(root, 'docs/openapi.json');
const api = JSON.parse(readFileSync(file, 'utf8'));
const ajv = new Ajv2020({ strict: false, schemas: [{ ...api, $id: 'api' }] });

const TOKEN = '0123456789abcdef';
const JSON_TYPE = { 'Content-Type': 'application/json' };
const LINES = { 'Content-Type': 'application/x-ndjson' };
const MESSAGE = '{"room":"lobby","event":"news","data":{"text":"hello"}}';

// Answers that this test doesn't provoke, and the test that does.
const ELSEWHERE = new Map([
  ['503 memory', 'crates/control/tests/control/admin.rs: bodies that have no room in the budget'],
  ['503 stopped', 'crates/control/tests/control/commands.rs: a data plane that stops'],
  ['503 busy', 'crates/control/tests: a data plane that accepts nothing'],
  ['409 in_progress', 'crates/control/src/admin/idempotency.rs'],
  ['503 too_many_idempotency_keys', 'crates/control/src/admin/idempotency.rs'],
  ['503 unavailable', 'cluster.test.mjs: a cluster without its engine'],
  ['409 no_auth', 'crates/control/tests/control/auth.rs'],
  ['500 internal', 'a bug in Stentor'],
  ['400 tls', 'admin-tls.test.mjs: a port that uses TLS'],
  ['503 shutting down', 'crates/control/tests/control/admin.rs: a data plane that is not ready'],
]);

/** Sends a request: { status, type, text }. `cut`: the body never ends. */
async function send(admin, method, target, { headers = {}, body, cut, token = TOKEN, host } = {}) {
  const all = { ...(token && { Authorization: `Bearer ${token}` }), ...(host && { Host: host }), ...(cut && { 'Content-Length': 1000 }), ...headers };
  const options = { method, path: target, headers: all, setHost: host !== null };
  if (!cut) {
    const { status, headers, text } = await request(admin, { ...options, body });
    return { status, type: headers['content-type'], text };
  }
  const unfinished = http.request(admin, { ...options, agent: false });
  unfinished.write(body);
  const [response] = await event(unfinished, 'response', undefined, 'error');
  const text = (await response.toArray()).join('');
  unfinished.destroy();
  return { status: response.statusCode, type: response.headers['content-type'], text };
}

/** The pointer to a part of the document. */
const pointer = (...parts) => `api#/${parts.map((part) => encodeURIComponent(String(part).replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')}`;

const operations = Object.entries(api.paths).flatMap(([template, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ template, method, operation, name: `${method.toUpperCase()} ${template}` })));

/** Every documented answer, as `STATUS CODE`; without a code if it is no refusal. */
function documented({ responses }) {
  return Object.entries(responses).flatMap(([status, { description, content }]) => {
    const schema = content['application/json']?.schema;
    const codes = (schema?.oneOf?.[0] ?? schema)?.properties?.code?.enum ?? [];
    const isOther = codes.length === 0 || Object.keys(content).length > 1;
    return [...codes.map((code) => `${status} ${code}`), ...(isOther ? [status === '503' ? `503 ${/`([^`]+)`/.exec(description)[1]}` : status] : [])];
  });
}

/** Checks an answer against the document, and returns its status and code. */
function check({ template, method, operation, name }, { status, type, text }) {
  const content = operation.responses[status]?.content;
  assert.ok(content, `${name}: ${status} is not documented: ${text}`);
  const found = Object.keys(content).find((known) => known === type);
  assert.ok(found, `${name}: ${status} ${type} is not documented`);
  if (found !== 'application/json') return `${status}`;
  const value = JSON.parse(text);
  const validate = ajv.getSchema(pointer('paths', template, method, 'responses', status, 'content', found, 'schema'));
  assert.ok(validate(value), `${name}: ${text} ${JSON.stringify(validate.errors)}`);
  const code = value.code ?? value.error?.code;
  return code ? `${status} ${code}` : `${status}`;
}

test('the document is valid OpenAPI 3.1', async () => {
  assert.equal(api.openapi.slice(0, 4), '3.1.');
  const { valid, errors } = await new Validator().validate(structuredClone(api));
  assert.ok(valid, JSON.stringify(errors));
});

test('the examples in the document match their schemas', () => {
  for (const [name, { examples = [] }] of Object.entries(api.components.schemas)) {
    const validate = ajv.getSchema(pointer('components', 'schemas', name));
    for (const example of examples) assert.ok(validate(example), `${name}: ${JSON.stringify(validate.errors)}`);
  }
  const message = ajv.getSchema(pointer('components', 'schemas', 'Message'));
  assert.ok(message(JSON.parse(MESSAGE)) && !message({ data: 1 }) && !message({ room: 'lobby' }) && !message({ room: '', data: 1 }));
});

test('a server answers as documented: every operation, status and code', async (t) => {
  const origin = await upstream(t);
  origin.documents.set('fetched/a', (_, response) => response.writeHead(500).end());
  const server = await serve(t, {
    config: `
[server]
admin_token = "${TOKEN}"
[auth]
anonymous = "allow"
revocations_max = 2
${issuer}[[permissions]]
topics = ["**"]
allow = ["subscribe"]
to = "anyone"
[rooms]
presence = ["present"]
[limits]
message_bytes_max = 1000
subscriptions_max = 4
[admin_limits]
body_timeout = "300ms"
connections_max = 8
[feeds_limits]
pushed_keys_max = 2
pushed_documents_bytes_max = "64KiB"
pushed_document_bytes_max = "100KiB"
[[feeds]]
name = "fetched"
prefix = "fetched/"
url = "${origin.url}/"
[[feeds]]
name = "pushed"
key = "{id}"
push = true
`,
  });
  const { admin } = server;
  const [publish, emit, join, leave, disconnect, sessions, nodeSessions, rooms, members, revoke, revocations, keys, put, remove, fetched, status, overview, nodes, links, metrics, health, ready, reload] = [
    ...['publish', 'emit', 'join', 'leave', 'disconnect', 'sessions'].map((name) => `POST /api/v1/${name}`),
    'GET /api/v1/sessions', 'GET /api/v1/rooms', 'GET /api/v1/rooms/members', 'POST /api/v1/revocations', 'GET /api/v1/revocations', 'GET /api/v1/feeds', 'PUT /api/v1/feeds/{key}', 'DELETE /api/v1/feeds/{key}',
    'POST /api/v1/fetch', 'GET /api/v1/status', 'GET /api/v1/overview', 'GET /api/v1/nodes', 'GET /api/v1/links', 'GET /metrics', 'GET /healthz', 'GET /readyz', 'POST /api/v1/reload',
  ].map((name) => operations.find((operation) => operation.name === name));
  assert.equal(operations.length, 23);
  const seen = new Map(operations.map(({ name }) => [name, new Set()]));
  const provoke = async (operation, expect, key, options) => {
    const target = key?.startsWith('?') ? operation.template + key : operation.template.replace('{key}', key ?? 'a');
    const answer = await send(admin, operation.method.toUpperCase(), target, options);
    assert.equal(check(operation, answer), expect, `${operation.name}: ${answer.text}`);
    seen.get(operation.name).add(expect);
    return answer;
  };
  // A body that is cut off in a chunk.
  const cutOff = async ({ method, template, name }) => {
    const chunks = net.connect(new URL(admin).port, '127.0.0.1');
    chunks.end(`${method.toUpperCase()} ${template.replace('{key}', 'a')} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${TOKEN}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`);
    const [reply] = await event(chunks, 'data');
    assert.match(reply.toString(), /^HTTP\/1\.1 400 .*"code":"message"/s);
    seen.get(name).add('400 message');
  };
  // Subscribes a client to a key, so that its document can't be evicted.
  const subscribe = async (key) => {
    const request = http.get(`${server.http}/sse/${key}`);
    t.after(() => request.destroy());
    const [response] = await event(request, 'response', undefined, 'error');
    await event(response, 'data');
  };

  for (const operation of operations) {
    const body = operation.operation.requestBody && { body: MESSAGE, headers: JSON_TYPE };
    await provoke(operation, '421 host', 'a', { host: 'example.com', ...body });
    await provoke(operation, '403 origin', 'a', { ...body, headers: { Origin: 'http://example.com', ...body?.headers } });
    if (operation !== health && operation !== ready) await provoke(operation, '401 token', 'a', { token: null, ...body });
    await provoke(operation, '400 host', 'a', { host: null, ...body });
  }

  const json = (value) => ({ headers: JSON_TYPE, body: typeof value === 'string' ? value : JSON.stringify(value) });
  const unfinished = { ...json('{'), cut: true };
  await provoke(publish, '200', null, json(MESSAGE));
  await provoke(publish, '200', null, { headers: LINES, body: `${MESSAGE}\n\n${MESSAGE}\n` });
  await provoke(publish, '400 message', null, json('{"data":1}'));
  const { text } = await provoke(publish, '400 message', null, { headers: LINES, body: `${MESSAGE}\n{}\n` });
  assert.deepEqual([JSON.parse(text).published, JSON.parse(text).error.line], [1, 2]);
  await provoke(publish, '413 too_long', null, json(' '.repeat(1001)));
  await provoke(publish, '415 content_type', null, { body: MESSAGE });
  await provoke(publish, '408 timeout', null, unfinished);

  const happened = clock();
  const socket = io(server.http, { transports: ['websocket'] });
  t.after(() => socket.close());
  const told = (name) => within(new Promise((resolve) => socket.once(name, resolve)), name);
  await told('connect');
  const command = (own) => json({ sessions: [socket.id], ...own });
  const answered = async (...request) => JSON.parse((await provoke(...request)).text);
  assert.deepEqual(await answered(join, '200', null, command({ join: ['lobby', 'other'] })), { sessions: 1 });
  assert.deepEqual(await answered(join, '200', null, command({ join: ['too', 'many'] })), { sessions: 0, refused: 1 });
  const news = told('news');
  assert.deepEqual(await answered(emit, '200', null, json({ rooms: ['lobby', 'other'], event: 'news', data: 7 })), { sessions: 1 });
  assert.equal(await news, 7);
  socket.on('question', (a, b, acknowledge) => acknowledge(a + b, 'é'));
  const question = { event: 'question', args: [1, 2], ack: { timeout: '60s' } };
  assert.deepEqual(await answered(emit, '200', null, command(question)), { sessions: 1, acknowledgements: [[3, 'é']], missing: 0 });
  const unheard = { event: 'unheard', data: 1, ack: { timeout: '1ms' } };
  assert.deepEqual(await answered(emit, '200', null, command(unheard)), { sessions: 1, acknowledgements: [], missing: 1 });
  const listed = await answered(sessions, '200', null, command({}));
  assert.deepEqual([listed.count, listed.truncated, listed.sessions[0].id], [1, false, socket.id]);
  const inNamespace = { ...listed, sessions: [{ ...listed.sessions[0], namespace: '/' }] };
  assert.deepEqual(await answered(nodeSessions, '200', `?search=${socket.id}&limit=1`), inNamespace);
  assert.equal((await answered(nodeSessions, '200', '?search=nobody')).count, 0);
  assert.deepEqual(await answered(rooms, '200', null), { rooms: [{ name: 'lobby', sessions: 1 }, { name: 'other', sessions: 1 }, { name: 'too', sessions: 1 }] });
  assert.equal((await answered(rooms, '200', '?limit=1')).next, 'lobby');
  assert.deepEqual(await answered(leave, '200', null, command({ leave: ['lobby'] })), { sessions: 1 });
  const { id } = socket;
  const ended = told('disconnect');
  assert.deepEqual(await answered(disconnect, '200', null, command({ close: true })), { sessions: 1 });
  assert.equal(await ended, 'io server disconnect');
  const { ended: [{ since: openedAt, ended: endedAt, ...gone }], ...left } = await answered(sessions, '200', null, json({ sessions: [id] }));
  const end = { event: 'ended', reason: 'closed_by_application', count: 1, first: endedAt, last: endedAt };
  assert.deepEqual([left, gone], [{ sessions: [], count: 0, truncated: false }, { id, protocol: 'socketio', address: '127.0.0.1', timeline: [end] }]);
  assert.ok(happened(openedAt * 1000) && openedAt <= endedAt && happened(endedAt * 1000), `${openedAt} ${endedAt}`);
  for (const operation of [emit, join, leave, disconnect, sessions, revoke, fetched]) {
    await provoke(operation, '400 command', null, json({}));
    await provoke(operation, '413 too_long', null, json(' '.repeat(1001)));
    await provoke(operation, '415 content_type', null, { headers: LINES, body: '{}' });
    await provoke(operation, '408 timeout', null, unfinished);
    await cutOff(operation);
  }
  await provoke(rooms, '400 query', '?x=1');
  for (const query of ['?x=1', '?limit=0', '?limit=1001', '?search=%ff']) await provoke(nodeSessions, '400 query', query);
  await provoke(overview, '400 query', '?x=1');
  for (const query of ['?x=1', '', '?room=', '?room=a&limit=0', '?room=a&limit=1001', '?room=a&after=me', '?room=a&namespace=']) {
    await provoke(members, '400 query', query);
  }

  const users = await Promise.all(['Ada', 'Bob'].map(async (name, id) => {
    const user = io(server.http, { forceNew: true, transports: ['websocket'], auth: { token: token({ sub: `${id}`, stentor: { info: { name } } }) } });
    t.after(() => user.close());
    await event(user, 'connect');
    return user;
  }));
  const ids = users.map(({ id }) => id).sort();
  await provoke(join, '200', null, json({ sessions: ids, join: ['present', 'other'] }));
  const described = await answered(sessions, '200', null, json({ sessions: [users[0].id] }));
  const [{ since, rooms: joined, ...rest }] = described.sessions;
  assert.deepEqual([rest, joined.sort()], [{
    id: users[0].id, protocol: 'socketio', user: { id: '0', issuer: ISSUER }, info: { name: 'Ada' }, address: '127.0.0.1', transport: 'websocket', send_buffer_bytes: 0,
  }, ['other', 'present']]);
  assert.ok(happened(since * 1000), `${since}`);
  const exactly = async (query) => (await answered(nodeSessions, '200', `?${new URLSearchParams(query)}`)).sessions.map(({ user }) => user?.id).sort();
  assert.deepEqual(await exactly({ user: '0', issuer: ISSUER }), ['0']);
  assert.deepEqual(await exactly({ issuer: ISSUER, address: '127.0.0.1' }), ['0', '1']);
  for (const query of [{ user: '' }, { user: '0', issuer: `${ISSUER}x` }, { user: '0', address: '127.0.0' }]) assert.deepEqual(await exactly(query), [], JSON.stringify(query));
  // An event of a session's timeline: a refused request.
  assert.equal((await users[0].timeout(PATIENCE_MS).emitWithAck('subscribe', '//')).code, 'bad_key');
  const [{ timeline: [{ first: began, last, ...refusal }] }] = (await answered(sessions, '200', null, json({ sessions: [users[0].id] }))).sessions;
  assert.deepEqual([refusal, began], [{ event: 'request_refused', reason: 'bad_key', count: 1 }, last]);
  assert.ok(happened(began * 1000), `${began}`);
  // The room's home core learns of its members a moment later.
  await until('both members', async () => (await answered(members, '200', '?room=present')).members.length === 2);
  const { members: all, ...counted } = await answered(members, '200', '?room=present&namespace=%2F');
  assert.deepEqual(counted, { count: 2 });
  assert.deepEqual(all.map(({ session }) => session).sort(), ids);
  const ada = all.find(({ session }) => session === users[0].id);
  assert.deepEqual([ada.user, ada.info], [{ id: '0', issuer: ISSUER }, { name: 'Ada' }]);
  assert.ok(happened(ada.since * 1000), `${ada.since}`);
  const first = await answered(members, '200', '?room=present&limit=1');
  assert.deepEqual([first.members, first.count, first.next], [[all[0]], 2, all[0].session]);
  assert.deepEqual(await answered(members, '200', `?room=present&limit=1&after=${first.next}`), { members: [all[1]], count: 2 });
  assert.deepEqual(await answered(members, '200', '?room=other'), { members: [], count: 2 }, 'a room without presence');
  assert.deepEqual(await answered(members, '200', '?room=nobody'), { members: [], count: 0 });

  assert.deepEqual(await answered(revoke, '200', null, json({ subject: '42' })), { sessions: 0 });
  assert.deepEqual(await answered(revoke, '200', null, json({ token_id: 't1', issuer: ISSUER })), { sessions: 0 });
  await provoke(revoke, '507 too_many_revocations', null, json({ issued_before: 1700000000 }));
  const kept = (await answered(revocations, '200')).revocations;
  assert.deepEqual(kept.map(({ subject, token_id: id }) => subject ?? id), ['42', 't1']);

  for (const [key, expect, options] of [
    ['a', '200', json({ n: 1 })],
    ['a?sequence=7', '200', json({ n: 2 })],
    ['a?sequence=6', '409 sequence', json({ n: 3 })],
    ['a//b', '400 key', json('1')],
    ['a?n=1', '400 query', json('1')],
    ['a', '415 content_type', { body: '1' }],
    ['a', '415 content_encoding', { headers: { ...JSON_TYPE, 'Content-Encoding': 'zstd' }, body: '1' }],
    ['a', '400 document', json('{')],
    ['fetched/a', '409 fetched', json('1')],
    ['a', '413 too_long', json(`"${'x'.repeat(110_000)}"`)],
    ['a', '408 timeout', unfinished],
    ['b', '200', json({ n: 1 })],
  ]) await provoke(put, expect, key, options);
  await Promise.all(['a', 'b'].map(subscribe));
  // The clients have their streams before the control plane knows that the keys have subscribers, so c may evict one of them. As
  // the keys are declared, its subscriber waits for the next document; otherwise it would get `not_found`.
  const again = async (method, key) => (await send(admin, method, `/api/v1/feeds/${key}`, json({ n: 1 }))).status;
  await until('a and b have subscribers', async () => {
    const isTaken = await again('PUT', 'c') === 200;
    // Also after a refusal: c may have evicted one whose subscriber became known at the same time.
    for (const [method, key] of [...isTaken ? [['DELETE', 'c']] : [], ['PUT', 'a'], ['PUT', 'b']]) assert.equal(await again(method, key), 200, key);
    return !isTaken;
  });
  await provoke(put, '507 too_many_keys', 'c', json('1'));
  await provoke(put, '507 no_space', 'b', json(`"${'x'.repeat(90_000)}"`));
  await cutOff(put);

  // An evicted document's sequence is forgotten.
  await provoke(put, '200', 'a?sequence=8', json({ n: 2 }));
  for (const [key, expect] of [['a?sequence=6', '409 sequence'], ['a', '200'], ['a', '404 not_found'], ['a//b', '400 key'], ['a?n=1', '400 query'], ['fetched/a', '409 fetched']]) {
    await provoke(remove, expect, key);
  }

  for (const [key, expect] of [['a//b', '400 key'], ['a', '404 no_feed'], ['fetched/a', '200']]) await provoke(fetched, expect, null, json({ key }));
  const fetching = ['fetch', '--admin', admin, '--token', TOKEN];
  const failing = await run(...fetching, 'fetched/a');
  assert.match(failing.stdout, /^feed: fetched\nURL: .*\/fetched\/a\n.*\nstatus: 500 .*\nfailure: server_error: /s);
  assert.deepEqual([failing.code, failing.stderr], [1, '']);
  origin.documents.set('fetched/b', { n: 1 });
  const found = await run(...fetching, 'fetched/b');
  assert.match(found.stdout, /\ndocument: application\/json, 7 bytes, of 7 received\nnext fetch: after 1s \(poll_interval\)\n$/);
  assert.deepEqual([found.code, found.stderr], [0, '']);
  const pushed = await run(...fetching, 'a');
  assert.deepEqual([pushed.code, pushed.stderr], [1, `error: ${admin} refused the key (404): no feed with a URL is configured for a\n`]);

  // A feed that fails, so that the status has all of its members.
  await within(fetch(`${server.http}/feed/fetched/a`), 'an answer');
  await subscribe('fetched/b');
  // The stream begins before the key's document is fetched.
  await until('a document of fetched/b', async () => (await answered(keys, '200', '?search=fetched/b')).feeds[0]?.state === 'live');
  const { feeds: rows, ...sums } = await answered(keys, '200', '?search=fetched');
  assert.deepEqual([rows.map(({ key, state }) => `${key} ${state}`), sums], [['fetched/a stale', 'fetched/b live'], { count: 2, truncated: false }]);
  const [{ reason, failures, failing_since: failedAt, last_success: never }, { fetch_seconds: took, last_success: fetchedAt, next_fetch: fetchAt, ...live }] = rows;
  assert.ok(reason.includes('500') && failures > 0 && took > 0, JSON.stringify(rows));
  assert.ok(happened(failedAt * 1000) && happened(fetchedAt * 1000) && never === undefined, JSON.stringify(rows));
  // A key that is being fetched has no next time.
  assert.ok(fetchAt === undefined || fetchAt >= fetchedAt, `${fetchAt}`);
  assert.deepEqual(live, { key: 'fetched/b', pushed: false, upstream: 'fetched', url: `${origin.url}/fetched/b`, state: 'live', failures: 0, document_bytes: 7, subscribed: true, subscribers: 1 });
  const pushedRows = (await answered(keys, '200')).feeds.filter((row) => row.pushed);
  assert.deepEqual(pushedRows, [{ key: 'b', pushed: true, state: 'live', document_bytes: 7, subscribed: true, subscribers: 1 }]);
  assert.equal((await answered(keys, '200', '?limit=1')).truncated, true);
  await provoke(keys, '400 query', '?x=1');
  await provoke(overview, '200');
  await provoke(overview, '200', '?after_ms=1');
  const { text: state } = await provoke(status, '200');
  assert.equal(JSON.parse(state).upstreams[0].last_failure.key, 'fetched/a');
  assert.deepEqual(await answered(nodes, '200'), { nodes: [] });
  assert.deepEqual(await answered(links, '200'), { links: [] });
  await provoke(metrics, '200');
  await provoke(health, '200', null, { token: null });
  await provoke(ready, '200', null, { token: null });
  assert.deepEqual(await answered(reload, '200'), { applied: [], restart_needed: [], warnings: [] });
  writeFileSync(server.configFile, 'nothing');
  await provoke(reload, '422 configuration');

  for (const operation of operations) {
    // Not the Allow header of HTTP alone: also none of the other methods.
    const methods = Object.keys(api.paths[operation.template]);
    for (const method of ['get', 'post', 'put', 'delete', 'patch', 'options'].filter((method) => !methods.includes(method))) {
      const answer = await send(admin, method.toUpperCase(), operation.template.replace('{key}', 'a'));
      assert.deepEqual([answer.status, JSON.parse(answer.text).code], [405, 'method'], `${method} ${operation.template}`);
    }
    const query = operation === members ? '?room=a' : '';
    if (methods.includes('get')) assert.equal((await send(admin, 'HEAD', `${operation.template}${query}`)).status, 200);
  }
  for (const unknown of ['/x', '/api', '/api/v1', '/api/v1/feed', '/api/v1/feeds/', '/api/v2/publish', '/api/v1/publish/', '/metrics/x']) {
    const answer = await send(admin, 'GET', unknown);
    assert.deepEqual([answer.status, JSON.parse(answer.text).code], [404, 'route'], unknown);
  }

  // Connections beyond the limit, last.
  const held = [];
  const refused = [];
  for (const operation of operations) {
    while (held.length < 8) {
      const socket = net.connect(new URL(admin).port, '127.0.0.1');
      t.after(() => socket.destroy());
      // Without the token, the oldest would make room.
      socket.write(`GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`);
      if (/ 200 /.test(await event(socket, 'data'))) held.push(socket);
    }
    refused.push(await provoke(operation, '503 connections_max', 'a', operation.operation.requestBody && json('1')));
  }
  assert.equal(refused.length, operations.length);

  for (const { name, operation } of operations) {
    const missing = documented(operation).filter((answer) => !seen.get(name).has(answer) && !ELSEWHERE.has(answer));
    assert.deepEqual(missing, [], `${name}: documented, but not provoked`);
  }
});
