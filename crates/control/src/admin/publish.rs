//! `POST /api/v1/publish`: messages to rooms.
//!
//! `application/json`: one message `{"room": …, "data": …, "event"?: …, "namespace"?: …}` (without a room it is for all
//! Socket.IO clients of the namespace), answered
//! `{"published":1}`. `application/x-ndjson`: one message a line, published as they arrive, in order, answered
//! `{"published":N}` at the end; at the first bad line it stops: `{"published":N,"error":{"line":K,"message":…}}`,
//! where the lines before K were published. Empty lines are skipped. Unknown fields are ignored.
//!
//! `data` is passed on as the text it is, never serialised again; only line breaks between its tokens are taken
//! out, so that what reaches the data plane is one line. While the data plane's mailbox is full, nothing is read.

use super::lines::Lines;
use super::{Refusal, State, api, json};
use crate::metrics::ReasonLabels;
use crate::signals;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::Publish;
use stentor_hub::{Data, Room};
use stentor_json::{DEPTH_MAX, depth, minify};
use tokio::time::{Instant, timeout_at};

/// Longest name of an event, in bytes.
pub(super) const EVENT_BYTES_MAX: usize = 256;
/// After an error the rest of a body is read and thrown away within these bounds, so that the client, which may
/// not read before it has sent all, gets to see the answer.
const DISCARD_BYTES_MAX: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// A message as it arrives.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    room: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Serialize)]
struct Answer {
    published: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<LineError>,
}

#[derive(Serialize)]
struct LineError {
    /// The first line is 1.
    line: u64,
    code: &'static str,
    message: String,
}

/// The route's handler.
pub(super) async fn publish(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    mut body: Body,
) -> Response<Body> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let refused = |refusal: &Refusal| {
        debug_assert!(api::publish_refusals().any(|code| code == refusal.reason.code), "{refusal:?}");
        state.metrics.publish_refusals.get_or_create(&ReasonLabels { reason: refusal.reason.code }).inc();
    };
    match essence.as_str() {
        "application/json" => match publish_one(&state, &mut body).await {
            Ok(()) => json(StatusCode::OK, &Answer { published: 1, error: None }),
            Err(refusal) => {
                refused(&refusal);
                discard(body, &refusal).await;
                refusal.into_response()
            }
        },
        "application/x-ndjson" => {
            let mut progress = Progress::default();
            match publish_lines(&state, &mut body, &mut progress).await {
                Ok(()) => json(StatusCode::OK, &Answer { published: progress.published, error: None }),
                Err(refusal) => {
                    refused(&refusal);
                    discard(body, &refusal).await;
                    let Refusal { reason, message } = refusal;
                    let error = Some(LineError { line: progress.line, code: reason.code, message });
                    json(reason.status, &Answer { published: progress.published, error })
                }
            }
        }
        _ => {
            let message =
                "Content-Type must be application/json (one message) or application/x-ndjson (many)";
            let refusal = Refusal::new(api::CONTENT_TYPE, message);
            refused(&refusal);
            discard(body, &refusal).await;
            refusal.into_response()
        }
    }
}

/// How far an NDJSON body has come.
#[derive(Default)]
struct Progress {
    published: u64,
    /// The line that is being read or was read last.
    line: u64,
}

async fn publish_one(state: &State, body: &mut Body) -> Result<(), Refusal> {
    let bytes_max = state.options.message_bytes_max;
    let text = read_whole(body, bytes_max, state.options.body_timeout).await?;
    let text = text.ok_or_else(|| too_long(bytes_max))?;
    let message = Parser::default().parse(&text)?.ok_or_else(|| bad("the body is empty".into()))?;
    send(state, message).await
}

async fn publish_lines(state: &State, body: &mut Body, progress: &mut Progress) -> Result<(), Refusal> {
    let bytes_max = state.options.message_bytes_max;
    let (mut lines, mut parser) = (Lines::new(bytes_max), Parser::default());
    progress.line = 1;
    let mut deadline = Instant::now() + state.options.body_timeout;
    while let Some(chunk) = next_chunk(body, deadline).await? {
        let (mut chunk, first) = (&chunk[..], progress.line);
        while let Some(parsed) =
            lines.next(&mut chunk, |line| parser.parse(line)).map_err(|_| too_long(bytes_max))?
        {
            if let Some(message) = parsed? {
                send(state, message).await?;
                progress.published += 1;
            }
            progress.line += 1;
        }
        // Each line gets its time, so that a slow drip can't hold its place for ever.
        if progress.line > first {
            deadline = Instant::now() + state.options.body_timeout;
        }
    }
    if let Some(message) = parser.parse(lines.rest())? {
        send(state, message).await?;
        progress.published += 1;
    }
    Ok(())
}

