//! `POST /api/v1/publish`: messages to rooms.
//!
//! `application/json`: one message `{"room": …, "data": …, "event"?: …, "namespace"?: …}`, or with `args`
//! (the list of an event's arguments) in place of `data`. A message without a room is for all Socket.IO
//! clients of the namespace. The response is `{"published":1}`. `application/x-ndjson`: one message per line,
//! published in order as they arrive. The response is `{"published":N}` at the end. Publishing stops at the
//! first invalid line K, with the response `{"published":N,"error":{"line":K,"message":…}}`; the lines before
//! K have been published. Empty lines are skipped. Unknown fields are ignored.
//!
//! A room's name may be a session's id: the message is for the session alone. With `"volatile":true`, sessions that can't receive
//! the message at once are skipped, and no history has it.
//!
//! A message with an `idempotency_key` is published once. If a cluster's engine orders the room, the engine
//! checks the key. Otherwise this server does, and keeps the keys for five minutes.
//!
//! `data` is passed on as text, never serialized again; only line breaks between its tokens are removed, so
//! that the data plane receives one line. While the data plane's mailbox is full, bodies aren't read.

use super::body::{Held, discard, media_type, next_chunk, read_whole};
use super::lines::Lines;
use super::{Refusal, State, json, reason};
use crate::signals;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use stentor_hub::{Data, Room};
use stentor_json::{DEPTH_MAX, depth, minify, without_byte_order_mark};
use stentor_ports::{Charge, Class, Command, CommandError, Done, PublicId, Publish, Target};
use tokio::time::Instant;

/// Maximum length of an event's name in bytes.
pub(super) const EVENT_BYTES_MAX: usize = 256;
/// Maximum length of an idempotency key in bytes.
pub(super) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// The media type of a body with one message per line.
const NDJSON: &str = "application/x-ndjson";

/// A message as it is in the request.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    room: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    idempotency_key: Option<Cow<'a, str>>,
    #[serde(default)]
    volatile: bool,
    #[serde(borrow, default, deserialize_with = "given")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    args: Option<Vec<&'a RawValue>>,
}

/// Deserializes a field that is present. The value `null` is data, too.
pub(super) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A checked message.
struct Parsed {
    message: Publish,
    key: Option<Arc<str>>,
    volatile: bool,
}

#[derive(Serialize)]
struct Answer {
    published: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<LineError>,
}

#[derive(Serialize)]
struct LineError {
    /// Number of the line, counted from 1.
    line: u64,
    code: &'static str,
    message: String,
}

/// Handles `POST /api/v1/publish`.
pub(super) async fn publish(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    mut body: Body,
) -> Response<Body> {
    let (media_type, mut progress) = (media_type(&headers), Progress::default());
    let done = match media_type.as_str() {
        "application/json" => publish_one(&state, &mut body, &mut progress).await,
        NDJSON => publish_lines(&state, &mut body, &mut progress).await,
        _ => {
            let message =
                "Content-Type must be application/json (one message) or application/x-ndjson (many)";
            Err(Refusal::new(reason::CONTENT_TYPE, message))
        }
    };
    let Progress { published, line } = progress;
    let Err(refusal) = done else { return json(StatusCode::OK, &Answer { published, error: None }) };
    refusal.count(&state.metrics.publish_refusals, reason::publish_refusals());
    discard(body, &refusal).await;
    if media_type != NDJSON {
        return refusal.into_response();
    }
    let Refusal { reason, message } = refusal;
    json(reason.status, &Answer { published, error: Some(LineError { line, code: reason.code, message }) })
}

/// Progress through a body.
#[derive(Default)]
struct Progress {
    published: u64,
    /// Number of the current or last line of an NDJSON body.
    line: u64,
}

async fn publish_one(state: &State, body: &mut Body, progress: &mut Progress) -> Result<(), Refusal> {
    let bytes_max = state.options.load().message_bytes_max;
    let mut text = read_whole(state, body, bytes_max, too_long).await?;
    let message = Parser::default().parse(text.whole())?.ok_or_else(|| bad("the body is empty".into()))?;
    drop(text);
    send(state, message, progress).await
}

