// Time that never goes back, and that includes the time during which the machine slept.
//
// A change of the wall clock doesn't affect `performance.now()`. In some browsers, sleep doesn't either. Therefore the time by which the wall
// clock runs ahead counts as well.

/** Smaller differences come from the adjustment of the wall clock. */
const JUMP_MS = 1_000;
let sleptMs = 0;
let offsetMs = Date.now() - performance.now();

/** Milliseconds since an arbitrary time. */
export function now() {
  const latestMs = Date.now() - performance.now();
  if (latestMs - offsetMs > JUMP_MS) sleptMs += latestMs - offsetMs;
  offsetMs = latestMs;
  return performance.now() + sleptMs;
}
