//! Rates of a core's sessions: eight bytes per session for each limit that is on.

use super::{LimitPolicy, Rate, SessionLimits};
use crate::model::SessionId;
use std::time::{Duration, Instant};
use stentor_hub::Chunks;

/// The rates of a core's sessions.
pub struct SessionRates {
    begun: Instant,
    pub(crate) policy: LimitPolicy,
    messages: Option<Buckets>,
    publications: Option<Buckets>,
    bytes: Option<Buckets>,
}

/// An input that counts towards limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// A message or event with this number of bytes.
    Message(usize),
    /// A publication.
    Publication,
}

struct Buckets {
    rate: Rate,
    /// The time at which the bucket of a session is full, by the session's index.
    full_at: Chunks<u64>,
}

impl Buckets {
    fn new(per_second: u32, burst: Duration) -> Option<Self> {
        Some(Self { rate: Rate::new(per_second, burst)?, full_at: Chunks::default() })
    }

    fn get(&mut self, session: SessionId) -> Option<&mut u64> {
        self.full_at.get_mut(index_of(session))
    }

    /// The time at which a session's bucket is full after taking `amount`. `None` if the amount isn't available.
    fn after(&mut self, session: SessionId, now: u64, amount: usize) -> Option<u64> {
        let rate = self.rate;
        rate.take(*self.get(session)?, now, amount as u64).ok()
    }
}

fn index_of(session: SessionId) -> usize {
    session.to_bits() as u32 as usize
}

impl SessionRates {
    /// `None` if no limit is on.
    pub fn new(limits: &SessionLimits, now: Instant) -> Option<Self> {
        let bytes = u32::try_from(limits.bytes_per_second).unwrap_or(u32::MAX);
        limits.is_on().then(|| Self {
            begun: now,
            policy: limits.policy,
            messages: Buckets::new(limits.messages_per_second, limits.burst),
            publications: Buckets::new(limits.publications_per_second, limits.burst),
            bytes: Buckets::new(bytes, limits.burst),
        })
    }

    /// Changes the limits. Limits that were on before keep the state of their buckets.
    pub(crate) fn configure(&mut self, limits: &SessionLimits) {
        self.policy = limits.policy;
        let all = [&self.messages, &self.publications, &self.bytes];
        let sessions = all.into_iter().flatten().map(|buckets| buckets.full_at.len()).max().unwrap_or(0);
        let bytes = u32::try_from(limits.bytes_per_second).unwrap_or(u32::MAX);
        for (buckets, per_second) in [
            (&mut self.messages, limits.messages_per_second),
            (&mut self.publications, limits.publications_per_second),
            (&mut self.bytes, bytes),
        ] {
            let before = buckets.take().map(|buckets| buckets.full_at);
            *buckets = Buckets::new(per_second, limits.burst);
            let Some(Buckets { full_at, .. }) = buckets else { continue };
            match before {
                Some(before) => *full_at = before,
                None => (0..sessions).for_each(|_| full_at.push(0)),
            }
        }
    }

    /// Fills the buckets of a new session.
    pub fn open(&mut self, session: SessionId) {
        let index = index_of(session);
        for buckets in [&mut self.messages, &mut self.publications, &mut self.bytes].into_iter().flatten() {
            while buckets.full_at.len() <= index {
                buckets.full_at.push(0);
            }
            buckets.full_at[index] = 0;
        }
    }

    /// The size of the buckets, in bytes.
    pub fn held_bytes(&self) -> usize {
        let all = [&self.messages, &self.publications, &self.bytes];
        all.into_iter().flatten().map(|buckets| buckets.full_at.len() * size_of::<u64>()).sum()
    }

