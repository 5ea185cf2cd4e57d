//! Permissions: questions to the authorizer, and the connections that wait for answers.
//!
//! A connection whose client caused a question waits, and its further input isn't read. If one of several connections of a
//! client waits, the others wait as well. The rest of a message, request or CONNECT is kept and continues with the decision:
//! messages with the question ([`kept`]), requests and CONNECTs by their machines. So each handler runs once.
//!
//! ```text
//!  handled ── Pending ──► waits ── decided, or the deadline ──► continues with the decision
//!                           └──── the connection ends ──► cancelled and forgotten
//! ```
//!
//! **Bounds.** `limits.decisions_max` open questions per core, and `limits.decision_timeout` for each. When too many are
//! open, the newest question of the address with the most open questions is answered with [`Denial::UNAVAILABLE`]. Waits for workers of
//! the application link don't count among these questions, because a worker can be slow: there is at most one for each connection.

mod cancel;
mod identify;
mod kept;
mod open;
mod prepare;
mod reviews;
mod shares;
mod signatures;
mod sockets;
mod tickets;
mod waiting;

pub use kept::Decided;
use kept::Kept;
pub(crate) use kept::{Answer, Steps};
pub(crate) use tickets::Tickets;

use super::Identities;
use super::context::AskingSession;
use crate::identity::ClientId;
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::{
    Access, Asking, Authorizer, Decision, Denial, EventReply, EventSink, Identity, LazyRooms, PublicId,
    Question, SessionRooms, SocketName,
};
use prepare::Preparations;
use reviews::Reviews;
use shares::Shares;
use signatures::SignatureQueue;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_frame::ConnId;
use stentor_hub::{Key, Room, SessionId, SubscribeOptions, Topic};
use waiting::WaitingConnections;

/// The denial if the engine didn't report in time whether it has stored a message.
pub(super) const OUTCOME_UNKNOWN: Denial = Denial {
    code: Cow::Borrowed("unavailable"),
    message: Cow::Borrowed("it isn't known whether this was published; try again later"),
    retry: true,
};
/// The denial of an action on a room with the id of a session as its name.
const SESSION_ID: Denial = Denial {
    code: Cow::Borrowed("not_allowed"),
    message: Cow::Borrowed("a session's id isn't a room of clients"),
    retry: false,
};
/// Approximate size of an open question, in bytes.
const QUESTION_BYTES: usize = 512;

/// Feeds that a client requests in its first request.
pub(crate) struct Feeds {
    pub(crate) keys: Vec<Key>,
    pub(crate) options: SubscribeOptions,
}

/// The reason why a client's action isn't carried out now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The action is refused.
    Denied(Denial),
    /// The decision is pending. The client's message or request waits.
    Pending,
}

/// The subject of a question, for the time after the call.
enum Asked {
    /// Whether the client may connect, subscribe, publish, or read.
    Permission { is_subscription: bool },
    /// Whether the engine stores a message to a room that it orders.
    Submit,
    /// Whether this node knows the end of a room's history.
    Position(Room),
    /// A socket that another node may have.
    Socket(Box<SocketName>),
    /// The reply of the application behind the server to an event.
    Event,
    /// The identity of a client.
    Identity,
    /// Whether the worker of a session takes further messages, or has handled the last ones.
    Worker,
}

/// A question that waits for its answer.
struct Deferred {
    asked: Asked,
    /// The number of the question's ticket.
    number: u64,
    /// The generation of the rules when the question was asked.
    generation: u64,
    answer: Option<Result<(), Denial>>,
    /// The reply to an event, if the application handled it.
    reply: Option<Box<EventReply>>,
    identity: Option<Arc<Identity>>,
    /// The rest of the message, which continues after the answer. `None` if the machine of the connection or client keeps it.
    kept: Option<Kept>,
    /// The authorizer that decides. `None` if another port answers.
    authorizer: Option<Arc<dyn Authorizer>>,
}

/// The limits of questions.
#[derive(Clone, Copy)]
pub(crate) struct QuestionLimits {
    /// `limits.decisions_max`.
    pub(crate) open_max: usize,
    /// `limits.decision_timeout`.
    pub(crate) timeout: Duration,
}

