//! A node's copy of a feed's log: the newest version, the state, and the extent of the log in the engine. The copy makes the entries of a
//! holder and applies the entries of other nodes. It knows neither time nor leases.

use super::CHANGES_MAX;
use crate::NodeId;
use crate::engine::{Channel, FeedLog};
use crate::frame::{Frame, FrameError, Frames, LogEntry};
use crate::replaced::Replaced;
use bytes::Bytes;
use std::mem;
use std::sync::Arc;
use stentor_hub::{Document, Epoch, FeedState, Key, Position};
use stentor_ports::{DocumentChange, FeedUpdate};

/// A state, and the reason for it.
pub(super) type State = (FeedState, Arc<str>);

/// The newest version that this node has.
pub(super) struct Newest {
    pub(super) position: Position,
    pub(super) document: Arc<Document>,
    /// Term of the holder that stored the version first. Of two versions of different epochs, the one with the greater term is newer.
    pub(super) term: u64,
    /// `true` if the version's epoch was replaced, or the engine has returned to an earlier epoch. The version isn't
    /// shown before it is stored in a further epoch.
    pub(super) needs_epoch: bool,
}

/// A node's copy of a log.
pub(super) struct Log {
    pub(super) newest: Option<Newest>,
    /// The epoch of the newest version so far, whether or not the feed still has a document.
    epoch: Option<Epoch>,
    pub(super) state: State,
    /// The greatest sequence number of a push.
    pub(super) sequence: Option<u64>,
    /// The greatest term that is known.
    pub(super) term_seen: u64,
    /// The last known holder of the lease.
    pub(super) holder: Option<NodeId>,
    /// The position of the last version in the engine. `None` if the engine has no log, or this node doesn't know the
    /// log.
    end: Option<Position>,
    /// Number and size of the entries after the base. `None` if the next version begins the log anew.
    growth: Option<(usize, usize)>,
    /// `true` if the engine has lost versions: the next version begins a further epoch.
    pub(super) is_lost: bool,
}

/// An entry to store, and a base if the log begins anew.
pub(super) struct Entries {
    pub(super) position: Position,
    pub(super) entry: LogEntry,
    pub(super) base: Option<LogEntry>,
}

/// The log of a feed in the engine, with its frames decoded.
pub(super) struct DecodedLog {
    /// The base, and the entries after it.
    entries: Vec<(Position, LogEntry)>,
    /// Term of the holder that stored the newest entry.
    term: u64,
    /// The node that stored the newest entry.
    pub(super) writer: NodeId,
    /// `true` if newer versions may be lost.
    may_lack_newest: bool,
}

impl DecodedLog {
    /// Size of the log's largest document. Two documents are held at a time.
    pub(super) fn document_bytes(&self) -> usize {
        self.entries.iter().map(|(_, entry)| entry.document_bytes()).max().unwrap_or_default()
    }

    /// Decodes the log of a key.
    ///
    /// # Errors
    /// A frame is broken: the log counts as missing.
    pub(super) fn decode(frames: &Frames, key: &Key, log: FeedLog) -> Result<Self, FrameError> {
        let channel = Channel::from(key.clone());
        let decode = |payload| match frames.decode(&channel, payload)? {
            (sender, Frame::Feed(entry)) => Ok((sender, entry)),
            _ => Err(FrameError::Malformed),
        };
        let FeedLog { base_position, base, changes, term, may_lack_newest } = log;
        let (mut writer, base) = decode(&base)?;
        if base.version.is_none() {
            return Err(FrameError::Malformed);
        }
        let mut entries = vec![(base_position, base)];
        for (position, entry) in &changes {
            let (sender, entry) = decode(entry)?;
            writer = sender;
            entries.push((*position, entry));
        }
        Ok(Self { entries, term, writer, may_lack_newest })
    }
}

/// The result of reading the log in the engine.
pub(super) enum Found {
    /// The log is as new as this node's copy, or newer. The patches are
    /// those between consecutive versions, oldest first. The last one leads to the newest version.
    Newest(Vec<Bytes>),
    /// The engine has lost versions that this node has.
    Lost,
    /// The engine has returned to a former epoch. The feed needs a further epoch, under a greater term.
    Former,
}

