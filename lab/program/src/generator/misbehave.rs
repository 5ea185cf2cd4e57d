//! Misbehaving clients, to run beside others in a generator of their own, bounded in count and in time.
//!
//! Those whose connections are valid (they come and go, reconnect all at once, or send in pieces) are audited like others:
//! losing one is the server's fault. The server may end the others by policy; `cut_off` counts them.
//!
//! Deliberately absent: clients whose kernel doesn't acknowledge any more, which loopback can't show without filtering packets.

use std::time::{Duration, Instant};

use super::Outcome;
use super::line::ClientBehavior;
use super::opening::open_all;
use super::pool::{ConnectionPool, Load, Message};
use crate::Error;
use crate::payload;
use serde::{Deserialize, Serialize};

/// How long those that didn't read look whether they are still wanted, at most, and until nothing has come for a while.
const LOOK: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_millis(200);
/// How long those that say nothing are given to be accepted.
const ACCEPTED_WITHIN: Duration = Duration::from_millis(300);
/// How long they all may take to come back.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// Payload of what is said in pieces.
const PIECES_OF_BYTES: usize = 64;
/// Connections begun between two looks at what has come.
const BURST: usize = 64;

/// Kind of misbehaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Misbehaviour {
    /// Never reads.
    NeverReads,
    /// Reads at most one of the driver's receive buffers (64 KiB) in so long.
    ReadsSlowly {
        /// From one read to the next.
        #[serde(with = "crate::seconds")]
        every: Duration,
    },
    /// Reads, but says nothing any more, no heartbeat either, and never ends.
    Silent,
    /// Connects, and never says anything.
    Mute,
    /// Comes, shakes hands, and goes, over and over; as many at once as there are connections.
    Churns {
        /// From the begin of one visit to that of the next.
        #[serde(with = "crate::seconds")]
        every: Duration,
    },
    /// All are cut off at once and come back at once, over and over.
    Storms {
        /// From one storm to the next.
        #[serde(with = "crate::seconds")]
        every: Duration,
    },
    /// Sends in TCP segments of one to three bytes, 200 a second, its next message when the echo of the last has come.
    Fragments,
}

impl Misbehaviour {
    fn behavior(self) -> ClientBehavior {
        match self {
            Self::NeverReads | Self::Churns { .. } | Self::Storms { .. } => ClientBehavior::Good,
            Self::ReadsSlowly { .. } => ClientBehavior::Sips,
            Self::Silent => ClientBehavior::Silent,
            Self::Mute => ClientBehavior::Mute,
            Self::Fragments => ClientBehavior::Pieces,
        }
    }

    /// Whether a server has no reason to end its connections.
    pub fn is_audited(self) -> bool {
        matches!(self, Self::Churns { .. } | Self::Storms { .. } | Self::Fragments)
    }
}

struct Misbehaving {
    how: Misbehaviour,
    /// Connections that have been open.
    visits: u64,
    /// Connections that have been left or cut, and may come back.
    gone: Vec<usize>,
    payload: Vec<u8>,
    stopped: bool,
}

impl Misbehaving {
    fn say(&mut self, pool: &mut ConnectionPool, number: usize) {
        pool.audit.expected += 1;
        pool.send_now(number, &mut self.payload);
    }
}

impl Load for Misbehaving {
    fn opened(&mut self, pool: &mut ConnectionPool, number: usize) {
        self.visits += 1;
        match self.how {
            Misbehaviour::NeverReads | Misbehaviour::ReadsSlowly { .. } => pool.pause(number),
            Misbehaviour::Churns { .. } => {
                pool.cut(number);
                self.gone.push(number);
            }
            Misbehaviour::Fragments => self.say(pool, number),
            Misbehaviour::Silent | Misbehaviour::Mute | Misbehaviour::Storms { .. } => {}
        }
    }

    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        if self.how != Misbehaviour::Fragments {
            return;
        }
        let bytes = self.payload.len();
        if pool.check(&message, bytes, |_| true).is_some() {
            pool.audit.delivered += 1;
            if !self.stopped {
                self.say(pool, message.number);
            }
        }
    }
}

