//! Misbehaving clients, which run beside others in a generator of their own, limited in number and time.
//!
//! Clients with valid connections (those that come and go, reconnect all at once, or send in pieces) are audited like
//! others: a lost connection is the server's fault. The server may disconnect other misbehaving clients by policy.
//! `cut_off` counts these.
//!
//! Deliberately absent: clients whose kernel stops acknowledging, which needs packet filters on loopback.

use std::time::{Duration, Instant};

use super::Outcome;
use super::opening::open_all;
use super::pool::{ConnectionPool, Load, Message};
use crate::Error;
use crate::payload;
use serde::{Deserialize, Serialize};

/// Maximum time at the end for clients that didn't read to check whether they are still connected, and the time without
/// data that ends the check.
const LOOK: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_millis(200);
/// Time for the server to accept clients that send nothing.
const ACCEPTED_WITHIN: Duration = Duration::from_millis(300);
/// Maximum time for all clients to reconnect.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// Payload size of piecewise sending.
const PIECES_OF_BYTES: usize = 64;
/// Number of connections started between two polls.
const BURST: usize = 64;

/// Kind of misbehaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Misbehaviour {
    /// The client never reads.
    NeverReads,
    /// Reads at most one receive buffer of the driver (64 KiB) per interval, and stops reading after it.
    ReadsSlowly {
        /// Interval between reads.
        #[serde(with = "crate::seconds")]
        every: Duration,
    },
    /// Reads, but sends nothing, not even heartbeats, and never disconnects.
    Silent,
    /// Connects and never sends anything.
    Mute,
    /// Connects, completes the handshake and disconnects, repeatedly. At most as many do so at once as there are
    /// connections.
    Churns {
        /// Interval between the starts of visits.
        #[serde(with = "crate::seconds")]
        every: Duration,
    },
    /// All clients are disconnected and reconnect at once, repeatedly.
    Storms {
        /// Interval between storms.
        #[serde(with = "crate::seconds")]
        every: Duration,
    },
    /// Sends in TCP segments of one to three bytes, 200 per second, and the next message after the echo of the last.
    Fragments,
}

impl Misbehaviour {
    /// Returns `true` if the server has no reason to end these connections.
    pub fn is_audited(self) -> bool {
        matches!(self, Self::Churns { .. } | Self::Storms { .. } | Self::Fragments)
    }
}

struct Misbehaving {
    how: Misbehaviour,
    /// Number of connections that were opened.
    visits: u64,
    /// Connections that the generator has cut and may reopen.
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
    pool.misbehaviour = Some(how);
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
            pool.misbehaviour = None;
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

/// Opens and closes connections until `end`.
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
            // If all are in progress, this turn is skipped, so that a slow server isn't overrun.
            next += every;
        }
        pool.turn(Some(next.min(end).max(now + Duration::from_micros(2_300))), load)?;
    }
    // Connections in progress still complete.
    pool.turn_while(pool.spec.late, load, |pool, load| {
        load.gone.len() as u64 + pool.audit.lost_connections < pool.begun() as u64
    })
}
