//! Terms of feeds without a document. Their subjects are removed some time after their leases are released.

use super::Shared;
use super::entries::all;
use super::feeds::is_only_term;
use super::jetstream::{Stream, Which};
use crate::engine::{EngineError, Lease};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::{Charge, Class, Ledger};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// Maximum number of subjects that wait for their removal. Further ones are removed at once.
const RELEASED_MAX: usize = 16_384;
/// Maximum number of subjects that are removed at once.
const REMOVALS_MAX: usize = 64;
/// Delay before a removal that failed is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Memory for a subject besides its text: its place in the table.
const PLACE_BYTES: usize = 128;

/// The time of a removal, and the subject.
type Place = (Instant, Arc<str>);

/// Subjects to be removed, by time, each with its last lease.
pub(super) struct ReleasedTerms {
    subjects: Mutex<BTreeMap<Place, Lease>>,
    charge: Charge,
    /// Notified when a subject was added.
    added: Notify,
}

impl ReleasedTerms {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { subjects: Mutex::default(), charge: Charge::new(ledger, Class::Cluster), added: Notify::new() }
    }

    /// Schedules the removal of a subject. Returns `false` if too many removals wait.
    pub(super) fn add(&self, at: Instant, subject: &str, lease: Lease) -> bool {
        let subjects = &mut *self.subjects.lock();
        let has_room = subjects.len() < RELEASED_MAX;
        if has_room && subjects.insert((at, subject.into()), lease).is_none() {
            self.charge.add(PLACE_BYTES + subject.len());
            self.added.notify_one();
        }
        has_room
    }

    /// Returns the subjects whose time has come, up to a maximum. Otherwise, returns the next subject's time.
    fn due(&self, now: Instant) -> Result<Vec<(Place, Lease)>, Option<Instant>> {
        let subjects = self.subjects.lock();
        let next = subjects.first_key_value().map(|((at, _), _)| *at);
        if next.is_none_or(|at| at > now) {
            return Err(next);
        }
        let due = subjects.iter().take_while(|((at, _), _)| *at <= now).take(REMOVALS_MAX);
        Ok(due.map(|(place, lease)| (place.clone(), *lease)).collect())
    }

    fn remove(&self, place: &Place) {
        if self.subjects.lock().remove(place).is_some() {
            self.charge.subtract(PLACE_BYTES + place.1.len());
        }
    }
}

impl Shared {
    /// Removes the subjects of released terms, for as long as the connection lasts.
    pub(super) async fn remove_released_terms(&self) -> Infallible {
        loop {
            let due = match self.released_terms.due(Instant::now()) {
                Ok(due) => due,
                Err(next) => {
                    let at = next.unwrap_or_else(Instant::now);
                    tokio::select! {
                        () = self.released_terms.added.notified() => {}
                        () = sleep_until(at), if next.is_some() => {}
                    }
                    continue;
                }
            };
            let removals = due.iter().map(|((_, subject), lease)| self.remove_term(subject, *lease));
            let results = all(removals).await;
            let mut is_unavailable = false;
            for ((place, _), result) in due.iter().zip(results) {
                match result {
                    Err(EngineError::Unavailable(_)) => is_unavailable = true,
                    // A subject with other data stays as it is.
                    Ok(()) | Err(_) => self.released_terms.remove(place),
                }
            }
            if is_unavailable {
                sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Removes the messages of a feed, if they consist of this lease's term only.
    async fn remove_term(&self, subject: &str, lease: Lease) -> Result<(), EngineError> {
        let session = self.session().await?;
        let newest = self.read(&session, Stream::Feeds, Which::Last(subject)).await?;
        if let Some(newest) = newest
            && is_only_term(&newest, lease)?
        {
            // Another node that acquires the lease meanwhile stores a message with a greater sequence.
            self.purge(&session, Stream::Feeds, subject, newest.sequence + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_bounded_and_count_until_they_are_removed() {
        let ledger = Arc::new(Ledger::new(1 << 30));
        let terms = ReleasedTerms::new(ledger.clone());
        let (now, lease) = (Instant::now(), Lease { term: 1, token: 1 });
        let at = |i: usize| now + Duration::from_secs(i as u64 / 100);
        for i in 0..RELEASED_MAX {
            assert!(terms.add(at(i), &format!("feed.{i}"), lease));
        }
        assert!(!terms.add(now, "more", lease));
        assert!(!ledger.has_room((1 << 30) - RELEASED_MAX * PLACE_BYTES));
        assert_eq!(terms.due(now - Duration::from_secs(1)), Err(Some(now)));
        let mut removed = 0;
        while let Ok(due) = terms.due(at(RELEASED_MAX)) {
            assert!(due.len() <= REMOVALS_MAX && due.is_sorted_by_key(|((at, _), _)| *at));
            removed += due.len();
            due.iter().for_each(|(place, _)| terms.remove(place));
        }
        assert_eq!((removed, terms.due(now)), (RELEASED_MAX, Err(None)));
        assert!(ledger.has_room(1 << 30), "nothing counts any more");
    }
}
