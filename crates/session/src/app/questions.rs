//! Permissions: the questions to the authorizer, and those of them whose answers aren't known yet.
//!
//! The connection on which a client asked waits: the message or request that needs the answer is kept with its input, nothing
//! that follows is read, and it is handled again when all of its answers are there. The answers are known until then, so the
//! authorizer isn't asked twice. What waits for one of several connections of a client makes the others wait as well.
//!
//! ```text
//!  handled ── Pending ──► waits ── decided, or the deadline ──► handled again ──► answers forgotten
//!                           └──── the connection ends ──► cancelled and forgotten
//! ```
//!
//! **Bounds.** `limits.decisions_max` open questions per core, and `limits.decision_timeout` for each. Beyond them, the
//! answer is [`Denial::UNAVAILABLE`], for the last question of the address with the most.

mod cancel;
mod identify;
mod prepare;
mod reviews;
mod shares;
mod signatures;
mod sockets;
mod submit;
mod tickets;

pub(crate) use tickets::Tickets;

use super::{Answer, Identities};
use crate::identity::ClientId;
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::{
    Access, Asking, Authorizer, Decision, Denial, EventReply, EventSink, Identity, PublicId, Question,
    SocketName,
};
use prepare::Preparations;
use reviews::Reviews;
use shares::Shares;
use signatures::SignatureQueue;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_frame::ConnId;
use stentor_hub::{Key, Room, SessionId, SubscribeOptions, Topic};

/// The engine hasn't said in time whether it has a message.
const OUTCOME_UNKNOWN: Denial = Denial {
    code: Cow::Borrowed("unavailable"),
    message: Cow::Borrowed("it isn't known whether this was published; try again later"),
    retry: true,
};
/// Approximate size of an open question.
const QUESTION_BYTES: usize = 512;

/// Feeds that a client asks for in its first request.
pub(crate) struct Feeds {
    pub(crate) keys: Vec<Key>,
    pub(crate) options: SubscribeOptions,
}

/// Why a client may not do something now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is refused.
    Denied(Denial),
    /// It isn't known yet. Its message or request waits.
    Pending,
}

/// An [`Access`] that outlives its call.
#[derive(PartialEq, Eq)]
enum Asked {
    Connect(Box<str>),
    Subscribe(Topic),
    Publish(Room),
    Presence(Topic),
    History(Topic),
    /// Whether the engine takes a message to a room that it orders.
    Submit,
    /// Whether the engine has said where the history of a room ends.
    Position(Room),
    /// A socket that another node has.
    Socket(Box<SocketName>),
    /// What the application behind the server does for an event.
    Event,
    /// Who the client is that presented the token with this digest.
    Identity(u64),
}

impl Asked {
    fn of(access: Access<'_>) -> Self {
        match access {
            Access::Connect { namespace } => Self::Connect(namespace.into()),
            Access::Subscribe(topic) => Self::Subscribe(topic.clone()),
            Access::Publish(room) => Self::Publish(room.clone()),
            Access::Presence(topic) => Self::Presence(topic.clone()),
            Access::History(topic) => Self::History(topic.clone()),
        }
    }

    fn is(&self, access: Access<'_>) -> bool {
        match (self, access) {
            (Self::Connect(asked), Access::Connect { namespace }) => **asked == *namespace,
            (Self::Subscribe(asked), Access::Subscribe(topic))
            | (Self::Presence(asked), Access::Presence(topic))
            | (Self::History(asked), Access::History(topic)) => asked == topic,
            (Self::Publish(asked), Access::Publish(room)) => asked == room,
            _ => false,
        }
    }
}

/// A question that wasn't answered at once.
struct Deferred {
    asked: Asked,
    /// The number of its ticket.
    number: u64,
    /// The rules by which it is decided.
    generation: u64,
    answer: Option<Result<(), Denial>>,
    /// The reply to an event, if the answer is good.
    reply: Option<Box<EventReply>>,
    identity: Option<Arc<Identity>>,
    /// The answer to a client whose message has been handled, and the bytes that it holds.
    then: Option<(SessionId, Answer, usize)>,
    /// The authorizer that decides it. `None`: another port does.
    authorizer: Option<Arc<dyn Authorizer>>,
}

/// What a connection waits for, or has been answered.
#[derive(Default)]
struct Waiting {
    questions: Vec<Deferred>,
    /// Feeds that a session is subscribed to when it is known whether it may.
    feeds: Option<(SessionId, Feeds)>,
    /// The client whose messages wait.
    client: Option<ClientId>,
    /// Other connections with messages of this client.
    others: Vec<ConnId>,
    /// It is one of those others.
    follows: bool,
}

impl Waiting {
    fn is_open(&self) -> bool {
        self.follows || self.questions.iter().any(|question| question.answer.is_none())
    }