async fn publish_lines(state: &State, body: &mut Body, progress: &mut Progress) -> Result<(), Refusal> {
    let bytes_max = state.options.load().message_bytes_max;
    let mut lines = Lines::new(Held::new(&state.ledger, bytes_max, too_long));
    let mut parser = Parser::default();
    progress.line = 1;
    let mut deadline = Instant::now() + state.options.load().body_timeout;
    while let Some(chunk) = next_chunk(body, deadline).await? {
        let (mut chunk, first) = (&chunk[..], progress.line);
        while let Some(parsed) = lines.next(&mut chunk, |line| parser.parse(line))? {
            if let Some(message) = parsed? {
                send(state, message, progress).await?;
            }
            progress.line += 1;
        }
        // Each line has its own timeout, so that a slow client can't hold its slot forever.
        if progress.line > first {
            deadline = Instant::now() + state.options.load().body_timeout;
        }
    }
    if let Some(message) = parser.parse(lines.rest())? {
        send(state, message, progress).await?;
    }
    Ok(())
}

async fn send(
    state: &State,
    Parsed { message, key, volatile }: Parsed,
    progress: &mut Progress,
) -> Result<(), Refusal> {
    let target = target_of(&message.room, volatile)?.map(|target| (target, volatile));
    let is_ordered = || target.is_none() && state.data_plane.is_ordered(&message.room);
    let _held = Charge::of(state.ledger.clone(), Class::Bodies, message.data.len());
    let own_key = key.as_deref().filter(|_| !is_ordered());
    match own_key.map(|key| state.idempotency_keys.begin(Instant::now(), &message.room, key)) {
        None => publish_message(state, &message, target, key.as_ref()).await?,
        Some(Ok(Some(mut used))) => {
            publish_message(state, &message, target, None).await?;
            used.is_published = true;
        }
        Some(Ok(None)) => {}
        Some(Err(refusal)) => return Err(refusal),
    }
    progress.published += 1;
    Ok(())
}

/// The target of a message that is sent as [`Command::Emit`]: a session, if the room's name is its id, or the room of a volatile
/// message. `None` for other messages, which are published.
fn target_of(room: &Room, volatile: bool) -> Result<Option<Target>, Refusal> {
    let target = Target::of(room.namespace()).map_err(|error| bad(error.to_string()))?;
    Ok(match PublicId::parse_issued(room.name()) {
        Some(session) => Some(target.session(session)),
        None if volatile && room.is_all_members() => Some(target.everybody()),
        None if volatile => Some(target.room(room.name()).map_err(|error| bad(error.to_string()))?),
        None => None,
    })
}

async fn publish_message(
    state: &State,
    message: &Publish,
    target: Option<(Target, bool)>,
    key: Option<&Arc<str>>,
) -> Result<(), Refusal> {
    if let Some((target, volatile)) = target {
        let Publish { event, data, .. } = message;
        let emit = |done| Command::Emit { event: event.clone(), data: data.clone(), volatile, done };
        ask(state, |done| state.data_plane.commands.command(target.clone(), emit(done))).await?;
        state.metrics.publications.inc();
        return Ok(());
    }
    let publish = |done| state.data_plane.commands.publish_kept(message.clone(), key.cloned(), done);
    let kept = ask(state, publish).await?;
    kept.map_err(|denial| Refusal::new(reason::ENGINE, denial.message))?;
    state.metrics.publications.inc();
    Ok(())
}

/// Passes a command to the data plane and waits for its answer.
pub(super) async fn ask<T: Send + 'static>(state: &State, give: impl Fn(Done<T>)) -> Result<T, Refusal> {
    let on_wait = || _ = state.metrics.mailbox_waits.inc();
    let answer = signals::command(&state.signals, state.options.load().busy_timeout, give, on_wait);
    answer.await.map_err(|error| match error {
        CommandError::Busy => busy(),
        CommandError::Stopped => Refusal::new(reason::STOPPED, "the server is shutting down"),
    })
}

pub(super) fn busy() -> Refusal {
    let message = "the server is too busy to accept messages (admin_limits.busy_timeout); try again later";
    Refusal::new(reason::BUSY, message)
}

fn bad(message: String) -> Refusal {
    Refusal::new(reason::MESSAGE, message)
}

pub(super) fn too_long(bytes_max: usize) -> Refusal {
    let message = format!("the message has more than {bytes_max} bytes (limits.message_bytes_max)");
    Refusal::new(reason::TOO_LONG, message)
}

