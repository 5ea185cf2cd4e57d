//! Reviews: questions whether existing subscriptions of clients are still allowed.
//!
//! A subscription ends if the answer is no. Without an answer, the subscription stays, and the question is asked again
//! later, so that a backend that is down doesn't end subscriptions that it allowed before. **Bounds.** A session is
//! reviewed only while fewer than [`OPEN_MAX`] such questions are open, so that questions of clients have room. At most one
//! entry per session waits.

use super::{AskingSession, Identities, QUESTION_BYTES, Questions};
use crate::ports::{Access, Authorizer, Decision, Denial, LazyRooms, Question};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{SessionId, Topic};

/// Number of open questions from which on no further session is reviewed.
const OPEN_MAX: usize = 256;
/// Interval after which a question without an answer is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Approximate size of a waiting session's entry.
const WAITING_BYTES: usize = 64;

/// The subscriptions that are being authorized again.
#[derive(Default)]
pub(super) struct Reviews {
    /// Subscriptions by the number of the question, with the authorizer that decides.
    pub(super) open: BTreeMap<u64, (SessionId, Topic, Arc<dyn Authorizer>)>,
    /// Open questions by session: the bits of the session's id, and the question's number.
    by_session: BTreeSet<(u64, u64)>,
    /// Subscriptions that are no longer allowed and must be ended.
    pub(super) withdrawn: VecDeque<(SessionId, Topic, Denial)>,
    /// Sessions to review as soon as there is room.
    due: VecDeque<SessionId>,
    /// Sessions to review again at `retry_at`.
    failed: VecDeque<SessionId>,
    /// The sessions in `due` and `failed`.
    waiting: BTreeSet<SessionId>,
    retry_at: Option<Instant>,
}

impl Reviews {
    /// Removes and returns the open questions of a session that has ended.
    pub(super) fn close(&mut self, session: SessionId) -> Vec<(u64, Arc<dyn Authorizer>)> {
        let bits = session.to_bits();
        let of_session = self.by_session.extract_if((bits, 0)..=(bits, u64::MAX), |_| true);
        let numbers = of_session.map(|(_, number)| number);
        numbers.filter_map(|number| Some((number, self.open.remove(&number)?.2))).collect()
    }

    fn forget_closed(&mut self, identities: &Identities) {
        self.waiting.retain(|session| identities.get(*session).is_some());
        for queue in [&mut self.due, &mut self.failed] {
            queue.retain(|session| self.waiting.contains(session));
        }
    }
}

impl Questions {
    /// Returns `true` if a session may be reviewed now with questions whose answers come later.
    pub(crate) fn has_room_for_review(&self) -> bool {
        self.reviews.open.len() < OPEN_MAX && self.has_room()
    }

    /// Authorizes a subscription again. If the answer arrives later and is no, [`Self::poll_withdrawn`] returns the
    /// subscription. If no answer arrives, or the answer isn't known at once and `may_wait` is `false`,
    /// [`Self::poll_review`] returns the session later.
    pub(crate) fn review<'a>(
        &mut self,
        now: Instant,
        session: SessionId,
        client: impl FnOnce() -> AskingSession<'a>,
        topic: &Topic,
        may_wait: bool,
    ) -> Result<(), Denial> {
        let identity = self.identities.get(session).cloned();
        let room;
        let access = match topic {
            Topic::Presence(of) => {
                room = Topic::Room(of.clone());
                Access::Presence(&room)
            }
            Topic::Feed(_) | Topic::Room(_) => Access::Subscribe(topic),
        };
        let is_known = identity.as_ref().is_none_or(|identity| identity.authorizer.is_cacheable(access));
        if !is_known && !may_wait {
            self.review_later(session, false);
            return Ok(());
        }
        let (number, identity) = (self.tickets.draw(), identity.as_deref());
        let asking = self.tickets.asking(number);
        let ticket = asking.ticket;
        let client = client();
        let (session_id, source, take) = (Some(client.id), client.source, |max: usize| client.rooms(max));
        let rooms = LazyRooms::new(&take);
        match self.decision(&Question { asking, session: session_id, rooms, source, identity, access }) {
            Decision::Allow => {}
            Decision::Deny(denial) if denial.is_unavailable() => self.review_later(session, true),
            Decision::Deny(denial) => return Err(denial),
            Decision::Pending
                if self.has_room()
                    && let Some(authorizer) = self.authorizer_of(identity).cloned() =>
            {
                self.charge.add(QUESTION_BYTES);
                self.reviews.open.insert(number, (session, topic.clone(), authorizer));
                self.reviews.by_session.insert((session.to_bits(), number));
                self.deadlines.push_back((now + self.limits.timeout, number));
            }
            Decision::Pending => {
                self.unanswered += 1;
                self.authorizer_of(identity).into_iter().for_each(|authorizer| authorizer.cancel(ticket));
                self.review_later(session, true);
            }
        }
        Ok(())
    }

    /// Handles the answer to a question of [`Self::review`]. Returns `false` if there is no such question.
    pub(super) fn reviewed(&mut self, number: u64, answer: &Result<(), Denial>) -> bool {
        let Some((session, topic, _)) = self.reviews.open.remove(&number) else { return false };
        self.reviews.by_session.remove(&(session.to_bits(), number));
        self.charge.subtract(QUESTION_BYTES);
        match answer {
            Ok(()) => {}
            Err(denial) if denial.is_unavailable() => self.review_later(session, true),
            Err(denial) => self.reviews.withdrawn.push_back((session, topic, denial.clone())),
        }
        true
    }

    fn review_later(&mut self, session: SessionId, has_failed: bool) {
        let Self { reviews, identities, .. } = self;
        if reviews.waiting.insert(session) {
            self.charge.add(WAITING_BYTES);
            if has_failed { reviews.failed.push_back(session) } else { reviews.due.push_back(session) }
        }
        // Closed sessions leave entries behind, so the queue is cleaned from time to time.
        let before = reviews.waiting.len();
        if before > 2 * identities.count() + 64 {
            reviews.forget_closed(identities);
            self.charge.subtract((before - reviews.waiting.len()) * WAITING_BYTES);
        }
    }

    /// Makes sessions without answers due again, once per [`RETRY_INTERVAL`].
    pub(crate) fn retry_reviews(&mut self, now: Instant) {
        let reviews = &mut self.reviews;
        if reviews.retry_at.is_none_or(|at| at <= now) {
            reviews.due.append(&mut reviews.failed);
            reviews.retry_at = Some(now + RETRY_INTERVAL);
        }
    }

    /// The next session to review, if there is room.
    pub(crate) fn poll_review(&mut self) -> Option<SessionId> {
        if self.reviews.due.is_empty() || !self.has_room_for_review() {
            return None;
        }
        let session = self.reviews.due.pop_front()?;
        self.reviews.waiting.remove(&session);
        self.charge.subtract(WAITING_BYTES);
        Some(session)
    }

    /// The next subscription that a late answer withdraws.
    pub(crate) fn poll_withdrawn(&mut self) -> Option<(SessionId, Topic, Denial)> {
        self.reviews.withdrawn.pop_front()
    }
}