    /// Counts an input of a session.
    ///
    /// # Errors
    /// The input exceeds a limit and isn't counted. Returns the limit's key in the configuration.
    pub fn count(&mut self, session: SessionId, counted: Counted, now: Instant) -> Result<(), &'static str> {
        let now = u64::try_from(now.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX);
        let (first, second) = match counted {
            Counted::Message(bytes) => (
                (self.messages.as_mut(), 1, "session_limits.messages_per_second"),
                Some((self.bytes.as_mut(), bytes, "session_limits.bytes_per_second")),
            ),
            Counted::Publication => {
                ((self.publications.as_mut(), 1, "session_limits.publications_per_second"), None)
            }
        };
        let mut changed = [None, None];
        for (change, limit) in changed.iter_mut().zip([Some(first), second]) {
            let Some((Some(buckets), amount, key)) = limit else { continue };
            let after = buckets.after(session, now, amount).ok_or(key)?;
            *change = Some((buckets, after));
        }
        for (buckets, after) in changed.into_iter().flatten() {
            if let Some(full_at) = buckets.get(session) {
                *full_at = after;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_by_itself_and_all_together() {
        let now = Instant::now();
        let limits = SessionLimits {
            messages_per_second: 10,
            publications_per_second: 2,
            bytes_per_second: 1_000,
            ..SessionLimits::default()
        };
        let mut rates = SessionRates::new(&limits, now).unwrap();
        let (one, other) = (SessionId::from_bits(0), SessionId::from_bits(5));
        rates.open(one);
        rates.open(other);
        assert_eq!(rates.held_bytes(), 3 * 6 * 8);
        for _ in 0..2 {
            rates.count(one, Counted::Publication, now).unwrap();
        }
        let key = rates.count(one, Counted::Publication, now).unwrap_err();
        assert_eq!(key, "session_limits.publications_per_second");
        for _ in 0..9 {
            rates.count(one, Counted::Message(50), now).unwrap();
        }
        // A message refused for its size doesn't count as a message.
        let key = rates.count(one, Counted::Message(551), now).unwrap_err();
        assert_eq!(key, "session_limits.bytes_per_second");
        rates.count(one, Counted::Message(550), now).unwrap();
        let key = rates.count(one, Counted::Message(0), now).unwrap_err();
        assert_eq!(key, "session_limits.messages_per_second");
        // Another session isn't limited by the first one, nor is the next session with the first one's index.
        rates.count(other, Counted::Message(1_000), now).unwrap();
        rates.open(one);
        rates.count(one, Counted::Message(1_000), now).unwrap();
    }

    #[test]
    fn a_reload_changes_the_rates_of_open_sessions() {
        let now = Instant::now();
        let limits = SessionLimits { messages_per_second: 2, ..SessionLimits::default() };
        let mut rates = SessionRates::new(&limits, now).unwrap();
        let session = SessionId::from_bits(3);
        rates.open(session);
        let sent = |rates: &mut SessionRates, counted| {
            (0..10).filter(|_| rates.count(session, counted, now).is_ok()).count()
        };
        assert_eq!(sent(&mut rates, Counted::Message(1)), 2);
        let more = SessionLimits { messages_per_second: 4, publications_per_second: 3, ..limits };
        rates.configure(&more);
        // The session has used up its burst of 1 s, and a higher rate doesn't refill it.
        assert_eq!(sent(&mut rates, Counted::Message(1)), 0);
        assert_eq!(sent(&mut rates, Counted::Publication), 3);
        rates.configure(&SessionLimits { burst: Duration::from_secs(2), policy: LimitPolicy::Close, ..more });
        assert_eq!(sent(&mut rates, Counted::Message(1)), 4);
        assert_eq!(rates.policy, LimitPolicy::Close);
        rates.configure(&SessionLimits { publications_per_second: 3, ..SessionLimits::default() });
        assert_eq!(sent(&mut rates, Counted::Message(1)), 10);
    }

    #[test]
    fn no_limit_no_memory() {
        let now = Instant::now();
        assert!(SessionRates::new(&SessionLimits::default(), now).is_none());
        let limits = SessionLimits { publications_per_second: 1, ..SessionLimits::default() };
        let mut rates = SessionRates::new(&limits, now).unwrap();
        rates.open(SessionId::from_bits(0));
        assert_eq!(rates.held_bytes(), 8);
        for _ in 0..100 {
            rates.count(SessionId::from_bits(0), Counted::Message(1 << 30), now).unwrap();
        }
    }
}
