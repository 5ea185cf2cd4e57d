//! Commands for sessions: `POST /api/v1/emit`, `/join`, `/leave`, `/disconnect` and `/sessions` (which
//! returns a list).
//!
//! A command's body is one JSON object. Fields that select sessions are the same for all commands; other
//! fields are specific:
//!
//! | field | type | |
//! |---|---|---|
//! | `app` | string | sockets of this application, whose clients are served by workers |
//! | `namespace` | string | default `/` |
//! | `rooms` | array of strings | the members of any of these rooms; a session's id names the session |
//! | `sessions` | array of strings | sessions by id |
//! | `except` | `{"rooms": […], "sessions": […]}` | but not these |
//!
//! Without `rooms` and `sessions`, a command applies to all sockets of the namespace, which is then required.
//! Unlike elsewhere, unknown fields are refused: a misspelled `rooms` would disconnect all sockets.
//! docs/socketio.md describes the commands for users.

use super::acknowledged::{self, Ack};
use super::body::{Held, discard, media_type, read_whole};
use super::publish::{ask, content, given, in_line, too_long};
use super::{Refusal, State, json, reason};
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use stentor_hub::{ROOM_BYTES_MAX, Rooms};
use stentor_json::without_byte_order_mark;
use stentor_ports::{Command, Concerned, Done, LinkApp, PublicId, Target};

/// Maximum number of rooms and sessions in a command.
pub(super) const NAMES_MAX: usize = 1_000;
/// Default number of entries in a list.
pub(super) const LISTED: usize = 100;

type Names<'a> = Vec<Cow<'a, str>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request<'a> {
    #[serde(borrow, default)]
    app: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    rooms: Option<Names<'a>>,
    #[serde(borrow, default)]
    sessions: Option<Names<'a>>,
    #[serde(borrow, default)]
    except: Except<'a>,
    #[serde(borrow, default)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "given")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    args: Option<Vec<&'a RawValue>>,
    volatile: Option<bool>,
    #[serde(borrow, default)]
    ack: Option<Ack<'a>>,
    #[serde(borrow, default)]
    join: Option<Names<'a>>,
    #[serde(borrow, default)]
    leave: Option<Names<'a>>,
    close: Option<bool>,
    pub(super) limit: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Except<'a> {
    #[serde(borrow, default)]
    rooms: Names<'a>,
    #[serde(borrow, default)]
    sessions: Names<'a>,
}

#[derive(Serialize)]
struct Answer {
    sessions: usize,
    #[serde(skip_serializing_if = "is_zero")]
    refused: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

pub(super) async fn emit(state: Shared<Arc<State>>, headers: HeaderMap, body: Body) -> Response<Body> {
    let fields = ["event", "data", "args", "volatile", "ack"];
    handle(state, headers, body, &fields, async |state, request: Request<'_>| {
        let (app, target) = (request.app(state)?, request.target()?);
        let (event, data) =
            content(request.event.as_deref(), request.data, request.args.as_deref()).map_err(bad)?;
        let volatile = request.volatile.unwrap_or(false);
        match &request.ack {
            Some(_) if volatile => Err(bad("\"volatile\" and \"ack\" exclude each other".into())),
            Some(ack) => {
                let submit = |command| submit(state, app, &target, command);
                acknowledged::emit(state, submit, (event, data), ack).await
            }
            None => {
                let emit = |done| Command::Emit { event: event.clone(), data: data.clone(), volatile, done };
                give(state, app, target, emit).await
            }
        }
    })
    .await
}

pub(super) async fn join(state: Shared<Arc<State>>, headers: HeaderMap, body: Body) -> Response<Body> {
    carry_out(state, headers, body, &["join"], |request| {
        let rooms = request.rooms_of("join", request.join.as_deref())?;
        Ok(move |done| Command::Join { rooms: rooms.clone(), done })
    })
    .await
}

pub(super) async fn leave(state: Shared<Arc<State>>, headers: HeaderMap, body: Body) -> Response<Body> {
    carry_out(state, headers, body, &["leave"], |request| {
        let rooms = request.rooms_of("leave", request.leave.as_deref())?;
        Ok(move |done| Command::Leave { rooms: rooms.clone(), done })
    })
    .await
}

