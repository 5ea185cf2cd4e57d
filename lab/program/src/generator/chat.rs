//! A room in which the clients take turns in sending, faster in each step (the comparison of SockJS and Socket.IO servers of 2011,
//! repaired).
//!
//! In each step messages are due at a fixed total rate, in turn over the clients, and each client receives all of them. The sender's
//! own copy is timed, as in the published test. A step ends when all copies have arrived. The load
//! ends after a step that was late, too slow, or lost copies. A busy generator makes copies later and fewer, so the measured
//! deliveries are then a lower bound (unless it sends several messages at once, which its lag shows). The audit checks the number of
//! copies of each receiver and the sum of their numbers. Messages are numbered over all senders. Servers promise no order between
//! senders, so the order isn't checked.

use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load, Message};
use super::{Latencies, Span};
use crate::Error;
use crate::payload;
use serde::{Deserialize, Serialize};

/// Number of messages sent between two polls.
const BURST: usize = 8;
/// Number of copies received in one turn between two checks of the schedule.
const COPIES_BETWEEN_LOOKS: u64 = 256;

/// The plan of [`super::LoadSpec::Chat`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatPlan {
    /// Payload size.
    pub bytes: usize,
    /// Deliveries per second in the first step.
    pub first_hz: f64,
    /// Factor from one step to the next, above 1.
    pub growth: f64,
    /// Deliveries per second in the last step.
    pub last_hz: f64,
    /// Time for which each step sends.
    #[serde(with = "crate::seconds")]
    pub step: Duration,
    /// Maximum time for copies after the end of sending.
    #[serde(with = "crate::seconds")]
    pub late: Duration,
    /// Mean latency that ends the load.
    #[serde(with = "crate::seconds")]
    pub mean_max: Duration,
}

impl ChatPlan {
    /// Messages per second of each step for this number of clients.
    pub(crate) fn rates_hz(&self, clients: usize) -> impl Iterator<Item = f64> {
        let deliveries = std::iter::successors(Some(self.first_hz), |rate_hz| Some(rate_hz * self.growth));
        let steps = deliveries.take_while(|rate_hz| *rate_hz < self.last_hz).chain([self.last_hz]);
        steps.map(move |rate_hz| rate_hz / clients as f64)
    }
}

/// Result of one step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChatStep {
    /// Copies per second until the last one arrived.
    pub delivered_hz: f64,
    /// Missing or surplus copies at the end.
    pub wrong: u64,
    /// Latency of the senders' own copies.
    pub latency: Latencies,
    /// The time until the last copy arrived.
    pub span: Span,
    /// The generator's mean lag behind its schedule. It is the mean because the mean latency decides.
    pub lag: Duration,
}

struct Room {
    clients: Vec<usize>,
    payload: Vec<u8>,
    /// Due time of the first message of this step, and the rate from then on.
    begin: Instant,
    rate_hz: f64,
    /// Number of the first message of this step.
    first: u64,
    /// Intended times of the sent messages of this step.
    intended_ns: Vec<u64>,
    lag: Latencies,
    /// Number of messages of this step.
    count: usize,
    /// Each connection's number of copies, and the sum of their numbers within the step.
    received: Vec<(u64, u64)>,
    arrived: u64,
    latency: Latencies,
}

impl Room {
    /// Sends the messages that are due. Returns the time of the next one, if any.
    fn send_due(&mut self, pool: &mut ConnectionPool) -> Option<Instant> {
        for _ in 0..BURST {
            let sent = self.intended_ns.len();
            let due = self.begin + Duration::from_secs_f64(sent as f64 / self.rate_hz);
            let now = Instant::now();
            if sent == self.count {
                return None;
            }
            if due > now {
                return Some(due);
            }
            self.lag.record_ns(now.duration_since(due).as_nanos() as u64);
            let intended_ns = pool.ns(due);
            self.intended_ns.push(intended_ns);
            let number = self.first + sent as u64;
            let sender = self.clients[number as usize % self.clients.len()];
            pool.send_numbered(sender, &mut self.payload, number, intended_ns);
        }
        Some(Instant::now())
    }
}

