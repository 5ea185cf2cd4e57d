//! One feed of a node: what it knows, and its part in it.

mod storing;

use super::request::{DecodedLog, Entry, Push};
use super::{CHANGES_MAX, CONFIRM_DELAY, LOST_WAIT_MAX, REFRESH_INTERVAL, RETRY_DELAY};
use crate::NodeId;
use crate::engine::Lease;
use crate::frame::{FeedStateChange, FeedVersion, FrameError};
use crate::replaced::Replaced;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::{Document, Epoch, FeedState, Patch, Position, Requester};
use stentor_ports::{FeedSource, FeedUpdate, REQUESTERS_MAX};
pub(super) use storing::Step;

/// A state, and why.
pub(super) type State = (FeedState, Arc<str>);

/// The newest version that this node has.
pub(super) struct Newest {
    pub(super) position: Position,
    pub(super) document: Document,
    /// Of the holder that stored it first. Of two versions of different epochs, the one with the greater term is newer.
    pub(super) term: u64,
    /// Its epoch was replaced, or the engine has returned to an earlier one. It isn't shown before it is stored in a further epoch.
    pub(super) needs_epoch: bool,
}

/// What is being stored.
pub(super) struct Storing {
    /// A version, and the patch from the one before. `None`: a state.
    pub(super) version: Option<(Newest, Option<Bytes>)>,
    pub(super) state: State,
    pub(super) sequence: Option<u64>,
    /// Where the log ends with it.
    position: Position,
    /// The push that it is for.
    pub(super) push: Option<u64>,
}

/// The node's part.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// It reads the log for the first time.
    Loading,
    /// It has asked for the lease.
    Acquiring,
    /// Another node holds the lease, or nobody needs it.
    Following { acquire_at: Instant },
    /// It fetches the feed, or stores what was pushed.
    Holding { lease: Lease, renew_at: Instant, ends_at: Instant },
}

/// Whether a feed is a cold key ([`super::cold`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cold {
    /// This node doesn't hold its lease, or the engine has a log of it.
    No,
    /// It has subscribers.
    Wanted,
    /// It has no subscribers: its lease is released at this time, or earlier.
    Idle(Instant),
}

pub(super) struct Feed {
    /// Tells it apart from an earlier one of the same key.
    pub(super) incarnation: u64,
    pub(super) source: FeedSource,
    pub(super) role: Role,
    /// The greatest term that is known.
    pub(super) term_seen: u64,
    /// The node that holds the lease, as far as is known.
    pub(super) holder: Option<NodeId>,
    /// When to ask for the lease even though its holder is alive.
    pub(super) check_at: Instant,
    /// Whether this node has subscribers.
    pub(super) is_wanted: bool,
    pub(super) requesters: Vec<Requester>,
    pub(super) newest: Option<Newest>,
    /// The epoch of the newest version so far, whether or not the feed still has one.
    epoch: Option<Epoch>,
    /// What the node's own subscribers have.
    pub(super) shown: Option<Position>,
    pub(super) state: State,
    /// The greatest sequence number of a push.
    sequence: Option<u64>,
    /// The control plane's newest document, which isn't stored yet, and the state after it.
    pub(super) next: Option<(Document, Option<Patch>)>,
    after_next: Option<State>,
    pub(super) pushes: VecDeque<Push>,
    pub(super) storing: Option<Storing>,
    /// Whether the control plane has given news since this node holds the lease.
    pub(super) is_informed: bool,
    /// Whether the log has the state, stored under the lease of this node.
    pub(super) is_logged: bool,
    /// A pushed document has to be stored again, or would expire.
    pub(super) must_store: bool,
    refresh_at: Option<Instant>,
    /// The position of the log's last version. `None`: there is no log, or this node doesn't know it.
    log_end: Option<Position>,
    /// Entries in the log, and their bytes; of a log that this node doesn't know: the maximum.
    entries: usize,
    entry_bytes: usize,
    /// The engine has lost versions of the epoch.
    is_lost: bool,
    pub(super) is_loading: bool,
    /// A version may have been missed: the log is to be read again.
    pub(super) missed: bool,
    /// When to read it, if that failed.
    pub(super) load_at: Option<Instant>,
    /// The requests that were drawn when clients of another epoch began to wait; `None`: nobody waits.
    pub(super) awaited: Option<u64>,
    /// When to read the log for them.
    pub(super) confirm_at: Option<Instant>,
    /// Until when they wait for the next version, if the engine has lost some since it is connected.
    pub(super) lost_until: Option<Instant>,
    /// When to release the lease; `Some` while it is held without subscribers.
    pub(super) release_at: Option<Instant>,
    pub(super) due: Option<Instant>,
    /// How it was counted last.
    pub(super) cold: Cold,
}

