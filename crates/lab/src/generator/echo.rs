//! Echo, open and closed loop.

use std::time::{Duration, Instant};

use super::outcome::Reading;
use super::pool::{ConnectionPool, Load, Message};
use super::{Latencies, Outcome};
use crate::Error;
use crate::payload;

/// Messages sent between two looks at what has come.
const BURST: usize = 32;

/// What has been measured, whatever the loop.
struct Measured {
    bytes: usize,
    /// Intended times that are measured.
    from_ns: u64,
    until_ns: u64,
    latency: Latencies,
    /// Echoes of measured messages.
    delivered: u64,
    /// Echoes of any message, for the span between the clock readings.
    arrived: u64,
}

impl Measured {
    /// Nothing yet, of what is due between these.
    fn new(pool: &ConnectionPool, bytes: usize, [from, until]: [Instant; 2]) -> Self {
        let (from_ns, until_ns) = (pool.ns(from), pool.ns(until));
        Self { bytes, from_ns, until_ns, latency: Latencies::new(), delivered: 0, arrived: 0 }
    }

    fn take(&mut self, pool: &mut ConnectionPool, message: &Message) {
        self.arrived += 1;
        let Some(head) = pool.check(message, self.bytes, |_| true) else { return };
        if (self.from_ns..self.until_ns).contains(&head.intended_ns) {
            self.delivered += 1;
            self.latency.record_ns(message.at_ns.saturating_sub(head.intended_ns));
        }
    }
}

/// The readings at the ends of the measurement, and how many echoes had come by then.
struct Ends {
    at: [Instant; 2],
    readings: Vec<(Reading, u64)>,
}

impl Ends {
    fn look(&mut self, pool: &ConnectionPool, now: Instant, arrived: u64) {
        if self.readings.len() < 2 && now >= self.at[self.readings.len()] {
            self.readings.push((pool.read_clocks(), arrived));
        }
    }

    fn report(&self, outcome: &mut Outcome) {
        if let [(begin, before), (end, after)] = &self.readings[..] {
            outcome.load = begin.until(end);
            outcome.messages = after - before;
        }
    }
}

struct Open(Measured);

impl Load for Open {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        self.0.take(pool, &message);
    }
}

/// Messages at `rate_hz` over all connections, round robin.
pub(super) fn run_open(
    pool: &mut ConnectionPool,
    bytes: usize,
    rate_hz: f64,
    warm_up: Duration,
    measure: Duration,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let readers = pool.open_ones();
    if readers.is_empty() || rate_hz <= 0.0 {
        return Err(Error::Generator("an open loop needs connections and a rate".into()));
    }
    pool.expect_from_zero();
    let mut payload = payload::blank(bytes);
    let begin = Instant::now() + Duration::from_millis(5);
    let total = ((warm_up + measure).as_secs_f64() * rate_hz) as u64;
    let due_of = |nth: u64| begin + Duration::from_secs_f64(nth as f64 / rate_hz);
    let mut ends = Ends { at: [begin + warm_up, begin + warm_up + measure], readings: Vec::new() };
    let mut load = Open(Measured::new(pool, payload.len(), ends.at));
    let deadline = ends.at[1] + pool.spec.late;
    let mut sent = 0;
    let mut measured = 0;
    loop {
        let mut now = Instant::now();
        ends.look(pool, now, load.0.arrived);
        for _ in 0..BURST {
            let due = due_of(sent);
            if sent == total || due > now {
                break;
            }
            let intended_ns = pool.ns(due);
            if (load.0.from_ns..load.0.until_ns).contains(&intended_ns) {
                measured += 1;
                outcome.lag.record_ns(now.duration_since(due).as_nanos() as u64);
            }
            pool.send_message(readers[(sent % readers.len() as u64) as usize], &mut payload, intended_ns);
            sent += 1;
            now = Instant::now();
        }
        let settled = load.0.delivered + pool.audit.surely_spoiled_or_missing();
        let over = sent == total && settled >= measured && ends.readings.len() == 2;
        if over || now > deadline {
            break;
        }
        let due = if sent < total { due_of(sent) } else { now + Duration::from_millis(5) };
        pool.turn(Some(due), &mut load)?;
    }
    ends.report(outcome);
    outcome.latency = load.0.latency;
    pool.audit.expected = measured;
    pool.audit.delivered = load.0.delivered;
    Ok(())
}

struct Closed {
    measured: Measured,
    payload: Vec<u8>,
    stopped: bool,
    under_way: usize,
}

impl Load for Closed {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        self.measured.take(pool, &message);
        if self.stopped {
            self.under_way -= 1;
        } else {
            let now_ns = pool.ns(Instant::now());
            pool.send_message(message.number, &mut self.payload, now_ns);
        }
    }
}

/// One message under way on each connection.
pub(super) fn run_closed(
    pool: &mut ConnectionPool,
    bytes: usize,
    warm_up: Duration,
    measure: Duration,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    pool.expect_from_zero();
    let begin = Instant::now();
    let mut ends = Ends { at: [begin + warm_up, begin + warm_up + measure], readings: Vec::new() };
    let payload = payload::blank(bytes);
    let mut load = Closed {
        measured: Measured::new(pool, payload.len(), ends.at),
        payload,
        stopped: false,
        under_way: 0,
    };
    let mut first = payload::blank(bytes);
    for number in pool.open_ones() {
        let now_ns = pool.ns(Instant::now());
        pool.send_message(number, &mut first, now_ns);
        load.under_way += 1;
    }
    let deadline = ends.at[1] + pool.spec.late;
    loop {
        let now = Instant::now();
        ends.look(pool, now, load.measured.arrived);
        load.stopped = ends.readings.len() == 2;
        if load.stopped && load.under_way == 0 || now > deadline {
            break;
        }
        pool.turn(Some(now + Duration::from_millis(5)), &mut load)?;
    }
    ends.report(outcome);
    outcome.closed_loop = true;
    outcome.latency = load.measured.latency;
    // One that never came back is missing from both sides of the loop; it shows in `under_way`.
    pool.audit.delivered = load.measured.delivered;
    pool.audit.expected = load.measured.delivered + load.under_way as u64;
    Ok(())
}
