//! Entries that the holder of a feed's lease stores.

use super::{Feed, Newest, State, Storing, live};
use crate::feeds::CHANGES_MAX;
use crate::feeds::request::{Entry, PushAnswer};
use crate::frame::{FeedStateChange, FeedVersion};
use crate::replaced::Replaced;
use bytes::Bytes;
use stentor_hub::{Document, Epoch, FeedState, Patch, Position};
use stentor_ports::PushDenied;

/// A holder's next step.
pub(in crate::feeds) enum Step {
    /// No step: the holder waits for the next document.
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

impl Feed {
    /// Whether the holder of the lease with this term needs a greater one, because its next version begins a new epoch. If another replica
    /// lags and becomes the primary, only terms tell that the epoch before it is older.
    pub(in crate::feeds) fn needs_new_term(&self, term: u64) -> bool {
        self.is_lost && self.newest.as_ref().is_some_and(|newest| newest.term >= term)
    }

    /// The next step of the holder of the lease with this term. Draws `epoch` if it begins one.
    pub(in crate::feeds) fn next_step(&mut self, term: u64, epoch: Epoch) -> Step {
        if self.needs_epoch() && !self.is_fetched() {
            return self.store_state(term, Some(epoch), self.state.clone(), self.sequence, None);
        }
        if let Some((document, patch)) = self.next.take() {
            let state = self.after_next.take().unwrap_or_else(live);
            let is_known = |newest: &Newest| newest.document == document && !newest.needs_epoch;
            let is_same = self.newest.as_ref().is_some_and(is_known);
            if is_same && self.state == state {
                return self.next_state(term);
            }
            (self.state, self.is_logged) = (state, false);
            return if is_same { Step::Show } else { self.store_version(term, epoch, document, patch, None) };
        }
        if self.needs_epoch() {
            // The holder before may have fetched a newer version. The next one that this node fetches begins the epoch.
            return Step::Idle;
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
                self.store_state(term, None, (FeedState::NotFound, "it was deleted".into()), None, Some(id))
            }
            (Some(document), Some(newest)) if newest.document == document => {
                if push.is_unknown || sequence.is_none_or(|given| Some(given) == self.sequence) {
                    return Step::Answer(Ok(push.is_unknown));
                }
                self.store_state(term, None, self.state.clone(), sequence, Some(id))
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
            return self.store_state(term, None, self.state.clone(), self.sequence, None);
        }
        self.is_logged = true;
        let (state, reason) = self.state.clone();
        // Before its first document, a feed has no state that followers don't assume.
        match state {
            FeedState::Live => Step::Idle,
            _ => Step::Publish(FeedStateChange { term, state, reason, sequence: None }),
        }
    }

    /// Stores a state. With `epoch`, the newest version is stored again as the first one of this epoch.
    fn store_state(
        &mut self,
        term: u64,
        epoch: Option<Epoch>,
        state: State,
        sequence: Option<u64>,
        push: Option<u64>,
    ) -> Step {
        let newest = self.newest.as_ref().map(|newest| newest.position);
        let newest = epoch.map(|epoch| Position { epoch, offset: 1 }).or(newest);
        let Some(position) = newest.or(self.log_end) else { return Step::Idle };
        let (known, reason) = state.clone();
        let change = FeedStateChange { term, state: known, reason: reason.clone(), sequence };
        let is_behind = self.log_end != Some(position);
        let base = (is_behind || self.entries >= CHANGES_MAX).then(|| {
            let nothing = Document { body: Bytes::new(), json: false, content_type: "".into() };
            let document = self.newest.as_ref().map_or(&nothing, |newest| &newest.document);
            let is_restored = self.is_lost && epoch.is_none();
            let newest = self.newest.as_ref().filter(|_| known != FeedState::NotFound);
            let mut base = FeedVersion::whole(newest.map_or(term, |newest| newest.term), document);
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
        let newest = self.newest.as_ref().filter(|newest| !self.is_lost && !newest.needs_epoch);
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
        let version = Some((Newest { position, document, term, needs_epoch: false }, patch));
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

    /// Drops the entry that was being stored: whether the engine has it is unknown.
    pub(in crate::feeds) fn give_up_storing(&mut self) -> Option<Storing> {
        let storing = self.storing.take()?;
        if let Some(push) = self.pushes.front_mut() {
            push.is_unknown |= storing.push == Some(push.id);
        }
        Some(storing)
    }

    /// The engine has stored it.
    pub(in crate::feeds) fn handle_stored(&mut self, storing: &Storing, replaced: &mut Replaced) {
        if storing.version.is_none()
            && let Some(newest) = self.newest.take_if(|newest| newest.needs_epoch)
        {
            self.is_lost = false;
            let again = Newest { position: storing.position, needs_epoch: false, ..newest };
            self.set_newest(again, replaced);
        }
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
