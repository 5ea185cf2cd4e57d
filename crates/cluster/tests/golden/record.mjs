// Records what Socket.IO's packages publish, with what it means: `npm install && node record.mjs`. See README.md.
import { EventEmitter } from "node:events";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import adapters from "@socket.io/redis-adapter";
import { Emitter } from "@socket.io/redis-emitter";
import { Server } from "socket.io";
import { io as connect } from "socket.io-client";

const oldEmitter = createRequire(import.meta.url)("socket.io-emitter");
const { createAdapter, createShardedAdapter } = adapters;

/** Redis's publish and subscribe, as far as the packages use it. Reports each message to `published`. */
class Redis {
  subscriptions = [];
  published = () => {};
  async publish(channel, message) {
    const payload = Buffer.from(message);
    this.published(channel, payload);
    for (const { matches, handler } of this.subscriptions) {
      if (matches(channel)) setImmediate(handler, payload, Buffer.from(channel));
    }
  }
  client() {
    const client = new EventEmitter();
    const subscribe = async (channels, handler) =>
      [channels].flat().forEach((name) => this.subscriptions.push({ matches: (channel) => channel === name, name, handler }));
    const publish = (channel, message) => this.publish(channel, message);
    return Object.assign(client, {
      hset: true, // The old emitter knows a client by it.
      publish,
      sPublish: publish,
      subscribe,
      sSubscribe: subscribe,
      sUnsubscribe: async () => {},
      pSubscribe: async (pattern, handler) =>
        this.subscriptions.push({ matches: (channel) => channel.startsWith(pattern.slice(0, -1)), handler }),
      sendCommand: async ([, , name]) => [name, this.subscriptions.filter((other) => other.name === name).length],
    });
  }
}

/** A value as Stentor has it: JSON, with placeholders for what is binary. */
function content(values) {
  const attachments = [];
  const replace = (value) => {
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) {
      attachments.push(Buffer.from(value).toString("base64"));
      return { _placeholder: true, num: attachments.length - 1 };
    }
    if (Array.isArray(value)) return value.map(replace);
    if (value === null || typeof value !== "object" || value instanceof Date) return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, replace(part)]));
  };
  return { arguments: JSON.stringify(values.map(replace)).slice(1, -1), attachments };
}

const ARGUMENTS = {
  nothing: [],
  text: ["hello"],
  unicode: ["Grüße ♥ 😀 \u0000\u001f\"\\ \u2028", { "ключ": "値" }],
  integers: [0, 127, 128, 255, 256, 65535, 65536, 2 ** 32 - 1, 2 ** 32, Number.MAX_SAFE_INTEGER],
  "negative integers": [-1, -32, -33, -128, -129, -32768, -32769, -(2 ** 31), -(2 ** 31) - 1, Number.MIN_SAFE_INTEGER],
  "other numbers": [1.5, -0.1, 1e-7, 1e15 + 0.5, 5e-324],
  "not numbers": [NaN, Infinity],
  "null and undefined": [null, undefined, { a: undefined, b: null }, [undefined]],
  booleans: [true, false],
  dates: [
    new Date(0), new Date("2026-01-02T03:04:05Z"), new Date("2026-01-02T03:04:05.678Z"), new Date("1969-12-31T23:59:59.999Z"),
    new Date("2600-01-01T00:00:00Z"), new Date(8.64e15), new Date(-8.64e15),
  ],
  binary: [Buffer.from([0, 1, 0xff]), { image: new Uint8Array([5]), name: "n" }, [new ArrayBuffer(2)]],
  "long binary": [Buffer.alloc(300, 7)],
  nested: [[[], {}, [[1]], { a: { b: [{ c: null }] } }]],
  "long text": ["x".repeat(31), "x".repeat(32), "x".repeat(256), "ü".repeat(40)],
  "many items": [Array.from({ length: 20 }, (_, i) => i), Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, i]))],
};

const TARGETS = {
  "no room": {},
  "one room": { rooms: ["lobby"] },
  "several rooms": { rooms: ["a", "b", "#c#"] },
  except: { rooms: ["a"], except: ["x", "y"] },
  "except only": { except: ["x"] },
  volatile: { flags: { volatile: true } },
  "not compressed": { rooms: ["a"], flags: { compress: false } },
};

