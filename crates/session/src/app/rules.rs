//! Carries out rules: a rule joins, leaves, broadcasts, echoes and acknowledges, in this order. If no template of a room has a
//! value, the rule has no effect, and the client receives an error if it requested an acknowledgement.

use super::publish::Publish;
use super::questions::Steps;
use super::subscribe::Subscribe;
use super::{Answer, Context, Decided, Event, Refused};
use crate::encode::json_error_text;
use crate::ports::Denial;
use crate::rule::{Rule, Template};
use stentor_hub::{Emit, Policy, Room, RoomError, SessionId, Topic};

/// The actions of a rule for one event, up to the broadcast. They are carried out in the order of the fields.
struct Actions {
    join: Option<Subscribe>,
    leave: Option<Topic>,
    publish: Option<Publish>,
}

impl Steps for Actions {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.publish.as_ref().map_or(0, Publish::bytes)
    }

    fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        mut decided: Option<Decided>,
    ) -> Result<bool, Refused> {
        if let Some(join) = &mut self.join {
            join.proceed(ctx, session, decided.take())?;
            self.join = None;
        }
        if let Some(room) = self.leave.take() {
            // Pending messages of the room are sent before the acknowledgement.
            ctx.send_pending_of(session, &room);
            ctx.unsubscribe(session, &room);
        }
        match &mut self.publish {
            Some(publish) => publish.proceed(ctx, session, decided),
            None => Ok(true),
        }
    }
}

/// Returns the argument of the acknowledgement if the rule wasn't carried out.
pub(super) fn failed(denial: &Denial) -> String {
    let [code, message] = [&denial.code, &denial.message].map(|text| json_error_text(text));
    let retry = if denial.retry { r#","retry":true"# } else { "" };
    format!(r#"{{"ok":false,"code":{code},"message":{message}{retry}}}"#)
}

/// The argument of the acknowledgement if the rule was carried out.
pub(super) const DONE: &str = r#"{"ok":true}"#;

impl Rule {
    /// Returns `true` if the rule applies to an event.
    pub(super) fn is_for(&self, event: &str, namespace: &str) -> bool {
        self.event == event && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Carries out the rule and sends the echo. `answer` then answers the client.
    pub(super) fn follow(
        &self,
        ctx: &mut Context<'_>,
        session: SessionId,
        event: &Event<'_>,
        answer: Answer,
    ) {
        let mut answer = Some(self.after_echo(event, answer));
        let actions = self.actions(ctx, session, event);
        let result = actions.and_then(|actions| {
            ctx.carry_out(session, actions, || answer.take().unwrap_or_else(|| Box::new(|_, _, _| {})))
        });
        if let Some(answer) = answer.filter(|_| result != Ok(false)) {
            answer(ctx, session, result.map(|_| ()));
        }
    }

    /// Returns a callback that sends the echo, if the rule has one, and then calls `answer`.
    fn after_echo(&self, event: &Event<'_>, answer: Answer) -> Answer {
        if !self.echo {
            return answer;
        }
        let (name, data) = (event.name.into(), event.arguments.to_data());
        Box::new(move |ctx, session, result| {
            if result.is_ok() {
                let namespace = ctx.namespace().unwrap_or("/").to_owned();
                ctx.emit_data(session, &namespace, (Some(name), data), false);
            }
            answer(ctx, session, result);
        })
    }

    /// Returns the actions that an event causes.
    ///
    /// # Errors
    /// The event has no value for one of the rooms, or a value that isn't a valid name.
    fn actions(&self, ctx: &Context<'_>, session: SessionId, event: &Event<'_>) -> Result<Actions, Denial> {
        let namespace = ctx.namespace().unwrap_or("/");
        let bad_room = |error: RoomError| Denial::new("bad_room", error.to_string());
        let room = |templates: &[Template]| {
            if templates.is_empty() {
                return Ok(None);
            }
            let name = templates.iter().find_map(|template| template.fill(event.arguments));
            let name =
                name.ok_or_else(|| Denial::new("bad_request", "the event has no value for the room"))?;
            Room::new(namespace, &name).map(Some).map_err(bad_room)
        };
        let join = room(&self.join)?.map(|room| Subscribe::new(room.into(), Policy::Queue, None));
        let leave = room(&self.leave)?.map(Topic::Room);
        let target = if self.broadcast_all {
            Some(Room::all_members(namespace).map_err(bad_room)?)
        } else {
            room(&self.broadcast)?
        };
        let publish = target.map(|target| {
            let how = if self.except_sender { ctx.except(session) } else { Emit::default() };
            let name = self.broadcast_as.as_deref().unwrap_or(event.name);
            Publish::new(target, Some(name.into()), event.arguments.to_data(), how)
        });
        Ok(Actions { join, leave, publish })
    }
}
