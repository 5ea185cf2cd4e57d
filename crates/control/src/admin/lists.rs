//! Lists of rooms, of members of rooms, and of sessions.

use super::commands::{LISTED, Request, app_of, check_limit, handle, refuse, session_id, submit};
use super::publish::ask;
use super::{Refusal, State, json, reason};
use crate::percent;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use stentor_hub::{MEMBERS_LISTED_MAX, ROOM_BYTES_MAX, Room, RoomMember};
use stentor_ports::{
    Command, EndedSession, MembersQuery, PublicId, ROOMS_LISTED_MAX, RoomsQuery, SESSIONS_LISTED_MAX,
    SessionApp, SessionEvent, SessionInfo, SessionList, SessionsQuery,
};

#[derive(Serialize)]
struct User {
    id: String,
    issuer: String,
}

/// A session, as shown in lists.
#[derive(Serialize)]
pub(super) struct Session {
    id: String,
    protocol: Cow<'static, str>,
    rooms: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<User>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    feeds: Vec<Subscribed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timeline: Vec<TimelineEvent>,
    send_buffer_bytes: usize,
}

/// A session that has ended.
#[derive(Serialize)]
struct Ended {
    id: String,
    protocol: Cow<'static, str>,
    address: String,
    since: u64,
    ended: u64,
    timeline: Vec<TimelineEvent>,
}

impl From<EndedSession> for Ended {
    fn from(EndedSession { id, protocol, address, since, ended, timeline }: EndedSession) -> Self {
        let timeline = timeline.into_iter().map(TimelineEvent::from).collect();
        Self { id, protocol, address, since, ended, timeline }
    }
}

/// A feed of a session.
#[derive(Serialize)]
struct Subscribed {
    key: Box<str>,
    offset: u64,
}

/// An event of a session.
#[derive(Serialize)]
struct TimelineEvent {
    event: Cow<'static, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: Cow<'static, str>,
    count: u32,
    first: u64,
    last: u64,
}

impl From<SessionEvent> for TimelineEvent {
    fn from(SessionEvent { name, reason, count, first, last }: SessionEvent) -> Self {
        Self { event: name, reason, count, first, last }
    }
}

impl Session {
    fn new(SessionInfo { id, protocol, rooms, details, .. }: SessionInfo, state: &State) -> Self {
        let app = details.app.and_then(|app| match app {
            SessionApp::Number(app) => state.services.links.as_ref()?.name(app),
            SessionApp::Name(name) => Some(name.to_string()),
        });
        let user = details.user;
        Self {
            id,
            protocol,
            rooms,
            node: details.node,
            app,
            namespace: details.namespace,
            user: user.map(|user| User { id: user.subject.to_string(), issuer: user.issuer.to_string() }),
            info: raw(details.info),
            address: details.address,
            since: details.since,
            transport: details.transport,
            feeds: details.feeds.into_iter().map(|(key, offset)| Subscribed { key, offset }).collect(),
            timeline: details.timeline.into_iter().map(TimelineEvent::from).collect(),
            send_buffer_bytes: details.send_buffer_bytes,
        }
    }
}

/// Returns the JSON unchanged.
fn raw(text: Option<Arc<str>>) -> Option<Box<RawValue>> {
    text.and_then(|text| serde_json::from_str(&text).ok())
}

#[derive(Serialize)]
struct Sessions {
    sessions: Vec<Session>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ended: Vec<Ended>,
    count: usize,
    truncated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<String>,
}

#[derive(Serialize)]
struct Rooms {
    rooms: Vec<ListedRoom>,
    /// The value of `after` in a request for the next page. `None` on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<String>,
}

#[derive(Serialize)]
struct ListedRoom {
    name: String,
    sessions: usize,
}

#[derive(Serialize)]
struct Members {
    members: Vec<Member>,
    count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<String>,
}

#[derive(Serialize)]
struct Member {
    session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<User>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Box<RawValue>>,
    since: u64,
}

impl From<&RoomMember> for Member {
    fn from(RoomMember { id, user, info, since_ms }: &RoomMember) -> Self {
        let user =
            user.as_ref().map(|user| User { id: user.subject.to_string(), issuer: user.issuer.to_string() });
        let session = PublicId::from(*id).to_string();
        Self { session, user, info: raw(info.clone()), since: since_ms / 1_000 }
    }
}

pub(super) async fn sessions(state: Shared<Arc<State>>, headers: HeaderMap, body: Body) -> Response<Body> {
    handle(state, headers, body, &["limit"], async |state, request: Request<'_>| {
        let (app, target) = (request.app(state)?, request.target()?);
        let limit = check_limit(request.limit.unwrap_or(LISTED), SESSIONS_LISTED_MAX)?;
        let give = |done| submit(state, app, &target, Command::Sessions { limit, done });
        Ok(sessions_response(state, ask(state, give).await?))
    })
    .await
}