function aim(operator, { rooms = [], except = [], flags = {} }) {
  if (rooms.length) operator = operator.to(rooms);
  if (except.length) operator = operator.except(except);
  if (flags.volatile) operator = operator.volatile;
  if ("compress" in flags) operator = operator.compress(flags.compress);
  return operator;
}

const broadcast = (uid, namespace, { rooms = [], except = [], flags = {} }, event, values) =>
  ({ uid, namespace, rooms, except, flags, event, ...content(values) });

/** Runs `action` and returns the vectors of what is published meanwhile. `meaning`: what its messages mean, in order. */
async function record(redis, name, meaning, action) {
  const seen = [];
  redis.published = (channel, payload) => seen.push({ channel, payload: payload.toString("base64") });
  await action();
  for (let waits = 0; seen.length < meaning.length && waits < 200; waits++) await sleep(10);
  redis.published = () => {};
  if (seen.length !== meaning.length) throw new Error(`${name}: ${seen.length} messages instead of ${meaning.length}`);
  return seen.map((vector, i) => ({
    name: meaning.length > 1 ? `${name}, message ${i + 1}` : name,
    ...vector,
    meaning: typeof meaning[i] === "function" ? meaning[i](Buffer.from(vector.payload, "base64")) : meaning[i],
  }));
}

const write = (file, vectors) => writeFileSync(new URL(file, import.meta.url), `${JSON.stringify(vectors, null, 1)}\n`);

async function broadcasts(redis, operatorOf, uidOf) {
  const vectors = [];
  for (const [name, values] of Object.entries(ARGUMENTS)) {
    const meaning = broadcast(uidOf("/"), "/", {}, "event", values);
    vectors.push(...(await record(redis, `arguments: ${name}`, [meaning], () => operatorOf("/").emit("event", ...values))));
  }
  for (const namespace of ["/", "/chat"]) {
    for (const [name, target] of Object.entries(TARGETS)) {
      const meaning = broadcast(uidOf(namespace), namespace, target, "event", [1]);
      const emit = () => aim(operatorOf(namespace), target).emit("event", 1);
      vectors.push(...(await record(redis, `${namespace}: ${name}`, [meaning], emit)));
    }
  }
  return vectors;
}