/// The state of the copy once the engine has stored an entry.
pub(super) struct Pending {
    /// The version, and the patch that leads to it. `None` if the entry has a state only.
    pub(super) version: Option<(Newest, Option<Bytes>)>,
    state: State,
    sequence: Option<u64>,
    position: Position,
}

/// The state of a feed with a current document.
pub(super) fn live() -> State {
    (FeedState::Live, Arc::from(""))
}

/// Returns `true` if a node that has `newest` has `other` as well.
fn covers(newest: Position, other: Position) -> bool {
    newest.epoch == other.epoch && newest.offset >= other.offset
}

impl Default for Log {
    fn default() -> Self {
        let (newest, epoch, sequence, holder, end, growth) = (None, None, None, None, None, None);
        Self { newest, epoch, state: live(), sequence, term_seen: 0, holder, end, growth, is_lost: false }
    }
}

impl Log {
    /// The newest document of a log in the engine.
    pub(super) fn document_of(log: DecodedLog) -> Option<Arc<Document>> {
        let mut copy = Self::default();
        copy.replace(log, &mut Replaced::default(), false, true).ok()?;
        copy.newest.map(|newest| newest.document)
    }

    /// Returns `true` if the engine has no document of the feed, as far as this node knows.
    pub(super) fn is_empty(&self) -> bool {
        self.end.is_none() && self.newest.is_none()
    }