pub(super) async fn disconnect(state: Shared<Arc<State>>, headers: HeaderMap, body: Body) -> Response<Body> {
    carry_out(state, headers, body, &["close"], |request| {
        let close = request.close.unwrap_or(false);
        Ok(move |done| Command::Disconnect { close, done })
    })
    .await
}

/// Executes a command that may have these specific fields. Responds with the number of affected sessions.
async fn carry_out<C: Fn(Done<Concerned>) -> Command>(
    state: Shared<Arc<State>>,
    headers: HeaderMap,
    body: Body,
    fields: &[&str],
    command: impl FnOnce(&Request<'_>) -> Result<C, Refusal>,
) -> Response<Body> {
    handle(state, headers, body, fields, async |state, request: Request<'_>| {
        let (app, target, command) = (request.app(state)?, request.target()?, command(&request)?);
        give(state, app, target, command).await
    })
    .await
}

/// Gives the data plane a command. Responds with the number of affected sessions.
async fn give(
    state: &State,
    app: Option<LinkApp>,
    target: Target,
    command: impl Fn(Done<Concerned>) -> Command,
) -> Result<Response<Body>, Refusal> {
    let give = |done| submit(state, app, &target, command(done));
    let Concerned { sessions, refused, missing_nodes } = ask(state, give).await?;
    Ok(json(StatusCode::OK, &Answer { sessions, refused, missing_nodes }))
}

/// Gives the cores a command: for sockets of an application, or for sessions of the server.
pub(super) fn submit(state: &State, app: Option<LinkApp>, target: &Target, command: Command) {
    let commands = &state.data_plane.commands;
    match app {
        Some(app) => commands.command_link(app, target.clone(), command),
        None => commands.command(target.clone(), command),
    }
}

/// The application with this name, whose clients are served by workers.
pub(super) fn app_of(state: &State, name: &str) -> Result<LinkApp, Refusal> {
    let found = state.services.links.as_ref().and_then(|links| links.find(name));
    found.ok_or_else(|| bad(format!("there is no [[links]] with the app {name:?}")))
}

