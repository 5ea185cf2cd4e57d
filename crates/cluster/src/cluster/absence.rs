//! The time without an engine, for `/readyz`, a metric and the log, and the decision to become unready.
//!
//! A node without its engine serves clients worse than a node with its engine, and better than none. So after
//! [`Options::unready_after`](super::Options::unready_after), the node asks the others over their internal listeners. It becomes
//! unready if one of them has its engine, or if it can't reach any of them.

use super::Cluster;
use crate::relay::{Reach, Relays};
use std::time::{Duration, SystemTime};
use stentor_ports::EngineAway;
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, sleep, sleep_until};

/// Time between two rounds of questions to the other nodes.
const ASK_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two log lines about the absence.
const REMINDER_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Away {
    lost_at: Instant,
    shown: EngineAway,
}

/// The engine's absence. `None` while it is connected.
pub(super) struct Absence(watch::Sender<Option<Away>>);

impl Absence {
    /// The absence of a starting node, which isn't connected yet.
    pub(super) fn new() -> Self {
        let absence = Self(watch::Sender::new(None));
        absence.begin();
        absence
    }

    /// Notes that the connection is lost. An existing absence continues.
    pub(super) fn begin(&self) {
        self.0.send_if_modified(|away| {
            let is_new = away.is_none();
            away.get_or_insert_with(|| Away {
                lost_at: Instant::now(),
                shown: EngineAway { since: SystemTime::now(), makes_unready: false },
            });
            is_new
        });
    }

    /// Notes that the engine is connected.
    pub(super) fn end(&self) {
        self.0.send_replace(None);
    }

    pub(super) fn shown(&self) -> Option<EngineAway> {
        self.0.borrow().map(|away| away.shown)
    }

    /// The duration of the absence. Zero while the engine is connected.
    pub(super) fn duration(&self) -> Duration {
        self.0.borrow().map(|away| away.lost_at.elapsed()).unwrap_or_default()
    }

    /// Sets whether the absence that began at `lost_at` makes the node unready. Returns `true` if that is a change.
    fn set_unready(&self, lost_at: Instant, makes_unready: bool) -> bool {
        self.0.send_if_modified(|away| match away {
            Some(away) if away.lost_at == lost_at && away.shown.makes_unready != makes_unready => {
                away.shown.makes_unready = makes_unready;
                true
            }
            _ => false,
        })
    }

    /// Waits until an absence has begun.
    async fn begun(&self) -> Away {
        let mut changes = self.0.subscribe();
        loop {
            if let Some(away) = *changes.borrow_and_update() {
                return away;
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    /// Waits until the absence that began at `lost_at` has ended.
    async fn ended(&self, lost_at: Instant) {
        let mut changes = self.0.subscribe();
        let _ = changes.wait_for(|away| away.is_none_or(|away| away.lost_at != lost_at)).await;
    }
}

impl Cluster {
    /// Reports each absence of the engine, and decides whether it makes the node unready.
    pub(super) async fn watch_engine(&self) {
        loop {
            let Away { lost_at, shown } = self.absence.begun().await;
            tokio::select! {
                () = self.absence.ended(lost_at) => {}
                () = self.decide_readiness(lost_at) => {}
                () = remind(lost_at, shown) => {}
            }
        }
    }

    async fn decide_readiness(&self, lost_at: Instant) {
        let Some(unready_after) = self.options.unready_after else { return std::future::pending().await };
        sleep_until(lost_at + unready_after).await;
        loop {
            let reach = Relays::ask_others(self.options.relays.as_deref()).await;
            if self.absence.set_unready(lost_at, reach != Reach::WithoutEngine) {
                tracing::warn!(
                    "{}",
                    match reach {
                        Reach::WithEngine => "/readyz answers 503: other nodes have their engine",
                        Reach::Nobody =>
                            "/readyz answers 503: neither the engine nor another node can be reached",
                        Reach::WithoutEngine =>
                            "/readyz answers 200 again: no node that can be reached has its engine",
                    }
                );
            }
            sleep(ASK_INTERVAL).await;
        }
    }
}

async fn remind(lost_at: Instant, shown: EngineAway) {
    let mut reminders = interval_at(lost_at + REMINDER_INTERVAL, REMINDER_INTERVAL);
    loop {
        reminders.tick().await;
        tracing::warn!("{shown}");
    }
}
