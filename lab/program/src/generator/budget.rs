//! Measures the number of connections for which a CPU budget of the server is enough (siobench, 2011).
//!
//! Connections are begun one by one: each when the previous one is open, as published, or at the rate of the spec. Each
//! sends a short message at a fixed interval, and the server echoes it. The result is the number of open connections
//! when the server has used its budget. One by one, a slow handshake is charged with more echoes. A fixed rate charges
//! all servers the same. A message has no room for a time, but the load knows the due time of each connection's n-th
//! message.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load, Message};
use crate::Error;
use crate::payload;
use serde::{Deserialize, Serialize};

/// Interval between reads of the server's CPU clock.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Interval between points of the trace.
const TRACE_EVERY: Duration = Duration::from_millis(100);
/// Number of connections started, or messages sent, between two polls.
const BURST: usize = 16;
/// Minimum share of the connection rate. One burst less is allowed, so that a short budget doesn't fail because of it.
const RATE_REACHED: f64 = 0.97;
/// Maximum duration of the budget beyond the time for connecting.
const LASTS_MAX: Duration = Duration::from_secs(60);

/// Connections are opened one after the other. Each then sends messages and receives answers, until the server has used
/// its CPU budget.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BudgetPlan {
    /// Payload size, which may be too short for a time.
    pub bytes: usize,
    /// Interval between the messages of a connection.
    #[serde(with = "crate::seconds")]
    pub every: Duration,
    /// The budget: CPU time of the server.
    #[serde(with = "crate::seconds")]
    pub cpu: Duration,
    /// `true` to start each connection when the previous one is open, instead of at the rate of the spec.
    pub one_by_one: bool,
}

struct Echoing {
    plan: BudgetPlan,
    /// Due time of the first message of each connection.
    first_due: Vec<Option<Instant>>,
    /// The next message of each open connection, ordered by time.
    next: VecDeque<(Instant, usize)>,
}

impl Load for Echoing {
    fn opened(&mut self, _pool: &mut ConnectionPool, number: usize) {
        let due = Instant::now() + self.plan.every;
        if self.first_due.len() <= number {
            self.first_due.resize(number + 1, None);
        }
        self.first_due[number] = Some(due);
        self.next.push_back((due, number));
    }

    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        let Some(head) = pool.check(&message, self.plan.bytes, |_| true) else { return };
        if let Some(Some(first)) = self.first_due.get(message.number) {
            let intended_ns = pool.ns(*first) + self.plan.every.as_nanos() as u64 * head.sequence;
            pool.deliver(&message, intended_ns);
        }
    }
}

impl Echoing {
    /// Sends the messages that are due. Returns the time of the next one.
    fn send_due(&mut self, pool: &mut ConnectionPool, now: Instant, payload: &mut [u8]) -> Option<Instant> {
        for _ in 0..BURST {
            let (due, number) = *self.next.front()?;
            if due > now {
                return Some(due);
            }
            self.next.pop_front();
            if pool.is_open(number) {
                pool.outcome.lag.record_ns(now.duration_since(due).as_nanos() as u64);
                pool.send_message(number, payload, pool.ns(due));
                pool.audit.expected += 1;
                self.next.push_back((due + self.plan.every, number));
            }
        }
        Some(now)
    }
}

pub(super) fn run(pool: &mut ConnectionPool, plan: &BudgetPlan) -> Result<(), Error> {
    let rate_hz = pool.spec.connect_rate_hz;
    let connections_max = pool.spec.connections;
    if connections_max == 0 || (rate_hz <= 0.0 && !plan.one_by_one) || pool.spec.server_pids.is_empty() {
        return Err(Error::Generator("a budget needs connections, a rate and the server's clock".into()));
    }
    let mut payload = vec![payload::PADDING; plan.bytes.max(payload::SEQUENCE_DIGITS)];
    let mut load = Echoing {
        plan: BudgetPlan { bytes: payload.len(), ..*plan },
        first_due: Vec::with_capacity(connections_max),
        next: VecDeque::with_capacity(connections_max),
    };
    let each = if plan.one_by_one { Duration::ZERO } else { Duration::from_secs_f64(1.0 / rate_hz) };
    let begun_at = pool.read_clocks();
    let begin = Instant::now();
    let deadline = begin + each.mul_f64(connections_max as f64) + LASTS_MAX;
    let mut next_connection = begin;
    let mut last_begun = begin;
    let mut next_look = begin + LOOK_EVERY;
    let mut next_point = begin + TRACE_EVERY;
    let used = loop {
        let now = Instant::now();
        if now >= next_look {
            next_look = now + LOOK_EVERY;
            let used = begun_at.until(&pool.read_clocks());
            let is_over = used.server_cpu >= plan.cpu;
            if now >= next_point || is_over {
                next_point += TRACE_EVERY;
                let point = pool.progress(&begun_at, pool.audit.delivered);
                pool.outcome.progress.push(point);
            }
            if is_over {
                break used;
            }
            if now > deadline || pool.audit.lost_connections > 0 {
                let why = pool.audit.first_loss.as_deref().unwrap_or("it took too long");
                let spent = used.server_cpu;
                return Err(Error::Generator(format!(
                    "{} connections used {spent:.0?} of {:?}; {why}",
                    pool.open(),
                    plan.cpu
                )));
            }
        }
        for _ in 0..BURST {
            let waits = if plan.one_by_one { pool.open() < pool.begun() } else { next_connection > now };
            if waits || pool.begun() == connections_max {
                break;
            }
            pool.begin()?;
            next_connection += each;
            last_begun = now;
        }
        let mut due = load.send_due(pool, now, &mut payload).unwrap_or(next_look).min(next_look);
        if !plan.one_by_one && pool.begun() < connections_max {
            due = due.min(next_connection);
        }
        pool.turn(Some(due), &mut load)?;
    };
    let took_s = if pool.begun() < connections_max { used.wall } else { last_begun - begin }.as_secs_f64();
    let reached_hz = pool.begun() as f64 / took_s.max(1e-9);
    if !plan.one_by_one && ((pool.begun() + BURST) as f64) < rate_hz * RATE_REACHED * took_s {
        return Err(Error::Generator(format!(
            "{reached_hz:.0} connections a second instead of {rate_hz:.0}"
        )));
    }
    pool.outcome.load = used;
    pool.outcome.connections = pool.open() as u64;
    pool.outcome.messages = pool.audit.delivered;
    // Messages in flight still arrive.
    pool.turn_while(pool.spec.late, &mut load, |pool, _| pool.audit.delivered < pool.audit.expected)
}