/// Reads and executes a command that may have these specific fields.
pub(super) async fn handle(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Body,
    fields: &[&str],
    command: impl AsyncFnOnce(&State, Request<'_>) -> Result<Response<Body>, Refusal>,
) -> Response<Body> {
    let done = async {
        let mut held = read(&state, &headers, body).await?;
        let request: Request<'_> = parse(&mut held, "a command")?;
        request.allow(fields)?;
        command(&state, request).await
    };
    done.await.unwrap_or_else(|refusal| refuse(&state, refusal))
}

pub(super) fn refuse(state: &State, refusal: Refusal) -> Response<Body> {
    refusal.count(&state.metrics.admin_refusals, reason::refusals());
    refusal.into_response()
}

/// Reads a command's body. Charges it twice, because the parsed command is a copy. The rest of a refused body is discarded.
async fn read(state: &State, headers: &HeaderMap, mut body: Body) -> Result<Held, Refusal> {
    let read = async {
        if media_type(headers) != "application/json" {
            return Err(Refusal::new(reason::NOT_JSON, "Content-Type must be application/json"));
        }
        let bytes_max = state.options.load().message_bytes_max;
        let held = read_whole(state, &mut body, bytes_max, too_long).await?;
        held.hold_copy()?;
        Ok(held)
    };
    let read = read.await;
    if let Err(refusal) = &read {
        discard(body, refusal).await;
    }
    read
}

/// Parses a body of one JSON object. `what` is the subject of the error for JSON that isn't an object.
fn parse<'a, T: Deserialize<'a>>(body: &'a mut Held, what: &str) -> Result<T, Refusal> {
    let text = std::str::from_utf8(without_byte_order_mark(body.whole()));
    let text = text.map_err(|error| bad(format!("not UTF-8: {error}")))?;
    // Serde would also accept an array of the fields' values.
    if !text.trim_start().starts_with('{') {
        return Err(bad(format!("{what} must be a JSON object")));
    }
    serde_json::from_str(text).map_err(|error| bad(in_line(&error)))
}

/// Reads a body of one JSON object, with its charge. `what` is as in [`parse`].
pub(super) async fn object<T: DeserializeOwned>(
    state: &State,
    headers: &HeaderMap,
    body: Body,
    what: &str,
) -> Result<(T, Held), Refusal> {
    let mut held = read(state, headers, body).await?;
    Ok((parse(&mut held, what)?, held))
}

pub(super) fn bad(message: String) -> Refusal {
    Refusal::new(reason::COMMAND, message)
}

impl Request<'_> {
    /// Refuses fields that belong to other commands.
    fn allow(&self, fields: &[&str]) -> Result<(), Refusal> {
        let given = [
            ("event", self.event.is_some()),
            ("data", self.data.is_some()),
            ("args", self.args.is_some()),
            ("volatile", self.volatile.is_some()),
            ("ack", self.ack.is_some()),
            ("join", self.join.is_some()),
            ("leave", self.leave.is_some()),
            ("close", self.close.is_some()),
            ("limit", self.limit.is_some()),
        ];
        match given.into_iter().find(|(name, given)| *given && !fields.contains(name)) {
            Some((name, _)) => Err(bad(format!("field `{name}` has no meaning for this command"))),
            None => Ok(()),
        }
    }

    pub(super) fn app(&self, state: &State) -> Result<Option<LinkApp>, Refusal> {
        self.app.as_deref().map(|name| app_of(state, name)).transpose()
    }

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("/")
    }

    pub(super) fn target(&self) -> Result<Target, Refusal> {
        let named = [&self.rooms, &self.sessions].map(|names| names.as_deref().unwrap_or_default());
        let except = [&self.except.rooms, &self.except.sessions];
        let names = named.iter().map(|names| names.len()).sum::<usize>()
            + except.iter().map(|names| names.len()).sum::<usize>();
        if names > NAMES_MAX {
            return Err(bad(format!("a command can name at most {NAMES_MAX} rooms and sessions")));
        }
        let bad_room = |error: stentor_hub::RoomError| bad(error.to_string());
        let mut target = Target::of(self.namespace())
            .map_err(|_| bad(format!("a namespace has 1 to {ROOM_BYTES_MAX} bytes")))?;
        match (&self.namespace, &self.rooms, &self.sessions) {
            (Some(_), None, None) => target = target.everybody(),
            (None, None, None) => {
                return Err(bad("\"rooms\", \"sessions\" or \"namespace\" is missing".into()));
            }
            // An empty list selects no sessions, while a missing list selects all sockets.
            _ if named.iter().all(|names| names.is_empty()) => {
                return Err(bad("\"rooms\" and \"sessions\" are empty".into()));
            }
            _ => {}
        }
        // A worker's socket is the only member of the room with its id.
        let is_room = self.app.is_some();
        let session = |name: &str| if is_room { None } else { PublicId::parse_issued(name) };
        for name in named[0] {
            target = match session(name) {
                Some(id) => target.session(id),
                None => target.room(name).map_err(bad_room)?,
            };
        }
        for name in except[0] {
            target = match session(name) {
                Some(id) => target.except_session(id),
                None => target.except_room(name).map_err(bad_room)?,
            };
        }
        for id in named[1] {
            target =
                if is_room { target.room(id).map_err(bad_room)? } else { target.session(session_id(id)?) };
        }
        for id in except[1] {
            target = match is_room {
                true => target.except_room(id).map_err(bad_room)?,
                false => target.except_session(session_id(id)?),
            };
        }
        Ok(target)
    }

    /// Returns the rooms to join or leave. Refuses an empty or too long list.
    fn rooms_of(&self, field: &str, names: Option<&[Cow<'_, str>]>) -> Result<Rooms, Refusal> {
        let names = names.ok_or_else(|| bad(format!("missing field `{field}`")))?;
        if names.is_empty() || names.len() > NAMES_MAX {
            return Err(bad(format!("\"{field}\" must name 1 to {NAMES_MAX} rooms")));
        }
        Rooms::new(self.namespace(), names.iter().map(|name| &**name)).map_err(|error| bad(error.to_string()))
    }
}

pub(super) fn session_id(text: &str) -> Result<PublicId, Refusal> {
    PublicId::parse(text).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        bad(format!("{shown:?} is no session id"))
    })
}

pub(super) fn check_limit(limit: usize, max: usize) -> Result<usize, Refusal> {
    if limit > max { Err(bad(format!("\"limit\" is at most {max}"))) } else { Ok(limit) }
}