/** Two servers with one client each, which is in room `r`. */
async function cluster(redis, adapter) {
  const nodes = [];
  for (const index of [0, 1]) {
    const http = createServer();
    const io = new Server(http, { adapter: adapter(redis.client(), redis.client()) });
    io.of("/chat");
    io.on("connection", (socket) => {
      socket.join("r");
      socket.data = { index };
    });
    await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${http.address().port}`;
    const client = connect(url, { transports: ["websocket"], auth: { token: "t" } });
    await new Promise((resolve) => client.on("connect", resolve));
    client.on("question", (value, answer) => answer(value.binary ? Buffer.from([index, 9]) : { index }, "ignored"));
    io.on("greeting", (value, answer) => typeof answer === "function" && answer({ index, value }));
    nodes.push({ io, client, uid: (namespace) => io.of(namespace).adapter.uid });
  }
  await sleep(100);
  return nodes;
}

const json = (payload) => JSON.parse(payload.toString());
const remote = (socket) => ({
  id: socket.id, rooms: [...socket.rooms], handshake: JSON.stringify(socket.handshake), data: JSON.stringify(socket.data),
});
const only = (io) => [...io.of("/").sockets.values()][0];

async function requests(redis, [a, b]) {
  const uid = a.uid("/");
  const vectors = [];
  const add = async (...parameters) => vectors.push(...(await record(redis, ...parameters)));
  const of = (type, body) => (payload) => ({ request: { uid, id: json(payload).requestId ?? null, type, ...body } });
  const response = (body) => (payload) => ({ response: { id: json(payload).requestId, ...body } });
  const all = { rooms: [], except: [] };
  const some = { rooms: ["r", "s"], except: ["x"] };
  const target = () => a.io.to(["r", "s"]).except("x");

  const rooms = [...b.io.of("/").adapter.rooms.keys()];
  await add("all rooms", [of(1, {}), response({ rooms })], () => a.io.of("/").adapter.allRooms());
  await add("fetch", [of(5, all), response({ sockets: [remote(only(b.io))] })], () => a.io.fetchSockets());
  await add("fetch none", [of(5, { rooms: ["empty"], except: [] }), response({ sockets: [] })], () => a.io.in("empty").fetchSockets());
  await add("fetch from rooms", [of(5, some), response({ sockets: [remote(only(b.io))] })], () => target().fetchSockets());
  await add("join", [of(2, { target: some, names: ["n", "m"] })], () => target().socketsJoin(["n", "m"]));
  await add("join one", [of(2, { target: all, names: ["n"] })], () => a.io.socketsJoin("n"));
  await add("leave", [of(3, { target: some, names: ["n", "m"] })], () => target().socketsLeave(["n", "m"]));
  await add("disconnect nobody", [of(4, { target: { rooms: ["nobody"], except: [] }, close: false })], () => a.io.in("nobody").disconnectSockets());
  await add("close nobody", [of(4, { target: { rooms: ["nobody"], except: [] }, close: true })], () => a.io.in("nobody").disconnectSockets(true));
  const greeting = { event: "greeting", ...content(["ü", { a: [1] }]) };
  await add("server-side emit", [of(6, greeting)], () => a.io.serverSideEmit("greeting", "ü", { a: [1] }));
  const answer = content([{ index: 1, value: 7 }]);
  await add(
    "server-side emit with answer",
    [of(6, { event: "greeting", ...content([7]) }), response({ type: 6, ...answer })],
    () => a.io.serverSideEmit("greeting", 7, () => {}),
  );

  const idOf = (payload) => payload.toString("latin1").match(/requestId\xa6(.{6})/s)[1];
  for (const [name, binary, reply] of [["text", false, { index: 1 }], ["binary", true, Buffer.from([1, 9])]]) {
    const asked = (payload) => ({
      request: {
        uid, id: idOf(payload), type: 7, namespace: "/", rooms: ["r"], except: [],
        flags: { timeout: 500 }, event: "question", ...content([{ binary }]),
      },
    });
    const count = (payload) => ({ response: { id: json(payload).requestId, clientCount: 1 } });
    const answered = (payload) => ({ response: { id: idOf(payload), type: 9, ...content([reply]) } });
    await add(`acknowledged broadcast, ${name}`, [asked, count, answered], () =>
      a.io.to("r").timeout(500).emit("question", { binary }, () => {}));
  }
  const empty = (payload) => ({
    request: {
      uid, id: idOf(payload), type: 7, namespace: "/", rooms: ["empty"], except: [], flags: { timeout: 500 },
      event: "question", ...content([Buffer.from([1])]),
    },
  });
  await add("acknowledged broadcast, no clients", [empty, (payload) => ({ response: { id: json(payload).requestId, clientCount: 0 } })], () =>
    a.io.to("empty").timeout(500).emit("question", Buffer.from([1]), () => {}));
  return vectors;
}

async function emitterRequests(redis, emitter) {
  const vectors = [];
  const add = async (name, body, action) => vectors.push(...(await record(redis, name, [{ request: { id: null, ...body } }], action)));
  const target = { rooms: ["a", "b"], except: ["x"] };
  const operator = () => emitter.to(["a", "b"]).except("x");
  await add("join", { uid: null, type: 2, target, names: ["n"] }, () => operator().socketsJoin("n"));
  await add("leave", { uid: null, type: 3, target, names: ["n", "m"] }, () => operator().socketsLeave(["n", "m"]));
  await add("disconnect", { uid: null, type: 4, target, close: true }, () => operator().disconnectSockets(true));
  await add("disconnect all", { uid: null, type: 4, target: { rooms: [], except: [] }, close: false }, () => emitter.disconnectSockets());
  const greeting = { event: "greeting", ...content(["ü", 1]) };
  await add("server-side emit", { uid: "emitter", type: 6, ...greeting }, () => emitter.serverSideEmit("greeting", "ü", 1));
  return vectors;
}

/** What the sharded adapter publishes, without the answers' meaning: their requests say it. */
async function sharded(redis, [a, b]) {
  const uid = a.uid("/");
  const vectors = await broadcasts(redis, (namespace) => a.io.of(namespace), a.uid);
  const add = async (...parameters) => vectors.push(...(await record(redis, ...parameters)));
  const idOf = (payload) => (payload[0] === 0x7b ? json(payload).data.requestId : payload.toString("latin1").match(/requestId\xb0(.{16})/s)[1]);
  const of = (type, body) => (payload) => ({ request: { uid, namespace: "/", id: type > 6 ? idOf(payload) : null, type, ...body } });
  const response = (body) => (payload) => ({ response: { uid: b.uid("/"), namespace: "/", id: idOf(payload), ...body } });
  const some = { rooms: ["r", "s"], except: ["x"] };
  const target = () => a.io.to(["r", "s"]).except("x");
  await add("join", [of(4, { target: some, names: ["n", "m"] })], () => target().socketsJoin(["n", "m"]));
  await add("leave", [of(5, { target: some, names: ["n"] })], () => target().socketsLeave("n"));
  await add("disconnect nobody", [of(6, { target: { rooms: ["nobody"], except: [] }, close: true })], () => a.io.in("nobody").disconnectSockets(true));
  await sleep(100); // Until the other server has joined and left.
  await add("fetch", [of(7, some), response({ type: 8, sockets: [remote(only(b.io))] })], () => target().fetchSockets());
  await add("server-side emit", [() => ({ request: { uid, namespace: "/", id: null, type: 9, event: "greeting", ...content([1]) } })], () =>
    a.io.serverSideEmit("greeting", 1));
  await add(
    "server-side emit with answer",
    [of(9, { event: "greeting", ...content([7]) }), response({ type: 10, ...content([{ index: 1, value: 7 }]) })],
    () => a.io.serverSideEmit("greeting", 7, () => {}),
  );
  for (const [name, binary, reply] of [["text", false, { index: 1 }], ["binary", true, Buffer.from([1, 9])]]) {
    const asked = (payload) => ({
      request: {
        uid, namespace: "/", id: idOf(payload), type: 3, rooms: ["r"], except: [], flags: { timeout: 500 },
        event: "question", ...content([{ binary }]),
      },
    });
    await add(`acknowledged broadcast, ${name}`, [asked, response({ type: 11, clientCount: 1 }), response({ type: 12, ...content([reply]) })], () =>
      a.io.to("r").timeout(500).emit("question", { binary }, () => {}));
  }
  return vectors;
}

{
  const redis = new Redis();
  const [a, b] = await cluster(redis, createAdapter);
  write("adapter.json", await broadcasts(redis, (namespace) => a.io.of(namespace), a.uid));
  write("requests.json", await requests(redis, [a, b]));
}
{
  const redis = new Redis();
  const emitter = new Emitter(redis.client());
  write("emitter.json", await broadcasts(redis, (namespace) => emitter.of(namespace), () => "emitter"));
  write("emitter-requests.json", await emitterRequests(redis, emitter));
}
{
  const redis = new Redis();
  const emitter = oldEmitter(redis.client());
  const vectors = [];
  for (const [name, values] of Object.entries(ARGUMENTS)) {
    const meaning = broadcast("emitter", "/", {}, "event", values);
    vectors.push(...(await record(redis, `arguments: ${name}`, [meaning], () => emitter.emit("event", ...values))));
  }
  const meaning = broadcast("emitter", "/chat", { rooms: ["a"], flags: { volatile: true } }, "event", [1]);
  vectors.push(...(await record(redis, "a room", [meaning], () => emitter.of("chat").to("a").volatile.emit("event", 1))));
  write("old-emitter.json", vectors);
}
{
  const redis = new Redis();
  write("sharded.json", await sharded(redis, await cluster(redis, (pub, sub) => createShardedAdapter(pub, sub))));
}
process.exit(0);
