//! Follows rules: a rule joins, leaves, broadcasts, echoes and acknowledges, in this order. If no template of a room has a
//! value, nothing of the rule is done, and the client is notified if it asked for an acknowledgement.

use super::{Context, Event};
use crate::encode::json_error_text;
use crate::message::Arguments;
use crate::ports::Denial;
use crate::rule::{Rule, Template};
use stentor_hub::{Policy, Room, RoomError, SessionId};

/// Why a rule wasn't followed.
enum Failure {
    /// No template had a value.
    NoRoom,
    Room(RoomError),
    Denied(Denial),
}

impl Failure {
    fn answer(&self) -> String {
        match self {
            Self::NoRoom => failed(&Denial::new("bad_request", "the event has no value for the room")),
            Self::Room(error) => failed(&Denial::new("bad_room", error.to_string())),
            Self::Denied(denial) => failed(denial),
        }
    }
}

/// The argument of an acknowledgement that says why not.
pub(super) fn failed(denial: &Denial) -> String {
    let [code, message] = [&denial.code, &denial.message].map(|text| json_error_text(text));
    let retry = if denial.retry { r#","retry":true"# } else { "" };
    format!(r#"{{"ok":false,"code":{code},"message":{message}{retry}}}"#)
}

/// The argument of an acknowledgement that says that it was done.
pub(super) const DONE: &str = r#"{"ok":true}"#;

impl Rule {
    /// Whether the rule is for an event.
    pub(super) fn is_for(&self, event: &str, namespace: &str) -> bool {
        self.event == event && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Does what the rule says.
    pub(super) fn follow(&self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        let namespace = ctx.namespace().unwrap_or("/").to_owned();
        let result = self.try_follow(ctx, session, event, &namespace);
        if ctx.awaits_decision() || ctx.is_dropped() {
            return;
        }
        if self.echo && result.is_ok() {
            ctx.emit(session, event.name, event.arguments);
        }
        if let (true, Some(ack)) = (self.ack, event.ack) {
            let answer = match &result {
                Ok(()) => DONE.to_owned(),
                Err(failure) => failure.answer(),
            };
            ctx.ack(session, ack, Arguments { json: &answer, attachments: &[] });
        }
    }

    fn try_follow(
        &self,
        ctx: &mut Context<'_>,
        session: SessionId,
        event: &Event<'_>,
        namespace: &str,
    ) -> Result<(), Failure> {
        let room = |templates: &[Template]| {
            let name = templates.iter().find_map(|template| template.fill(event.arguments));
            let name = name.ok_or(Failure::NoRoom)?;
            Room::new(namespace, &name).map_err(Failure::Room)
        };
        if !self.join.is_empty() {
            let joined = ctx.subscribe(session, &room(&self.join)?.into(), Policy::Queue, None);
            joined.map_err(|error| Failure::Denied(error.into_denial()))?;
        }
        if !self.leave.is_empty() {
            let room = room(&self.leave)?.into();
            // The acknowledgement follows.
            ctx.send_pending_of(session, &room);
            ctx.unsubscribe(session, &room);
        }
        let target = match (self.broadcast_all, self.broadcast.is_empty()) {
            (true, _) => Some(Room::all_members(namespace).map_err(Failure::Room)?),
            (false, false) => Some(room(&self.broadcast)?),
            (false, true) => None,
        };
        if let Some(target) = target {
            let how = if self.except_sender { ctx.except(session) } else { stentor_hub::Emit::default() };
            let name = self.broadcast_as.as_deref().unwrap_or(event.name);
            ctx.publish(&target, Some(name.into()), event.arguments.to_data(), how)
                .map_err(|error| Failure::Denied(error.into_denial()))?;
        }
        Ok(())
    }
}
