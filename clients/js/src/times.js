// Times of a connection in milliseconds, and numbers of attempts.

/** Time in which the WebSocket of `auto` opens before data comes by the next transport. */
export const AUTO_MS = 700;
export const CONNECT_TIMEOUT_MS = 10_000;
/** Attempts with a transport that was open, before the others. */
export const SAME_TRANSPORT_ATTEMPTS = 3;
/** Delays before the client reconnects: after an outage of any length, no longer than those of Socket.IO's client (lab/pages/recovery.mjs). */
export const RECONNECT = { maxMs: 4_000, factor: 1.5 };
/** A connection that lasted this long resets the backoff. */
export const STABLE_MS = 5_000;
/** Longest time until the client tries the first transport again, at first, and after several attempts. */
export const PREFERRED_MS = 10_000;
export const PREFERRED_MAX_MS = 400_000;
/** Least time until the client reconnects to a server that is out of memory. */
export const OVERLOADED_MS = 5_000;
/** Least time until the client asks again for a feed that doesn't exist. */
export const ABSENT_MS = 5_000;
/** Time for the first byte of a response, and for a sign of life, at first; doubled with each race, until a connection has lasted. */
export const RACE_MS = 3_000;
export const RACE_MAX_MS = 24_000;
/** Least time between two races over HTTP that begin as soon as the network has changed: some browsers report each estimate of its speed. */
export const RACE_AGAIN_MS = 10_000;
/** Silence after which the connection is checked when somebody looks at the page. */
export const SILENCE_MS = 10_000;
/** Age of an attempt that begins again when the network changes. */
export const STUCK_MS = 1_000;
/** Connections that end early without a close frame, before the next transport is tried: a proxy may reset them. */
export const RESETS_MAX = 3;
/** Time for which a publication with an id is sent again: less than the five minutes for which servers know ids. */
export const REPEATS_MS = 240_000;
/** Delays between two calls of `getToken` for a token that expires soon. */
export const RENEWAL = { initialMs: 1_000, maxMs: 10_000 };