impl Load for Room {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        let Some(head) = pool.check_alone(&message, self.payload.len()) else { return };
        // Copies of an earlier step were counted as missing there, so this step ignores them.
        let Some(nth) = head.sequence.checked_sub(self.first) else { return };
        let Some(intended_ns) = self.intended_ns.get(nth as usize) else {
            pool.audit.corrupt += 1;
            return;
        };
        let received = &mut self.received[message.number];
        *received = (received.0 + 1, received.1 + nth);
        self.arrived += 1;
        if self.clients[head.sequence as usize % self.clients.len()] == message.number {
            self.latency.record_ns(message.at_ns.saturating_sub(*intended_ns));
        }
        // One turn may receive all messages that a slow server has queued: 100,000 copies delayed the schedule by 60
        // ms.
        if self.arrived.is_multiple_of(COPIES_BETWEEN_LOOKS) {
            self.send_due(pool);
        }
    }
}

pub(super) fn run(pool: &mut ConnectionPool, plan: &ChatPlan) -> Result<(), Error> {
    let clients = pool.open_ones();
    if clients.is_empty() || plan.first_hz <= 0.0 || plan.growth <= 1.0 {
        return Err(Error::Generator("a chat needs clients, a rate above 0 and a growth above 1".into()));
    }
    let mut next = 0;
    let begun = pool.read_clocks();
    for rate_hz in plan.rates_hz(clients.len()) {
        let step = run_step(pool, plan, &clients, rate_hz, &mut next)?;
        let over = step.wrong > 0 || pool.audit.lost_connections > 0 || step.latency.mean() >= plan.mean_max;
        pool.outcome.steps.push(step);
        if over {
            break;
        }
    }
    pool.outcome.load = begun.until(&pool.read_clocks());
    Ok(())
}

fn run_step(
    pool: &mut ConnectionPool,
    plan: &ChatPlan,
    clients: &[usize],
    rate_hz: f64,
    next: &mut u64,
) -> Result<ChatStep, Error> {
    let count = ((plan.step.as_secs_f64() * rate_hz).round() as usize).max(1);
    let before = pool.read_clocks();
    let mut room = Room {
        clients: clients.to_vec(),
        payload: payload::blank(plan.bytes),
        begin: Instant::now() + Duration::from_millis(2),
        rate_hz,
        first: *next,
        intended_ns: Vec::with_capacity(count),
        lag: Latencies::new(),
        count,
        received: vec![(0, 0); pool.begun()],
        arrived: 0,
        latency: Latencies::new(),
    };
    let deadline = room.begin + plan.step + plan.late;
    let expected = (count * clients.len()) as u64;
    loop {
        let due = room.send_due(pool);
        let now = Instant::now();
        if room.arrived >= expected || now > deadline || pool.audit.lost_connections > 0 {
            break;
        }
        let due = due.unwrap_or(now + Duration::from_millis(5));
        pool.turn(Some(due.min(deadline)), &mut room)?;
    }
    // Numbers of messages that weren't sent in time aren't used again.
    *next = room.first + count as u64;
    let span = before.until(&pool.read_clocks());
    let whole = (count as u64, (count as u64).saturating_sub(1) * count as u64 / 2);
    let wrong = clients.iter().map(|number| room.received[*number]).filter(|received| *received != whole);
    let wrong = wrong.map(|received| whole.0.abs_diff(received.0).max(1)).sum();
    pool.outcome.latency.merge(&room.latency);
    pool.outcome.lag.merge(&room.lag);
    pool.outcome.messages += room.arrived;
    Ok(ChatStep {
        delivered_hz: room.arrived as f64 / span.wall.as_secs_f64().max(1e-9),
        wrong,
        latency: room.latency,
        span,
        lag: room.lag.mean(),
    })
}
