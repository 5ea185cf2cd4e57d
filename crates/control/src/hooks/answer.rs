//! Parses responses as docs/hooks.md, "Answers", describes them. An answer in any other form fails its
//! question, but no other question.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use stentor_auth::{Attributes, GRANTS_CLAIM, Rule};
use stentor_hub::{Data, Room, Rooms};
use stentor_json::{DEPTH_MAX, depth, minify, without_byte_order_mark};
use stentor_ports::{Denial, EventEmit, EventReply};

/// Maximum length of an event's name in bytes.
const EVENT_BYTES_MAX: usize = 256;
/// Maximum length of a refusal's text in bytes.
const TEXT_BYTES_MAX: usize = 1_024;
/// Maximum time that an answer is cached.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// Description of a mistake in a response, for the log. Of the response, it contains at most the name of a
/// field.
pub(super) type Wrong = String;

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    answers: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Identified {
    id: u64,
}

/// Returns the text of a response, on one line and without a byte order mark.
pub(super) fn text(body: Vec<u8>) -> Result<String, Wrong> {
    if depth(&body) > DEPTH_MAX {
        return Err(format!("it is nested deeper than {DEPTH_MAX}"));
    }
    let mark = body.len() - without_byte_order_mark(&body).len();
    let body = if mark > 0 { body[mark..].to_vec() } else { body };
    let body = if memchr::memchr2(b'\n', b'\r', &body).is_some() {
        minify(body).map_err(|error| error.to_string())?
    } else {
        body
    };
    String::from_utf8(body).map_err(|_| "it is not UTF-8".to_owned())
}

/// Returns the ids and texts of the answers.
pub(super) fn answers(text: &str) -> Result<Vec<(u64, &str)>, Wrong> {
    // Serde would also accept an array of the fields' values.
    if !text.trim_ascii_start().starts_with('{') {
        return Err("it is not a JSON object with \"answers\"".to_owned());
    }
    let response: Response<'_> = serde_json::from_str(text).map_err(|error| shown(&error))?;
    let identified = response.answers.into_iter().filter_map(|answer| {
        let id = serde_json::from_str::<Identified>(answer.get()).ok()?.id;
        Some((id, answer.get()))
    });
    Ok(identified.collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<'a> {
    #[serde(rename = "id")]
    _id: u64,
    #[serde(default)]
    allow: Option<bool>,
    #[serde(borrow, default)]
    code: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(default)]
    retry: bool,
    #[serde(default)]
    ttl: Option<f64>,
    #[serde(borrow, default)]
    ack: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    leave: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    join: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    emit: Vec<Emit<'a>>,
    #[serde(default)]
    disconnect: bool,
    #[serde(borrow, default)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    permissions: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Emit<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    rooms: Vec<Cow<'a, str>>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    except_sender: bool,
}

/// An answer about a permission.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) result: Result<(), Denial>,
    /// Time for which the answer may be cached.
    pub(super) ttl: Option<Duration>,
}

/// An answer about a client that wants to connect.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admission {
    /// The user. `None` means the user of the client's token.
    pub(super) user: Option<Arc<str>>,
    pub(super) info: Option<Arc<str>>,
    pub(super) join: Vec<Room>,
    /// Additional permissions.
    pub(super) permissions: Vec<Rule>,
}

impl<'a> Answer<'a> {
    fn parse(text: &'a str) -> Result<Self, Wrong> {
        serde_json::from_str(text).map_err(|error| shown(&error))
    }