    /// Whether the message or request that waits is handled again.
    fn is_handled_again(&self) -> bool {
        let is_again = |question: &Deferred| question.answer.is_none() && question.then.is_none();
        self.follows || self.questions.iter().any(is_again)
    }
}

/// One core's questions.
pub struct Questions {
    /// `None`: clients may do everything, unless they have identities.
    authorizer: Option<Arc<dyn Authorizer>>,
    /// `None`: there is no application behind the server.
    events: Option<Arc<dyn EventSink>>,
    /// The identities of sessions.
    pub identities: Identities,
    /// Whether there is anybody to ask.
    is_on: bool,
    tickets: Tickets,
    /// The connection whose input is being handled.
    asker: Option<ConnId>,
    /// The connection that asked each open question.
    open: HashMap<u64, ConnId>,
    /// Deadlines of questions, answered or not, earliest first.
    deadlines: VecDeque<(Instant, u64)>,
    waiting: HashMap<ConnId, Waiting>,
    /// Where the messages of clients wait.
    clients: HashMap<ClientId, ConnId>,
    /// Connections that needn't wait any more.
    decided: VecDeque<ConnId>,
    /// Connections whose tokens are verified in later turns.
    unverified: SignatureQueue,
    reviews: Reviews,
    shares: Shares,
    preparations: Preparations,
    open_max: usize,
    timeout: Duration,
    /// Questions that weren't answered in time or had no place.
    pub unanswered: u64,
    charge: Charge,
}

impl Questions {
    pub(crate) fn new(
        authorizer: Option<Arc<dyn Authorizer>>,
        events: Option<Arc<dyn EventSink>>,
        identities: Identities,
        tickets: Tickets,
        open_max: usize,
        timeout: Duration,
        ledger: Arc<Ledger>,
    ) -> Self {
        Self {
            is_on: authorizer.is_some() || identities.is_on(),
            authorizer,
            events,
            identities,
            tickets,
            asker: None,
            open: HashMap::new(),
            deadlines: VecDeque::new(),
            waiting: HashMap::new(),
            clients: HashMap::new(),
            decided: VecDeque::new(),
            unverified: SignatureQueue::default(),
            reviews: Reviews::default(),
            shares: Shares::default(),
            preparations: Preparations::default(),
            open_max,
            timeout,
            unanswered: 0,
            charge: Charge::new(ledger, Class::Decisions),
        }
    }

    /// Changes the limits of further questions.
    pub(crate) fn set_limits(&mut self, open_max: usize, timeout: Duration) {
        (self.open_max, self.timeout) = (open_max, timeout);
    }

    /// The input of this connection is handled from now on; of none, if it is `None`.
    #[inline]
    pub(crate) fn set_asker(&mut self, conn: Option<ConnId>) {
        self.asker = conn;
    }

    /// Asks whether a session's client may do something: every permission of clients is decided here, or in
    /// [`Self::authorize_connect`]. `waits`: the client's message or request can wait for the answer.
    #[inline]
    pub(crate) fn authorize(
        &mut self,
        now: Instant,
        session: SessionId,
        client: impl FnOnce() -> (PublicId, u64),
        access: Access<'_>,
        waits: bool,
    ) -> Result<(), Refused> {
        if !self.is_on || self.identities.is_allowed(session, access) {
            return Ok(());
        }
        let identity = self.identities.get(session).cloned();
        let asker = self.asker.filter(|_| waits);
        self.ask(now, asker, identity.as_deref(), Some(client()), access)?;
        if identity.is_some_and(|identity| identity.authorizer.is_cacheable(access)) {
            self.identities.allow(session, access);
        }
        Ok(())
    }

    /// Asks whether a client may connect to a namespace.
    pub(crate) fn authorize_connect(
        &mut self,
        now: Instant,
        identity: Option<&Identity>,
        namespace: &str,
    ) -> Result<(), Refused> {
        if !self.is_on {
            return Ok(());
        }
        self.ask(now, self.asker, identity, None, Access::Connect { namespace })
    }

    fn ask(
        &mut self,
        now: Instant,
        asker: Option<ConnId>,
        identity: Option<&Identity>,
        client: Option<(PublicId, u64)>,
        access: Access<'_>,
    ) -> Result<(), Refused> {
        if let Some(answer) = self.answer_of(asker, |asked| asked.is(access)) {
            return answer.map(|_| ());
        }
        let number = self.tickets.draw();
        let asking = self.tickets.asking(number);
        let (session, source) = (client.map(|(id, _)| id), client.map_or(0, |(_, source)| source));
        match self.decision(&Question { asking, session, source, identity, access }) {
            Decision::Allow => return Ok(()),
            Decision::Deny(denial) => return Err(Refused::Denied(denial)),
            Decision::Pending => {}
        }
        let authorizer = self.authorizer_of(identity).cloned();
        self.wait(now, asker, source, Asked::of(access), number, authorizer)
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

    /// A connection waits for an answer, if it can.
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
        self.open.len() + self.reviews.open.len() < self.open_max
    }

