// Takes the place of the package socket.io in its own tests: each Server is a worker of a Stentor of its own (stentors.mjs). Only the construction differs. A relay
// accepts the clients of a Server at once, and connects them to Stentor when the worker is linked: many tests send a request in the turn in which they
// create the Server.
const net = require('node:net');
const socketio = require('socket.io');

const { stentors } = globalThis;
const { attach } = socketio.Server.prototype;

/** Accepts clients for a Stentor: { port, worker }. Clients wait for `worker`, a promise. */
function relay(stentor) {
  const self = { port: 0, stentor, worker: null };
  const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true }, async (client) => {
    client.on('error', () => {});
    await self.worker;
    const upstream = net.connect({ port: stentor.port, host: '127.0.0.1', allowHalfOpen: true });
    upstream.on('error', () => client.destroy());
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
    for (const socket of [client, upstream]) socket.setNoDelay(true);
    client.pipe(upstream).pipe(client);
  });
  server.listen(0).unref();
  self.port = server.address().port;
  return self;
}

socketio.Server.prototype.attach = function (http, options) {
  // A Server that listens again at its former port has its former Stentor.
  return attach.call(this, this.relay && Number(http) === this.relay.port ? 0 : http, options);
};

socketio.Server.prototype.initEngine = function (http, options) {
  this.relay ??= relay(stentors.take());
  const { relay: { stentor, port } } = this;
  const address = http.address.bind(http);
  http.address = () => address() && { ...address(), port };
  // The worker's own HTTP server has its real port for Stentor.
  const own = new Proxy(http, {
    get(target, key) {
      if (key === 'address') return address;
      return typeof target[key] === 'function' ? target[key].bind(target) : target[key];
    },
  });
  const link = stentors.attach(this, stentor.admin, { http: own, engine: options, signals: false, settle: 0 });
  // `attach` of the package refuses what these methods do here.
  delete this.listen;
  delete this.attach;
  this.httpServer = http;
  const { close } = this.engine;
  this.engine.close = function () {
    stentor.closed();
    return close.call(this);
  };
  this.relay.worker = link.listen().catch((error) => console.error(error));
};

module.exports = socketio;