    /// Returns `true` if the newest version must be stored in a further epoch.
    pub(super) fn needs_epoch(&self) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.needs_epoch)
    }

    /// Returns `true` if a holder with this term needs a greater term, because its next version begins an epoch. If a
    /// lagging replica becomes the primary, only terms show that the previous epoch is older.
    pub(super) fn needs_new_term(&self, term: u64) -> bool {
        self.is_lost && self.newest.as_ref().is_some_and(|newest| newest.term >= term)
    }

    /// Sets the newest version, and records the epoch that its epoch replaces.
    fn set_newest(&mut self, newest: Newest, replaced: &mut Replaced) {
        let epoch = newest.position.epoch;
        if !newest.needs_epoch
            && let Some(before) = self.epoch.replace(epoch).filter(|before| *before != epoch)
        {
            replaced.add(before);
        }
        self.newest = Some(newest);
    }

    /// Applies an entry of another node. Returns the update for the node's own subscribers if they don't have it.
    ///
    /// # Errors
    /// The entry doesn't follow the version that this node has.
    pub(super) fn apply(
        &mut self,
        position: Option<Position>,
        entry: &LogEntry,
        replaced: &mut Replaced,
    ) -> Result<Option<FeedUpdate>, FrameError> {
        let known = self.newest.as_ref().map(|newest| newest.position);
        let (Some(_), Some(position)) = (&entry.version, position) else {
            if position.is_some() && known != position && entry.state != FeedState::NotFound {
                return Err(FrameError::Malformed);
            }
            let (state, reason) = (entry.state, entry.reason.clone());
            let before = mem::replace(&mut self.state, (state, reason.clone()));
            self.newest.take_if(|_| state == FeedState::NotFound);
            self.sequence = entry.sequence;
            return Ok((before != self.state).then_some(FeedUpdate::State { state, reason }));
        };
        if replaced.contains(position.epoch) {
            return Err(FrameError::Malformed);
        }
        if known.is_some_and(|known| covers(known, position)) {
            return Ok(None);
        }
        let (document, patches) = match (entry.base(), &self.newest) {
            (None, _) => (Arc::new(entry.document(&[])?), Vec::new()),
            (Some((base, patch)), Some(newest)) if newest.position == *base => {
                let document = entry.document(&newest.document.body)?;
                (Arc::new(document), patch.iter().cloned().collect())
            }
            (Some(_), _) => return Err(FrameError::Malformed),
        };
        let newest = Newest { position, document: document.clone(), term: entry.term, needs_epoch: false };
        self.set_newest(newest, replaced);
        (self.is_lost, self.state, self.sequence) = (false, live(), entry.sequence);
        Ok(Some(FeedUpdate::At { position, document, patches }))
    }

    /// Adopts the log in the engine, if it is newer. `is_informed`: the control plane has given news that are newer
    /// than the log. `is_unseen`: the node's own subscribers have no version.
    ///
    /// # Errors
    /// The log is broken.
    pub(super) fn replace(
        &mut self,
        log: DecodedLog,
        replaced: &mut Replaced,
        is_informed: bool,
        is_unseen: bool,
    ) -> Result<Found, FrameError> {
        let DecodedLog { entries, term: last_term, may_lack_newest, .. } = log;
        let (count, mut bytes, mut is_restored) = (entries.len() - 1, 0, false);
        let (mut state, mut sequence, mut patches) = (live(), None, Vec::new());
        let mut found: Option<(Position, Document, u64)> = None;
        for (at, entry) in entries {
            if let Some(version) = &entry.version {
                let before = found.take();
                bytes += before.as_ref().map_or(0, |_| entry.bytes());
                is_restored |= version.is_restored;
                match entry.base().and_then(|(_, patch)| patch.clone()) {
                    Some(patch) => patches.push(patch),
                    None => patches.clear(),
                }
                let before = before.map_or_else(Bytes::new, |(_, document, _)| document.body);
                found = Some((at, entry.document(&before)?, entry.term));
            }
            (state, sequence) = ((entry.state, entry.reason), entry.sequence);
        }
        let (position, document, term) = found.ok_or(FrameError::Malformed)?;
        let is_gone = state.0 == FeedState::NotFound;
        let term = if is_gone { last_term } else { term };
        let is_replaced = replaced.contains(position.epoch);
        self.term_seen = self.term_seen.max(last_term);
        self.end = Some(position);
        self.growth = (!may_lack_newest).then_some((count, bytes));
        self.is_lost = is_restored || may_lack_newest;
        match &mut self.newest {
            Some(newest) if newest.position == position => newest.needs_epoch = is_replaced,
            Some(newest) if covers(newest.position, position) => {
                self.set_lost();
                return Ok(Found::Lost);
            }
            // Terms grow unless the engine has lost everything. Positions of two epochs can't be compared.
            Some(newest)
                if newest.position.epoch != position.epoch
                    && (newest.term > term || (is_replaced && newest.term == term)) =>
            {
                newest.needs_epoch = true;
                return Ok(self.end_epoch(last_term));
            }
            _ => {
                let document = Arc::new(document);
                self.set_newest(Newest { position, document, term, needs_epoch: is_replaced }, replaced);
            }
        }
        self.sequence = sequence;
        if is_gone {
            (self.newest, self.sequence) = (None, None);
        }
        if is_informed {
            if self.state.0 == FeedState::NotFound {
                self.newest = None;
            }
        } else if is_gone && is_unseen {
            // Subscribers that have seen no document don't learn of a former one. The holder checks whether there is a
            // document now.
            self.state = live();
        } else {
            self.state = state;
        }
        if self.needs_epoch() {
            return Ok(self.end_epoch(last_term));
        }
        Ok(Found::Newest(patches))
    }

    /// Ends the lease of the holder with this term, which may not know the epoch that has replaced its own.
    fn end_epoch(&mut self, term: u64) -> Found {
        self.set_lost();
        self.term_seen = self.term_seen.max(term.saturating_add(1));
        Found::Former
    }

    /// Makes the next version begin the log anew, because the engine may have lost its log.
    pub(super) fn begin_anew(&mut self) {
        self.growth = None;
    }

    /// Makes the next version begin a further epoch, because the engine has lost versions. Other nodes may have had
    /// newer versions than this one.
    fn set_lost(&mut self) {
        self.is_lost = true;
        self.begin_anew();
    }

    /// Records that the engine has no log.
    pub(super) fn set_missing(&mut self) {
        self.end = None;
        self.set_lost();
    }

    /// Sets a state that the control plane has reported.
    pub(super) fn set_state(&mut self, state: State) {
        if state.0 == FeedState::NotFound {
            self.newest = None;
        }
        self.state = state;
    }

    /// Returns `true` if the log can have an entry for the state. Before the first document, the log has none.
    pub(super) fn has_state(&self) -> bool {
        self.newest.is_some() || (self.end.is_some() && self.state.0 == FeedState::NotFound)
    }

    /// Makes an entry for a state. With `epoch`, the newest version is stored again as the first version of this epoch.
    /// Returns `None` if there is no position for the entry.
    pub(super) fn state_entry(
        &mut self,
        term: u64,
        epoch: Option<Epoch>,
        state: State,
        sequence: Option<u64>,
    ) -> Option<(Entries, Pending)> {
        let newest = self.newest.as_ref().map(|newest| newest.position);
        let newest = epoch.map(|epoch| Position { epoch, offset: 1 }).or(newest);
        let position = newest.or(self.end)?;
        let entry = LogEntry::state(term, state.clone(), sequence);
        let is_behind = self.end != Some(position);
        let base = (is_behind || self.is_long(0, usize::MAX)).then(|| {
            let nothing = Document { body: Bytes::new(), json: false, content_type: "".into() };
            let document = self.newest.as_ref().map_or(&nothing, |newest| &*newest.document);
            let newest = self.newest.as_ref().filter(|_| state.0 != FeedState::NotFound);
            let mut base = LogEntry::whole(newest.map_or(term, |newest| newest.term), document);
            (base.state, base.reason, base.sequence) = (state.0, state.1.clone(), sequence);
            if let Some(version) = &mut base.version {
                version.is_restored = self.is_lost && epoch.is_none();
            }
            base
        });
        self.count_entry(base.is_some(), 0);
        let pending = Pending { version: None, state, sequence, position };
        Some((Entries { position, entry, base }, pending))
    }

    /// Makes an entry for the next version.
    pub(super) fn version_entry(
        &mut self,
        term: u64,
        epoch: Epoch,
        DocumentChange { document, patch }: DocumentChange,
        sequence: Option<u64>,
    ) -> (Entries, Pending) {
        let newest = self.newest.as_ref().filter(|newest| !self.is_lost && !newest.needs_epoch);
        let position = newest.map_or(Position { epoch, offset: 1 }, |newest| Position {
            offset: newest.position.offset + 1,
            ..newest.position
        });
        let patch = patch.filter(|patch| newest.is_some_and(|newest| newest.document.body == patch.base));
        let patch = patch.map(|patch| patch.operations);
        let mut entry = match newest {
            Some(Newest { position, document: before, .. }) => {
                LogEntry::change(term, &document, before, *position, patch.clone())
            }
            None => LogEntry::whole(term, &document),
        };
        entry.sequence = sequence;
        let is_long = self.is_long(entry.bytes(), document.body.len());
        let base =
            (newest.is_none() || is_long).then(|| LogEntry { sequence, ..LogEntry::whole(term, &document) });
        self.count_entry(base.is_some(), entry.bytes());
        let version = Some((Newest { position, document, term, needs_epoch: false }, patch));
        (Entries { position, entry, base }, Pending { version, state: live(), sequence, position })
    }

    /// Returns `true` if the log begins anew instead of growing by an entry of this size.
    fn is_long(&self, entry_bytes: usize, bytes_max: usize) -> bool {
        self.growth.is_none_or(|(entries, bytes)| entries >= CHANGES_MAX || bytes + entry_bytes > bytes_max)
    }

    fn count_entry(&mut self, is_base: bool, entry_bytes: usize) {
        self.growth = match self.growth {
            Some((entries, bytes)) if !is_base => Some((entries + 1, bytes + entry_bytes)),
            _ => Some((0, 0)),
        };
    }

    /// Called when the engine has stored an entry. `is_push`: the entry stores a push. Returns `true` if the log has the feed's
    /// state now, and the update for the node's own subscribers if the entry has a version.
    pub(super) fn handle_stored(
        &mut self,
        pending: Pending,
        is_push: bool,
        replaced: &mut Replaced,
    ) -> (bool, Option<FeedUpdate>) {
        let Pending { version, state, sequence, position } = pending;
        if version.is_none()
            && let Some(newest) = self.newest.take_if(|newest| newest.needs_epoch)
        {
            self.is_lost = false;
            self.set_newest(Newest { position, needs_epoch: false, ..newest }, replaced);
        }
        (self.end, self.sequence) = (Some(position), sequence);
        if version.is_some() {
            self.is_lost = false;
        } else if is_push {
            self.state = state.clone();
        }
        let is_logged = self.state == state;
        if self.state.0 == FeedState::NotFound {
            (self.newest, self.sequence) = (None, None);
        }
        let update = version.map(|(newest, patch)| {
            let (position, document) = (newest.position, newest.document.clone());
            self.set_newest(newest, replaced);
            FeedUpdate::At { position, document, patches: patch.into_iter().collect() }
        });
        (is_logged, update)
    }
}