    /// What takes events for the application behind the server.
    pub fn events(&self) -> Option<&Arc<dyn EventSink>> {
        self.events.as_ref()
    }

    /// Hands the event that is being handled to the application behind the server, by `hand_over`, and returns its reply when it
    /// is there. The next call hands the event over again.
    pub(crate) fn ask_application(
        &mut self,
        now: Instant,
        hand_over: impl FnOnce(&dyn EventSink, Asking<'_>) -> Result<(), Denial>,
    ) -> Result<EventReply, Refused> {
        let (Some(conn), Some(events)) = (self.asker, self.events.clone()) else {
            return Err(Refused::Denied(Denial::UNAVAILABLE));
        };
        let mut known = self.waiting.get_mut(&conn).into_iter().flat_map(|waiting| &mut waiting.questions);
        if let Some(known) = known.find(|question| question.asked == Asked::Event) {
            return match &known.answer {
                None => Err(Refused::Pending),
                Some(Err(denial)) => Err(Refused::Denied(denial.clone())),
                Some(Ok(())) => {
                    let reply = known.reply.take().unwrap_or_default();
                    self.charge.subtract(reply.bytes());
                    Ok(*reply)
                }
            };
        }
        if !self.make_room(None) {
            self.unanswered += 1;
            return Err(Refused::Denied(Denial::UNAVAILABLE));
        }
        let number = self.tickets.draw();
        let asking = self.tickets.asking(number);
        hand_over(&*events, asking).map_err(Refused::Denied)?;
        self.defer(now, conn, Asked::Event, number, None);
        Err(Refused::Pending)
    }

    /// The application has replied to an event. Gives the reply back if nobody waits for it.
    pub fn reply(&mut self, number: u64, reply: Result<EventReply, Denial>) -> Option<EventReply> {
        let reply = match reply {
            Err(denial) => {
                self.decide(number, Err(denial));
                return None;
            }
            Ok(reply) => reply,
        };
        let waiting = self.open.get(&number).and_then(|conn| self.waiting.get_mut(conn));
        let mut questions = waiting.into_iter().flat_map(|waiting| &mut waiting.questions);
        let Some(question) = questions.find(|question| question.number == number) else { return Some(reply) };
        self.charge.add(reply.bytes());
        question.reply = Some(Box::new(reply));
        self.decide(number, Ok(()));
        None
    }

    /// Whether a question isn't forgotten, answered or not.
    pub(crate) fn knows(&self, number: u64) -> bool {
        self.waiting.values().flat_map(|waiting| &waiting.questions).any(|question| question.number == number)
    }

    /// A connection waits for the answer to a question.
    fn defer(
        &mut self,
        now: Instant,
        conn: ConnId,
        asked: Asked,
        number: u64,
        authorizer: Option<Arc<dyn Authorizer>>,
    ) {
        self.charge.add(QUESTION_BYTES);
        self.open.insert(number, conn);
        self.deadlines.push_back((now + self.timeout, number));
        let generation = self.identities.generation();
        let question = Deferred {
            asked,
            number,
            generation,
            answer: None,
            reply: None,
            identity: None,
            then: None,
            authorizer,
        };
        self.waiting.entry(conn).or_default().questions.push(question);
    }

    /// Open questions.
    pub fn open(&self) -> usize {
        self.open.len() + self.reviews.open.len()
    }

    /// Whether the connection whose input is being handled waits for an answer.
    #[inline]
    pub(crate) fn awaits_decision(&self) -> bool {
        !self.waiting.is_empty() && self.asker.is_some_and(|conn| self.is_waiting(conn))
    }

    /// Whether the message that is being handled will be handled again.
    pub(crate) fn is_asked_again(&self) -> bool {
        let waiting = || self.asker.and_then(|conn| self.waiting.get(&conn));
        !self.waiting.is_empty() && waiting().is_some_and(Waiting::is_handled_again)
    }

    /// Whether a connection waits for a decision.
    #[inline]
    pub fn is_waiting(&self, conn: ConnId) -> bool {
        !self.waiting.is_empty() && self.waiting.get(&conn).is_some_and(Waiting::is_open)
    }

    /// A message or request has been handled: if its answers were there, they are forgotten. Returns whether it waits, and
    /// is to be handled again.
    #[inline]
    pub(crate) fn settle(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let Some(conn) = self.asker else { return false };
        if !self.is_waiting(conn) {
            self.forget(conn);
        }
        self.waiting.get(&conn).is_some_and(Waiting::is_handled_again)
    }

    /// The feeds of a session are subscribed to when all answers are there. Other connections of `client` wait until then.
    pub(crate) fn keep_feeds(&mut self, session: SessionId, feeds: Feeds, client: Option<ClientId>) {
        if let Some(waiting) = self.asker.and_then(|conn| self.waiting.get_mut(&conn)) {
            waiting.feeds = Some((session, feeds));
        }
        client.into_iter().for_each(|client| self.hold_client(client));
    }

    /// The feeds that wait on a connection.
    pub(crate) fn take_feeds(&mut self, conn: ConnId) -> Option<(SessionId, Feeds)> {
        self.waiting.get_mut(&conn)?.feeds.take()
    }

    /// Messages of a client wait on the connection that asks.
    pub(crate) fn hold_client(&mut self, client: ClientId) {
        let Some(conn) = self.asker else { return };
        if let Some(waiting) = self.waiting.get_mut(&conn) {
            waiting.client = Some(client);
            self.clients.entry(client).or_insert(conn);
        }
    }

    /// Whether earlier messages of a client wait on another connection. Then this one waits for them.
    #[inline]
    pub(crate) fn waits_for_earlier(&mut self, client: ClientId) -> bool {
        !self.clients.is_empty() && self.follow(client)
    }

    fn follow(&mut self, client: ClientId) -> bool {
        let (Some(conn), Some(first)) = (self.asker, self.clients.get(&client).copied()) else {
            return false;
        };
        if conn == first {
            return false;
        }
        if let Some(waiting) = self.waiting.get_mut(&first)
            && !waiting.others.contains(&conn)
        {
            waiting.others.push(conn);
        }
        self.waiting.entry(conn).or_default().follows = true;
        true
    }

    /// The answer to a question has come. Those to other questions, to none, and second ones have no effect.
    pub fn decide(&mut self, number: u64, answer: Result<(), Denial>) {
        if self.reviewed(number, &answer) {
            return;
        }
        let Some(conn) = self.open.remove(&number) else { return };
        self.unverified.remove(number);
        self.shares.remove(number);
        self.charge.subtract(QUESTION_BYTES);
        let Some(waiting) = self.waiting.get_mut(&conn) else { return };
        if let Some(question) = waiting.questions.iter_mut().find(|question| question.number == number) {
            question.answer = Some(answer);
        }
        if !waiting.is_open() {
            self.decided.push_back(conn);
        }
    }

    /// When [`Self::expire`] is due, perhaps for a question that is answered already.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, _)| *at)
    }

