//! Limits for all cores of a node together.

use crate::ledger::Ledger;
use crate::limits::counts::{Counts, Maximum, take};
use crate::limits::{LimitReached, Rate};
use crate::options::Options;
use crate::ports::RelayPermit;
use crate::ports::{Metric, MetricKind};
use crate::published::PublishedKeys;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The tables of a node. A table exists only if one of its limits is on.
pub struct SharedLimits {
    /// Connections by address.
    pub connections: Option<Counts>,
    /// Sessions by address.
    pub sessions: Option<Counts>,
    /// Sessions by user.
    pub(crate) users: Option<Counts>,
    /// Idempotency keys of clients' publications.
    pub(crate) published: Arc<PublishedKeys>,
    /// The rate of new connections of all addresses.
    accepts: Option<Accepts>,
}

struct Accepts {
    per_second: AtomicU32,
    /// The time of the first use. `full_at` is the time at which the token bucket is full, in nanoseconds since then.
    begun: OnceLock<Instant>,
    full_at: AtomicU64,
}

impl SharedLimits {
    pub(crate) fn new(options: &Options, seed: [u64; 2], ledger: &Arc<Ledger>) -> Self {
        let Options { address_limits: address, user_limits: user, .. } = options;
        let table = |is_on: bool, keys_max, count, per_second| {
            is_on.then(|| Counts::new(keys_max, Maximum { count, per_second }, seed, ledger.clone()))
        };
        let per_second = options.limits.connections_per_second;
        Self {
            connections: table(
                address.counts_connections(),
                address.addresses_max,
                (address.connections_max, "address_limits.connections_max"),
                (address.connections_per_second, "address_limits.connections_per_second"),
            ),
            sessions: table(
                address.counts_sessions(),
                address.addresses_max,
                (address.sessions_max, "address_limits.sessions_max"),
                (address.sessions_per_second, "address_limits.sessions_per_second"),
            ),
            users: table(
                user.sessions_max > 0,
                user.users_max,
                (user.sessions_max, "user_limits.sessions_max"),
                (0, ""),
            ),
            published: Arc::new(PublishedKeys::new(
                seed,
                options.limits.idempotency_keys_max,
                ledger.clone(),
            )),
            accepts: (per_second > 0).then(|| Accepts {
                per_second: AtomicU32::new(per_second),
                begun: OnceLock::new(),
                full_at: AtomicU64::new(0),
            }),
        }
    }

    /// Changes the limits whose tables exist. Other limits need a restart.
    pub(crate) fn configure(&self, options: &Options) {
        let Options { address_limits: address, user_limits: user, .. } = options;
        self.published.set_max(options.limits.idempotency_keys_max);
        for (table, count_max, per_second) in [
            (&self.connections, address.connections_max, address.connections_per_second),
            (&self.sessions, address.sessions_max, address.sessions_per_second),
            (&self.users, user.sessions_max, 0),
        ] {
            if let Some(table) = table {
                table.configure(count_max, per_second);
            }
        }
        if let Some(accepts) = &self.accepts {
            accepts.per_second.store(options.limits.connections_per_second, Ordering::Relaxed);
        }
    }

    /// Checks whether the node may accept one more connection now.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn check_accept(&self, now: Instant) -> Result<(), LimitReached> {
        let Some(Accepts { per_second, begun, full_at }) = &self.accepts else { return Ok(()) };
        let rate = Rate::new(per_second.load(Ordering::Relaxed), Duration::from_secs(1));
        let Some(rate) = rate else { return Ok(()) };
        let now = now.saturating_duration_since(*begun.get_or_init(|| now)).as_nanos();
        take(rate, full_at, u64::try_from(now).unwrap_or(u64::MAX))
            .map_err(|retry_after| LimitReached { key: "limits.connections_per_second", retry_after })
    }

    /// The metric that counts how often a table had no free entry for an address or user.
    pub(crate) fn metric(&self) -> Metric {
        let tables = [&self.connections, &self.sessions, &self.users];
        let overflows = tables.into_iter().flatten().map(Counts::overflows).sum();
        Metric::one(
            MetricKind::Counter,
            "limit_table_full",
            "Connections and sessions that weren't counted, because the table had no free entry for their address or \
             user (address_limits.addresses_max, user_limits.users_max).",
            overflows,
        )
    }
}

impl super::Shared {
    /// Returns a permit to relay one more connection to another node. `None` if the maximum is reached.
    pub fn permit_relay(&self, connections_max: usize) -> Option<RelayPermit> {
        RelayPermit::new(&self.ledger, &self.relayed, connections_max)
    }
}
