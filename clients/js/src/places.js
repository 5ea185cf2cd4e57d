// Places for streams: requests that the server answers later, or doesn't end.
//
// Over HTTP/1.1, browsers open six connections to a server, for all tabs together. So that other requests never wait for one, all tabs that follow a
// server hold at most `PLACES` streams. Each has a Web Lock, which the browser releases when the tab ends.

const PLACES = 3;

/** Takes a place for a stream from the server at `base`: returns how to leave it, or `undefined` if all are taken. */
export async function takePlace({ href }) {
  const { location, navigator } = globalThis;
  // Node has no tabs, and insecure pages have no locks.
  if (!location || !navigator?.locks) return () => {};
  for (let n = 0; n < PLACES; n++) {
    const leave = await new Promise((resolve) => {
      // The lock is held until `leave()`.
      const held = (lock) => (lock ? new Promise(resolve) : resolve());
      navigator.locks.request(`stentor ${n} ${href}`, { ifAvailable: true }, held).catch(() => resolve(() => {}));
    });
    if (leave) return leave;
  }
}
