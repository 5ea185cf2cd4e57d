//! One feed of a node.

use super::log::{Entries, Log, Pending, State, live};
use super::phase::{Holding, Next, Phase, Read, Storing, Work};
use super::{CONFIRM_DELAY, LOST_WAIT_MAX, REFRESH_INTERVAL, RETRY_DELAY};
use crate::frame::LogEntry;
use std::collections::VecDeque;
use std::time::Instant;
use stentor_hub::{Epoch, FeedState, Position, Requester};
use stentor_ports::{DocumentChange, FeedSource, PushDenied, REQUESTERS_MAX};

/// `true` if the document has changed, or the reason why the push failed.
pub(crate) type PushAnswer = Result<bool, PushDenied>;

/// A push that isn't answered.
pub(super) struct Push {
    pub(super) id: u64,
    /// The new document. `None` deletes the document.
    pub(super) change: Option<DocumentChange>,
    pub(super) sequence: Option<u64>,
    pub(super) deadline: Instant,
    /// `true` if the push may have been stored.
    pub(super) is_unknown: bool,
}

/// Place of a feed among the cold keys ([`super::cold`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cold {
    /// This node doesn't hold the lease, or the engine has a log of the feed.
    No,
    /// The feed has subscribers.
    Subscribed,
    /// The feed has no subscribers: its lease is released at this time, or earlier.
    Idle(Instant),
}

/// The subscribers of a feed on this node.
pub(super) enum Local {
    /// `until`: the time at which the lease is released. `None` if the node didn't hold it when the last subscriber
    /// left.
    Unsubscribed {
        until: Option<Instant>,
    },
    Subscribed(Subscribers),
}

#[derive(Default)]
pub(super) struct Subscribers {
    /// Clients for which the control plane has yet to fetch.
    pub(super) requesters: Vec<Requester>,
    /// The position that the subscribers have.
    pub(super) shown: Option<Position>,
}

/// Clients of other epochs, which wait until the log is read.
pub(super) struct Waiting {
    /// Number of requests that were drawn when the last client began to wait.
    pub(super) asked: u64,
    /// The time at which the log is read. `None` while the log is being read.
    pub(super) read_at: Option<Instant>,
}

/// The time at which a pushed document is stored again, because the engine keeps it for a day.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refresh {
    Never,
    At(Instant),
    /// The document is stored again as soon as the node has the lease.
    Due,
}

/// A feed of a node.
pub(super) struct Feed {
    /// Distinguishes the feed from an earlier one of the same key.
    pub(super) incarnation: u64,
    pub(super) source: FeedSource,
    pub(super) phase: Phase,
    pub(super) log: Log,
    pub(super) local: Local,
    pub(super) waiting: Option<Waiting>,
    /// Time until which clients wait for the next version. `None` unless the engine has lost versions since it is
    /// connected.
    pub(super) lost_until: Option<Instant>,
    /// Pushes without an answer.
    pub(super) pushes: VecDeque<Push>,
    pub(super) refresh: Refresh,
    /// Time at which the node asks for the lease even though its holder is alive.
    pub(super) check_at: Instant,
    /// The timer in [`super::Feeds::due`].
    pub(super) due: Option<Instant>,
    /// The kind under which this key was last counted.
    pub(super) cold: Cold,
}

/// A holder's next step.
pub(super) enum Step {
    /// The holder waits for the next document.
    Idle,
    Store(Box<Entries>),
    /// The holder publishes a state that no log has.
    Publish(LogEntry),
    /// The holder notifies its own subscribers of the state.
    Show,
    /// The holder answers the first push.
    Answer(PushAnswer),
}

impl Local {
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self, Self::Subscribed(_))
    }

    pub(super) fn subscribers_mut(&mut self) -> Option<&mut Subscribers> {
        if let Self::Subscribed(wanted) = self { Some(wanted) } else { None }
    }

    pub(super) fn shown(&self) -> Option<Position> {
        if let Self::Subscribed(wanted) = self { wanted.shown } else { None }
    }

    /// Time at which the lease of a feed without subscribers is released.
    pub(super) fn until(&self) -> Option<Instant> {
        if let Self::Unsubscribed { until } = self { *until } else { None }
    }

    /// Adds subscribers. Returns `true` if the feed had some before.
    pub(super) fn want(&mut self, requesters: Vec<Requester>) -> bool {
        let was_wanted = self.is_wanted();
        if !was_wanted {
            *self = Self::Subscribed(Subscribers::default());
        }
        let Self::Subscribed(wanted) = self else { return was_wanted };
        for requester in requesters {
            if wanted.requesters.len() < REQUESTERS_MAX && !wanted.requesters.contains(&requester) {
                wanted.requesters.push(requester);
            }
        }
        was_wanted
    }
}

