//! `--app rooms`: handles `stentor.v1`, the JSON messages with which plain clients subscribe and publish.
//!
//! docs/protocol.md is the definition. Unknown fields are ignored. A message that can't be parsed is answered with `error` and
//! has no other effect.

use super::presence::{AboutMembers, ListMembers, answer_text};
use super::publish::{Idempotency, Publish};
use super::refused::limit_reached;
use super::renew::RenewToken;
use super::rules::{DONE, failed};
use super::scalar::scalar;
use super::subscribe::Subscribe;
use super::{
    Ack, Admission, Answer, Application, Arguments, Context, Envelope, Event, Message, NamespaceRequest,
    PresenceReply,
};
use crate::encode::json_error_text;
use crate::ports::Denial;
use crate::rule::Rooms;
use crate::subscribe_options::{OptionsError, RequestedOptions};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use stentor_hub::{
    Data, Disconnect, Emit, Epoch, Key, KeyRule, Notice, Policy, Position, Room, SessionId, Topic,
};

/// The event with which Socket.IO clients present a newer token.
const AUTH_EVENT: &str = "stentor:auth";

/// The answer to a client that speaks STOMP (STOMP 1.2, "ERROR"). Clients of STOMP take the `welcome` for the beginning of a frame, which
/// the line breaks and the NUL end.
const STOMP_ERROR: &str = "\n\n\0ERROR\nmessage:this server speaks stentor.v1, not STOMP\ncontent-type:text/plain\n\n\
     Stentor has no STOMP broker. Use @stentor/client, or send the JSON messages of docs/protocol.md.\0";

/// Returns `true` for the first frame of a STOMP client.
fn is_stomp(text: &str) -> bool {
    // The first byte alone excludes JSON.
    if !matches!(text.as_bytes().first(), Some(b'C' | b'S')) {
        return false;
    }
    let command = text.split_once('\n').map(|(command, _)| command.trim_end_matches('\r'));
    matches!(command, Some("CONNECT" | "STOMP"))
}

/// The application behind `stentor.v1`.
#[derive(Debug)]
pub struct RoomsApp {
    options: Rooms,
}

impl RoomsApp {
    /// Makes the application with these options.
    pub fn new(options: Rooms) -> Self {
        Self { options }
    }
}

/// The `id` of a message that isn't a valid `stentor.v1` message, for the answer with the error.
#[derive(Deserialize)]
struct Identified<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(rename = "type", borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    feed: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    room: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "scalar")]
    epoch: Option<u64>,
    #[serde(default, deserialize_with = "scalar")]
    offset: Option<u64>,
    #[serde(borrow, default)]
    policy: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "scalar")]
    delta: Option<bool>,
    #[serde(default, deserialize_with = "scalar")]
    rate: Option<f64>,
    #[serde(default, deserialize_with = "scalar")]
    presence: Option<bool>,
    #[serde(borrow, default)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    token: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// An answer of type `error`.
type Refusal = Denial;

fn refusal(code: &'static str, message: impl Into<Cow<'static, str>>) -> Refusal {
    Denial::new(code, message)
}

fn no_message(error: &serde_json::Error) -> Refusal {
    refusal("bad_json", format!("not a message of stentor.v1: {error}"))
}

fn options_refusal(error: OptionsError) -> Refusal {
    refusal(error.code(), error.to_string())
}

