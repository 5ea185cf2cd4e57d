//! Carries out rules: a rule joins, leaves, broadcasts, echoes and acknowledges, in this order. If no template of a room has a
//! value, the rule has no effect, and the client is notified if it requested an acknowledgement.

use super::publish::Answer;
use super::{Ack, Context, Event};
use crate::encode::json_error_text;
use crate::message::Arguments;
use crate::ports::Denial;
use crate::rule::{Rule, Template};
use stentor_hub::{Policy, Room, RoomError, SessionId};

/// The reason why a rule wasn't carried out.
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

/// The argument of an acknowledgement of a rule that wasn't carried out.
pub(super) fn failed(denial: &Denial) -> String {
    let [code, message] = [&denial.code, &denial.message].map(|text| json_error_text(text));
    let retry = if denial.retry { r#","retry":true"# } else { "" };
    format!(r#"{{"ok":false,"code":{code},"message":{message}{retry}}}"#)
}

/// The argument of an acknowledgement of a rule that was carried out.
pub(super) const DONE: &str = r#"{"ok":true}"#;

impl Rule {
    /// Whether the rule applies to an event.
    pub(super) fn is_for(&self, event: &str, namespace: &str) -> bool {
        self.event == event && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Carries out the rule.
    pub(super) fn follow(&self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        let namespace = ctx.namespace().unwrap_or("/").to_owned();
        let result = self.try_follow(ctx, session, event, &namespace).map_err(|failure| failure.answer());
        if ctx.awaits_decision() || result == Ok(false) {
            return;
        }
        let echo = self.echo.then_some((event.name, event.arguments));
        finish(ctx, session, echo, event.ack.filter(|_| self.ack), result.map(|_| ()));
    }

    /// The continuation that sends the echo and the acknowledgement.
    fn answer(&self, event: &Event<'_>) -> Answer {
        let ack = event.ack.filter(|_| self.ack);
        let Event { name, arguments: Arguments { json, attachments }, .. } = *event;
        let echo = self.echo.then(|| (name.to_owned(), json.to_owned(), attachments.to_vec()));
        Box::new(move |ctx, session, result| {
            let echo =
                echo.as_ref().map(|(name, json, attachments)| (&**name, Arguments { json, attachments }));
            finish(ctx, session, echo, ack, result.map_err(|denial| failed(&denial)));
        })
    }

    /// Carries out the rule. Returns `false` if the client isn't answered now.
    fn try_follow(
        &self,
        ctx: &mut Context<'_>,
        session: SessionId,
        event: &Event<'_>,
        namespace: &str,
    ) -> Result<bool, Failure> {
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
            // Pending messages of the room precede the acknowledgement.
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
            let data = event.arguments.to_data();
            let published = ctx.publish_then(&target, Some(name.into()), data, how, || self.answer(event));
            return published.map_err(|error| Failure::Denied(error.into_denial()));
        }
        Ok(true)
    }
}

/// Echoes and acknowledges an event; an error is the argument of the acknowledgement.
fn finish(
    ctx: &mut Context<'_>,
    session: SessionId,
    echo: Option<(&str, Arguments<'_>)>,
    ack: Option<Ack>,
    result: Result<(), String>,
) {
    if let (Some((name, arguments)), Ok(())) = (echo, &result) {
        ctx.emit(session, name, arguments);
    }
    if let Some(ack) = ack {
        let json = result.as_ref().map_or_else(String::as_str, |()| DONE);
        ctx.ack(session, ack, Arguments { json, attachments: &[] });
    }
}
