// Requests to the admin API, with the token that the operator has entered.

const KEY = 'stentor.admin_token';
const TIMEOUT_MS = 10_000;
/** `POST /api/v1/fetch` answers when the upstream has. */
const FETCH_TIMEOUT_MS = 60_000;

export const token = {
  get isSet() { return sessionStorage.getItem(KEY) !== null; },
  set(value) { sessionStorage.setItem(KEY, value); },
  clear() { sessionStorage.removeItem(KEY); },
};

class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

/** Sends a request to `api/v1/PATH`: with a body a POST, otherwise a GET. */
export async function ask(path, body) {
  const secret = sessionStorage.getItem(KEY);
  const headers = { ...(secret !== null && { Authorization: `Bearer ${secret}` }), ...(body && { 'Content-Type': 'application/json' }) };
  const options = { headers, credentials: 'omit', ...(body && { method: 'POST', body: JSON.stringify(body) }) };
  const signal = AbortSignal.timeout(path === 'fetch' ? FETCH_TIMEOUT_MS : TIMEOUT_MS);
  const response = await fetch(`api/v1/${path}`, { ...options, signal });
  const value = await response.json();
  if (!response.ok) throw new Refused(response.status, value.message);
  return value;
}