    /// Refuses what has waited for too long.
    pub fn expire(&mut self, now: Instant) {
        while let Some((at, number)) = self.deadlines.front().copied() {
            let is_open = self.open.contains_key(&number) || self.reviews.open.contains_key(&number);
            if is_open && at > now {
                break;
            }
            self.deadlines.pop_front();
            self.unanswered += u64::from(is_open);
            self.refuse(number);
        }
    }

    fn refuse(&mut self, number: u64) {
        let waiting = self.open.get(&number).and_then(|conn| self.waiting.get(conn));
        let question =
            waiting.and_then(|waiting| waiting.questions.iter().find(|question| question.number == number));
        let is_submit = question.is_some_and(|question| matches!(question.asked, Asked::Submit));
        self.decide(number, Err(if is_submit { OUTCOME_UNKNOWN } else { Denial::UNAVAILABLE }));
    }

    /// A connection has ended, or what it asked for has been done.
    pub fn forget(&mut self, conn: ConnId) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(waiting) = self.waiting.remove(&conn) else { return };
        for Deferred { asked, number, reply, then, authorizer, .. } in waiting.questions {
            then.into_iter().for_each(|(_, _, bytes)| self.charge.subtract(bytes));
            if self.open.remove(&number).is_some() {
                self.unverified.remove(number);
                self.shares.remove(number);
                self.charge.subtract(QUESTION_BYTES);
                self.cancel(number, &asked, authorizer.as_ref());
            }
            if let Asked::Position(room) = asked {
                self.preparations.forget(room, number);
            }
            reply.into_iter().for_each(|reply| self.charge.subtract(reply.bytes()));
        }
        if let Some(client) = waiting.client
            && self.clients.get(&client) == Some(&conn)
        {
            self.clients.remove(&client);
        }
        for other in waiting.others {
            if self.waiting.remove(&other).is_some() {
                self.decided.push_back(other);
            }
        }
    }

    /// The next connection that needn't wait any more.
    pub fn poll_decided(&mut self) -> Option<ConnId> {
        self.decided.pop_front()
    }

    /// Whether [`Self::poll_decided`], [`Self::poll_withdrawn`], [`Self::poll_released`] and [`Self::poll_unverified`] have nothing.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.decided.is_empty()
            && self.reviews.withdrawn.is_empty()
            && self.preparations.is_quiet()
            && self.unverified.is_empty()
    }
}
