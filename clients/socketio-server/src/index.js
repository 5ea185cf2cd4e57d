// `attach`: a Socket.IO server becomes a worker of Stentor.

import { Link } from './link.js';

export { Link } from './link.js';
export { LinkError } from './error.js';

/** Makes the clients of Stentor those of a Socket.IO server: see README.md. `Link.listen` connects. */
export function attach(io, url, options) {
  return new Link(io, url, options);
}
