//! Presence for clients. docs/protocol.md and docs/socketio.md are the definition.

use super::actions::Sent;
use super::effect::{Effect, ToSession};
use super::questions::Steps;
use super::refused::no_presence;
use super::scalar::scalar;
use super::{Arguments, Context, Decided, NotSubscribed, Refused};
use crate::encode::{json_error_text, json_string};
use crate::ports::{Access, Denial, MemberList, MembersQuery, PublicId};
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt::Write;
use stentor_hub::{MEMBERS_LISTED_MAX, Policy, PresenceNotice, Room, RoomMember, SessionId, Topic};

/// Maximum size of an `id` that an answer repeats, in bytes of JSON.
const ID_BYTES_MAX: usize = 256;
/// Default number of members in a page.
const PAGE: usize = 100;

/// The form of a later answer to a client.
#[derive(Clone, Debug)]
pub enum PresenceReply {
    /// A message of `stentor.v1`, with this `id` (JSON) if the client named one.
    Message(Option<String>),
    /// The acknowledgement of an event, with this number.
    Ack(u64),
}

/// A request of a client about the members of a room.
pub(super) struct AboutMembers {
    pub(super) room: Room,
    /// `true` starts notices of joins and leaves, `false` stops them. `None` changes nothing.
    pub(super) watches: Option<bool>,
    /// The list that the client requests. `None` if it requests none.
    pub(super) list: Option<ListMembers>,
}

/// A list of members that a client requests.
pub(super) struct ListMembers {
    /// `true` if the client requests the members, `false` if it requests only their number.
    with_members: bool,
    query: MembersQuery,
    /// The form of the later answer.
    reply: PresenceReply,
}

fn refused(code: &'static str, message: impl Into<Cow<'static, str>>) -> Denial {
    Denial::new(code, message)
}

impl ListMembers {
    /// A page of `room`'s members.
    pub(super) fn new(room: Room, page: &Page<'_>, reply: PresenceReply) -> Result<Self, Denial> {
        let bad = || refused("bad_request", "\"after\" is the session of a member, or \"next\" of an answer");
        let after = page.after.as_deref().map(|after| PublicId::parse(after).ok_or_else(bad)).transpose()?;
        let with_members = page.members.unwrap_or(true);
        let limit = match (with_members, page.limit) {
            (false, _) => 0,
            (true, limit) => limit.map_or(PAGE, |limit| usize::try_from(limit).unwrap_or(PAGE)),
        };
        let query = MembersQuery { room, after, limit: limit.min(MEMBERS_LISTED_MAX) };
        Ok(Self { with_members, query, reply })
    }
}

impl Steps for AboutMembers {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        mut decided: Option<Decided>,
    ) -> Result<bool, Refused> {
        let topic = Topic::Room(self.room.clone());
        if let Some(watches) = self.watches {
            if watches {
                if !ctx.hub.has_presence(&self.room) {
                    return Err(Refused::Denied(no_presence()));
                }
                ctx.authorize(session, Access::Presence(&topic), decided.take())?;
            }
            ctx.watch(session, &self.room, watches).map_err(Refused::Denied)?;
            self.watches = None;
        }
        let Some(list) = &self.list else { return Ok(true) };
        // A member of the room needs no permission to learn the number of members.
        if list.with_members || !ctx.hub.has_joined(session, &self.room) {
            ctx.authorize(session, Access::Presence(&topic), decided.take())?;
        }
        let for_watcher = ctx.hub.is_subscribed(session, &Topic::Presence(self.room.clone()));
        let (query, reply) = (list.query.clone(), list.reply.clone());
        let list = ToSession::ListMembers { query, for_watcher, reply };
        ctx.effects.push(Effect::Session(session, list));
        Ok(false)
    }
}

impl Context<'_> {
    /// Starts or stops notices of joins and leaves of a room for a session. The permission has been checked.
    pub(super) fn watch(&mut self, session: SessionId, room: &Room, watches: bool) -> Result<(), Denial> {
        let topic = Topic::Presence(room.clone());
        if !watches {
            self.hub.handle_unsubscribe(session, &topic);
            return Ok(());
        }
        let watched = self.hub.handle_subscribe(session, &topic, Policy::Queue, None);
        watched.map_err(|error| NotSubscribed::Limit(error).into_denial())
    }

    /// `emit("stentor:presence", room[, {subscribe, members, after, limit}], ack)`.
    pub(super) fn presence_event(
        &self,
        session: SessionId,
        arguments: Arguments<'_>,
        ack: Option<u64>,
    ) -> Result<AboutMembers, Denial> {
        let name = arguments.iter().next().and_then(stentor_json::string);
        let name =
            name.ok_or_else(|| refused("bad_request", "the first argument is the room's name, a string"))?;
        let room = Room::new(self.namespace().unwrap_or("/"), &name);
        let room = room.map_err(|error| refused("bad_room", error.to_string()))?;
        let options = arguments.iter().nth(1).filter(|options| options.starts_with('{')).unwrap_or("{}");
        let bad = |error: serde_json::Error| refused("bad_request", format!("the second argument: {error}"));
        let EventOptions { subscribe: watches } = serde_json::from_str(options).map_err(bad)?;
        let page: Page<'_> = serde_json::from_str(options).map_err(bad)?;
        if watches == Some(true) && !self.hub.has_joined(session, &room) {
            let message = "only members of a room are notified of who joins and leaves it";
            return Err(refused("not_allowed", message));
        }
        let list = match ack.map(PresenceReply::Ack) {
            Some(reply) => Some(ListMembers::new(room.clone(), &page, reply)?),
            None => None,
        };
        Ok(AboutMembers { room, watches, list })
    }
}

