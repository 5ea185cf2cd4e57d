// The page around a connection: the address of its server, and its events. In Node there are none, in workers only some.

import { StentorError } from './error.js';

/** The root of the server at `url`, and whether there is none: a page is being rendered on a server that isn't it. */
export function address(url) {
  const { location } = globalThis;
  const isInert = !location && `${url ?? '/'}`.startsWith('/');
  const base = new URL(url ?? '/', isInert ? 'http://localhost' : location?.href);
  base.protocol = base.protocol.replace(/^ws/, 'http');
  base.search = base.hash = '';
  base.pathname = base.pathname.replace(/\/?$/, '/');
  return { base, isInert };
}

/**
 * Returns an error if the server refuses the page's origin, `false` if it doesn't, `undefined` without an answer or a page. Browsers hide the reason from
 * WebSockets. A POST always carries the origin. A page of another origin can read the server's 403, but not the error page of a proxy.
 */
export async function checkOrigin(base) {
  const { location, fetch } = globalThis;
  const status = location && await fetch(new URL('sse', base), { method: 'POST' }).then((response) => response.status, () => undefined);
  if (status !== 403) return status && false;
  const message = `the server refuses ${location.origin}: add to its configuration [origins] allow = ["${location.origin}"]`;
  console.error(message);
  return new StentorError('origin_refused', message, true);
}

export const isSeen = () => globalThis.document?.visibilityState !== 'hidden';

/** Calls `heard(event)` with `offline`, `online` (or another kind of network, or a page that was frozen), `visible`, `left` and `returned` until `signal` is aborted. */
export function watchPage(heard, signal) {
  const { document, navigator } = globalThis;
  const listen = (target, name, event) => target?.addEventListener?.(name, () => heard(event), { signal });
  listen(globalThis, 'offline', 'offline');
  listen(globalThis, 'online', 'online');
  listen(navigator?.connection, 'change', 'online');
  // A frozen page goes on.
  listen(document, 'resume', 'online');
  document?.addEventListener('visibilitychange', () => isSeen() && heard('visible'), { signal });
  listen(globalThis, 'pagehide', 'left');
  listen(globalThis, 'pageshow', 'returned');
}
