// What the transports over plain HTTP share.

/** A document as it was sent: JSON, or else a text. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** What an answer that is none says about coming back. */
export function failure(response) {
  const { status, headers } = response;
  // The request itself was refused, and would be again: but not where it came too early or too late (RFC 9110, 15.5).
  const again = !(status >= 400 && status < 500 && status !== 408 && status !== 429);
  return { code: status, reason: `the server answers ${status}`, again, afterMs: headers.get('retry-after') * 1000 || 0 };
}
