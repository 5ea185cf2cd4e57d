//! When a hook gets the list of occupied topics, after a gap in its notices, and page by page. Sans-I/O.
//!
//! A pass goes through all topics that were occupied when it began. A topic that fails alone twice is left out of the pass; two
//! of them in a row may be an outage, and the pass ends, so that notices needn't wait for it. Another pass begins after
//! [`RETRY_INTERVAL`] if a pass ended early or left topics out, until a topic has been left out of [`PASSES_MAX`] complete passes.

use super::failure::Cause;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// A notice that was set aside is sent again after this time, and another pass begins.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(15);
/// How often a topic fails alone before it is left out of a pass.
const ALONE_MAX: u32 = 2;
/// Complete passes that leave topics out, before they are given up.
const PASSES_MAX: u32 = 5;
/// Topics that are left out, at most. Beyond it, no further pass begins before the next gap.
const LEFT_OUT_MAX: usize = 1_000;

/// The next page, to be made: occupied topics after a position, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageWanted {
    /// Names the pass.
    pub(super) id: u64,
    /// The number of the page, from 0.
    pub(super) page: u64,
    /// The number of the last topic of the previous page.
    pub(super) after: u64,
    /// The number of the newest topic of the pass. `None`: the pass begins with this page.
    pub(super) until: Option<u64>,
    pub(super) topics_max: usize,
    pub(super) left_out: HashSet<u64>,
}

/// A page. Without topics it is the last one.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// The numbers of its last topic, and of the newest topic of the pass.
    pub(super) end: u64,
    pub(super) until: u64,
    pub(super) topics: usize,
    pub(super) text: Vec<u8>,
}

/// A pass through the occupied topics.
struct Pass {
    page: u64,
    after: u64,
    until: Option<u64>,
    /// The page that is sent, and its sequence number.
    made: Option<(u64, Page)>,
}

/// See the module's documentation.
pub(super) struct Resync {
    is_enabled: bool,
    /// When the next pass begins.
    due_at: Option<Instant>,
    pass: Option<Pass>,
    last_id: u64,
    topics_max: usize,
    batch_max: usize,
    /// Failures in a row of a page with one topic, and topics left out in a row.
    failures: u32,
    left_out_in_row: u32,
    left_out: HashSet<u64>,
    passes: u32,
}

impl Resync {
    pub(super) fn new(is_enabled: bool, batch_max: usize) -> Self {
        Self {
            is_enabled,
            due_at: None,
            pass: None,
            last_id: 0,
            topics_max: batch_max,
            batch_max,
            failures: 0,
            left_out_in_row: 0,
            left_out: HashSet::new(),
            passes: 0,
        }
    }

    /// Notices are missing.
    pub(super) fn gap(&mut self, now: Instant) {
        if self.is_enabled {
            (self.due_at, self.passes) = (Some(now), 0);
        }
    }

    /// When a pass begins, if none has begun.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at.filter(|_| self.pass.is_none())
    }

    /// Begins a pass if it is time. Returns whether there is one.
    pub(super) fn begin(&mut self, now: Instant, is_ending: bool) -> bool {
        if self.pass.is_none() && self.due_at.is_some_and(|at| at <= now) && !is_ending {
            self.due_at = None;
            self.last_id += 1;
            self.left_out_in_row = 0;
            self.pass = Some(Pass { page: 0, after: 0, until: None, made: None });
        }
        self.pass.is_some()
    }

    /// The page that has to be made before a request is sent.
    pub(super) fn wanted(&self) -> Option<PageWanted> {
        let pass = self.pass.as_ref().filter(|pass| pass.made.is_none())?;
        Some(PageWanted {
            id: self.last_id,
            page: pass.page,
            after: pass.after,
            until: pass.until,
            topics_max: self.topics_max,
            left_out: self.left_out.clone(),
        })
    }

    /// The page to be sent, with its sequence number.
    pub(super) fn page(&self) -> Option<(u64, &Page)> {
        self.pass.as_ref()?.made.as_ref().map(|(number, page)| (*number, page))
    }

    pub(super) fn set_page(&mut self, number: u64, page: Page) {
        if let Some(pass) = &mut self.pass {
            pass.until = Some(page.until);
            pass.made = Some((number, page));
        }
    }

    /// The backend has taken the page. Returns how many topics are given up.
    pub(super) fn succeed(&mut self, now: Instant) -> u64 {
        (self.failures, self.left_out_in_row) = (0, 0);
        self.topics_max = (2 * self.topics_max).min(self.batch_max);
        let Some(pass) = &mut self.pass else { return 0 };
        let Some((_, page)) = pass.made.take() else { return 0 };
        (pass.page, pass.after) = (pass.page + 1, page.end);
        if page.topics > 0 {
            return 0;
        }
        self.pass = None;
        let left_out = std::mem::take(&mut self.left_out).len();
        if left_out == 0 {
            return 0;
        }
        self.passes += 1;
        if self.passes < PASSES_MAX {
            self.due_at.get_or_insert(now + RETRY_INTERVAL);
            return 0;
        }
        left_out as u64
    }

    /// The page has failed.
    pub(super) fn fail(&mut self, now: Instant, cause: Cause) {
        let Some(pass) = &mut self.pass else { return };
        let Some((_, page)) =
            pass.made.take_if(|(_, page)| page.topics > 0 && !cause.concerns_all_requests())
        else {
            return;
        };
        if page.topics > 1 {
            self.topics_max = if self.topics_max < self.batch_max { 1 } else { page.topics / 2 };
            return;
        }
        self.topics_max = 1;
        self.failures += 1;
        if self.failures < ALONE_MAX {
            return;
        }
        self.failures = 0;
        self.left_out_in_row += 1;
        self.left_out.insert(page.end);
        if self.left_out_in_row > 1 {
            self.pass = None;
            self.due_at = Some(now + RETRY_INTERVAL).filter(|_| self.left_out.len() <= LEFT_OUT_MAX);
        }
    }
}