/// A request of a Socket.IO client.
#[derive(Deserialize)]
struct EventOptions {
    #[serde(default, deserialize_with = "scalar")]
    subscribe: Option<bool>,
}

/// The part of a list that a client requests.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    /// `false` requests only the number of members.
    #[serde(default, deserialize_with = "scalar")]
    members: Option<bool>,
    /// The member before the first one.
    #[serde(borrow, default)]
    after: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "scalar")]
    limit: Option<u64>,
}

fn push_json(out: &mut String, text: &str) {
    out.push_str(&String::from_utf8(json_string(text)).unwrap_or_default());
}

/// Writes the JSON members for a member of a room, without braces: `"session":…` and public information.
fn write_member(out: &mut String, member: &RoomMember) {
    // No character of an id needs escaping in JSON. Writing to a string can't fail.
    let _ = write!(out, r#""session":"{}""#, PublicId::from(member.id));
    if let Some(user) = &member.user {
        out.push_str(r#","user":"#);
        push_json(out, &user.subject);
    }
}

fn write_whole_member(out: &mut String, member: &RoomMember) {
    write_member(out, member);
    if let Some(info) = &member.info {
        let _ = write!(out, r#","info":{info}"#);
    }
    let _ = write!(out, r#","since":{}"#, member.since_ms);
}

/// Writes a list of members. `each` writes further fields of a member.
fn write_members<'a, T: 'a>(
    out: &mut String,
    all: impl IntoIterator<Item = &'a T>,
    each: impl Fn(&mut String, &T),
) {
    out.push('[');
    for (n, one) in all.into_iter().enumerate() {
        out.push_str(if n == 0 { "{" } else { ",{" });
        each(out, one);
        out.push('}');
    }
    out.push(']');
}

/// Returns a notice as a message of `stentor.v1`. The same text is the argument of the Socket.IO event.
pub(crate) fn write_notice(notice: &PresenceNotice) -> String {
    let PresenceNotice { room, version, joined, replaced, left, more, count } = notice;
    let mut out = String::from(r#"{"type":"presence","room":"#);
    push_json(&mut out, room.name());
    let _ = write!(out, r#","version":{version},"count":{count},"joined":"#);
    write_members(&mut out, joined, |out, member| write_whole_member(out, member));
    out.push_str(r#","left":"#);
    write_members(&mut out, left, |out, member| write_member(out, member));
    if !replaced.is_empty() {
        out.push_str(r#","replaced":"#);
        write_members(&mut out, replaced, |out, (member, before)| {
            write_whole_member(out, member);
            let _ = write!(out, r#","replaces":"{}""#, PublicId::from(*before));
        });
    }
    if *more > 0 {
        let _ = write!(out, r#","more":{more}"#);
    }
    out.push('}');
    out
}

/// Returns the answer to a client with the members of a room.
pub(crate) fn members_reply(
    reply: &PresenceReply,
    room: &Room,
    list: &MemberList,
    has_presence: bool,
) -> Sent {
    let MemberList { members, has_more, count, version, missing_nodes } = list;
    let mut out = String::from(r#","room":"#);
    push_json(&mut out, room.name());
    let _ = write!(out, r#","count":{count}"#);
    if has_presence {
        out.push_str(r#","members":"#);
        write_members(&mut out, members, |out, member| write_whole_member(out, member));
    }
    if let (true, Some(last)) = (has_more, members.last()) {
        let _ = write!(out, r#","next":"{}""#, PublicId::from(last.id));
    }
    if let Some(version) = version {
        let _ = write!(out, r#","version":{version}"#);
    }
    if !missing_nodes.is_empty() {
        out.push_str(r#","incomplete":true"#);
    }
    match reply {
        PresenceReply::Message(id) => Sent::Text(answer_text("presence", id.as_deref(), &out)),
        PresenceReply::Ack(number) => {
            Sent::Ack { number: *number, json: format!(r#"{{"ok":true{out}}}"#), attachments: Vec::new() }
        }
    }
}

/// Returns the answer to a client whose list of members didn't arrive in time.
pub(crate) fn error_reply(reply: &PresenceReply) -> Sent {
    let denial = Denial::UNAVAILABLE;
    match reply {
        PresenceReply::Message(id) => {
            let [code, message] = [&denial.code, &denial.message].map(|text| json_error_text(text));
            let rest = format!(r#","code":{code},"message":{message},"retry":true"#);
            Sent::Text(answer_text("error", id.as_deref(), &rest))
        }
        PresenceReply::Ack(number) => {
            Sent::Ack { number: *number, json: super::rules::failed(&denial), attachments: Vec::new() }
        }
    }
}

/// Returns `{"type":TYPE[,"id":ID]` followed by `rest`. The id is JSON.
pub(super) fn answer_text(kind: &str, id: Option<&str>, rest: &str) -> String {
    match id.filter(|id| id.len() <= ID_BYTES_MAX) {
        Some(id) => [r#"{"type":""#, kind, r#"","id":"#, id, rest, "}"].concat(),
        None => [r#"{"type":""#, kind, "\"", rest, "}"].concat(),
    }
}