/// The questions of one core.
pub(crate) struct Questions {
    /// Decides about the actions of clients without identities. `None` if all actions are allowed.
    authorizer: Option<Arc<dyn Authorizer>>,
    /// Takes events for the application behind the server. `None` if there is none.
    events: Option<Arc<dyn EventSink>>,
    /// The identities of sessions.
    pub identities: Identities,
    /// `true` if there is an authorizer, an authenticator or an application to ask.
    is_on: bool,
    tickets: Tickets,
    /// Deadlines of questions, answered or not, earliest first.
    deadlines: VecDeque<(Instant, u64)>,
    pub waiting: WaitingConnections,
    /// Connections whose tokens are verified in later turns.
    unverified: SignatureQueue,
    reviews: Reviews,
    shares: Shares,
    preparations: Preparations,
    limits: QuestionLimits,
    /// Number of questions that weren't answered in time, or were refused because too many were open.
    pub unanswered: u64,
    charge: Charge,
}

impl Questions {
    pub(crate) fn new(
        authorizer: Option<Arc<dyn Authorizer>>,
        events: Option<Arc<dyn EventSink>>,
        identities: Identities,
        tickets: Tickets,
        limits: QuestionLimits,
        ledger: Arc<Ledger>,
    ) -> Self {
        Self {
            is_on: authorizer.is_some() || identities.is_on(),
            authorizer,
            events,
            identities,
            tickets,
            deadlines: VecDeque::new(),
            waiting: WaitingConnections::default(),
            unverified: SignatureQueue::default(),
            reviews: Reviews::default(),
            shares: Shares::default(),
            preparations: Preparations::default(),
            limits,
            unanswered: 0,
            charge: Charge::new(ledger, Class::Decisions),
        }
    }

    /// Changes the limits of further questions.
    pub(crate) fn set_limits(&mut self, limits: QuestionLimits) {
        self.limits = limits;
    }

