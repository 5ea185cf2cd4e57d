//! Schedules the list of occupied topics after a gap in a hook's notices, page by page. Sans-I/O.
//!
//! A pass visits all topics that were occupied at its start. A topic that fails alone twice is skipped in the
//! pass. If two topics in a row are skipped, there may be an outage, so the pass ends early and notices
//! needn't wait for it. After a pass that ended early or skipped topics, another pass begins after
//! [`RETRY_INTERVAL`], but not if [`PASSES_MAX`] complete passes have skipped topics.

use super::failure::Cause;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Delay before a set-aside notice is sent again, and before another pass begins.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(15);
/// Number of failures of a topic alone after which it is skipped in a pass.
const ALONE_MAX: u32 = 2;
/// Number of complete passes with skipped topics after which the skipped topics are given up.
const PASSES_MAX: u32 = 5;
/// Maximum number of skipped topics. With more, no further pass begins before the next gap.
const LEFT_OUT_MAX: usize = 1_000;

/// A request for the next page: the occupied topics whose numbers follow `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageRequest {
    /// Identifies the pass.
    pub(super) id: u64,
    /// The number of the page, counted from 0.
    pub(super) page: u64,
    /// The number of the last topic of the previous page.
    pub(super) after: u64,
    /// The number of the newest topic of the pass. `None` if the pass begins with this page.
    pub(super) until: Option<u64>,
    pub(super) topics_max: usize,
    pub(super) left_out: HashSet<u64>,
}

/// A page. A page without topics is the last one.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// The number of the page's last topic.
    pub(super) end: u64,
    /// The number of the newest topic of the pass.
    pub(super) until: u64,
    pub(super) topics: usize,
    pub(super) text: Vec<u8>,
}

/// A pass over the occupied topics.
struct Pass {
    page: u64,
    after: u64,
    until: Option<u64>,
    /// The current page with its sequence number, once it has been made.
    made: Option<(u64, Page)>,
}

/// Schedules passes (see the module's documentation).
pub(super) struct Resync {
    is_enabled: bool,
    /// Time at which the next pass begins.
    due_at: Option<Instant>,
    pass: Option<Pass>,
    last_id: u64,
    topics_max: usize,
    batch_max: usize,
    /// Number of failures in a row of a page with one topic.
    failures: u32,
    /// Number of topics that were skipped in a row.
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

    /// Records a gap: notices are missing.
    pub(super) fn gap(&mut self, now: Instant) {
        if self.is_enabled {
            (self.due_at, self.passes) = (Some(now), 0);
        }
    }

    /// Returns the time at which the next pass begins. `None` during a pass.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at.filter(|_| self.pass.is_none())
    }

    /// Begins a pass if it is due. Returns `true` if a pass is running.
    pub(super) fn begin(&mut self, now: Instant, is_ending: bool) -> bool {
        if self.pass.is_none() && self.due_at.is_some_and(|at| at <= now) && !is_ending {
            self.due_at = None;
            self.last_id += 1;
            self.left_out_in_row = 0;
            self.pass = Some(Pass { page: 0, after: 0, until: None, made: None });
        }
        self.pass.is_some()
    }

    /// Returns the page that must be made before the next request.
    pub(super) fn wanted(&self) -> Option<PageRequest> {
        let pass = self.pass.as_ref().filter(|pass| pass.made.is_none())?;
        Some(PageRequest {
            id: self.last_id,
            page: pass.page,
            after: pass.after,
            until: pass.until,
            topics_max: self.topics_max,
            left_out: self.left_out.clone(),
        })
    }

    /// Returns the page to send, with its sequence number.
    pub(super) fn page(&self) -> Option<(u64, &Page)> {
        self.pass.as_ref()?.made.as_ref().map(|(number, page)| (*number, page))
    }

    pub(super) fn set_page(&mut self, number: u64, page: Page) {
        if let Some(pass) = &mut self.pass {
            pass.until = Some(page.until);
            pass.made = Some((number, page));
        }
    }

    /// Records that the backend has accepted the page. Returns the number of skipped topics that are given
    /// up.
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

    /// Records that the page has failed.
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
