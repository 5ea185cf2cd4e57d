//! Clients of a document that changes at the rate that another process sets, which is more often than it can be
//! delivered. Samples show the age of each client's version, also while nothing arrives. A skipped version isn't a
//! fault. A version is a fault if it isn't newer than the last one, or differs from the document.

use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load, Message};
use crate::Error;
use crate::document::Document;
use crate::payload::Head;
use serde::{Deserialize, Serialize};

/// Interval between samples.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// State of the clients at one moment, and deliveries since the previous sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Following {
    /// Time in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Age of the clients' documents in nanoseconds: median, 99th percentile.
    pub age_ns: [u64; 2],
    /// Number of documents delivered.
    pub delivered: u64,
    /// Number of versions that clients skipped.
    pub skipped: u64,
}

struct Clients {
    bytes: usize,
    has: Vec<Option<Head>>,
    since: Following,
}

impl Load for Clients {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        let Some(head) = pool.check_alone(&message, self.bytes) else { return };
        let had = self.has[message.number].replace(head);
        match had.map(|had| head.sequence.checked_sub(had.sequence)) {
            Some(Some(0) | None) => pool.audit.repeated += 1,
            Some(Some(ahead)) => self.since.skipped += ahead - 1,
            None => {}
        }
        self.since.delivered += 1;
        pool.audit.delivered += 1;
    }
}

impl Clients {
    fn sample(&mut self, pool: &ConnectionPool) -> Following {
        let at_ns = pool.ns(Instant::now());
        let open = self.has.iter().enumerate().filter(|(number, _)| pool.is_open(*number));
        let mut ages: Vec<u64> =
            open.filter_map(|(_, has)| Some(at_ns.saturating_sub(has.as_ref()?.intended_ns))).collect();
        ages.sort_unstable();
        let age = |percent: usize| {
            ages.get((ages.len() * percent / 100).min(ages.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        Following { at_ns, age_ns: [50, 99].map(age), ..std::mem::take(&mut self.since) }
    }
}

pub(super) fn run(pool: &mut ConnectionPool, lasts: Duration) -> Result<(), Error> {
    let shape =
        pool.spec.document.ok_or_else(|| Error::Generator("there is no document to follow".into()))?;
    let bytes = Document::new(shape).text().len();
    let mut load = Clients { bytes, has: vec![None; pool.begun()], since: Following::default() };
    let before = pool.read_clocks();
    let begin = Instant::now();
    for nth in 1.. {
        let next = SAMPLE_EVERY * nth;
        if next > lasts {
            break;
        }
        pool.turn_for((begin + next).saturating_duration_since(Instant::now()), &mut load)?;
        let sample = load.sample(pool);
        pool.outcome.following.push(sample);
    }
    let end = pool.read_clocks();
    pool.outcome.measured(&before, &end);
    pool.audit.expected = pool.audit.delivered;
    Ok(())
}