impl Feed {
    pub(super) fn new(now: Instant, incarnation: u64, source: FeedSource, is_wanted: bool) -> Self {
        let first = Phase::Loading(Read::Active { again: false });
        let (phase, local) = match is_wanted {
            true => (first, Local::Subscribed(Subscribers::default())),
            false => (Phase::Following { acquire_at: now, read: None }, Local::Unsubscribed { until: None }),
        };
        let (log, pushes, refresh) = (Log::default(), VecDeque::new(), Refresh::Never);
        let (waiting, lost_until, due) = (None, None, None);
        let (check_at, cold) = (now, Cold::No);
        Self {
            incarnation,
            source,
            phase,
            log,
            local,
            waiting,
            lost_until,
            pushes,
            refresh,
            check_at,
            due,
            cold,
        }
    }

    /// Returns `true` if the control plane of the node with the lease fetches the documents.
    pub(super) fn is_fetched(&self) -> bool {
        self.source == FeedSource::Fetched
    }

    /// Returns `true` for a fetched feed whose term is all that the engine has, as far as this node knows.
    pub(super) fn has_no_log(&self) -> bool {
        self.is_fetched() && self.log.is_empty()
    }

    /// Returns how the feed counts among the cold keys.
    pub(super) fn coldness(&self) -> Cold {
        match self.phase.holding() {
            Some(_) if self.has_no_log() => self.local.until().map_or(Cold::Subscribed, Cold::Idle),
            _ => Cold::No,
        }
    }

    /// Returns `true` if this node has to acquire the lease when no other node holds it.
    pub(super) fn needs_lease(&self) -> bool {
        match self.is_fetched() {
            true => self.local.is_wanted(),
            false => self.refresh == Refresh::Due || !self.pushes.is_empty(),
        }
    }

    /// The time at which the feed's next timer is due.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let follower = match (&self.phase, self.refresh) {
            (Phase::Following { acquire_at, .. }, _) if self.needs_lease() => Some(*acquire_at),
            (Phase::Following { .. }, Refresh::At(at)) => Some(at),
            _ => None,
        };
        let lease = self.phase.holding().map(|holding| holding.renew_at.min(holding.ends_at));
        let push = self.pushes.front().map(|push| push.deadline);
        let reads = [self.phase.read_at(), self.confirm_at()];
        [follower, lease, push, self.local.until()].into_iter().chain(reads).flatten().min()
    }

    /// The time at which to read the log for clients of other epochs.
    pub(super) fn confirm_at(&self) -> Option<Instant> {
        self.waiting.as_ref().and_then(|waiting| waiting.read_at)
    }

    /// The log is read for clients of other epochs.
    pub(super) fn begin_confirm(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.read_at = None;
        }
    }

    /// Plans when a pushed document is stored again, after it was stored or arrived. `is_lost`: the engine may have lost it, and it isn't
    /// fetched again.
    pub(super) fn plan_refresh(&mut self, now: Instant, random: f64, is_lost: bool) {
        self.refresh = match !self.is_fetched() && self.log.newest.is_some() {
            true if is_lost => Refresh::Due,
            true => Refresh::At(now + REFRESH_INTERVAL.mul_f64(0.75 + 0.5 * random)),
            false => Refresh::Never,
        };
    }

    /// The log was read by the request with this number. Returns `true` if clients of other epochs may have the version of this node.
    /// `is_first`: the log was read for the first time.
    pub(super) fn is_confirmed(&mut self, now: Instant, read: u64, is_first: bool) -> bool {
        self.lost_until = self.log.is_lost.then(|| self.lost_until.unwrap_or(now + LOST_WAIT_MAX));
        let Some(Waiting { asked, read_at }) = &mut self.waiting else {
            // Clients may have asked before this node knew that the feed has subscribers.
            return is_first;
        };
        if !self.local.is_wanted() || self.lost_until.is_some_and(|until| now < until) {
            *read_at = Some(now + RETRY_DELAY);
            return false;
        }
        if *asked < read {
            self.waiting = None;
        } else {
            *read_at = Some(now + CONFIRM_DELAY);
        }
        true
    }

    /// Gives up an entry that was being stored: the engine may have stored its push.
    pub(super) fn give_up(&mut self, storing: Option<&Storing>) {
        if let (Some(push), Some(storing)) = (self.pushes.front_mut(), storing) {
            push.is_unknown |= storing.push == Some(push.id);
        }
    }

    /// Returns `true` while a version is being stored that the control plane has fetched.
    pub(super) fn is_storing_fetched_version(&self) -> bool {
        let storing = self.phase.holding().and_then(Holding::storing);
        storing.is_some_and(|storing| storing.push.is_none() && storing.pending.version.is_some())
    }

    /// The outcome of a store is unknown. A fetched version is stored again, unless there is a newer one.
    pub(super) fn handle_unknown_outcome(&mut self) {
        let storing = self.phase.holding_mut().and_then(Holding::end_storing);
        self.give_up(storing.as_ref());
        self.log.begin_anew();
        let Some(holding) = self.phase.holding_mut() else { return };
        holding.is_logged = false;
        let version = storing.filter(|storing| storing.push.is_none()).and_then(|it| it.pending.version);
        let next = version.map(|(newest, _)| Next { change: newest.document.into(), state: None });
        holding.next = holding.next.take().or(next);
    }

    /// The control plane of the holder has noticed a state. It follows the next document, if there is one.
    pub(super) fn set_state(&mut self, state: State) {
        let Some(holding) = self.phase.holding_mut() else { return };
        holding.is_informed = true;
        if state.0 == FeedState::NotFound {
            holding.next = None;
        } else if let Some(next) = &mut holding.next {
            next.state = Some(state);
            return;
        }
        holding.is_logged = false;
        self.log.set_state(state);
    }

    /// The next step of the holder. `epoch` is used if the step begins one.
    pub(super) fn next_step(&mut self, epoch: Epoch) -> Step {
        let is_fetched = self.is_fetched();
        let Self { phase: Phase::Holding(holding), log, pushes, .. } = self else { return Step::Idle };
        let term = holding.lease.term;
        if log.needs_epoch() && !is_fetched {
            return holding.store(log.state_entry(term, Some(epoch), log.state.clone(), log.sequence), None);
        }
        if let Some(Next { change, state }) = holding.next.take() {
            let state = state.unwrap_or_else(live);
            let newest = log.newest.as_ref();
            let is_same = newest.is_some_and(|it| it.document == change.document && !it.needs_epoch);
            if is_same && log.state == state {
                return holding.store_state(log);
            }
            (log.state, holding.is_logged) = (state, false);
            return match is_same {
                true => Step::Show,
                false => {
                    let sequence = log.sequence;
                    holding.store(Some(log.version_entry(term, epoch, change, sequence)), None)
                }
            };
        }
        if log.needs_epoch() {
            // The previous holder may have fetched a newer version. The next version that this node fetches begins the epoch.
            return Step::Idle;
        }
        match pushes.front() {
            Some(push) => holding.store_push(log, push, epoch),
            None => holding.store_state(log),
        }
    }
}