    /// Decides whether a session's client may perform an action. All permissions of clients are decided here, or in
    /// [`Self::authorize_connect`]. `asker` is the connection that can wait for the answer. `decided` is the decision for which
    /// it waited before, if any. `client` is called if a question is asked.
    #[inline]
    pub(crate) fn authorize<'a>(
        &mut self,
        now: Instant,
        asker: Option<ConnId>,
        session: SessionId,
        client: impl FnOnce() -> AskingSession<'a>,
        access: Access<'_>,
        decided: Option<Decided>,
    ) -> Result<(), Refused> {
        if let Some(decided) = decided.filter(|decided| decided.is_current) {
            return self.accept(session, access, decided.answer).map_err(Refused::Denied);
        }
        if Self::concerns_session(access) {
            return Err(Refused::Denied(SESSION_ID));
        }
        if !self.is_on || self.identities.is_allowed(session, access) {
            return Ok(());
        }
        let identity = self.identities.get(session).cloned();
        self.ask(now, asker, identity.as_deref(), Some(client()), access)?;
        if identity.is_some_and(|identity| identity.authorizer.is_cacheable(access)) {
            self.identities.allow(session, access);
        }
        Ok(())
    }

    /// Returns `true` if an action of a client concerns a room with the id of a session as its name. Only backends may address
    /// sessions.
    fn concerns_session(access: Access<'_>) -> bool {
        match access {
            Access::Subscribe(Topic::Room(room) | Topic::Presence(room))
            | Access::Presence(Topic::Room(room) | Topic::Presence(room))
            | Access::History(Topic::Room(room) | Topic::Presence(room))
            | Access::Publish(room) => PublicId::parse_issued(room.name()).is_some(),
            Access::Subscribe(Topic::Feed(_))
            | Access::Presence(Topic::Feed(_))
            | Access::History(Topic::Feed(_))
            | Access::Connect { .. } => false,
        }
    }

    /// Decides whether a client may connect to a namespace. `decided` is the decision for which the connection waited, if any.
    pub(crate) fn authorize_connect(
        &mut self,
        now: Instant,
        conn: ConnId,
        identity: Option<&Identity>,
        namespace: &str,
        decided: Option<Decided>,
    ) -> Result<(), Refused> {
        if !self.is_on {
            return Ok(());
        }
        if let Some(decided) = decided.filter(|decided| decided.is_current) {
            return decided.answer.map_err(Refused::Denied);
        }
        self.ask(now, Some(conn), identity, None, Access::Connect { namespace })
    }

    fn ask(
        &mut self,
        now: Instant,
        asker: Option<ConnId>,
        identity: Option<&Identity>,
        client: Option<AskingSession<'_>>,
        access: Access<'_>,
    ) -> Result<(), Refused> {
        let number = self.tickets.draw();
        let asking = self.tickets.asking(number);
        let client = client.as_ref();
        let (session, source) = (client.map(|client| client.id), client.map_or(0, |client| client.source));
        let take = |max: usize| client.map_or_else(SessionRooms::default, |client| client.rooms(max));
        let rooms = LazyRooms::new(&take);
        match self.decision(&Question { asking, session, rooms, source, identity, access }) {
            Decision::Allow => return Ok(()),
            Decision::Deny(denial) => return Err(Refused::Denied(denial)),
            Decision::Pending => {}
        }
        let authorizer = self.authorizer_of(identity).cloned();
        let is_subscription = matches!(access, Access::Subscribe(_) | Access::Presence(_));
        self.wait(now, asker, source, Asked::Permission { is_subscription }, number, authorizer)
    }

    fn authorizer_of<'a>(&'a self, identity: Option<&'a Identity>) -> Option<&'a Arc<dyn Authorizer>> {
        identity.map(|identity| &identity.authorizer).or(self.authorizer.as_ref())
    }

    fn decision(&self, question: &Question<'_>) -> Decision {
        if question.identity.is_none() && self.identities.is_on() {
            return Decision::Deny(Denial::TOKEN_MISSING);
        }
        let authorizer = self.authorizer_of(question.identity);
        authorizer.map_or(Decision::Allow, |authorizer| authorizer.authorize(question))
    }

    /// Makes a connection wait for an answer. Refuses the question if nothing can wait, or too many questions are open.
    fn wait<T>(
        &mut self,
        now: Instant,
        asker: Option<ConnId>,
        source: u64,
        asked: Asked,
        number: u64,
        authorizer: Option<Arc<dyn Authorizer>>,
    ) -> Result<T, Refused> {
        let Some(conn) = asker.filter(|_| self.make_room(Some(source))) else {
            self.unanswered += 1;
            self.cancel(number, &asked, authorizer.as_ref());
            return Err(Refused::Denied(Denial::UNAVAILABLE));
        };
        self.defer(now, conn, asked, number, authorizer);
        self.shares.insert(source, number);
        Err(Refused::Pending)
    }

    fn has_room(&self) -> bool {
        self.open() < self.limits.open_max
    }

    /// The port to the application behind the server.
    pub(crate) fn events(&self) -> Option<&Arc<dyn EventSink>> {
        self.events.as_ref()
    }

    /// Passes an event of a client to the application behind the server, by calling `hand_over`. `asker` is the connection that
    /// can wait for the reply.
    ///
    /// # Errors
    /// The event isn't passed on, so no reply will arrive.
    pub(crate) fn ask_application(
        &mut self,
        now: Instant,
        asker: Option<ConnId>,
        hand_over: impl FnOnce(&dyn EventSink, Asking<'_>) -> Result<(), Denial>,
    ) -> Result<(), Denial> {
        let (Some(conn), Some(events)) = (asker, self.events.clone()) else {
            return Err(Denial::UNAVAILABLE);
        };
        if !self.make_room(None) {
            self.unanswered += 1;
            return Err(Denial::UNAVAILABLE);
        }
        let number = self.tickets.draw();
        hand_over(&*events, self.tickets.asking(number))?;
        self.defer(now, conn, Asked::Event, number, None);
        Ok(())
    }

    /// Handles the application's reply to an event. If no client waits for it, returns the reply.
    pub(crate) fn reply(&mut self, number: u64, reply: Result<EventReply, Denial>) -> Option<EventReply> {
        let reply = match reply {
            Err(denial) => {
                self.decide(number, Err(denial));
                return None;
            }
            Ok(reply) => reply,
        };
        let Some(question) = self.waiting.question_mut(number) else { return Some(reply) };
        self.charge.add(reply.bytes());
        question.reply = Some(Box::new(reply));
        self.decide(number, Ok(()));
        None
    }

    /// Makes a connection wait for the answer to a question.
    fn defer(
        &mut self,
        now: Instant,
        conn: ConnId,
        asked: Asked,
        number: u64,
        authorizer: Option<Arc<dyn Authorizer>>,
    ) {
        self.deadlines.push_back((now + self.limits.timeout, number));
        self.add(conn, asked, number, authorizer);
    }

    /// Makes a connection, and all other connections of its client, wait until [`Self::decide`] is called with the returned
    /// number. Unlike other questions, this one has no deadline.
    pub(crate) fn wait_for_worker(&mut self, conn: ConnId, client: ClientId) -> u64 {
        let number = self.tickets.draw();
        self.add(conn, Asked::Worker, number, None);
        self.waiting.hold_client(conn, client);
        number
    }

    fn add(&mut self, conn: ConnId, asked: Asked, number: u64, authorizer: Option<Arc<dyn Authorizer>>) {
        self.charge.add(QUESTION_BYTES);
        let generation = self.identities.generation();
        let question = Deferred {
            asked,
            number,
            generation,
            answer: None,
            reply: None,
            identity: None,
            kept: None,
            authorizer,
        };
        self.waiting.push(conn, question);
    }

    /// The number of open questions, without those that wait for workers.
    pub(crate) fn open(&self) -> usize {
        self.waiting.open.len() + self.reviews.open.len()
    }

    /// Handles the answer to a question. No effect if the question isn't open.
    pub(crate) fn decide(&mut self, number: u64, answer: Result<(), Denial>) {
        if self.reviewed(number, &answer) {
            return;
        }
        if self.waiting.answer(number, answer) {
            self.closed(number);
        }
    }

    /// Called when a question is no longer open.
    fn closed(&mut self, number: u64) {
        self.unverified.remove(number);
        self.shares.remove(number);
        self.charge.subtract(QUESTION_BYTES);
    }

    /// The time at which [`Self::expire`] is due. The question with this deadline may already be answered.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, _)| *at)
    }

    /// Refuses the questions that have timed out.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((at, number)) = self.deadlines.front().copied() {
            let is_open = self.waiting.open.contains_key(&number) || self.reviews.open.contains_key(&number);
            if is_open && at > now {
                break;
            }
            self.deadlines.pop_front();
            self.unanswered += u64::from(is_open);
            self.refuse(number);
        }
    }

    fn refuse(&mut self, number: u64) {
        let question = self.waiting.question(number);
        let is_submit = question.is_some_and(|question| matches!(question.asked, Asked::Submit));
        self.decide(number, Err(if is_submit { OUTCOME_UNKNOWN } else { Denial::UNAVAILABLE }));
    }

    /// Removes the questions of a connection, which has ended or whose message has been handled.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        for Deferred { asked, number, reply, kept, authorizer, .. } in self.waiting.remove(conn) {
            kept.into_iter().for_each(|kept| self.charge.subtract(kept.bytes));
            if self.waiting.open.remove(&number).is_some() {
                self.closed(number);
                self.cancel(number, &asked, authorizer.as_ref());
            }
            if let Asked::Position(room) = asked {
                self.preparations.forget(room, number);
            }
            reply.into_iter().for_each(|reply| self.charge.subtract(reply.bytes()));
        }
    }

    /// Returns `true` if [`WaitingConnections::poll_decided`], [`Self::poll_withdrawn`], [`Self::poll_released`] and
    /// [`Self::poll_unverified`] would return nothing.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.decided.is_empty()
            && self.reviews.withdrawn.is_empty()
            && self.preparations.is_quiet()
            && self.unverified.is_empty()
    }
}
