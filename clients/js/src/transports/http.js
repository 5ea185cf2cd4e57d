// Shared by the transports over plain HTTP.

import { StentorError } from '../error.js';

/** The error of a request without a response. Browsers open six connections to a server over HTTP/1.1. */
export const noResponse = () => new StentorError('no_response', "no response: the server is slow, or other tabs use all connections to it", true);

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

/** A request with the token and the cookies of the options. */
export function request({ token, withCredentials }, headers, more) {
  if (token) headers.Authorization = `Bearer ${token}`;
  return { headers, ...(withCredentials && { credentials: 'include' }), ...more };
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
