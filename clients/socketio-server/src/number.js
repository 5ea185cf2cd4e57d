// Numbers of frames. Both sides count frames from 1. A header has 32 bits of the count: 1 follows 4,294,967,295, and 0 means that a frame
// isn't numbered, or that none has been handled.

const PERIOD = 0xffff_ffff;

/** The number in a header. */
export function inHeader(count) {
  return count === 0 ? 0 : ((count - 1) % PERIOD) + 1;
}

/** The count with this number in a header that is nearest to the count `near`. */
export function nearest(number, near) {
  if (number === 0) return 0;
  const base = Math.max(near, 1);
  // How far the number is ahead of `base`: less than a period.
  const ahead = (number + PERIOD - inHeader(base)) % PERIOD;
  const behind = PERIOD - ahead;
  return ahead <= PERIOD / 2 || behind >= base ? base + ahead : base - behind;
}
