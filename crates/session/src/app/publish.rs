//! Publications of clients. A message to a room that the engine orders is published when the engine has stored it.

use super::outlet::Submitter;
use super::questions::{OUTCOME_UNKNOWN, Steps};
use super::{Answer, Context, Decided, ENVELOPE_BYTES, Refused, overloaded};
use crate::limits::rates::Counted;
use crate::limits::{LimitPolicy, rate_reached};
use crate::ports::{Access, Denial, IdKey, Principal, PublicId};
use crate::published::Recorded;
use crate::timelines::Problem;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::Arc;
use stentor_hub::{Data, Disconnect, Emit, Room, SessionId};

const FULL: &str = "too many messages with idempotency keys were published within five minutes";
/// Maximum length of an idempotency key in bytes, as in the admin API.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// The idempotency key of a publication, which the client repeats if it doesn't know the outcome.
pub(super) struct Idempotency {
    key: Box<str>,
    /// The session in which the client sent the message first. `None` if it is this one.
    first: Option<Box<str>>,
}

impl Idempotency {
    /// The key of a message of `stentor.v1`, if it has one. Few have, so the other fields are read without these.
    ///
    /// # Errors
    /// The key is too long, or has other characters.
    pub(super) fn of(message: &str) -> Result<Option<Self>, Denial> {
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow, default)]
            idempotency_key: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            first_session: Option<Cow<'a, str>>,
        }
        if !message.contains("\"idempotency_key\"") {
            return Ok(None);
        }
        let fields: Fields<'_> =
            serde_json::from_str(message).map_err(|error| Denial::new("bad_json", error.to_string()))?;
        let Some(key) = fields.idempotency_key else { return Ok(None) };
        let is_short = (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len());
        if is_short && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Some(Self { key: key.into(), first: fields.first_session.map(Into::into) }));
        }
        Err(Denial::new(
            "bad_request",
            "\"idempotency_key\" has 1 to 128 visible ASCII characters, without spaces",
        ))
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.first.as_ref().map_or(0, |first| first.len())
    }

    /// Returns `true` if the client sent the message first to another node, or to an earlier process of this one.
    fn is_foreign(&self, key: IdKey) -> bool {
        let is_own = |first: &str| PublicId::parse(first).and_then(|id| id.decode(key)).is_some();
        self.first.as_deref().is_some_and(|first| !is_own(first))
    }

    /// The key for the engine, whose keys of a room are those of all users.
    fn of_user(&self, user: Option<&Principal>) -> Arc<str> {
        let name = |user: &Principal| URL_SAFE_NO_PAD.encode(format!("{}\n{}", user.issuer, user.subject));
        format!("{}:{}", user.map(name).unwrap_or_default(), self.key).into()
    }
}

/// A message that a client publishes.
pub(super) struct Publish {
    room: Room,
    /// Name of the event, and the data. `None` once the message has been published.
    content: Option<(Option<Arc<str>>, Data)>,
    how: Emit,
    bytes: usize,
    idempotency: Option<Idempotency>,
}

impl Publish {
    pub(super) fn new(room: Room, event: Option<Arc<str>>, data: Data, how: Emit) -> Self {
        Self {
            room,
            bytes: data.len() + ENVELOPE_BYTES,
            content: Some((event, data)),
            how,
            idempotency: None,
        }
    }

    /// The same message with an idempotency key.
    pub(super) fn with(self, idempotency: Option<Idempotency>) -> Self {
        Self { idempotency, ..self }
    }

    /// Publishes the message on behalf of the session `publisher`.
    ///
    /// # Errors
    /// The engine's answer is pending, or too many answers are.
    fn publish(&mut self, ctx: &mut Context<'_>, publisher: Option<SessionId>) -> Result<bool, Refused> {
        let is_ordered_elsewhere = ctx.outlet.is_ordered_elsewhere(ctx.hub, &self.room, &self.how);
        if !is_ordered_elsewhere && self.is_repeated(ctx, publisher).map_err(Refused::Denied)? {
            return Ok(true);
        }
        let Some(content) = self.content.take() else { return Ok(true) };
        ctx.budget.count_published(self.bytes);
        if !is_ordered_elsewhere {
            let how = std::mem::take(&mut self.how);
            ctx.outlet.publish(ctx.hub, ctx.core.now, &self.room, content, how);
            return Ok(true);
        }
        let source = publisher.map(|session| ctx.hub.source(session).map_or(0, |(source, _)| source));
        let asker = ctx.scope.asker.filter(|_| publisher.is_some());
        let ticket = asker.map(|conn| ctx.questions.expect(ctx.core.now, conn));
        let ticket = ticket.transpose().map_err(Refused::Denied)?;
        let user = user_of(ctx, publisher);
        let key = self.idempotency.as_ref().map(|idempotency| idempotency.of_user(user));
        ctx.outlet.submit(&self.room, content, &self.how, &[], Submitter { ticket, source, key });
        if ticket.is_some() { Err(Refused::Pending) } else { Ok(true) }
    }