    /// Returns the refusal, or `None` if the answer allows the action. `by_default` is the value of a missing
    /// `allow`. If it is `None`, a missing `allow` is a mistake.
    fn denial(&self, by_default: Option<bool>) -> Result<Option<Denial>, Wrong> {
        let allow = self.allow.or(by_default).ok_or("\"allow\" is missing")?;
        if allow {
            return Ok(None);
        }
        let code = self.code.as_deref().unwrap_or("not_allowed");
        let is_code = |code: &str| {
            (1..=64).contains(&code.len())
                && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        if !is_code(code) {
            return Err("\"code\" must have 1 to 64 of a-z 0-9 _".to_owned());
        }
        let message = self.message.as_deref().unwrap_or("this is not allowed");
        if message.len() > TEXT_BYTES_MAX {
            return Err(format!("\"message\" is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let denial = Denial::new(code.to_owned(), message.to_owned());
        Ok(Some(Denial { retry: self.retry, ..denial }))
    }
}

/// Parses the answer to `subscribe` or `publish`.
pub(super) fn permission(text: &str) -> Result<Permission, Wrong> {
    let answer = Answer::parse(text)?;
    let denial = answer.denial(None)?;
    let ttl = answer.ttl.filter(|ttl| *ttl > 0.0);
    let ttl = ttl.map(|ttl| Duration::try_from_secs_f64(ttl).unwrap_or(TTL_MAX).min(TTL_MAX));
    Ok(Permission { result: denial.map_or(Ok(()), Err), ttl })
}

/// Parses the answer to `connect`, for a client that connects to a namespace.
pub(super) fn admission(text: &str, namespace: &str) -> Result<Result<Admission, Denial>, Wrong> {
    let answer = Answer::parse(text)?;
    if let Some(denial) = answer.denial(None)? {
        return Ok(Err(denial));
    }
    let join = rooms("join", namespace, &answer.join)?;
    let info = answer.info.map(|info| Arc::from(info.get()));
    let permissions = answer.permissions.map_or_else(|| Ok(Vec::new()), permissions)?;
    Ok(Ok(Admission { user: answer.user.map(Arc::from), info, join, permissions }))
}

/// Parses permissions. They have the form of a token's grants.
fn permissions(list: &RawValue) -> Result<Vec<Rule>, Wrong> {
    let claims = format!("{{\"{GRANTS_CLAIM}\":{{\"allow\":{list}}}}}");
    let grants = Attributes::parse(&claims).map_err(str::to_owned).and_then(|claims| claims.grants());
    grants.map_err(|error| format!("\"permissions\": {error}"))
}

/// Parses the answer to an event of a client in a namespace.
pub(super) fn reply(text: &str, namespace: &str) -> Result<Result<EventReply, Denial>, Wrong> {
    let answer = Answer::parse(text)?;
    if let Some(denial) = answer.denial(Some(true))? {
        return Ok(Err(denial));
    }
    let ack = joined(&answer.ack);
    let emit = answer.emit.iter().map(|emit| emit.parse(namespace)).collect::<Result<_, _>>()?;
    Ok(Ok(EventReply {
        leave: rooms("leave", namespace, &answer.leave)?,
        join: rooms("join", namespace, &answer.join)?,
        ack,
        emit,
        disconnect: answer.disconnect,
    }))
}

impl Emit<'_> {
    fn parse(&self, namespace: &str) -> Result<EventEmit, Wrong> {
        if self.event.len() > EVENT_BYTES_MAX {
            return Err(format!("the event's name is longer than {EVENT_BYTES_MAX} bytes"));
        }
        let data = match (&self.arguments, self.data) {
            (Some(arguments), None) => {
                Data::Arguments { json: Bytes::from(joined(arguments)), attachments: [].into() }
            }
            (None, data) => Data::Json(Bytes::copy_from_slice(data.map_or("null", RawValue::get).as_bytes())),
            (Some(_), Some(_)) => return Err("\"emit\" has both \"arguments\" and \"data\"".to_owned()),
        };
        let mut list = rooms("rooms", namespace, &self.rooms)?;
        if self.all {
            list.push(Room::all_members(namespace).map_err(|error| error.to_string())?);
        }
        let rooms = if list.is_empty() { None } else { Rooms::try_from(list).ok() };
        Ok(EventEmit { rooms, except_sender: self.except_sender, event: Some(Arc::from(&*self.event)), data })
    }
}

/// Joins JSON texts with commas.
fn joined(texts: &[&RawValue]) -> String {
    let mut json = String::with_capacity(texts.iter().map(|text| text.get().len() + 1).sum());
    for (n, text) in texts.iter().enumerate() {
        if n > 0 {
            json.push(',');
        }
        json.push_str(text.get());
    }
    json
}

fn rooms(field: &str, namespace: &str, names: &[Cow<'_, str>]) -> Result<Vec<Room>, Wrong> {
    let room = |name: &Cow<'_, str>| {
        Room::new(namespace, name).map_err(|error| format!("a room in {field:?}: {error}"))
    };
    names.iter().map(room).collect()
}

/// Returns an error of the parser as a short text.
fn shown(error: &serde_json::Error) -> String {
    error.to_string().chars().take(200).collect()
}
