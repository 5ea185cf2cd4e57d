//! Notices that failed while another one succeeded. Later notices about the same subject follow them.

use super::Waiting;
use crate::hooks::resync::RETRY_INTERVAL;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Number of failures, while others succeed, after which a set-aside notice is dropped.
const FAILURES_MAX: u32 = 5;
/// Minimum time between the first and the last of these [`FAILURES_MAX`] failures.
const SUSPICION_MIN: Duration = Duration::from_mins(1);

struct Aside {
    notice: Waiting,
    /// Later notices about the same subject.
    followers: VecDeque<Waiting>,
    failures: u32,
    first_failed_at: Instant,
    retry_at: Instant,
    /// Value of [`SetAside::successes`] at the last counted failure.
    successes: u64,
}

#[derive(Default)]
pub(super) struct SetAside {
    /// The notices, by subject.
    notices: HashMap<u64, Aside>,
    /// Subjects of `notices`, ordered by `retry_at`.
    retries: VecDeque<u64>,
    /// Number of successful requests.
    successes: u64,
}

impl SetAside {
    pub(super) fn count_success(&mut self) {
        self.successes += 1;
    }

    /// Returns the notice that is sent again next, and the time at which it is due.
    pub(super) fn next(&self) -> Option<(&Waiting, Instant)> {
        let aside = self.notices.get(self.retries.front()?)?;
        Some((&aside.notice, aside.retry_at))
    }

    pub(super) fn contains(&self, subject: u64) -> bool {
        self.notices.contains_key(&subject)
    }

    /// Returns the notices that follow a set-aside notice. `None` if none about this subject was set aside.
    pub(super) fn followers(&mut self, subject: u64) -> Option<&mut VecDeque<Waiting>> {
        self.notices.get_mut(&subject).map(|aside| &mut aside.followers)
    }

    pub(super) fn insert(&mut self, now: Instant, notice: Waiting) {
        let subject = notice.subject;
        self.retries.push_back(subject);
        let aside = Aside {
            notice,
            followers: VecDeque::new(),
            failures: 1,
            first_failed_at: now,
            retry_at: now + RETRY_INTERVAL,
            successes: self.successes,
        };
        self.notices.insert(subject, aside);
    }

    /// Records that the next notice has failed again. Returns `true` if it must be dropped. `is_suspect` is
    /// `false` if only the backend can be the cause.
    pub(super) fn fail(&mut self, now: Instant, subject: u64, is_suspect: bool) -> bool {
        let Some(aside) = self.notices.get_mut(&subject) else { return false };
        aside.retry_at = now + RETRY_INTERVAL;
        self.retries.rotate_left(1);
        if !is_suspect || aside.successes == self.successes {
            return false;
        }
        (aside.failures, aside.successes) = (aside.failures + 1, self.successes);
        let is_over = now.saturating_duration_since(aside.first_failed_at) >= SUSPICION_MIN;
        aside.failures >= FAILURES_MAX && is_over
    }

    /// Removes a notice. Returns it and its followers.
    pub(super) fn remove(&mut self, subject: u64) -> Option<(Waiting, VecDeque<Waiting>)> {
        let Aside { notice, followers, .. } = self.notices.remove(&subject)?;
        self.retries.retain(|other| *other != subject);
        Some((notice, followers))
    }
}
