//! Parses responses as docs/hooks.md, "Answers", describes them. An answer in any other form fails its
//! question, but no other question.

use super::direct::Direct;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use stentor_auth::{Attributes, GRANTS_CLAIM, Rule};
use stentor_hub::{Data, Room, Rooms};
use stentor_json::{DEPTH_MAX, depth, minify, without_byte_order_mark};
use stentor_ports::{Denial, EventEmit, EventReply, PublicId, Recipients, Target};

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
    allow: Option<bool>,
    #[serde(borrow, default)]
    code: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(default)]
    retry: bool,
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
    #[serde(default)]
    volatile: bool,
}

/// The client that an answer is about.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) namespace: &'a str,
    /// The client's session. `None` before it is open.
    pub(super) session: Option<PublicId>,
    /// Makes the counter of a message to rooms only, by the message's event.
    pub(super) recipients: &'a dyn Fn(&Arc<str>) -> Recipients,
}

/// The messages of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Emits {
    /// Messages to the client and to rooms.
    pub(super) emit: Vec<EventEmit>,
    /// Messages to other sessions.
    pub(super) direct: Vec<Direct>,
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
    pub(super) emits: Emits,
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
pub(super) fn admission(text: &str, scope: Scope<'_>) -> Result<Result<Admission, Denial>, Wrong> {
    let answer = Answer::parse(text)?;
    if let Some(denial) = answer.denial(None)? {
        return Ok(Err(denial));
    }
    let join = rooms("join", scope.namespace, answer.join.iter().map(|name| &**name))?;
    let info = answer.info.map(|info| Arc::from(info.get()));
    let permissions = answer.permissions.map_or_else(|| Ok(Vec::new()), permissions)?;
    let emits = emits(&answer.emit, scope)?;
    Ok(Ok(Admission { user: answer.user.map(Arc::from), info, join, permissions, emits }))
}

/// Parses permissions. They have the form of a token's grants.
fn permissions(list: &RawValue) -> Result<Vec<Rule>, Wrong> {
    let claims = format!("{{\"{GRANTS_CLAIM}\":{{\"allow\":{list}}}}}");
    let grants = Attributes::parse(&claims).map_err(str::to_owned).and_then(|claims| claims.grants());
    grants.map_err(|error| format!("\"permissions\": {error}"))
}

/// Parses the answer to an event of a client. Also returns the messages to other sessions.
pub(super) fn reply(
    text: &str,
    scope: Scope<'_>,
) -> Result<Result<(EventReply, Vec<Direct>), Denial>, Wrong> {
    let answer = Answer::parse(text)?;
    if let Some(denial) = answer.denial(Some(true))? {
        return Ok(Err(denial));
    }
    let Emits { emit, direct } = emits(&answer.emit, scope)?;
    let reply = EventReply {
        leave: rooms("leave", scope.namespace, answer.leave.iter().map(|name| &**name))?,
        join: rooms("join", scope.namespace, answer.join.iter().map(|name| &**name))?,
        ack: joined(&answer.ack),
        emit,
        disconnect: answer.disconnect,
    };
    Ok(Ok((reply, direct)))
}

fn emits(list: &[Emit<'_>], scope: Scope<'_>) -> Result<Emits, Wrong> {
    let mut emits = Emits::default();
    list.iter().try_for_each(|emit| emit.parse(scope, &mut emits))?;
    Ok(emits)
}

impl Emit<'_> {
    /// Parses the message and adds it to `emits`: once for the client, once for the rooms, once for other sessions, as far as
    /// the message names them.
    fn parse(&self, scope: Scope<'_>, emits: &mut Emits) -> Result<(), Wrong> {
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
        let session = |name: &Cow<'_, str>| PublicId::parse_issued(name);
        let (sessions, names): (Vec<_>, Vec<_>) =
            self.rooms.iter().map(|name| (session(name), name)).partition(|(session, _)| session.is_some());
        let mut list = rooms("rooms", scope.namespace, names.iter().map(|(_, name)| &***name))?;
        let all_members = Room::all_members(scope.namespace).map_err(|error| error.to_string())?;
        if self.all {
            list.push(all_members.clone());
        }
        let mut sessions: Vec<PublicId> = sessions.into_iter().filter_map(|(session, _)| session).collect();
        let names_client = scope.session.is_some_and(|own| sessions.contains(&own));
        let has_no_target = self.rooms.is_empty() && !self.all;
        let is_for_client = has_no_target || (names_client && !self.except_sender);
        sessions.retain(|session| Some(*session) != scope.session);
        sessions.sort_unstable();
        sessions.dedup();
        let event: Arc<str> = Arc::from(&*self.event);
        let message = |rooms, except_sender| EventEmit {
            rooms,
            except_sender,
            volatile: self.volatile,
            event: Some(event.clone()),
            data: data.clone(),
            recipients: Recipients::default(),
        };
        if is_for_client {
            emits.emit.push(message(None, self.except_sender));
        }
        // A message that is sent in several parts isn't counted, because one part may have recipients when another has none.
        let is_counted = !is_for_client && (sessions.is_empty() || list.is_empty());
        if let Ok(rooms) = Rooms::try_from(list.clone()) {
            // The client has its own copy.
            let mut message = message(Some(rooms), self.except_sender || names_client);
            if is_counted {
                message.recipients = (scope.recipients)(&event);
            }
            emits.emit.push(message);
        }
        if !sessions.is_empty() {
            let target = Target::of_rooms(all_members, Vec::new(), list);
            let target = sessions.into_iter().fold(target, Target::session);
            emits.direct.push(Direct { target, event, data, volatile: self.volatile, is_counted });
        }
        Ok(())
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

fn rooms<'a>(
    field: &str,
    namespace: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Room>, Wrong> {
    let room =
        |name: &str| Room::new(namespace, name).map_err(|error| format!("a room in {field:?}: {error}"));
    names.into_iter().map(room).collect()
}

/// Returns an error of the parser as a short text.
fn shown(error: &serde_json::Error) -> String {
    error.to_string().chars().take(200).collect()
}
