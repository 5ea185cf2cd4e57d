//! One feed of a node: what it knows, and its part in it.

use super::request::{DecodedLog, Entry, Push, PushAnswer};
use super::{CHANGES_MAX, CONFIRM_DELAY, LOST_WAIT_MAX, REFRESH_INTERVAL, RETRY_DELAY};
use crate::NodeId;
use crate::engine::Lease;
use crate::frame::{FeedStateChange, FeedVersion, FrameError};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use stentor_edge::{FeedSource, FeedUpdate, PushDenied, REQUESTERS_MAX};
use stentor_hub::{Document, Epoch, FeedState, Patch, Position, Requester};

/// A state, and why.
pub(super) type State = (FeedState, Arc<str>);

/// The newest version that this node has.
pub(super) struct Newest {
    pub(super) position: Position,
    pub(super) document: Document,
    /// Of the holder that stored it.
    pub(super) term: u64,
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

/// What a holder has to do next.
pub(super) enum Step {
    /// Nothing.
    Idle,
    /// To store an entry; and a base, if the log is to begin anew.
    Store(Position, Box<(Entry, Option<FeedVersion>)>),
    /// To tell the followers of a state that no log has.
    Publish(FeedStateChange),
    /// To notify its own subscribers of the state.
    Show,
    /// To answer the first push.
    Answer(PushAnswer),
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
        feed.replace(log).ok()?;
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

    /// A version of another node. Returns what the node's own subscribers are to have, if it is newer than what they have.
    ///
    /// # Errors
    /// It doesn't follow the version that this node has.
    pub(super) fn apply(
        &mut self,
        position: Position,
        version: &FeedVersion,
    ) -> Result<Option<FeedUpdate>, FrameError> {
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
        self.newest = Some(Newest { position, document: document.clone(), term: version.term });
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

    /// Takes over what the engine keeps, if it is newer. Returns the patches that lead to it, from consecutive versions.
    ///
    /// # Errors
    /// The log is broken.
    pub(super) fn replace(&mut self, log: DecodedLog) -> Result<Vec<Bytes>, FrameError> {
        let DecodedLog { base: (mut position, base), entries, may_lack_newest, .. } = log;
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
                    (term, sequence, state) = (term.max(version.term), version.sequence, live());
                    document = version.document(&document.body)?;
                    position = at;
                    match version.base.and_then(|(_, patch)| patch) {
                        Some(patch) => patches.push(patch),
                        None => patches.clear(),
                    }
                }
                Entry::State(change) => {
                    (term, sequence) = (term.max(change.term), change.sequence);
                    state = (change.state, change.reason);
                }
            }
        }
        self.term_seen = self.term_seen.max(term);
        (self.entries, self.entry_bytes, self.log_end) = (count, bytes, Some(position));
        self.is_lost = base.is_restored || may_lack_newest;
        if may_lack_newest {
            self.begin_log_anew();
        }
        match &self.newest {
            Some(newest) if newest.position == position => {}
            // The engine has lost what this node has. Of another epoch, only terms can tell, which grow unless everything was lost.
            Some(newest) if covers(newest.position, position) || (may_lack_newest && newest.term > term) => {
                self.set_lost();
                return Ok(patches);
            }
            _ => self.newest = Some(Newest { position, document, term }),
        }
        self.must_store = false;
        self.sequence = sequence;
        if state.0 == FeedState::NotFound {
            (self.newest, self.sequence) = (None, None);
        }
        if self.is_informed {
            if self.state.0 == FeedState::NotFound {
                self.newest = None;
            }
        } else if state.0 == FeedState::NotFound && self.shown.is_none() {
            // That there was a document once is no news. Whether there is one now is to be seen.
            self.state = live();
        } else {
            self.state = state;
        }
        Ok(patches)
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