impl RoomsApp {
    /// Handles a message: its text, and its fields. Returns `true` if the caller must answer the client.
    fn handle(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        (text, incoming): (&str, &Incoming<'_>),
    ) -> Result<bool, Refusal> {
        let answer = || answer_later(incoming.id.map(RawValue::get));
        match incoming.kind.as_deref().ok_or_else(|| refusal("bad_request", "\"type\" is missing"))? {
            "ping" => {}
            "auth" => {
                let token = incoming.token.as_deref();
                let token = token.ok_or_else(|| refusal("bad_request", "auth needs \"token\""))?;
                return ctx.carry_out(session, RenewToken { token: token.to_owned() }, answer);
            }
            "event" => return self.handle_event(ctx, session, incoming).map(|()| false),
            "subscribe" => {
                let topic = topic(&ctx.core.keys, incoming)?;
                let since = match (incoming.epoch, incoming.offset) {
                    (Some(epoch), Some(offset)) => Some(Position { epoch: Epoch(epoch), offset }),
                    _ => None,
                };
                let policy = incoming.policy.as_deref();
                let asked = RequestedOptions { policy, delta: incoming.delta, rate: incoming.rate };
                let options = match topic {
                    Topic::Feed(_) => asked.of_feed(true),
                    Topic::Room(_) | Topic::Presence(_) => asked.of_room(),
                };
                let options = options.map_err(options_refusal)?;
                let request = Subscribe::new(topic, options, since).watching(incoming.presence);
                return ctx.carry_out(session, request, answer);
            }
            "unsubscribe" => {
                let topic = topic(&ctx.core.keys, incoming)?;
                // Reports gaps now. Otherwise, pending messages after a gap in another room would be dropped.
                while let Some(gap) = ctx.hub.take_gap(session) {
                    self.notice(ctx, &gap);
                }
                ctx.end_subscription(session, &topic);
            }
            "presence" => {
                let Topic::Room(room) = topic(&ctx.core.keys, incoming)? else {
                    return Err(refusal("bad_request", "presence needs \"room\""));
                };
                let reply = PresenceReply::Message(incoming.id.map(|id| id.get().to_owned()));
                let page = serde_json::from_str(text).map_err(|error| no_message(&error))?;
                let list = Some(ListMembers::new(room.clone(), &page, reply)?);
                return ctx.carry_out(session, AboutMembers { room, watches: None, list }, answer);
            }
            "publish" => {
                let Some(room) = incoming.room.as_deref() else {
                    return Err(refusal("bad_request", "publish needs \"room\""));
                };
                // `rooms.publish` applies only if authorizers don't decide about publishing.
                if !self.options.publish && !ctx.has_permissions() {
                    return Err(refusal(
                        "not_allowed",
                        "clients may not publish here; the setting is rooms.publish = true",
                    ));
                }
                let room = Room::plain(room).map_err(|e| refusal("bad_room", e.to_string()))?;
                let data = data_of(ctx, incoming)?;
                let event = incoming.event.as_deref().map(Into::into);
                let data = Data::Json(Bytes::copy_from_slice(data.as_bytes()));
                let message = Publish::new(room, event, data, Emit::default()).with(Idempotency::of(text)?);
                return ctx.publish_then(message, answer);
            }
            other => {
                return Err(refusal(
                    "unknown_type",
                    format!(
                        "there is no type {:?}; known are subscribe, unsubscribe, publish, presence, event, auth, ping",
                        shortened(other)
                    ),
                ));
            }
        }
        Ok(true)
    }

    /// Carries out the rule for an event, or passes the event to the application behind the server.
    fn handle_event(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        incoming: &Incoming<'_>,
    ) -> Result<(), Refusal> {
        let name =
            incoming.event.as_deref().ok_or_else(|| refusal("bad_request", "event needs \"event\""))?;
        let rule = self.options.rules.iter().find(|rule| rule.is_for(name, "/"));
        if rule.is_none() && !ctx.hands_over(name, false) {
            let name = shortened(name);
            let message = format!("there is no rule and no hook for the event {name:?}");
            return Err(refusal("unknown_event", message));
        }
        let arguments = Arguments { json: data_of(ctx, incoming)?, attachments: &[] };
        let event = Event { name, arguments, ack: incoming.id.map(|_| Ack(0)) };
        let id = incoming.id.map(RawValue::get);
        let answer = answer_later(id);
        if let Some(rule) = rule {
            rule.follow(ctx, session, &event, answer);
            return Ok(());
        }
        let id = id.map(str::to_owned);
        let acknowledge = move |ctx: &mut Context<'_>, ack: &str| {
            let data = stentor_json::elements(ack).next();
            let data = data.map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
            if ctx.envelope() != Envelope::Raw {
                ctx.send(session, Message::Text(&answer_text("ok", id.as_deref(), &data)));
            }
        };
        ctx.hand_over(session, &event, Box::new(acknowledge), answer)
    }
}