/// Handles `GET /api/v1/sessions`.
pub(super) async fn node_sessions(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response<Body> {
    let listed = async {
        let query = sessions_query(uri.query().unwrap_or_default())?;
        let give = |done| state.data_plane.commands.list_sessions(query.clone(), done);
        Ok(sessions_response(&state, ask(&state, give).await?))
    };
    listed.await.unwrap_or_else(|refusal: Refusal| refuse(&state, refusal))
}

fn sessions_response(state: &State, list: SessionList) -> Response<Body> {
    let truncated = list.sessions.len() < list.count;
    let sessions = list.sessions.into_iter().map(|info| Session::new(info, state)).collect();
    let ended = list.ended.into_iter().map(Ended::from).collect();
    let (count, missing_nodes) = (list.count, list.missing_nodes);
    json(StatusCode::OK, &Sessions { sessions, ended, count, truncated, missing_nodes })
}

pub(super) async fn rooms(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response<Body> {
    let listed = async {
        let (app, query) = rooms_query(uri.query().unwrap_or_default())?;
        let app = app.map(|name| app_of(&state, &name)).transpose().map_err(|bad| refused(bad.message))?;
        let commands = &state.data_plane.commands;
        let give = |done| match app {
            Some(app) => commands.list_link_rooms(app, query.clone(), done),
            None => commands.list_rooms(query.clone(), done),
        };
        let list = ask(&state, give).await?;
        let next = list.rooms.last().filter(|_| list.truncated).map(|(name, _)| name.clone());
        let rooms = list.rooms.into_iter().map(|(name, sessions)| ListedRoom { name, sessions }).collect();
        Ok(json(StatusCode::OK, &Rooms { rooms, next, missing_nodes: list.missing_nodes }))
    };
    listed.await.unwrap_or_else(|refusal: Refusal| refuse(&state, refusal))
}

pub(super) async fn members(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response<Body> {
    let listed = async {
        let query = members_query(uri.query().unwrap_or_default())?;
        let list = ask(&state, |done| state.data_plane.commands.list_members(query.clone(), done)).await?;
        let members: Vec<Member> = list.members.iter().map(|member| Member::from(&**member)).collect();
        let next = members.last().filter(|_| list.has_more).map(|member| member.session.clone());
        let (count, missing_nodes) = (list.count, list.missing_nodes);
        Ok(json(StatusCode::OK, &Members { members, count, next, missing_nodes }))
    };
    listed.await.unwrap_or_else(|refusal: Refusal| refuse(&state, refusal))
}

pub(super) fn refused(message: String) -> Refusal {
    Refusal::new(reason::ROOMS_QUERY, message)
}

/// Iterates over the names and decoded values of a query's parameters.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = Result<(&str, String), Refusal>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // `+` is a space in a query.
        percent::decoded(&value.replace('+', " "))
            .filter(|value| value.len() <= ROOM_BYTES_MAX)
            .map(|value| (name, value))
            .ok_or_else(|| refused(format!("the value of {name:?} is not valid")))
    })
}

pub(super) fn limit(value: &str, max: usize) -> Result<usize, Refusal> {
    let limit = value.parse().ok().filter(|limit| (1..=max).contains(limit));
    limit.ok_or_else(|| refused(format!("limit is a number from 1 to {max}")))
}

/// Parses the query of `GET /api/v1/sessions`.
fn sessions_query(query: &str) -> Result<SessionsQuery, Refusal> {
    let mut asked = SessionsQuery { limit: LISTED, ..SessionsQuery::default() };
    for parameter in parameters(query) {
        match parameter? {
            ("search", value) => asked.search = value,
            ("user", value) => asked.user = Some(value),
            ("issuer", value) => asked.issuer = Some(value),
            ("address", value) => asked.address = Some(value),
            ("limit", value) => asked.limit = limit(&value, SESSIONS_LISTED_MAX)?,
            _ => {
                return Err(refused(
                    "known query parameters are search, user, issuer, address and limit".into(),
                ));
            }
        }
    }
    Ok(asked)
}

/// Parses the query of `GET /api/v1/rooms`.
fn rooms_query(query: &str) -> Result<(Option<String>, RoomsQuery), Refusal> {
    let mut app = None;
    let mut asked =
        RoomsQuery { namespace: "/".into(), prefix: String::new(), after: String::new(), limit: LISTED };
    for parameter in parameters(query) {
        match parameter? {
            ("app", value) => app = Some(value),
            ("namespace", value) => asked.namespace = value,
            ("prefix", value) => asked.prefix = value,
            ("after", value) => asked.after = value,
            ("limit", value) => asked.limit = limit(&value, ROOMS_LISTED_MAX)?,
            _ => {
                return Err(refused(
                    "known query parameters are app, namespace, prefix, after and limit".into(),
                ));
            }
        }
    }
    Ok((app, asked))
}

/// Parses the query of `GET /api/v1/rooms/members`.
fn members_query(query: &str) -> Result<MembersQuery, Refusal> {
    let (mut room, mut namespace) = (None, "/".to_owned());
    let (mut after, mut listed_max) = (None, LISTED);
    for parameter in parameters(query) {
        match parameter? {
            ("room", value) => room = Some(value),
            ("namespace", value) => namespace = value,
            ("after", value) => after = Some(session_id(&value).map_err(|bad| refused(bad.message))?),
            ("limit", value) => listed_max = limit(&value, MEMBERS_LISTED_MAX)?,
            _ => return Err(refused("known query parameters are room, namespace, after and limit".into())),
        }
    }
    let room = room.ok_or_else(|| refused("the query parameter room is missing".into()))?;
    let room = Room::all_members(&namespace).and_then(|all| all.sibling(&room));
    let room = room.map_err(|error| refused(error.to_string()))?;
    Ok(MembersQuery { room, after, limit: listed_max })
}
