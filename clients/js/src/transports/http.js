// Shared by the transports over plain HTTP.

/**
 * The path that such a transport requests every `heartbeatTimeoutMs` while the application has no feed, to see whether the server answers.
 * Pages of allowed origins can read the answer, and it doesn't count as an error in the server's metrics.
 */
export const CHECK_PATH = 'primus/spec';

/** A key in a path or in the id of an event. */
export const encoded = (key) => key.split('/').map(encodeURIComponent).join('/');

/** A document as it was sent: JSON, or else a text. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The headers of a request with the token of the options. */
export function authorization({ token }) {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** The details of `lost` for a response that isn't a document. */
export function failure(response) {
  const { status, headers } = response;
  // 4xx: the server would refuse the same request again, except 408 and 429 (RFC 9110, section 15.5; RFC 6585).
  // With a new token, it isn't the same.
  const challenge = headers.get('www-authenticate') ?? '';
  const isExpired = challenge.includes('token_expired');
  const token = isExpired ? 'expired' : status === 401 ? 'refused' : undefined;
  const retry = !/^4(?!08|29)/.test(status) || isExpired;
  return { code: status, reason: `the server answers ${status} ${challenge}`.trim(), retry, token, afterMs: headers.get('retry-after') * 1000 || 0 };
}

/** The details of `lost` for a successful response that isn't the server's: of a captive portal, or a proxy's page. */
export function foreign({ headers }) {
  return { reason: `something else answers in place of the server: ${headers.get('content-type')}` };
}

/** Whether a response has this content type. */
export const isOf = (type, { headers }) => headers.get('content-type')?.startsWith(type);