impl Feed {
    pub(super) fn new(now: Instant, incarnation: u64, source: FeedSource, is_wanted: bool) -> Self {
        Self {
            incarnation,
            source,
            role: if is_wanted { Role::Loading } else { Role::Following { acquire_at: now } },
            term_seen: 0,
            holder: None,
            check_at: now,
            is_wanted,
            requesters: Vec::new(),
            newest: None,
            epoch: None,
            shown: None,
            state: live(),
            sequence: None,
            next: None,
            after_next: None,
            pushes: VecDeque::new(),
            storing: None,
            is_informed: false,
            is_logged: false,
            must_store: false,
            refresh_at: None,
            log_end: None,
            entries: CHANGES_MAX,
            entry_bytes: 0,
            is_lost: false,
            is_loading: false,
            missed: false,
            load_at: None,
            awaited: None,
            confirm_at: None,
            lost_until: None,
            release_at: None,
            due: None,
            cold: Cold::No,
        }
    }

    /// The document that a log leads to.
    pub(super) fn document_of(log: DecodedLog) -> Option<Document> {
        let mut feed = Self::new(Instant::now(), 0, FeedSource::Pushed, false);
        feed.replace(log, &mut Replaced::default()).ok()?;
        feed.newest.map(|newest| newest.document)
    }

    /// The lease, if this node holds it.
    pub(super) fn lease(&self) -> Option<Lease> {
        if let Role::Holding { lease, .. } = self.role { Some(lease) } else { None }
    }

    /// Whether the control plane fetches its documents, for the node that holds the lease.
    pub(super) fn is_fetched(&self) -> bool {
        self.source == FeedSource::Fetched
    }

    /// Returns `true` for a fetched feed whose term is all that the engine has, as far as this node knows.
    pub(super) fn has_no_log(&self) -> bool {
        self.is_fetched() && self.log_end.is_none() && self.newest.is_none()
    }

    /// How it counts among the cold keys.
    pub(super) fn coldness(&self) -> Cold {
        match self.lease() {
            Some(_) if self.has_no_log() => self.release_at.map_or(Cold::Wanted, Cold::Idle),
            _ => Cold::No,
        }
    }

    /// Whether this node has to acquire the lease when nobody holds it.
    pub(super) fn needs_lease(&self) -> bool {
        if self.is_fetched() { self.is_wanted } else { self.must_store || !self.pushes.is_empty() }
    }

