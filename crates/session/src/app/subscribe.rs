//! Subscriptions that clients request.

use super::effect::{Effect, ToSession};
use super::questions::Steps;
use super::refused::no_presence;
use super::{Context, Decided, NotSubscribed, Refused};
use crate::ports::{Access, Denial};
use crate::timelines::Problem;
use stentor_hub::{Position, SessionId, SubscribeOptions, Topic};

/// A client's request to subscribe, and how far it has been carried out.
pub(super) struct Subscribe {
    topic: Topic,
    options: SubscribeOptions,
    /// The position after which the client receives messages. `None` if it receives messages from now on.
    since: Option<Position>,
    /// `true` starts notices of joins and leaves of the room, `false` stops them. `None` changes nothing.
    watches: Option<bool>,
    next: Next,
}

/// The next step of a subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Decides whether the client may see the members of the room.
    Watch,
    /// Decides whether the client may subscribe.
    Subscribe,
    /// Decides whether the client may read the room's history.
    History,
    /// Waits until the node knows the end of the room's history.
    Position,
}

impl Subscribe {
    /// A request to subscribe. `since` is the position that the client names.
    pub(super) fn new(topic: Topic, options: impl Into<SubscribeOptions>, since: Option<Position>) -> Self {
        Self { topic, options: options.into(), since, watches: None, next: Next::Subscribe }
    }

    /// Makes the request also start or stop notices of joins and leaves, if the topic is a room. No part of the request is
    /// carried out before all parts are allowed.
    pub(super) fn watching(self, watches: Option<bool>) -> Self {
        match self.topic {
            Topic::Room(_) => Self { watches, next: Next::Watch, ..self },
            Topic::Feed(_) | Topic::Presence(_) => self,
        }
    }
}

impl Steps for Subscribe {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn problem(&self) -> Problem {
        Problem::SubscriptionRefused
    }

    fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        mut decided: Option<Decided>,
    ) -> Result<bool, Refused> {
        if self.next == Next::Watch {
            if let (Some(true), Topic::Room(room)) = (self.watches, &self.topic) {
                if !ctx.hub.has_presence(room) {
                    return Err(Refused::Denied(no_presence()));
                }
                ctx.authorize(session, Access::Presence(&self.topic), decided.take())?;
            }
            self.next = Next::Subscribe;
        }
        if self.next == Next::Subscribe {
            ctx.authorize(session, Access::Subscribe(&self.topic), decided.take())?;
            self.next = Next::History;
        }
        let Topic::Room(room) = &self.topic else { return self.finish(ctx, session) };
        if self.next == Next::History {
            if self.since.is_some() && ctx.has_identities() {
                match ctx.authorize(session, Access::History(&self.topic), decided.take()) {
                    Ok(()) => {}
                    Err(Refused::Pending) => return Err(Refused::Pending),
                    // Without access to the history, the client receives a notice that messages may be missing, and
                    // messages from now on.
                    Err(Refused::Denied(_)) => {
                        let notice = ToSession::NoHistory(self.topic.clone());
                        ctx.effects.push(Effect::Session(session, notice));
                        self.since = None;
                    }
                }
            }
            self.next = Next::Position;
        }
        if self.since.is_none() && ctx.hub.prepares_rooms() && !ctx.hub.has_joined(session, room) {
            let is_prepared = match decided {
                Some(decided) => decided.answer.is_ok(),
                None => ctx.prepare(room)?,
            };
            // If this node doesn't know the end of the history, the client receives a notice that messages may be missing.
            self.since = (!is_prepared).then_some(Position::UNKNOWN);
        }
        self.finish(ctx, session)
    }
}

impl Subscribe {
    fn finish(&self, ctx: &mut Context<'_>, session: SessionId) -> Result<bool, Refused> {
        let limit = |error| Refused::Denied(NotSubscribed::Limit(error).into_denial());
        ctx.hub.handle_subscribe(session, &self.topic, self.options, self.since).map_err(limit)?;
        ctx.questions.identities.grant(session, &self.topic);
        if let (Some(watches), Topic::Room(room)) = (self.watches, &self.topic) {
            ctx.watch(session, room, watches).map_err(Refused::Denied)?;
        }
        Ok(true)
    }
}

impl Context<'_> {
    /// Subscribes a session of this core at the request of its client. `since` is the position that the client names. `answer`
    /// answers the client, now or when a late decision has arrived.
    pub fn subscribe(
        &mut self,
        session: SessionId,
        topic: &Topic,
        options: impl Into<SubscribeOptions>,
        since: Option<Position>,
        answer: impl FnOnce(&mut Context<'_>, SessionId, Result<(), Denial>) + 'static,
    ) {
        let mut answer = Some(answer);
        let request = Subscribe::new(topic.clone(), options, since);
        let result = self.carry_out(session, request, || match answer.take() {
            Some(answer) => Box::new(answer),
            None => Box::new(|_, _, _| {}),
        });
        if let Some(answer) = answer {
            answer(self, session, result.map(|_| ()));
        }
    }
}
