//! Schedules the requests with the notices of a hook, and decides which notices are sent again or dropped
//! after a failure. Sans-I/O.
//!
//! ```text
//!             fails: half of the batch, after PAUSE_MIN       fails again
//!  batches ──────────────────────────────────────────────► ──────────────► outage: the oldest notice alone,
//!     ▲                                                                     after 1 s, 2 s … PAUSE_MAX
//!     ├──────────── it succeeds ──────────────────────────────────────────────┤
//!     └──────────── it fails twice, and another notice succeeds: set aside ───┘
//! ```
//!
//! An outage drops no notice. If the oldest notice fails alone, either the notice or the backend may be the
//! cause. To find out, another notice or a page of a resync is sent right after it. If that succeeds, the
//! oldest notice is set aside, so that the others needn't wait for it. A set-aside notice is sent again,
//! alone, until it succeeds or has failed `FAILURES_MAX` times over `SUSPICION_MIN` while others
//! succeeded.
//!
//! Invariants: notices are sent in order, except set-aside notices and the notices that were tried in place
//! of the oldest one; notices about one subject are always sent in order; a notice is removed when the
//! backend has accepted it, or as just described. A notice gets its number when it is first sent. Numbers are
//! skipped for notices that were dropped because the queue was full. If the hook has a resync, pages of a
//! [`Resync`] follow such a gap before any other notice.

mod attempts;
mod set_aside;

use super::BATCH_BYTES_MAX;
use super::charged::Held;
use super::failure::Cause;
use super::resync::{Page, PageRequest, Resync};
use attempts::Attempts;
use set_aside::SetAside;
use std::collections::{HashSet, VecDeque};
use std::time::Instant;

/// Limits of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// Maximum number of waiting notices.
    pub(super) waiting_max: usize,
    /// Maximum size of the waiting notices in bytes.
    pub(super) waiting_bytes_max: usize,
    /// Maximum number of notices in one request.
    pub(super) batch_max: usize,
    /// `true` if a resync (a list of the occupied topics) follows a gap.
    pub(super) has_resync: bool,
}

/// A waiting notice.
struct Waiting {
    /// A number for the session, topic or node of the notice.
    subject: u64,
    /// The notice's sequence number. 0 until the notice is sent.
    number: u64,
    /// Number of notices that were dropped right before this notice.
    dropped_before: u64,
    /// The notice as a JSON object, without its sequence number.
    text: Vec<u8>,
}

impl Waiting {
    fn numbered(&self) -> Vec<u8> {
        numbered(self.number, &self.text)
    }
}

/// Returns the text of a notice with its sequence number.
pub(super) fn numbered(number: u64, text: &[u8]) -> Vec<u8> {
    let mut whole = format!("{{\"sequence\":{number},").into_bytes();
    whole.extend_from_slice(&text[1..]);
    whole
}

/// The next step of the delivery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Send a request with these notices.
    Send(Vec<Vec<u8>>),
    /// Make this page and call [`Queue::set_page`].
    MakePage(PageRequest),
}

/// Notices of the request in flight.
#[derive(Clone, Copy)]
enum InFlight {
    /// This many of the oldest notices.
    Batch(usize),
    /// A notice other than the oldest, by its index.
    Other(usize),
    /// The set-aside notice about this subject.
    SetAside(u64),
    /// A page of a resync.
    Page,
}

/// The queue of notices; see the module's documentation.
pub(super) struct Queue {
    limits: QueueLimits,
    waiting: VecDeque<Waiting>,
    set_aside: SetAside,
    attempts: Attempts,
    /// Number of held notices, including those that were set aside.
    held: usize,
    /// Size of the held notices' texts in bytes.
    bytes: usize,
    /// The sequence number of the last notice.
    last: u64,
    /// Number of notices that were dropped after the newest waiting one.
    dropped: u64,
    resync: Resync,
    /// `true` if the resync for the next gap has been started before the queue reached the gap.
    is_early: bool,
    in_flight: Option<InFlight>,
    is_ending: bool,
}

