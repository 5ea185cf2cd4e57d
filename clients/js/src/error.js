/**
 * An error: `code` for programs, `message` for humans, `retry` if the same may succeed later; `room` or `feed` if it is about one;
 * `outcome` if it is about a publication.
 */
export class StentorError extends Error {
  constructor(code, message, retry = false) {
    super(message);
    this.name = 'StentorError';
    this.code = code;
    this.retry = retry;
  }
}

/** What a transport requires: from the options, or a global. */
export function library(options, name) {
  const found = options[name] ?? globalThis[name];
  if (!found) throw new StentorError('no_library', `${name} is missing: pass { ${name} }`);
  return found;
}
