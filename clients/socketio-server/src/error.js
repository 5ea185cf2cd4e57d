// Errors of the link, for people: one line each.

/** Codes after which the worker doesn't try again: its configuration is wrong. */
const FINAL = new Set(['version', 'token', 'app_unknown', 'options_conflict']);

export class LinkError extends Error {
  name = 'LinkError';

  /** `code`: one of Stentor (`token`, `protocol`, …), of the system (`ECONNREFUSED`, …), or `http`, `limit`, `closed`. */
  constructor(code, message) {
    super(message);
    this.code = code;
  }

  /** `true` if another attempt would fail as well. */
  get isFinal() {
    return FINAL.has(this.code);
  }
}
