//! Events of clients that the application behind the server handles.

use super::questions::Steps;
use super::{
    Answer, Arguments, Context, Decided, ENVELOPE_BYTES, Event, NotSubscribed, Refused, overloaded,
    take_at_once,
};
use crate::encode::Wire;
use crate::ports::{ClientEvent, Denial, EventEmit, EventReply, SessionRooms, network_of};
use std::sync::Arc;
use stentor_hub::{Data, Disconnect, Room, SessionId};

/// Acknowledges an event with its arguments: JSON texts joined by commas.
type Acknowledge = Box<dyn FnOnce(&mut Context<'_>, &str)>;

/// The application's reply to an event of a client.
struct CarryOut {
    reply: EventReply,
    acknowledge: Option<Acknowledge>,
    /// `true` if the rooms that the session joins have been prepared.
    is_prepared: bool,
}

impl Steps for CarryOut {
    fn bytes(&self) -> usize {
        self.reply.bytes()
    }

    fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        _: Option<Decided>,
    ) -> Result<bool, Refused> {
        if !std::mem::replace(&mut self.is_prepared, true) {
            // Prepares all rooms at the same time, not one after the other.
            let prepared = self.reply.join.iter().map(|room| ctx.prepare(room).map(|_| ()));
            prepared.fold(Ok(()), Result::and)?;
        }
        let EventReply { leave, join, ack, emit, disconnect } = std::mem::take(&mut self.reply);
        for room in leave {
            let room = room.into();
            ctx.send_pending_of(session, &room);
            ctx.unsubscribe(session, &room);
        }
        let joined = join.iter().try_for_each(|room| ctx.join_prepared(session, room));
        if disconnect {
            ctx.close(session, Disconnect::ClosedByApplication);
        }
        joined.map_err(|error| Refused::Denied(NotSubscribed::Limit(error).into_denial()))?;
        if let Some(acknowledge) = self.acknowledge.take() {
            acknowledge(ctx, &ack);
        }
        let namespace = ctx.namespace().unwrap_or("/").to_owned();
        for message in emit {
            let mut how = message.how();
            let EventEmit { rooms, except_sender, volatile, event, data, .. } = message;
            let Some(rooms) = rooms else {
                ctx.emit_data(session, &namespace, (event, data), volatile);
                continue;
            };
            ctx.budget.count_published(data.len() + ENVELOPE_BYTES);
            if except_sender {
                how = how.except_session(ctx.core.core, session);
            }
            ctx.outlet.emit(ctx.hub, ctx.core.now, &rooms, (event, data), how, &[]);
        }
        Ok(false)
    }
}

impl Context<'_> {
    /// Returns `true` if the application behind the server handles events with this name. `is_known` is `true` if the server
    /// would otherwise handle the event itself.
    pub(super) fn hands_over(&self, name: &str, is_known: bool) -> bool {
        let namespace = self.namespace().unwrap_or("/");
        self.questions.events().is_some_and(|events| events.takes(namespace, name, is_known))
    }

    /// Passes an event of this call's session to the application behind the server. When the reply arrives, it is carried
    /// out, and `acknowledge` receives the arguments of the acknowledgement. `answer` receives the reason if the
    /// application refuses the event, doesn't reply in time, or makes the session join too many rooms.
    ///
    /// # Errors
    /// The application refuses the event at once, or can't be reached.
    pub(super) fn hand_over(
        &mut self,
        session: SessionId,
        event: &Event<'_>,
        acknowledge: Acknowledge,
        answer: Answer,
    ) -> Result<(), Denial> {
        if self.is_overloaded() {
            self.core.count_refusal();
            return Err(overloaded());
        }
        let namespace = self.namespace().unwrap_or("/").to_owned();
        let (id, protocol) = (self.public_id(session), self.scope.encoding.protocol().unwrap_or_default());
        let Event { name, arguments, ack } = *event;
        let identity = self.questions.identities.get(session).cloned();
        let source = self.hub.source(session).map(|(source, _)| source);
        let address = source.map(network_of);
        let rooms_max = self.questions.events().map_or(0, |events| events.rooms_max());
        let rooms = &SessionRooms::take(self.hub.rooms_of(session), rooms_max);
        self.questions.ask_application(self.core.now, self.scope.asker, |events, asking| {
            events.handle(&ClientEvent {
                asking,
                session: id,
                identity: identity.as_deref(),
                protocol,
                address: address.as_deref(),
                source: source.unwrap_or(0),
                namespace: &namespace,
                name,
                arguments,
                rooms,
                wants_ack: ack.is_some(),
            })
        })?;
        self.wait(session, 0, answer, move |ctx, decided, answer| {
            decided.answer?;
            let reply = decided.reply.map(|reply| *reply).unwrap_or_default();
            let reply = CarryOut { reply, acknowledge: Some(acknowledge), is_prepared: false };
            ctx.carry_out(session, reply, answer)
        });
        Ok(())
    }

    /// Sends a message to the session of this call, after the answers written so far. A volatile message is dropped if the session
    /// can't receive it at once.
    pub(super) fn emit_data(
        &mut self,
        session: SessionId,
        namespace: &str,
        (event, data): (Option<Arc<str>>, Data),
        volatile: bool,
    ) {
        let arguments = match &data {
            Data::Json(json) => Some((json, &[][..])),
            Data::Arguments { json, attachments } => Some((json, &attachments[..])),
            Data::Text(_) | Data::Binary(_) => None,
        };
        if let (Wire::SocketIo(_), Some((json, attachments)), false) =
            (self.scope.encoding.wire(), arguments, volatile)
        {
            let json = std::str::from_utf8(json).unwrap_or_default();
            return self.emit(
                session,
                event.as_deref().unwrap_or("message"),
                Arguments { json, attachments },
            );
        }
        let Ok(room) = Room::all_members(namespace) else { return };
        self.budget.count_published(data.len() + ENVELOPE_BYTES);
        self.hub.handle_send(self.core.now, &[session], &room, event, data, volatile);
        take_at_once(self.hub, session, self.out);
    }
}
