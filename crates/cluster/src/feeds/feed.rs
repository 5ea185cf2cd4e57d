//! One feed of a node: what it knows, and its part in it.

use super::CHANGES_MAX;
use super::answer::DecodedLog;
use crate::engine::Lease;
use crate::frame::{FeedVersion, FrameError};
use bytes::Bytes;
use std::time::Instant;
use stentor_edge::{FeedUpdate, REQUESTERS_MAX};
use stentor_hub::{Document, Epoch, FeedState, Patch, Position, Requester};

/// The newest version that this node has.
pub(super) struct Newest {
    pub(super) position: Position,
    pub(super) document: Document,
}

/// A version that is being stored.
pub(super) struct Storing {
    pub(super) newest: Newest,
    /// From the version before.
    pub(super) patch: Option<Bytes>,
}

/// The node's part.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// It reads the log for the first time.
    Loading,
    /// It has asked for the lease.
    Acquiring,
    /// Another node holds the lease.
    Following { acquire_at: Instant },
    /// It fetches the feed.
    Holding { lease: Lease, renew_at: Instant, ends_at: Instant },
}

pub(super) struct Feed {
    /// Tells it apart from an earlier one of the same key.
    pub(super) incarnation: u64,
    pub(super) role: Role,
    /// The greatest term that is known.
    pub(super) term_seen: u64,
    pub(super) requesters: Vec<Requester>,
    pub(super) newest: Option<Newest>,
    pub(super) state: FeedState,
    /// The control plane's newest document, which isn't stored yet.
    pub(super) next: Option<(Document, Option<Patch>)>,
    pub(super) storing: Option<Storing>,
    /// Changes in the log, and their bytes; of a log that this node doesn't know: the maximum.
    changes: usize,
    change_bytes: usize,
    /// The engine has lost versions of the epoch.
    is_lost: bool,
    pub(super) is_loading: bool,
    /// A version may have been missed: the log is to be read again.
    pub(super) missed: bool,
    pub(super) due: Option<Instant>,
}

impl Feed {
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            role: Role::Loading,
            term_seen: 0,
            requesters: Vec::new(),
            newest: None,
            state: FeedState::Live,
            next: None,
            storing: None,
            changes: CHANGES_MAX,
            change_bytes: 0,
            is_lost: false,
            is_loading: false,
            missed: false,
            due: None,
        }
    }

    /// The lease, if this node holds it.
    pub(super) fn lease(&self) -> Option<Lease> {
        if let Role::Holding { lease, .. } = self.role { Some(lease) } else { None }
    }

    pub(super) fn add_requesters(&mut self, requesters: Vec<Requester>) {
        for requester in requesters {
            if self.requesters.len() < REQUESTERS_MAX && !self.requesters.contains(&requester) {
                self.requesters.push(requester);
            }
        }
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
        self.newest = Some(Newest { position, document: document.clone() });
        self.is_lost = false;
        self.state = FeedState::Live;
        Ok(Some(FeedUpdate::At { position, document, patches }))
    }

    /// Takes over what the engine keeps, if it is newer. Returns the patches that lead to it, from consecutive versions.
    ///
    /// # Errors
    /// The log is broken.
    pub(super) fn replace(&mut self, log: DecodedLog) -> Result<Vec<Bytes>, FrameError> {
        let DecodedLog { base: (mut position, base), changes } = log;
        self.term_seen = self.term_seen.max(base.term);
        let (count, bytes) = (changes.len(), changes.iter().map(|(_, change)| change.bytes()).sum());
        let mut document = base.document(&[])?;
        let mut patches: Vec<Bytes> = Vec::new();
        for (at, change) in changes {
            self.term_seen = self.term_seen.max(change.term);
            document = change.document(&document.body)?;
            position = at;
            match change.base.and_then(|(_, patch)| patch) {
                Some(patch) => patches.push(patch),
                None => patches.clear(),
            }
        }
        (self.changes, self.change_bytes) = (count, bytes);
        match &self.newest {
            Some(newest) if covers(newest.position, position) => {
                if newest.position != position {
                    self.begin_epoch();
                }
            }
            _ => {
                self.newest = Some(Newest { position, document });
                self.is_lost = false;
            }
        }
        Ok(patches)
    }

    /// The engine may have lost what it kept: the next version begins the log anew.
    pub(super) fn begin_log_anew(&mut self) {
        self.changes = CHANGES_MAX;
    }

    /// The engine has lost versions, of which other nodes may have had more than this one: the next version begins a new epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.is_lost = true;
    }

    /// The next version, as it is to be stored: its position, the change, and a base if the log is to begin anew. Draws
    /// `epoch` if there is none.
    pub(super) fn version(
        &mut self,
        term: u64,
        epoch: Epoch,
        document: Document,
        patch: Option<Patch>,
    ) -> (Position, FeedVersion, Option<FeedVersion>) {
        let newest = self.newest.as_ref().filter(|_| !self.is_lost);
        let position = newest.map_or(Position { epoch, offset: 1 }, |newest| Position {
            offset: newest.position.offset + 1,
            ..newest.position
        });
        let patch = patch.filter(|patch| newest.is_some_and(|newest| newest.document.body == patch.base));
        let patch = patch.map(|patch| patch.operations);
        let change = match newest {
            Some(Newest { position, document: before }) => {
                FeedVersion::change(term, &document, before, *position, patch.clone())
            }
            None => FeedVersion::whole(term, &document),
        };
        let is_long = self.changes >= CHANGES_MAX || self.change_bytes + change.bytes() > document.body.len();
        let base = (newest.is_none() || is_long).then(|| FeedVersion::whole(term, &document));
        self.is_lost = false;
        if base.is_some() {
            (self.changes, self.change_bytes) = (0, 0);
        } else {
            self.changes += 1;
            self.change_bytes += change.bytes();
        }
        self.storing = Some(Storing { newest: Newest { position, document }, patch });
        (position, change, base)
    }
}

/// Whether a node that has `newest` has `other` as well.
fn covers(newest: Position, other: Position) -> bool {
    newest.epoch == other.epoch && newest.offset >= other.offset
}