    /// Records the message's idempotency key, if it has one. Returns `true` if a message with this key has already been
    /// published.
    ///
    /// # Errors
    /// There are too many keys, or it isn't known whether the message has been published.
    fn is_repeated(&self, ctx: &Context<'_>, publisher: Option<SessionId>) -> Result<bool, Denial> {
        let Some(idempotency) = &self.idempotency else { return Ok(false) };
        let address = publisher.and_then(|session| ctx.hub.source(session)).map_or(0, |(source, _)| source);
        let by = (user_of(ctx, publisher), address);
        let publication = (&self.room, &*idempotency.key);
        let is_foreign = idempotency.is_foreign(ctx.core.id_key);
        match ctx.outlet.published.record(ctx.core.now, by, publication, is_foreign) {
            Recorded::New => Ok(false),
            Recorded::Published => {
                ctx.outlet.repeated.set(ctx.outlet.repeated.get() + 1);
                Ok(true)
            }
            Recorded::Unknown => Err(OUTCOME_UNKNOWN),
            Recorded::Full => {
                ctx.core.count_refusal();
                Err(Denial { message: FULL.into(), ..overloaded() })
            }
        }
    }
}

/// The user of a session. `None` for an anonymous client.
fn user_of<'a>(ctx: &'a Context<'_>, session: Option<SessionId>) -> Option<&'a Principal> {
    ctx.questions.identities.get(session?)?.principal.as_ref()
}

impl Steps for Publish {
    fn bytes(&self) -> usize {
        self.bytes + self.idempotency.as_ref().map_or(0, Idempotency::bytes)
    }

    fn problem(&self) -> Problem {
        Problem::PublicationRefused
    }

    fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        decided: Option<Decided>,
    ) -> Result<bool, Refused> {
        if self.content.is_none() {
            // The message was submitted to the engine before, and this is the engine's answer.
            let stored = decided.map_or(Ok(()), |decided| decided.answer);
            return stored.map(|()| true).map_err(Refused::Denied);
        }
        if ctx.is_overloaded() {
            ctx.core.count_refusal();
            return Err(Refused::Denied(overloaded()));
        }
        ctx.authorize(session, Access::Publish(&self.room), decided)?;
        if !ctx.count_publication(session).map_err(Refused::Denied)? {
            return Ok(false);
        }
        self.publish(ctx, Some(session))
    }
}

impl Context<'_> {
    /// Publishes to a room, on all cores and nodes. All publications of clients pass through here, so this function checks
    /// for overload, and whether the session of this call may publish. If the permission isn't known at once, or the engine
    /// of a cluster orders the room, the message is published later, or not at all. The result is `Ok` for a message that a
    /// limit of its session drops.
    ///
    /// # Errors
    /// No client receives the message.
    pub fn publish(
        &mut self,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
    ) -> Result<(), Denial> {
        self.publish_then(Publish::new(room.clone(), event, data, how), || Box::new(|_, _, _| {})).map(|_| ())
    }

    /// Publishes like [`Self::publish`]. Returns `false` if the client isn't answered now: the message was dropped, or it is
    /// published later. `answer` makes the callback that answers the client later.
    pub(super) fn publish_then(
        &mut self,
        mut message: Publish,
        answer: impl FnOnce() -> Answer,
    ) -> Result<bool, Denial> {
        if let Some(session) = self.scope.session {
            return self.carry_out(session, message, answer);
        }
        if self.is_overloaded() {
            self.core.count_refusal();
            return Err(overloaded());
        }
        // A message of the application itself, without a session, doesn't wait for the engine's answer.
        message.publish(self, None).map_err(|_| Denial::UNAVAILABLE)
    }

    /// Counts a publication of a session. Returns `false` if it is dropped.
    fn count_publication(&mut self, session: SessionId) -> Result<bool, Denial> {
        let Err((policy, key)) = self.core.count_sent(session, Counted::Publication) else { return Ok(true) };
        match policy {
            LimitPolicy::Drop => return Ok(false),
            LimitPolicy::Error => {}
            LimitPolicy::Close => self.close(session, Disconnect::TooManyRequests),
        }
        Err(rate_reached(key))
    }
}