/// Misbehaves for `lasts` after `connected` has returned.
pub(super) fn run(
    pool: &mut ConnectionPool,
    how: Misbehaviour,
    lasts: Duration,
    connected: &mut impl FnMut(&Outcome) -> Result<(), Error>,
) -> Result<(), Error> {
    if how == Misbehaviour::Fragments && !pool.spec.protocol.sends() {
        return Err(Error::Usage(format!("clients of {} can't send", pool.spec.protocol.name())));
    }
    let payload = payload::blank(PIECES_OF_BYTES);
    let mut load = Misbehaving { how, visits: 0, gone: Vec::new(), payload, stopped: false };
    pool.behavior = how.behavior();
    match how {
        Misbehaviour::Churns { .. } => {}
        Misbehaviour::Mute => {
            for nth in 0..pool.spec.connections {
                pool.begin()?;
                if nth % BURST == 0 {
                    pool.turn(Some(Instant::now()), &mut load)?;
                }
            }
            pool.turn_for(ACCEPTED_WITHIN, &mut load)?;
        }
        _ => {
            open_all(pool, &mut load)?;
        }
    }
    pool.outcome.connections = pool.begun() as u64 - pool.audit.lost_connections;
    connected(&pool.outcome)?;

    let begin = pool.read_clocks();
    let end = Instant::now() + lasts;
    match how {
        Misbehaviour::Churns { every } => churn(pool, &mut load, every, end)?,
        Misbehaviour::ReadsSlowly { every } => {
            while Instant::now() < end {
                (0..pool.begun()).for_each(|number| pool.resume(number));
                pool.turn_for(every.min(end.saturating_duration_since(Instant::now())), &mut load)?;
            }
        }
        Misbehaviour::Storms { every } => {
            while Instant::now() < end {
                pool.restart(BACK_WITHIN, &mut load, |_, _| ())?;
                pool.turn_for(every.min(end.saturating_duration_since(Instant::now())), &mut load)?;
            }
        }
        _ => pool.turn_for(end.saturating_duration_since(Instant::now()), &mut load)?,
    }
    pool.outcome.load = begin.until(&pool.read_clocks());
    load.stopped = true;
    match how {
        Misbehaviour::NeverReads | Misbehaviour::ReadsSlowly { .. } => {
            pool.behavior = ClientBehavior::Good;
            (0..pool.begun()).for_each(|number| pool.resume(number));
            let until = Instant::now() + LOOK;
            let mut seen = None;
            while Instant::now() < until && seen != Some(pool.received_bytes) {
                seen = Some(pool.received_bytes);
                pool.turn_for(QUIET, &mut load)?;
            }
        }
        Misbehaviour::Fragments => {
            pool.turn_while(pool.spec.late, &mut load, |pool, _| {
                pool.audit.delivered < pool.audit.expected && pool.audit.lost_connections == 0
            })?;
        }
        _ => {}
    }
    pool.outcome.messages = load.visits.max(pool.audit.delivered);
    if !how.is_audited() {
        pool.outcome.cut_off = std::mem::take(&mut pool.audit.lost_connections);
    }
    Ok(())
}

/// Connections come and go until `end`.
fn churn(
    pool: &mut ConnectionPool,
    load: &mut Misbehaving,
    every: Duration,
    end: Instant,
) -> Result<(), Error> {
    let mut next = Instant::now();
    loop {
        let now = Instant::now();
        if now >= end {
            break;
        }
        while next <= now {
            if pool.begun() < pool.spec.connections {
                pool.begin()?;
            } else if let Some(number) = load.gone.pop() {
                pool.come_back(number)?;
            }
            // Where all are under way, this turn is passed over: a slow server isn't overrun.
            next += every;
        }
        pool.turn(Some(next.min(end).max(now + Duration::from_micros(2_300))), load)?;
    }
    // Those under way arrive still.
    pool.turn_while(pool.spec.late, load, |pool, load| {
        load.gone.len() as u64 + pool.audit.lost_connections < pool.begun() as u64
    })
}