impl Holding {
    /// Stores the document of a push, deletes the feed's document, or answers the push.
    fn store_push(&mut self, log: &mut Log, push: &Push, epoch: Epoch) -> Step {
        let (term, id, sequence) = (self.lease.term, push.id, push.sequence);
        if let (Some(given), Some(last)) = (sequence, log.sequence)
            && given < last
        {
            // A push of unknown outcome may have been stored before the push with the greater number.
            return Step::Answer(Err(match push.is_unknown {
                true => PushDenied::Unavailable { is_unknown: true },
                false => PushDenied::OldSequence { last },
            }));
        }
        let entry = match (push.change.clone(), &log.newest) {
            // The deletion was stored, but the engine's answer was lost.
            (None, None) if push.is_unknown => return Step::Answer(Ok(true)),
            (None, None) => return Step::Answer(Err(PushDenied::NotFound)),
            (None, Some(_)) => {
                log.state_entry(term, None, (FeedState::NotFound, "it was deleted".into()), None)
            }
            (Some(change), Some(newest)) if newest.document == change.document => {
                if push.is_unknown || sequence.is_none_or(|given| Some(given) == log.sequence) {
                    return Step::Answer(Ok(push.is_unknown));
                }
                log.state_entry(term, None, log.state.clone(), sequence)
            }
            (Some(change), _) => {
                (log.state, self.is_logged) = (live(), false);
                let sequence = log.sequence.max(sequence);
                Some(log.version_entry(term, epoch, change, sequence))
            }
        };
        self.store(entry, Some(id))
    }

    /// Stores the state, if the log doesn't have it under this lease.
    fn store_state(&mut self, log: &mut Log) -> Step {
        if self.is_logged {
            return Step::Idle;
        }
        if log.has_state() {
            return self.store(log.state_entry(self.lease.term, None, log.state.clone(), log.sequence), None);
        }
        self.is_logged = true;
        // Followers assume that a feed without a document is live, so only another state is published.
        match log.state.0 {
            FeedState::Live => Step::Idle,
            _ => Step::Publish(LogEntry::state(self.lease.term, log.state.clone(), None)),
        }
    }

    fn store(&mut self, entries: Option<(Entries, Pending)>, push: Option<u64>) -> Step {
        let Some((entries, pending)) = entries else { return Step::Idle };
        self.work = Work::Storing(Storing { pending, push, then_read: false });
        Step::Store(Box::new(entries))
    }
}
