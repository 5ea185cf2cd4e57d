'use strict';
// Names come from untrusted clients: all text is set as text, never as HTML.
(() => {
  const STATUS_MS = 1000;
  const LISTS_MS = 5000;
  const POINTS_MAX = 120;
  const TOKEN = 'stentor.admin_token';
  const SVG = 'http://www.w3.org/2000/svg';
  const at = (id) => document.getElementById(id);
  const number = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
  const show = (value) => (typeof value === 'number' ? number.format(value) : String(value));
  const words = (name) => name.replaceAll('_', ' ');

  function bytes(value) {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
    return `${number.format(value)} ${units[unit]}`;
  }

  function duration(seconds) {
    if (seconds < 120) return `${seconds} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
  }

  function cell(kind, text) {
    const element = document.createElement(kind);
    element.textContent = show(text);
    return element;
  }

  /** Fills a table: each row is a name and its values. */
  function fill(id, rows, { head, empty = 'None' } = {}) {
    const row = (kinds, values) => {
      const line = document.createElement('tr');
      line.append(...values.map((value, i) => cell(kinds[i] ?? kinds.at(-1), value)));
      return line;
    };
    const body = document.createElement('tbody');
    body.append(...(rows.length ? rows.map((values) => row(['th', 'td'], values)) : [row(['th'], [empty])]));
    const top = document.createElement('thead');
    if (head && rows.length) top.append(row(['th'], head));
    at(id).replaceChildren(top, body);
  }

  class Refused extends Error {
    constructor(status, message) { super(message); this.status = status; }
  }

  async function ask(path, body) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = { ...(token && { Authorization: `Bearer ${token}` }), ...(body && { 'Content-Type': 'application/json' }) };
    const options = { headers, credentials: 'omit', ...(body && { method: 'POST', body: JSON.stringify(body) }) };
    const response = await fetch(path, { ...options, signal: AbortSignal.timeout(10_000) });
    const value = await response.json();
    if (!response.ok) throw new Refused(response.status, value.message);
    return value;
  }

  // The values that are drawn over time: a gauge, or with `true` the increase of a counter per second.
  const trends = [
    ['Connections', 'connections'], ['Sessions', 'sessions'], ['Messages received a second', 'messages_received', true],
    ['Deliveries a second', 'deliveries_sent', true], ['Bytes received a second', 'received_bytes', true],
  ].map(([title, name, isCounter]) => ({ title, read: (figures) => figures[name] ?? 0, isCounter, points: [] }));

  function build(trend) {
    const figure = document.createElement('figure');
    const caption = document.createElement('figcaption');
    trend.value = document.createElement('b');
    caption.append(`${trend.title} `, trend.value);
    const svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('viewBox', '0 0 120 30');
    svg.setAttribute('preserveAspectRatio', 'none');
    svg.setAttribute('aria-hidden', 'true');
    trend.line = document.createElementNS(SVG, 'polyline');
    svg.append(trend.line);
    figure.append(caption, svg);
    return figure;
  }
  at('trends').append(...trends.map(build));

  /** Each protocol has a trend from its first session on. */
  function drawProtocols(sessions = {}) {
    for (const [name, count] of Object.entries(sessions)) {
      if (count === 0 || trends.some(({ protocol }) => protocol === name)) continue;
      const trend = { title: `Sessions: ${name}`, protocol: name, read: (figures) => figures.sessions_by_protocol?.[name] ?? 0, points: [] };
      trends.push(trend);
      at('trends').append(build(trend));
    }
  }

  let last;
  function draw(figures, time) {
    // After a restart of the server, its counters begin at zero, so there is no rate yet.
    const passed = last && figures.deliveries_sent >= last.figures.deliveries_sent ? (time - last.time) / 1000 : 0;
    for (const trend of trends) {
      const now = trend.read(figures);
      if (trend.isCounter && passed === 0) continue;
      const value = trend.isCounter ? Math.max(0, now - trend.read(last.figures)) / passed : now;
      trend.points.push(value);
      if (trend.points.length > POINTS_MAX) trend.points.shift();
      trend.value.textContent = show(value);
      const max = Math.max(1, ...trend.points);
      const from = POINTS_MAX - trend.points.length;
      trend.line.setAttribute('points', trend.points.map((point, i) => `${from + i},${(29 - (point / max) * 28).toFixed(1)}`).join(' '));
    }
    last = { figures, time };
  }

  const pick = (figures, names) => names.filter((name) => name in figures).map((name) => [words(name), figures[name]]);
  const counts = (values = {}) => Object.entries(values).filter(([, value]) => value > 0).sort(([, a], [, b]) => b - a);

  function showStatus(status) {
    const figures = status.data_plane;
    drawProtocols(figures.sessions_by_protocol);
    draw(figures, performance.now());
    const { process } = status;
    const parts = [`version ${status.version}`, status.ready ? 'ready' : 'not ready', `up ${duration(status.uptime_seconds)}`];
    if (process) parts.push(`${bytes(process.resident_bytes)} resident`, `${show(process.file_descriptors)} of ${show(process.file_descriptors_max)} file descriptors`);
    say(parts.join(' · '));
    fill('sessions', [
      ...counts(figures.sessions_by_protocol),
      ...pick(figures, ['engineio_sessions', 'sockjs_sessions', 'socketio_recovery_sockets', 'identities', 'connections_accepted', 'topics']),
    ]);
    fill('pressure', pick(figures, ['deliveries_pending', 'send_buffer_bytes', 'deliveries_dropped', 'deliveries_conflated', 'deliveries_dropped_on_disconnect', 'connections_paused', 'mailbox_overflow_messages']));
    const { memory_bytes: memory = {}, memory_bytes_max: budget } = figures;
    const sum = Object.values(memory).reduce((a, b) => a + b, 0);
    fill('memory', [['all', `${bytes(sum)} of ${bytes(budget ?? 0)}`], ...counts(memory).map(([name, value]) => [words(name), bytes(value)])]);
    fill('errors', pick(figures, ['protocol_errors', 'http_request_errors', 'connections_refused', 'connections_evicted', 'connections_limited', 'sessions_limited', 'messages_limited', 'tokens_refused', 'origins_refused', 'publications_refused', 'memory_overloads', 'accept_errors', 'tls_errors']));
    fill('disconnects', counts(figures.disconnects).map(([name, value]) => [words(name), value]));
    fill('feeds', Object.entries(status.feeds).map(([name, value]) => (name === 'documents_bytes' ? ['documents', bytes(value)] : [words(name), value])));
    fill('upstreams', status.upstreams.map(({ name, fetches, failures, last_failure: failure }) =>
      [name, fetches, failures, failure ? `${failure.key}: ${failure.message} (${duration(failure.seconds_ago)} ago)` : '']), { head: ['name', 'fetches', 'failures', 'last failure'] });
  }

  function say(text, failed = false) {
    at('state').textContent = text;
    at('state').classList.toggle('failed', failed);
  }

  async function showLists() {
    const [{ rooms, next }, { nodes }] = await Promise.all([ask('api/v1/rooms?limit=100'), ask('api/v1/nodes')]);
    rooms.sort((a, b) => b.sessions - a.sessions);
    fill('rooms', [...rooms.map(({ name, sessions }) => [name, sessions]), ...(next ? [['There are more.', '']] : [])], { head: ['room', 'sessions'] });
    fill('nodes', nodes.map((node) => [node.this ? `${node.name} (this node)` : node.name, node.version, duration(node.uptime_seconds), node.connections]),
      { head: ['name', 'version', 'uptime', 'connections'], empty: 'This node is in no cluster.' });
  }

  /** Runs a request, and says if it fails. Without the right token, the page asks for it. */
  async function attempt(request) {
    try {
      await request();
      return true;
    } catch (error) {
      const unknown = error.status === 401;
      if (unknown) {
        const had = sessionStorage.getItem(TOKEN) !== null;
        sessionStorage.removeItem(TOKEN);
        at('login').hidden = false;
        at('main').hidden = true;
        say(had ? 'The server refused the token.' : 'The server requires its admin token.', had);
      } else {
        say(`No status: ${error.message}`, true);
      }
      return false;
    }
  }

  let listed = -Infinity;
  async function refresh() {
    if (!document.hidden && at('login').hidden) {
      const isShown = await attempt(async () => showStatus(await ask('api/v1/status')));
      if (isShown) at('main').hidden = false;
      if (isShown && performance.now() - listed >= LISTS_MS) {
        listed = performance.now();
        await attempt(showLists);
      }
    }
    setTimeout(refresh, STATUS_MS);
  }

  at('login').addEventListener('submit', (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, at('token').value);
    at('token').value = '';
    at('login').hidden = true;
    listed = -Infinity;
  });

  let shown;
  at('find').addEventListener('submit', async (event) => {
    event.preventDefault();
    const id = at('id').value.trim();
    shown = undefined;
    at('disconnect').hidden = true;
    at('session').replaceChildren();
    try {
      const { sessions: [session] } = await ask('api/v1/sessions', { sessions: [id] });
      if (!session) {
        at('found').textContent = 'No session has this id.';
        return;
      }
      shown = session.id;
      at('found').textContent = '';
      const { user, info, address, since } = session;
      fill('session', [
        ['id', session.id], ['protocol', session.protocol],
        ...(user ? [['user', user.id], ['issuer', user.issuer]] : []),
        ...(info === undefined ? [] : [['info', JSON.stringify(info)]]),
        ...(address ? [['address', address]] : []),
        ...(since === undefined ? [] : [['since', `${new Date(since * 1000).toISOString().replace('.000', '')} (${duration(Math.max(0, Math.round(Date.now() / 1000) - since))})`]]),
        ['send buffer', bytes(session.send_buffer_bytes)],
        ...session.rooms.map((room) => ['room', room]),
      ]);
      at('disconnect').hidden = false;
    } catch (error) {
      at('found').textContent = error.message;
    }
  });

  at('disconnect').addEventListener('click', async () => {
    at('disconnect').hidden = true;
    try {
      const { sessions } = await ask('api/v1/disconnect', { sessions: [shown], close: true });
      at('found').textContent = sessions > 0 ? 'The session is disconnected.' : 'No session has this id.';
      at('session').replaceChildren();
    } catch (error) {
      at('found').textContent = error.message;
    }
  });

  refresh();
})();
