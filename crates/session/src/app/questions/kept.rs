//! Messages that continue after a decision. The remaining work of a message that needs a decision is kept with the question, and
//! continues with the answer. So a handler runs once.
//!
//! A client's request that may need several decisions is a type that implements [`Steps`]: its fields are the kept state, and
//! after each decision, the request continues at the step that needed it.

use super::{Asked, Deferred, OUTCOME_UNKNOWN, Questions, Refused};
use crate::app::Context;
use crate::identity::Owner;
use crate::ports::{Access, Denial, EventReply, Identity, Ticket};
use crate::timelines::Problem;
use std::sync::Arc;
use std::time::Instant;
use stentor_frame::ConnId;
use stentor_hub::SessionId;

/// Answers a client when the outcome of its request is known.
pub(crate) type Answer = Box<dyn FnOnce(&mut Context<'_>, SessionId, Result<(), Denial>)>;

/// Continues with a message after a decision.
type Resume = Box<dyn FnOnce(&mut Context<'_>, Decided)>;

/// The rest of a message, which continues after a decision.
pub(crate) struct Kept {
    pub(crate) session: SessionId,
    pub(crate) resume: Resume,
    /// Approximate size of the state, in bytes.
    pub(super) bytes: usize,
}

/// The decision on a question.
pub struct Decided {
    /// The number of the question.
    pub(super) number: u64,
    pub(crate) answer: Result<(), Denial>,
    /// The identity of the client, if the question was about its token.
    pub(super) identity: Option<Arc<Identity>>,
    /// The reply to an event, if the application handled it.
    pub(crate) reply: Option<Box<EventReply>>,
    /// `false` if the rules have changed since the question was asked.
    pub(super) is_current: bool,
}

/// A client's request that is carried out in steps, which may need decisions.
pub(crate) trait Steps: Sized + 'static {
    /// Approximate size of the state, in bytes.
    fn bytes(&self) -> usize;

    /// The problem in the session's timeline if the request is refused.
    fn problem(&self) -> Problem {
        Problem::RequestRefused
    }

    /// Carries out the steps up to the next decision that isn't known at once. `decided` is the decision for which the request
    /// waited; the first step takes it. Returns `false` if the request answers the client in another way, or not at all.
    ///
    /// # Errors
    /// The request is refused, or waits for a decision.
    fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        decided: Option<Decided>,
    ) -> Result<bool, Refused>;
}

impl Context<'_> {
    /// Carries out a client's request. Returns `false` if a decision is pending, or if the request answers the client in
    /// another way or not at all. If a decision is pending, `answer` makes the callback that answers the client later.
    ///
    /// # Errors
    /// The request is refused.
    pub(in crate::app) fn carry_out<R: Steps>(
        &mut self,
        session: SessionId,
        request: R,
        answer: impl FnOnce() -> Answer,
    ) -> Result<bool, Denial> {
        self.proceed(session, request, None, answer)
    }

    fn proceed<R: Steps>(
        &mut self,
        session: SessionId,
        mut request: R,
        decided: Option<Decided>,
        answer: impl FnOnce() -> Answer,
    ) -> Result<bool, Denial> {
        match request.proceed(self, session, decided) {
            Ok(is_answered) => Ok(is_answered),
            Err(Refused::Denied(denial)) => {
                self.core.note_refusal(session, request.problem(), &denial);
                Err(denial)
            }
            Err(Refused::Pending) => {
                self.wait(session, request.bytes(), answer(), move |ctx, decided, answer| {
                    ctx.proceed(session, request, Some(decided), answer)
                });
                Ok(false)
            }
        }
    }

    /// Keeps the rest of the current message until its last question is answered. Other connections of its client wait as well.
    /// Then calls `resume`, which returns `false` if `answer` must not answer the client.
    pub(in crate::app) fn wait(
        &mut self,
        session: SessionId,
        bytes: usize,
        answer: Answer,
        resume: impl FnOnce(&mut Context<'_>, Decided, &mut dyn FnMut() -> Answer) -> Result<bool, Denial>
        + 'static,
    ) {
        let resume = move |ctx: &mut Context<'_>, decided: Decided| {
            let mut kept = Some(answer);
            let mut take = || kept.take().unwrap_or_else(|| Box::new(|_, _, _| {}));
            let result = resume(ctx, decided, &mut take);
            if let (Some(answer), Ok(true) | Err(_)) = (kept, &result) {
                answer(ctx, session, result.map(|_| ()));
            }
        };
        let Some(conn) = self.scope.asker else { return };
        self.questions.keep(conn, Kept { session, resume: Box::new(resume), bytes });
        let owner = self.hub.tag(session).and_then(|tag| self.recovery.owner(tag));
        owner
            .and_then(Owner::client)
            .into_iter()
            .for_each(|client| self.questions.waiting.hold_client(conn, client));
    }

    /// Decides whether a session's client may perform an action. `decided` is the decision for which the message waited, if
    /// any.
    pub(in crate::app) fn authorize(
        &mut self,
        session: SessionId,
        access: Access<'_>,
        decided: Option<Decided>,
    ) -> Result<(), Refused> {
        let (core, hub, recovery) = (self.core, &*self.hub, self.recovery);
        let client = || crate::app::asking(hub, recovery, core, session);
        self.questions.authorize(core.now, self.scope.asker, session, client, access, decided)
    }
}