/// Checks the event of a message, and its data or arguments.
pub(super) fn content(
    event: Option<&str>,
    data: Option<&RawValue>,
    args: Option<&[&RawValue]>,
) -> Result<(Option<Arc<str>>, Data), String> {
    if event.is_some_and(|event| event.len() > EVENT_BYTES_MAX) {
        return Err(format!("the event's name is longer than {EVENT_BYTES_MAX} bytes"));
    }
    let data = match (data, args) {
        (Some(data), None) => Data::Json(line(data)?),
        (None, Some(args)) if event.is_some() => {
            let lines = args.iter().map(|argument| line(argument)).collect::<Result<Vec<_>, _>>()?;
            Data::Arguments { json: lines.join(&b',').into(), attachments: [].into() }
        }
        (None, Some(_)) => return Err("\"args\" needs an \"event\"".to_owned()),
        (Some(_), Some(_)) => return Err("the message has both \"data\" and \"args\"".to_owned()),
        (None, None) => return Err("\"data\" or \"args\" is missing".to_owned()),
    };
    Ok((event.map(Arc::from), data))
}

/// Returns a copy of a value on one line. With a copy, a stored message doesn't keep the chunk in which it
/// arrived.
fn line(value: &RawValue) -> Result<Bytes, String> {
    let value = value.get().as_bytes();
    if depth(value) > DEPTH_MAX {
        return Err(format!("the data is nested deeper than {DEPTH_MAX}"));
    }
    if memchr::memchr2(b'\n', b'\r', value).is_none() {
        return Ok(Bytes::copy_from_slice(value));
    }
    minify(value.to_vec()).map(Bytes::from).map_err(|error| error.to_string())
}

/// Parses messages. Remembers the last room, because most streams are for one or few rooms.
#[derive(Default)]
struct Parser {
    room: Option<Room>,
}

impl Parser {
    /// Parses the message in `text`; `None` if it has only white space.
    fn parse(&mut self, text: &[u8]) -> Result<Option<Parsed>, Refusal> {
        let text = without_byte_order_mark(text);
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        // Serde would also accept an array of the fields' values.
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(bad("a message must be a JSON object with \"room\" and \"data\"".into()));
        }
        let text = std::str::from_utf8(text).map_err(|error| bad(format!("not UTF-8: {error}")))?;
        let message: Message<'_> = serde_json::from_str(text).map_err(|error| bad(in_line(&error)))?;
        let room = self.room(message.namespace.as_deref(), message.room.as_deref())?;
        let (event, data) =
            content(message.event.as_deref(), message.data, message.args.as_deref()).map_err(bad)?;
        let is_key = |key: &str| {
            (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic())
        };
        let key = message.idempotency_key.as_deref();
        if !key.is_none_or(is_key) {
            let message = format!(
                "\"idempotency_key\" must have 1 to {IDEMPOTENCY_KEY_BYTES_MAX} visible ASCII characters, without spaces"
            );
            return Err(bad(message));
        }
        let (key, volatile) = (key.map(Arc::from), message.volatile);
        Ok(Some(Parsed { message: Publish { room, event, data }, key, volatile }))
    }

    /// Returns the room. Without a name, it is the room of all sockets of the namespace, which is then
    /// required.
    fn room(&mut self, namespace: Option<&str>, name: Option<&str>) -> Result<Room, Refusal> {
        let Some(name) = name else {
            let namespace =
                namespace.ok_or_else(|| bad("\"room\" or \"namespace\" is missing".to_owned()))?;
            return Room::all_members(namespace).map_err(|error| bad(error.to_string()));
        };
        let namespace = namespace.unwrap_or("/");
        match &self.room {
            Some(last) if last.name() == name && last.namespace() == namespace => Ok(last.clone()),
            _ => {
                let room = Room::new(namespace, name).map_err(|error| bad(error.to_string()))?;
                Ok(self.room.insert(room).clone())
            }
        }
    }
}

/// Returns a JSON error's text without its line number, which counts within the message and not within the
/// body.
pub(super) fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) if error.line() == 1 => format!("{what} at column {}", error.column()),
        _ => text,
    }
}

#[cfg(test)]
mod tests;