/// The data of a message.
fn data_of<'a>(ctx: &Context<'_>, incoming: &Incoming<'a>) -> Result<&'a str, Refusal> {
    let data = incoming.data.map_or("null", RawValue::get);
    let depth_max = ctx.core.json_depth_max;
    if stentor_json::depth(data.as_bytes()) > depth_max {
        let message = format!("data is nested deeper than {depth_max} (limits.json_depth_max)");
        return Err(refusal("too_deep", message));
    }
    Ok(data)
}

/// The feed that the first argument of an event names.
fn first_key(keys: &KeyRule, arguments: Arguments<'_>) -> Result<Key, Refusal> {
    let name = arguments.iter().next().and_then(stentor_json::string);
    let name =
        name.ok_or_else(|| refusal("bad_request", "the first argument is the feed's key, a string"))?;
    keys.parse(&name).map_err(|error| refusal("bad_key", error.to_string()))
}

/// `emit("subscribe", key[, {epoch, offset, policy, delta, rate}], ack)`.
fn subscribe_event(ctx: &Context<'_>, arguments: Arguments<'_>) -> Result<Subscribe, Refusal> {
    if ctx.namespace() != Some("/") {
        return Err(refusal("bad_request", "feeds are subscribed to in the main namespace"));
    }
    let key = first_key(&ctx.core.keys, arguments)?;
    let topic = Topic::Feed(key);
    // A second argument that isn't an object contains no options.
    let options = arguments.iter().nth(1).filter(|options| options.starts_with('{')).unwrap_or("{}");
    let options: SubscribeArguments<'_> = serde_json::from_str(options)
        .map_err(|error| refusal("bad_request", format!("the second argument: {error}")))?;
    let since = match (options.epoch, options.offset) {
        (Some(epoch), Some(offset)) => Some(Position { epoch: Epoch(epoch), offset }),
        _ => None,
    };
    let asked =
        RequestedOptions { policy: options.policy.as_deref(), delta: options.delta, rate: options.rate };
    // Socket.IO clients receive whole documents unless they request deltas.
    let options = asked.of_feed(false).map_err(options_refusal)?;
    Ok(Subscribe::new(topic, options, since))
}

/// `emit("stentor:auth", {token}[, ack])`.
fn auth_event(arguments: Arguments<'_>) -> Result<RenewToken, Refusal> {
    let token = arguments.iter().next().and_then(|first| stentor_json::string_member(first, "token"));
    let token = token.ok_or_else(|| refusal("bad_request", "the first argument is {\"token\": TOKEN}"))?;
    Ok(RenewToken { token: token.into_owned() })
}

/// Acknowledges an event, if its client requested an acknowledgement.
fn acknowledge(ctx: &mut Context<'_>, session: SessionId, ack: Option<Ack>, result: Result<(), Refusal>) {
    if let Some(ack) = ack {
        let answer = match result {
            Ok(()) => DONE.to_owned(),
            Err(refusal) => failed(&refusal),
        };
        ctx.ack(session, ack, Arguments { json: &answer, attachments: &[] });
    }
}

/// The subscription options of a Socket.IO client.
#[derive(Deserialize)]
struct SubscribeArguments<'a> {
    #[serde(default, deserialize_with = "scalar")]
    epoch: Option<u64>,
    #[serde(default, deserialize_with = "scalar")]
    offset: Option<u64>,
    #[serde(borrow, default)]
    policy: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "scalar")]
    delta: Option<bool>,
    #[serde(default, deserialize_with = "scalar")]
    rate: Option<f64>,
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

fn topic(keys: &KeyRule, incoming: &Incoming<'_>) -> Result<Topic, Refusal> {
    match (&incoming.feed, &incoming.room) {
        (Some(feed), None) => {
            keys.parse(feed).map(Topic::Feed).map_err(|e| refusal("bad_key", e.to_string()))
        }
        (None, Some(room)) => {
            Room::plain(room).map(Topic::Room).map_err(|e| refusal("bad_room", e.to_string()))
        }
        _ => Err(refusal("bad_request", "name either \"feed\" or \"room\"")),
    }
}