impl Decided {
    /// A permission that was granted at once while the rules had this generation.
    pub(crate) fn granted(is_current: bool) -> Self {
        Self { number: 0, answer: Ok(()), identity: None, reply: None, is_current }
    }
}

impl Deferred {
    /// The decision on an answered question, without the reply to an event. `generation` is the generation of the rules.
    fn decided(&mut self, generation: u64) -> Decided {
        Decided {
            number: self.number,
            answer: self.answer.clone().unwrap_or(Err(OUTCOME_UNKNOWN)),
            identity: self.identity.take(),
            reply: None,
            is_current: self.generation == generation,
        }
    }
}

impl Questions {
    /// Keeps the rest of a message with the last question of its connection.
    fn keep(&mut self, conn: ConnId, kept: Kept) {
        let waiting = self.waiting.by_conn.get_mut(&conn);
        if let Some(question) = waiting.and_then(|waiting| waiting.questions.last_mut()) {
            self.charge.add(kept.bytes);
            question.kept = Some(kept);
        }
    }

    /// Takes the kept messages of a connection whose questions have been answered, each with its decision.
    pub(crate) fn take_kept(&mut self, conn: ConnId) -> Vec<(Kept, Decided)> {
        let generation = self.identities.generation();
        let questions = self.waiting.by_conn.get_mut(&conn).map(|waiting| &mut waiting.questions);
        let mut all = Vec::new();
        for question in questions.into_iter().flatten() {
            let Some(kept) = question.kept.take() else { continue };
            let reply = question.reply.take();
            self.charge.subtract(kept.bytes + reply.as_ref().map_or(0, |reply| reply.bytes()));
            all.push((kept, Decided { reply, ..question.decided(generation) }));
        }
        all
    }

    /// Takes the decisions for which a request or CONNECT on a connection waited, in the order of its questions.
    pub(crate) fn take_decided(&mut self, conn: ConnId) -> Vec<Decided> {
        let generation = self.identities.generation();
        let questions =
            self.waiting.by_conn.get_mut(&conn).into_iter().flat_map(|waiting| &mut waiting.questions);
        let decided = questions.map(|question| question.decided(generation)).collect();
        self.forget(conn);
        decided
    }

    /// Handles a late decision about an action of a session's client.
    pub(super) fn accept(
        &mut self,
        session: SessionId,
        access: Access<'_>,
        decided: Result<(), Denial>,
    ) -> Result<(), Denial> {
        decided?;
        if self.identities.get(session).is_some_and(|identity| identity.authorizer.is_cacheable(access)) {
            self.identities.allow(session, access);
        }
        Ok(())
    }

    /// Adds a question for the engine's answer about a message, for which a connection waits. Returns the question's ticket. The
    /// caller keeps the rest of the message.
    ///
    /// # Errors
    /// Too many questions are open.
    pub(crate) fn expect(&mut self, now: Instant, conn: ConnId) -> Result<Ticket, Denial> {
        if !self.make_room(None) {
            self.unanswered += 1;
            return Err(OUTCOME_UNKNOWN);
        }
        let number = self.tickets.draw();
        self.defer(now, conn, Asked::Submit, number, None);
        Ok(self.tickets.of(number))
    }
}