    /// When something is due.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let role = match self.role {
            Role::Holding { renew_at, ends_at, .. } => Some(renew_at.min(ends_at)),
            Role::Following { acquire_at } if self.needs_lease() => Some(acquire_at),
            Role::Following { .. } => self.refresh_at,
            Role::Loading | Role::Acquiring => None,
        };
        let push = self.pushes.front().map(|push| push.deadline);
        [role, push, self.load_at, self.confirm_at, self.release_at].into_iter().flatten().min()
    }

    pub(super) fn add_requesters(&mut self, requesters: Vec<Requester>) {
        for requester in requesters {
            if self.requesters.len() < REQUESTERS_MAX && !self.requesters.contains(&requester) {
                self.requesters.push(requester);
            }
        }
    }

    /// The control plane has a document.
    pub(super) fn set_next(&mut self, document: Document, patch: Option<Patch>) {
        self.next = Some((document, patch));
        self.after_next = None;
        self.is_informed = true;
    }

    /// The control plane has noticed a state.
    pub(super) fn set_state(&mut self, state: State) {
        self.is_informed = true;
        if state.0 == FeedState::NotFound {
            (self.next, self.after_next, self.newest) = (None, None, None);
        } else if self.next.is_some() {
            self.after_next = Some(state);
            return;
        }
        (self.state, self.is_logged) = (state, false);
    }

    /// Sets the newest version, and notes the epoch that its epoch replaces.
    pub(super) fn set_newest(&mut self, newest: Newest, replaced: &mut Replaced) {
        let epoch = newest.position.epoch;
        if !newest.needs_epoch
            && let Some(before) = self.epoch.replace(epoch).filter(|before| *before != epoch)
        {
            replaced.add(before);
        }
        self.newest = Some(newest);
    }

    /// A version of another node. Returns what the node's own subscribers are to have, if it is newer than what they have.
    ///
    /// # Errors
    /// It doesn't follow the version that this node has.
    pub(super) fn apply(
        &mut self,
        position: Position,
        version: &FeedVersion,
        replaced: &mut Replaced,
    ) -> Result<Option<FeedUpdate>, FrameError> {
        if replaced.contains(position.epoch) {
            return Err(FrameError::Malformed);
        }
        if self.newest.as_ref().is_some_and(|newest| covers(newest.position, position)) {
            return Ok(None);
        }
        let (document, patches) = match &version.base {
            None => (version.document(&[])?, Vec::new()),
            Some((base, patch)) => {
                let newest = self.newest.as_ref().filter(|newest| newest.position == *base);
                let newest = newest.ok_or(FrameError::Malformed)?;
                (version.document(&newest.document.body)?, patch.iter().cloned().collect())
            }
        };
        let newest = Newest { position, document: document.clone(), term: version.term, needs_epoch: false };
        self.set_newest(newest, replaced);
        (self.is_lost, self.state, self.sequence) = (false, live(), version.sequence);
        Ok(Some(FeedUpdate::At { position, document, patches }))
    }

    /// A state of another node. Returns whether it is new.
    ///
    /// # Errors
    /// It doesn't follow the version that this node has.
    pub(super) fn apply_state(
        &mut self,
        position: Option<Position>,
        change: &FeedStateChange,
    ) -> Result<bool, FrameError> {
        let newest = self.newest.as_ref().map(|newest| newest.position);
        if position.is_some() && newest != position && change.state != FeedState::NotFound {
            return Err(FrameError::Malformed);
        }
        if change.state == FeedState::NotFound {
            self.newest = None;
        }
        self.sequence = change.sequence;
        let state = (change.state, change.reason.clone());
        Ok(std::mem::replace(&mut self.state, state.clone()) != state)
    }

    /// Takes over what the engine keeps, if it is newer. Returns the patches that lead to it, from consecutive versions. `None`: the
    /// feed needs a further epoch, under a greater term.
    ///
    /// # Errors
    /// The log is broken.
    pub(super) fn replace(
        &mut self,
        log: DecodedLog,
        replaced: &mut Replaced,
    ) -> Result<Option<Vec<Bytes>>, FrameError> {
        let DecodedLog { base: (mut position, base), entries, term: last_term, may_lack_newest, .. } = log;
        let count = entries.len();
        let mut bytes = 0;
        let (mut term, mut sequence) = (base.term, base.sequence);
        let mut state = (base.state, base.reason.clone());
        let mut document = base.document(&[])?;
        let mut patches: Vec<Bytes> = Vec::new();
        for (at, entry) in entries {
            match entry {
                Entry::Version(version) => {
                    bytes += version.bytes();
                    (term, sequence, state) = (version.term, version.sequence, live());
                    document = version.document(&document.body)?;
                    position = at;
                    match version.base.and_then(|(_, patch)| patch) {
                        Some(patch) => patches.push(patch),
                        None => patches.clear(),
                    }
                }
                Entry::State(change) => {
                    (state, sequence) = ((change.state, change.reason), change.sequence);
                }
            }
        }
        let is_gone = state.0 == FeedState::NotFound;
        let term = if is_gone { last_term } else { term };
        let is_replaced = replaced.contains(position.epoch);
        self.term_seen = self.term_seen.max(last_term);
        (self.entries, self.entry_bytes, self.log_end) = (count, bytes, Some(position));
        self.is_lost = base.is_restored || may_lack_newest;
        if may_lack_newest {
            self.begin_log_anew();
        }
        match &mut self.newest {
            Some(newest) if newest.position == position => newest.needs_epoch = is_replaced,
            // The engine has lost what this node has.
            Some(newest) if covers(newest.position, position) => {
                self.set_lost();
                return Ok(Some(Vec::new()));
            }
            // Of another epoch, only terms can tell, which grow unless everything was lost.
            Some(newest)
                if newest.position.epoch != position.epoch
                    && (newest.term > term || (is_replaced && newest.term == term)) =>
            {
                newest.needs_epoch = true;
                self.end_epoch(last_term);
                return Ok(None);
            }
            _ => self.set_newest(Newest { position, document, term, needs_epoch: is_replaced }, replaced),
        }
        self.must_store = false;
        self.sequence = sequence;
        if is_gone {
            (self.newest, self.sequence) = (None, None);
        }
        if self.is_informed {
            if self.state.0 == FeedState::NotFound {
                self.newest = None;
            }
        } else if is_gone && self.shown.is_none() {
            // That there was a document once is no news. Whether there is one now is to be seen.
            self.state = live();
        } else {
            self.state = state;
        }
        if self.needs_epoch() {
            self.end_epoch(last_term);
            return Ok(None);
        }
        Ok(Some(patches))
    }

    /// Whether the newest version is to be stored in a further epoch.
    fn needs_epoch(&self) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.needs_epoch)
    }

    /// The holder with this term may know nothing of the epoch that has replaced its own: its lease has to end.
    fn end_epoch(&mut self, term: u64) {
        self.set_lost();
        self.term_seen = self.term_seen.max(term.saturating_add(1));
    }

    /// The log was read by the request with this number. Returns whether clients of another epoch may have what this node has.
    pub(super) fn is_confirmed(&mut self, now: Instant, read: u64) -> bool {
        let lost_until = self.lost_until.take().or(Some(now + LOST_WAIT_MAX));
        self.lost_until = lost_until.filter(|_| self.is_lost);
        let Some(asked) = self.awaited else {
            // Some may have asked before this node knew that the feed has subscribers.
            return matches!(self.role, Role::Loading);
        };
        if !self.is_wanted || self.lost_until.is_some_and(|until| now < until) {
            self.confirm_at = Some(now + RETRY_DELAY);
            return false;
        }
        if asked < read {
            self.awaited = None;
        } else {
            self.confirm_at = Some(now + CONFIRM_DELAY);
        }
        true
    }

    /// The engine may have lost what it kept: the next version begins the log anew.
    pub(super) fn begin_log_anew(&mut self) {
        self.entries = CHANGES_MAX;
    }

    /// The engine has lost versions, of which other nodes may have had more than this one: the next version begins a new epoch.
    pub(super) fn set_lost(&mut self) {
        self.is_lost = true;
        self.begin_log_anew();
        // A pushed document isn't fetched again.
        self.must_store = !self.is_fetched() && self.newest.is_some();
    }

    /// The engine keeps nothing.
    pub(super) fn set_log_lost(&mut self) {
        self.log_end = None;
        self.set_lost();
    }

    /// A pushed document was stored, or arrived: the engine forgets it after a day.
    pub(super) fn refresh_later(&mut self, now: Instant, random: f64) {
        let has_document = !self.is_fetched() && self.newest.is_some();
        self.refresh_at = has_document.then(|| now + REFRESH_INTERVAL.mul_f64(0.75 + 0.5 * random));
    }

    /// Whether a pushed document has to be stored again.
    pub(super) fn needs_refresh(&self, now: Instant) -> bool {
        self.refresh_at.is_some_and(|at| at <= now)
    }

    /// Lets this node ask for the lease at once, even if its holder is alive.
    pub(super) fn replace_holder(&mut self, now: Instant) {
        self.holder = None;
        if let Role::Following { acquire_at } = &mut self.role {
            *acquire_at = now;
        }
    }

    /// Another node is to take the lease, which has been released. Otherwise this one asks for it again at `acquire_at`.
    pub(super) fn leave_to_others(&mut self, acquire_at: Instant) {
        (self.next, self.is_informed, self.holder) = (None, false, None);
        self.role = Role::Following { acquire_at };
    }
}

/// The state of a feed that goes on.
pub(super) fn live() -> State {
    (FeedState::Live, Arc::from(""))
}

/// Whether a node that has `newest` has `other` as well.
fn covers(newest: Position, other: Position) -> bool {
    newest.epoch == other.epoch && newest.offset >= other.offset
}