/// A body of `bytes_max` at the most; `None` if there is more.
pub(super) async fn read_whole(
    body: &mut Body,
    bytes_max: usize,
    timeout: Duration,
) -> Result<Option<Vec<u8>>, Refusal> {
    let deadline = Instant::now() + timeout;
    let mut whole = Vec::new();
    while let Some(chunk) = next_chunk(body, deadline).await? {
        if whole.len() + chunk.len() > bytes_max {
            return Ok(None);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(Some(whole))
}

async fn next_chunk(body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, Refusal> {
    loop {
        match timeout_at(deadline, body.frame()).await {
            Err(_) => {
                let message = "the body took too long to arrive (admin_limits.body_timeout)";
                return Err(Refusal::new(api::TIMEOUT, message));
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(bad(format!("the body ended early: {error}"))),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

async fn send(state: &State, message: Publish) -> Result<(), Refusal> {
    let on_wait = || _ = state.metrics.mailbox_waits.inc();
    let sent =
        signals::publish(&*state.data_plane, &state.signals, state.options.busy_timeout, message, on_wait);
    sent.await.map_err(|_| busy())?;
    state.metrics.publications.inc();
    Ok(())
}

pub(super) fn busy() -> Refusal {
    let message = "the server is too busy to accept messages (admin_limits.busy_timeout); try again later";
    Refusal::new(api::BUSY, message)
}

/// Reads the rest of a body that was refused, so that its sender gets to see why.
pub(super) async fn discard(mut body: Body, refusal: &Refusal) {
    // Whoever was too slow isn't waited for again.
    if refusal.reason == api::TIMEOUT {
        return;
    }
    let deadline = Instant::now() + DISCARD_TIMEOUT;
    let mut discarded = 0;
    while let Ok(Some(chunk)) = next_chunk(&mut body, deadline).await {
        discarded += chunk.len();
        if discarded > DISCARD_BYTES_MAX {
            return;
        }
    }
}

fn bad(message: String) -> Refusal {
    Refusal::new(api::MESSAGE, message)
}

pub(super) fn too_long(bytes_max: usize) -> Refusal {
    let message = format!("the message has more than {bytes_max} bytes (limits.message_bytes_max)");
    Refusal::new(api::TOO_LONG, message)
}

/// The event and data of a message, checked.
pub(super) fn content(event: Option<&str>, data: &RawValue) -> Result<(Option<Arc<str>>, Data), String> {
    if event.is_some_and(|event| event.len() > EVENT_BYTES_MAX) {
        return Err(format!("the event's name is longer than {EVENT_BYTES_MAX} bytes"));
    }
    let data = data.get().as_bytes();
    if depth(data) > DEPTH_MAX {
        return Err(format!("the data is nested deeper than {DEPTH_MAX}"));
    }
    // A copy, so that a message that is kept doesn't keep the chunk it came in.
    let data = if memchr::memchr2(b'\n', b'\r', data).is_some() {
        Bytes::from(minify(data.to_vec()).map_err(|error| error.to_string())?)
    } else {
        Bytes::copy_from_slice(data)
    };
    Ok((event.map(Arc::from), Data::Json(data)))
}

/// Reads messages. Remembers the last room: most streams are for one or few.
#[derive(Default)]
struct Parser {
    room: Option<Room>,
}

impl Parser {
    /// The message in `text`; `None` if there is nothing but whitespace.
    fn parse(&mut self, text: &[u8]) -> Result<Option<Publish>, Refusal> {
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        // Serde would take an array of the fields' values as well.
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(bad("a message must be a JSON object with \"room\" and \"data\"".into()));
        }
        let text = std::str::from_utf8(text).map_err(|error| bad(format!("not UTF-8: {error}")))?;
        let message: Message<'_> = serde_json::from_str(text).map_err(|error| bad(in_line(&error)))?;
        let room = self.room(message.namespace.as_deref(), message.room.as_deref())?;
        let (event, data) = content(message.event.as_deref(), message.data).map_err(bad)?;
        Ok(Some(Publish { room, event, data }))
    }

    /// Without a room it is for everybody in the namespace, which then has to be named.
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

/// A parser's message without its line: messages are counted in lines of the body already.
pub(super) fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) if error.line() == 1 => format!("{what} at column {}", error.column()),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Publish>, String> {
        Parser::default().parse(text.as_bytes()).map_err(|refusal| refusal.message)
    }

    #[test]
    fn messages() {
        fn check(text: &str, namespace: &str, room: &str, event: Option<&str>, data: &str) {
            let message = parse(text).unwrap().unwrap();
            assert_eq!((message.room.namespace(), message.room.name()), (namespace, room));
            assert_eq!(message.event.as_deref(), event);
            assert_eq!(message.data, Data::Json(Bytes::copy_from_slice(data.as_bytes())));
        }
        check(r#"{"room":"a","data":1}"#, "/", "a", None, "1");
        check(
            r#" {"data": {"b": 1.50} ,"room":"a","event":"e","x":[1]} "#,
            "/",
            "a",
            Some("e"),
            r#"{"b": 1.50}"#,
        );
        check(
            r#"{"room":"\u00e9","data":"\ud800","namespace":"/n","event":null}"#,
            "/n",
            "é",
            None,
            r#""\ud800""#,
        );
        check("{\"room\":\"a\",\"data\":[1,\r\n \"b c\"]}", "/", "a", None, r#"[1,"b c"]"#);
        check("{\"room\":\"a\",\"data\":12345678901234567890.10}", "/", "a", None, "12345678901234567890.10");
        assert!(parse("").unwrap().is_none());
        assert!(parse(" \r").unwrap().is_none());
    }

    #[test]
    fn mistakes_are_explained() {
        fn check(text: &str, expect: &str) {
            let message = parse(text).expect_err("an error");
            assert!(message.contains(expect), "{message}");
        }
        check("{", "EOF while parsing an object at column 1");
        check("[]", "a message must be a JSON object");
        check(r#"["a",null,null,1]"#, "a message must be a JSON object");
        check(r#"{"room":"a"}"#, "missing field `data` at column 12");
        check(r#"{"data":1}"#, "\"room\" or \"namespace\" is missing");
        check(r#"{"room":"","data":1}"#, "the room's name is empty");
        check(&format!(r#"{{"room":"{}","data":1}}"#, "r".repeat(257)), "longer than 256 bytes");
        check(&format!(r#"{{"room":"r","event":"{}","data":1}}"#, "e".repeat(257)), "longer than 256 bytes");
        check(r#"{"room":7,"data":1}"#, "invalid type: integer `7`, expected a string");
        check(r#"{"room":"a","room":"b","data":1}"#, "duplicate field `room`");
        check(r#"{"room":"a","data":1} x"#, "trailing characters");
        check(r#"{"room":"a","data":nope}"#, "expected");
        check(
            &format!(r#"{{"room":"a","data":{}}}"#, "[".repeat(1000) + &"]".repeat(1000)),
            "nested deeper than 128",
        );
        check(&format!(r#"{{"room":"a","data":{}"#, "[".repeat(100_000)), "EOF");
        assert!(Parser::default().parse(b"{\"room\":\"\xff\",\"data\":1}").is_err());
    }

    #[test]
    fn the_last_room_is_shared_only_if_it_is_the_same() {
        let mut parser = Parser::default();
        let mut room = |text: &str| parser.parse(text.as_bytes()).unwrap().unwrap().room;
        let first = room(r#"{"room":"a","data":1}"#);
        assert_eq!(room(r#"{"room":"a","data":2}"#), first);
        assert_ne!(room(r#"{"room":"a","namespace":"/n","data":2}"#), first);
        assert_ne!(room(r#"{"room":"b","data":2}"#), first);
        assert_eq!(room(r#"{"room":"a","data":2}"#), first);
    }
}