impl Queue {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            set_aside: SetAside::default(),
            attempts: Attempts::new(limits.batch_max),
            held: 0,
            bytes: 0,
            last: 0,
            dropped: 0,
            resync: Resync::new(limits.has_resync, limits.batch_max),
            is_early: false,
            in_flight: None,
            is_ending: false,
        }
    }

    /// Adds a notice about `subject`. `write` returns its text without its number. Returns `false` if the
    /// queue has no space for the notice, which is then dropped.
    pub(super) fn push(&mut self, subject: u64, has_memory: bool, write: impl FnOnce() -> Vec<u8>) -> bool {
        let has_place = self.held < self.limits.waiting_max && has_memory;
        let text =
            has_place.then(write).filter(|text| self.bytes + text.len() <= self.limits.waiting_bytes_max);
        let Some(text) = text else {
            self.dropped += 1;
            return false;
        };
        self.held += 1;
        self.bytes += text.len();
        let dropped_before = std::mem::take(&mut self.dropped);
        self.waiting.push_back(Waiting { subject, number: 0, dropped_before, text });
        true
    }

    /// Returns the number of waiting notices, including those that were set aside.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Ends the queue because the node stops: the remaining notices are sent without pauses.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
        self.attempts.end_pause();
    }

    /// Returns the step that is due now, if any.
    pub(super) fn poll_request(&mut self, now: Instant) -> Option<Next> {
        if self.is_paused(now) {
            return None;
        }
        self.hold_followers(now);
        if self.resync.begin(now, self.is_ending) {
            if let Some(wanted) = self.resync.wanted() {
                return Some(Next::MakePage(wanted));
            }
            self.in_flight = Some(InFlight::Page);
            let page = self.resync.page().map(|(number, page)| numbered(number, &page.text));
            return Some(Next::Send(page.into_iter().collect()));
        }
        let may_retry = self.waiting.is_empty() || self.attempts.failures == 0 && !self.is_ending;
        let due = self.set_aside.next().filter(|(_, at)| may_retry && (*at <= now || self.is_ending));
        let due = due.map(|(notice, _)| (notice.subject, notice.numbered()));
        let other = self.attempts.tries_other.then(|| self.other()).flatten();
        let (next, notices) = match (due, other, self.next_batch()) {
            (Some((subject, notice)), ..) => (InFlight::SetAside(subject), vec![notice]),
            (None, Some(index), _) => (InFlight::Other(index), self.numbered(index, 1)),
            (None, None, 0) => return None,
            (None, None, count) => (InFlight::Batch(count), self.numbered(0, count)),
        };
        self.in_flight = Some(next);
        Some(Next::Send(notices))
    }

    /// Assigns numbers to notices. Returns their texts.
    fn numbered(&mut self, skip: usize, count: usize) -> Vec<Vec<u8>> {
        let dropped = self.waiting.iter_mut().take(skip + 1).map(|it| std::mem::take(&mut it.dropped_before));
        self.last += dropped.sum::<u64>();
        let last = &mut self.last;
        let number = |notice: &mut Waiting| {
            if notice.number == 0 {
                *last += 1;
                notice.number = *last;
            }
            notice.numbered()
        };
        self.waiting.iter_mut().skip(skip).take(count).map(number).collect()
    }

    /// Sets the page that [`Next::MakePage`] requested.
    pub(super) fn set_page(&mut self, page: Page) {
        self.last += 1;
        self.resync.set_page(self.last, page);
    }

    /// Returns the time for the next call of [`Self::poll_request`] after it has returned `None`, if no
    /// notice arrives before.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let retry = self.set_aside.next().map(|(_, at)| at).into_iter();
        self.attempts.paused_until(now).or_else(|| retry.chain(self.resync.due_at()).min())
    }

    /// Returns `true` during a pause after a failure, when no request may be sent.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.attempts.paused_until(now).is_some()
    }

    /// While the oldest notice has the subject of a set-aside notice, moves it behind the set-aside one.
    fn hold_followers(&mut self, now: Instant) {
        loop {
            self.skip_dropped(now);
            if let Some(first) = self.waiting.front()
                && let Some(followers) = self.set_aside.followers(first.subject)
            {
                followers.extend(self.waiting.pop_front());
            } else {
                return;
            }
        }
    }

    /// Skips the numbers of notices that were dropped before the oldest one, and records the gap for a
    /// resync.
    fn skip_dropped(&mut self, now: Instant) {
        let dropped = self.waiting.front_mut().map_or(&mut self.dropped, |first| &mut first.dropped_before);
        let dropped = std::mem::take(dropped);
        if dropped > 0 {
            self.last += dropped;
            self.is_early = false;
            self.resync.gap(now);
        }
    }

    /// Returns how many of the oldest notices the next request has.
    fn next_batch(&self) -> usize {
        let mut bytes = 0;
        let fits = |notice: &&Waiting| {
            bytes += notice.text.len();
            bytes <= BATCH_BYTES_MAX && !self.set_aside.contains(notice.subject) && notice.dropped_before == 0
        };
        let count = self.waiting.iter().take(self.attempts.batch).take_while(fits).count();
        count.max(usize::from(!self.waiting.is_empty()))
    }

    /// Returns the index of a notice about a subject that no earlier notice has: the one at `offset` from the
    /// oldest, or else the last one. If the hook has a resync, only notices before a gap are possible,
    /// because the resync precedes the others.
    fn other(&self) -> Option<usize> {
        let mut seen = HashSet::new();
        let mut found = None;
        let is_reached =
            |(_, notice): &(usize, &Waiting)| !self.limits.has_resync || notice.dropped_before == 0;
        for (index, notice) in self.waiting.iter().enumerate().take_while(is_reached) {
            if seen.insert(notice.subject) && index > 0 && !self.set_aside.contains(notice.subject) {
                found = Some(index);
                if index >= self.attempts.offset {
                    break;
                }
            }
        }
        found
    }

    /// Handles the end of the request in flight. Returns the number of notices that are dropped.
    pub(super) fn handle_outcome(&mut self, now: Instant, outcome: Result<(), Cause>) -> u64 {
        let Some(in_flight) = self.in_flight.take() else { return 0 };
        match (in_flight, outcome) {
            (InFlight::Batch(count), Ok(())) => {
                for notice in self.waiting.drain(..count) {
                    (self.held, self.bytes) = (self.held - 1, self.bytes - notice.text.len());
                }
                self.attempts.batch_succeeded();
                self.set_aside.count_success();
            }
            (InFlight::Other(index), Ok(())) => {
                if let Some(notice) = self.waiting.remove(index) {
                    (self.held, self.bytes) = (self.held - 1, self.bytes - notice.text.len());
                }
                self.set_oldest_aside(now);
                self.succeed();
            }
            (InFlight::SetAside(subject), Ok(())) => {
                self.release(subject);
                self.succeed();
            }
            (InFlight::Page, Ok(())) => {
                if self.is_early && self.attempts.suspects_oldest() {
                    self.set_oldest_aside(now);
                }
                self.succeed();
                return self.resync.succeed(now);
            }
            (InFlight::Page, Err(cause)) => {
                self.resync.fail(now, cause);
                self.attempts.fail(now);
            }
            (InFlight::Batch(count), Err(cause)) => self.batch_failed(now, count, cause),
            (InFlight::Other(_), Err(_)) => self.attempts.other_failed(now, self.waiting.len()),
            (InFlight::SetAside(subject), Err(cause)) => return self.set_aside_failed(now, subject, cause),
        }
        0
    }

    fn succeed(&mut self) {
        self.attempts.succeed();
        self.set_aside.count_success();
    }

    fn batch_failed(&mut self, now: Instant, count: usize, cause: Cause) {
        self.attempts.reduce_batch(count, cause);
        if self.attempts.suspects_oldest() {
            if self.other().is_some() {
                return self.attempts.try_other();
            }
            // A notice before a gap doesn't delay the resync. Another resync follows when the gap is reached.
            let has_gap = || self.dropped > 0 || self.waiting.iter().any(|notice| notice.dropped_before > 0);
            if !self.is_early && has_gap() {
                self.is_early = true;
                self.resync.gap(now);
            }
        }
        self.attempts.fail(now);
    }

    fn set_oldest_aside(&mut self, now: Instant) {
        if let Some(notice) = self.waiting.pop_front() {
            self.set_aside.insert(now, notice);
        }
    }

    fn set_aside_failed(&mut self, now: Instant, subject: u64, cause: Cause) -> u64 {
        let concerns_all = cause.concerns_all_requests();
        if self.set_aside.fail(now, subject, !concerns_all) {
            self.release(subject);
            self.resync.gap(now);
            return 1;
        }
        if concerns_all {
            self.attempts.fail(now);
        }
        0
    }

    /// Removes a set-aside notice. Its followers return to the front of the queue.
    fn release(&mut self, subject: u64) {
        let Some((notice, followers)) = self.set_aside.remove(subject) else { return };
        (self.held, self.bytes) = (self.held - 1, self.bytes - notice.text.len());
        followers.into_iter().rev().for_each(|follower| self.waiting.push_front(follower));
    }
}

impl Held for Queue {
    fn held_bytes(&self) -> usize {
        let page = self.resync.page().map_or(0, |(_, page)| page.text.len());
        self.bytes + self.held * size_of::<Waiting>() + page
    }
}

#[cfg(test)]
mod tests;
