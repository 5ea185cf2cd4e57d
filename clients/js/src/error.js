/** What went wrong: `code` for programs, `message` for people; `retry` where the same may succeed later. */
export class StentorError extends Error {
  constructor(code, message, retry = false) {
    super(message);
    this.name = 'StentorError';
    this.code = code;
    this.retry = retry;
  }
}

/** What a transport needs: given, or there already. */
export function library(options, name) {
  const found = options[name] ?? globalThis[name];
  if (!found) throw new StentorError('no_library', `there is no ${name} here; give one: { ${name} }`);
  return found;
}