    /// Whether the holder of the lease with this term needs a greater one, because its next version begins a new epoch. If another replica
    /// lags and becomes the primary, only terms tell that the epoch before it is older.
    pub(super) fn needs_new_term(&self, term: u64) -> bool {
        self.is_lost && self.newest.as_ref().is_some_and(|newest| newest.term >= term)
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

    /// What the holder of the lease with this term does next. Draws `epoch` if it begins one.
    pub(super) fn next_step(&mut self, term: u64, epoch: Epoch) -> Step {
        if let Some((document, patch)) = self.next.take() {
            let state = self.after_next.take().unwrap_or_else(live);
            let is_same = self.newest.as_ref().is_some_and(|newest| newest.document == document);
            if is_same && self.state == state {
                return self.next_state(term);
            }
            (self.state, self.is_logged) = (state, false);
            return if is_same { Step::Show } else { self.store_version(term, epoch, document, patch, None) };
        }
        let Some(push) = self.pushes.front() else { return self.next_state(term) };
        let (id, sequence) = (push.id, push.sequence);
        if let (Some(given), Some(last)) = (sequence, self.sequence)
            && given < last
        {
            // It may have been stored before the one with the greater number.
            return Step::Answer(Err(match push.is_unknown {
                true => PushDenied::Unavailable { is_unknown: true },
                false => PushDenied::OldSequence { last },
            }));
        }
        match (push.document.clone(), &self.newest) {
            // It was stored, but the engine's answer was lost.
            (None, None) if push.is_unknown => Step::Answer(Ok(true)),
            (None, None) => Step::Answer(Err(PushDenied::NotFound)),
            (None, Some(_)) => {
                self.store_state(term, (FeedState::NotFound, "it was deleted".into()), None, Some(id))
            }
            (Some(document), Some(newest)) if newest.document == document => {
                if push.is_unknown || sequence.is_none_or(|given| Some(given) == self.sequence) {
                    return Step::Answer(Ok(push.is_unknown));
                }
                self.store_state(term, self.state.clone(), sequence, Some(id))
            }
            (Some(document), _) => {
                (self.state, self.is_logged) = (live(), false);
                let (patch, before) = (push.patch.clone(), self.sequence);
                self.sequence = before.max(sequence);
                let step = self.store_version(term, epoch, document, patch, Some(id));
                self.sequence = before;
                step
            }
        }
    }

    /// Stores the state, if the log doesn't have it under this lease.
    fn next_state(&mut self, term: u64) -> Step {
        if self.is_logged {
            return Step::Idle;
        }
        if self.newest.is_some() || (self.log_end.is_some() && self.state.0 == FeedState::NotFound) {
            return self.store_state(term, self.state.clone(), self.sequence, None);
        }
        self.is_logged = true;
        let (state, reason) = self.state.clone();
        // Before its first document, a feed has no state that followers don't assume.
        match state {
            FeedState::Live => Step::Idle,
            _ => Step::Publish(FeedStateChange { term, state, reason, sequence: None }),
        }
    }

    fn store_state(&mut self, term: u64, state: State, sequence: Option<u64>, push: Option<u64>) -> Step {
        let newest = self.newest.as_ref().map(|newest| newest.position);
        let Some(position) = newest.or(self.log_end) else { return Step::Idle };
        let (known, reason) = state.clone();
        let change = FeedStateChange { term, state: known, reason: reason.clone(), sequence };
        let is_behind = self.log_end != Some(position);
        let base = (is_behind || self.entries >= CHANGES_MAX).then(|| {
            let nothing = Document { body: Bytes::new(), json: false, content_type: "".into() };
            let document = self.newest.as_ref().map_or(&nothing, |newest| &newest.document);
            let is_restored = self.is_lost;
            let mut base = FeedVersion::whole(term, document);
            (base.state, base.reason, base.sequence) = (known, reason, sequence);
            base.is_restored = is_restored;
            base
        });
        self.count_entry(base.is_some(), 0);
        self.storing = Some(Storing { version: None, state, sequence, position, push });
        Step::Store(position, Box::new((Entry::State(change), base)))
    }

    /// Stores the next version: its position, the change, and a base if the log is to begin anew.
    fn store_version(
        &mut self,
        term: u64,
        epoch: Epoch,
        document: Document,
        patch: Option<Patch>,
        push: Option<u64>,
    ) -> Step {
        let newest = self.newest.as_ref().filter(|_| !self.is_lost);
        let position = newest.map_or(Position { epoch, offset: 1 }, |newest| Position {
            offset: newest.position.offset + 1,
            ..newest.position
        });
        let patch = patch.filter(|patch| newest.is_some_and(|newest| newest.document.body == patch.base));
        let patch = patch.map(|patch| patch.operations);
        let sequence = self.sequence;
        let mut change = match newest {
            Some(Newest { position, document: before, .. }) => {
                FeedVersion::change(term, &document, before, *position, patch.clone())
            }
            None => FeedVersion::whole(term, &document),
        };
        change.sequence = sequence;
        let is_long = self.entries >= CHANGES_MAX || self.entry_bytes + change.bytes() > document.body.len();
        let base = (newest.is_none() || is_long).then(|| {
            let mut base = FeedVersion::whole(term, &document);
            base.sequence = sequence;
            base
        });
        self.count_entry(base.is_some(), change.bytes());
        let version = Some((Newest { position, document, term }, patch));
        self.storing = Some(Storing { version, state: live(), sequence, position, push });
        Step::Store(position, Box::new((Entry::Version(change), base)))
    }

    fn count_entry(&mut self, is_base: bool, bytes: usize) {
        if is_base {
            (self.entries, self.entry_bytes) = (0, 0);
        } else {
            self.entries += 1;
            self.entry_bytes += bytes;
        }
    }

    /// What was being stored may be stored or not.
    pub(super) fn give_up_storing(&mut self) -> Option<Storing> {
        let storing = self.storing.take()?;
        if let Some(push) = self.pushes.front_mut() {
            push.is_unknown |= storing.push == Some(push.id);
        }
        Some(storing)
    }

    /// Another node is to take the lease, which has been released. Otherwise this one asks for it again at `acquire_at`.
    pub(super) fn leave_to_others(&mut self, acquire_at: Instant) {
        (self.next, self.is_informed, self.holder) = (None, false, None);
        self.role = Role::Following { acquire_at };
    }

    /// The engine has stored it.
    pub(super) fn handle_stored(&mut self, storing: &Storing) {
        self.log_end = Some(storing.position);
        self.sequence = storing.sequence;
        self.must_store = false;
        if storing.version.is_some() {
            self.is_lost = false;
        } else if storing.push.is_some() {
            self.state = storing.state.clone();
        }
        self.is_logged = self.state == storing.state;
        if self.state.0 == FeedState::NotFound {
            (self.newest, self.sequence) = (None, None);
        }
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