/// Returns the callback that answers a message when its outcome is known.
fn answer_later(id: Option<&str>) -> Answer {
    let id = id.map(str::to_owned);
    Box::new(move |ctx, session, result| {
        answer_message(ctx, session, id.as_deref(), result.map(|()| true));
    })
}

/// Answers a message, unless the result is `Ok(false)`. Clients in raw mode receive no answers.
fn answer_message(
    ctx: &mut Context<'_>,
    session: SessionId,
    id: Option<&str>,
    result: Result<bool, Refusal>,
) {
    match result {
        Err(_) if ctx.envelope() == Envelope::Raw => ctx.close(session, Disconnect::BadRequest),
        Ok(true) if ctx.envelope() != Envelope::Raw => {
            ctx.send(session, Message::Text(&answer_text("ok", id, "")));
        }
        Ok(_) => {}
        Err(refusal) => ctx.send(session, Message::Text(&error_answer(id, &refusal))),
    }
}

fn error_answer(id: Option<&str>, refusal: &Refusal) -> String {
    error_about(id, "", refusal)
}

/// Like [`error_answer`], with `about`: the JSON text of a member that names the topic.
fn error_about(id: Option<&str>, about: &str, refusal: &Refusal) -> String {
    let [code, message] = [&refusal.code, &refusal.message].map(|text| json_error_text(text));
    answer_text(
        "error",
        id,
        &format!(r#"{about},"code":{code},"message":{message},"retry":{}"#, refusal.retry),
    )
}

impl Application for RoomsApp {
    fn configure(&mut self, rooms: &Rooms) {
        self.options.clone_from(rooms);
    }

    fn envelope(&self) -> Envelope {
        Envelope::V1
    }

    fn opened(&mut self, ctx: &mut Context<'_>, session: SessionId, envelope: Envelope) {
        if envelope == Envelope::Raw {
            return;
        }
        let welcome = format!(
            r#"{{"type":"welcome","session":"{}","ping_ms":{},"message_bytes_max":{}}}"#,
            ctx.public_id(session),
            ctx.core.heartbeat_interval.as_millis(),
            ctx.core.message_bytes_max
        );
        ctx.send(session, Message::Text(&welcome));
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        if message.text().is_some_and(is_stomp) && ctx.envelope() != Envelope::Raw {
            ctx.send(session, Message::Text(STOMP_ERROR));
            return ctx.close(session, Disconnect::BadRequest);
        }
        let (id, parsed) = match message {
            // A message must be an object. Serde would accept a list as well.
            Message::Text(text) if !text.trim_ascii_start().starts_with('{') => {
                (None, Err(refusal("bad_json", "not a message of stentor.v1: it is no JSON object")))
            }
            Message::Text(text) => match serde_json::from_str::<Incoming<'_>>(text) {
                Ok(incoming) => (incoming.id, Ok(incoming)),
                Err(error) => {
                    let known = serde_json::from_str::<Identified<'_>>(text).ok();
                    (known.and_then(|known| known.id), Err(no_message(&error)))
                }
            },
            Message::Binary(_) => {
                (None, Err(refusal("bad_json", "stentor.v1 is text; this message was binary")))
            }
        };
        let text = message.text().unwrap_or_default();
        let noted = ctx.core.noted();
        let result = parsed.and_then(|incoming| self.handle(ctx, session, (text, &incoming)));
        ctx.core.note_refused(session, &result, noted);
        answer_message(ctx, session, id.map(RawValue::get), result);
    }

    fn refuse_message(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        message: Message<'_>,
        denial: &Denial,
    ) {
        if ctx.envelope() == Envelope::Raw {
            return;
        }
        let known = message.text().and_then(|text| serde_json::from_str::<Identified<'_>>(text).ok());
        let answer = error_answer(known.and_then(|known| known.id).map(RawValue::get), denial);
        ctx.send(session, Message::Text(&answer));
    }

    fn connect_namespace(&mut self, _ctx: &mut Context<'_>, request: &NamespaceRequest<'_>) -> Admission {
        let known = request.namespace == "/"
            || self.options.namespaces.iter().any(|known| known == request.namespace);
        if known { Admission::Accept } else { Admission::Unknown }
    }

    fn joined(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        request: &NamespaceRequest<'_>,
        _id: &str,
    ) {
        if request.recovered {
            return;
        }
        // The socket joins the room of all sockets, so that messages can be published to the whole namespace.
        let everybody = Room::all_members(request.namespace);
        if everybody.is_ok_and(|room| ctx.join(session, &room, Policy::Queue).is_err()) {
            ctx.close(session, Disconnect::Overloaded);
        }
    }

    fn event(&mut self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        let namespace = ctx.namespace().unwrap_or("/");
        let Event { name, arguments, ack } = *event;
        let noted = ctx.core.noted();
        let later =
            || -> Answer { Box::new(move |ctx, session, result| acknowledge(ctx, session, ack, result)) };
        let result = if name == AUTH_EVENT && ctx.has_identities() {
            auth_event(arguments).and_then(|request| ctx.carry_out(session, request, later))
        } else if let Some(rule) = self.options.rules.iter().find(|rule| rule.is_for(name, namespace)) {
            let ack = event.ack.filter(|_| rule.ack);
            let answer = move |ctx: &mut Context<'_>, session, result| acknowledge(ctx, session, ack, result);
            return rule.follow(ctx, session, event, Box::new(answer));
        } else if name == self.options.presence.event {
            let request = ctx.presence_event(session, arguments, ack.map(|ack| ack.0));
            request.and_then(|request| ctx.carry_out(session, request, later))
        } else if ctx.hands_over(name, matches!(name, "subscribe" | "unsubscribe")) {
            let acknowledge = move |ctx: &mut Context<'_>, json: &str| {
                if let Some(ack) = ack {
                    ctx.ack(session, ack, Arguments { json, attachments: &[] });
                }
            };
            ctx.hand_over(session, event, Box::new(acknowledge), later()).map(|()| false)
        } else if name == "subscribe" {
            let request = subscribe_event(ctx, arguments);
            request.and_then(|request| ctx.carry_out(session, request, later))
        } else if name == "unsubscribe" {
            first_key(&ctx.core.keys, arguments).map(|key| {
                ctx.unsubscribe(session, &Topic::Feed(key));
                true
            })
        } else {
            // An unknown event is ignored and not acknowledged, as in Socket.IO.
            return;
        };
        ctx.core.note_refused(session, &result, noted);
        if result != Ok(false) {
            acknowledge(ctx, session, ack, result.map(|_| ()));
        }
    }

    fn notice(&mut self, ctx: &mut Context<'_>, notice: &Notice) {
        if matches!(ctx.envelope(), Envelope::Raw | Envelope::SocketIo) {
            return;
        }
        let name = |topic: &Topic| match topic {
            Topic::Room(room) | Topic::Presence(room) => room.name().to_owned(),
            Topic::Feed(key) => key.as_str().to_owned(),
        };
        let mut about = String::new();
        let (session, refusal) = match notice {
            // The message `state` reports that the feed isn't found.
            Notice::NotFound { .. } => return,
            Notice::Gap { session, topic } => {
                let name = name(topic);
                about = format!(r#","room":{}"#, json_error_text(&name));
                let message = format!(
                    "the history of {name:?} no longer reaches back to this position: messages were missed"
                );
                (session, refusal("history_expired", message))
            }
            Notice::Refused { session, topic, reason } => {
                let refusal = limit_reached(*reason);
                let message = format!("the subscription to {:?} has ended: {}", name(topic), refusal.message);
                (session, Refusal { message: message.into(), ..refusal })
            }
        };
        ctx.send(*session, Message::Text(&error_about(None, &about, &refusal)));
    }
}
