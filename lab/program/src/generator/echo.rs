//! Open-loop and closed-loop echo, and receiving the versions of a document.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load, Message};
use super::schedule::{LOOK_EVERY, Window, run_open};
use crate::Error;
use crate::document::Document;
use crate::payload;

/// Times the messages that are due within the measurement.
struct Timed {
    bytes: usize,
    measured_ns: Range<u64>,
}

impl Load for Timed {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        if let Some(head) = pool.check(&message, self.bytes, |_| true)
            && self.measured_ns.contains(&head.intended_ns)
        {
            pool.deliver(&message, head.intended_ns);
        }
    }
}

/// Sends messages at `rate_hz` over all connections in turn.
pub(super) fn open(
    pool: &mut ConnectionPool,
    bytes: usize,
    rate_hz: f64,
    warm_up: Duration,
    measure: Duration,
) -> Result<(), Error> {
    let readers = pool.open_ones();
    if readers.is_empty() || rate_hz <= 0.0 {
        return Err(Error::Generator("an open loop needs connections and a rate".into()));
    }
    pool.expect_from_zero();
    let mut payload = payload::blank(bytes);
    let window = Window::new(pool, Instant::now() + Duration::from_millis(5), warm_up, measure);
    let mut load = Timed { bytes: payload.len(), measured_ns: window.ns.clone() };
    run_open(pool, &mut load, window, rate_hz, 1, |pool, nth, intended_ns| {
        pool.send_message(readers[(nth % readers.len() as u64) as usize], &mut payload, intended_ns);
    })
}

struct Closed {
    timed: Timed,
    payload: Vec<u8>,
    stopped: bool,
    under_way: u64,
}

impl Load for Closed {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        self.timed.message(pool, message);
        if self.stopped {
            // A server may send more messages than requested.
            self.under_way = self.under_way.saturating_sub(1);
        } else {
            pool.send_now(message.number, &mut self.payload);
        }
    }
}

/// Keeps one message in flight on each connection.
pub(super) fn closed(
    pool: &mut ConnectionPool,
    bytes: usize,
    warm_up: Duration,
    measure: Duration,
) -> Result<(), Error> {
    pool.expect_from_zero();
    let mut window = Window::new(pool, Instant::now(), warm_up, measure);
    let payload = payload::blank(bytes);
    let timed = Timed { bytes: payload.len(), measured_ns: window.ns.clone() };
    let mut load = Closed { timed, payload, stopped: false, under_way: 0 };
    for number in pool.open_ones() {
        pool.send_now(number, &mut load.payload);
        load.under_way += 1;
    }
    let deadline = window.deadline(pool);
    loop {
        let now = Instant::now();
        load.stopped = window.look(pool, now);
        if load.stopped && load.under_way == 0 || now > deadline {
            break;
        }
        pool.turn(Some(now + LOOK_EVERY), &mut load)?;
    }
    pool.outcome.closed_loop = true;
    // Messages that weren't echoed are still in flight, and count as expected.
    pool.audit.expected = pool.audit.delivered + load.under_way;
    Ok(())
}

/// Runs [`super::LoadSpec::Receive`].
pub(super) fn receive(pool: &mut ConnectionPool, warm_up: Duration, measure: Duration) -> Result<(), Error> {
    let shape =
        pool.spec.document.ok_or_else(|| Error::Generator("there is no document to receive".into()))?;
    let bytes = Document::new(shape).text().len();
    let mut load = Timed { bytes, measured_ns: u64::MAX..u64::MAX };
    pool.turn_for(warm_up, &mut load)?;
    load.measured_ns.start = pool.ns(Instant::now());
    let begin = pool.read_clocks();
    pool.turn_for(measure, &mut load)?;
    let end = pool.read_clocks();
    pool.outcome.measured(&begin, &end);
    pool.audit.expected = pool.audit.delivered + pool.audit.gaps;
    Ok(())
}
