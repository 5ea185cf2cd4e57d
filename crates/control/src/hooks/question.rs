//! Writes questions (docs/hooks.md, "Requests"). Data of the transport, data that a token or hook has
//! confirmed, and the client's own data are separate objects, so that the backend can't mistake a client's
//! header or argument for a verified fact.

use super::options::HookKind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;
use stentor_hub::Topic;
use stentor_json::{replace_lone_surrogates, write_string};
use stentor_ports::{ClientEvent, ClientFacts, Identity, SessionRooms};

/// The transport's data about a session.
#[derive(Clone, Copy, Default)]
pub(super) struct Connection<'a> {
    pub(super) session: Option<&'a str>,
    pub(super) protocol: Option<&'a str>,
    pub(super) namespace: Option<&'a str>,
    pub(super) address: Option<&'a str>,
    /// The session's rooms, and how many of them the hook receives.
    pub(super) rooms: Option<(&'a SessionRooms, usize)>,
}

/// The subject of a notice.
#[derive(Clone, Copy)]
pub(super) enum About<'a> {
    Session(Connection<'a>, Option<&'a Identity>, Option<&'a Topic>),
    Topic(&'a Topic),
    Node(&'a str),
}

/// A JSON object that is being written. It begins with members, so each further member is written after a
/// comma.
struct Object(Vec<u8>);

impl Object {
    fn begin(id: u64, kind: HookKind) -> Self {
        Self::with(&format!("{{\"id\":{id},\"hook\":\"{}\"", kind.name()))
    }

    fn notice(kind: HookKind, at_ms: u64) -> Self {
        Self::with(&format!("{{\"notice\":\"{}\",\"at_ms\":{at_ms}", kind.name()))
    }

    fn with(begin: &str) -> Self {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(begin.as_bytes());
        Self(out)
    }

    fn topic(&mut self, topic: &Topic) {
        match topic {
            Topic::Room(room) | Topic::Presence(room) => self.text("room", room.name()),
            Topic::Feed(key) => self.text("feed", key.as_str()),
        }
    }

    /// Writes the topic with its namespace.
    fn occupied(&mut self, topic: &Topic) {
        if let Topic::Room(room) = topic {
            self.text("namespace", room.namespace());
        }
        self.topic(topic);
    }

    fn raw(&mut self, name: &str, json: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        self.0.extend_from_slice(json.as_bytes());
    }

    fn text(&mut self, name: &str, text: &str) {
        self.raw(name, "");
        write_string(&mut self.0, text);
    }

    /// Writes an object with the texts that are present.
    fn texts(&mut self, name: &str, texts: &[(&str, Option<&str>)]) {
        self.raw(name, "{");
        let mut is_first = true;
        for (name, text) in texts {
            let Some(text) = text else { continue };
            if !std::mem::replace(&mut is_first, false) {
                self.0.push(b',');
            }
            write_string(&mut self.0, name);
            self.0.push(b':');
            write_string(&mut self.0, text);
        }
        self.0.push(b'}');
    }

    fn connection(&mut self, connection: Connection<'_>) {
        let Connection { session, protocol, namespace, address, rooms } = connection;
        let texts =
            [("session", session), ("protocol", protocol), ("namespace", namespace), ("address", address)];
        self.texts("connection", &texts);
        if let Some((rooms, count_max)) = rooms.filter(|(_, count_max)| *count_max > 0) {
            // Continues the object.
            self.0.pop();
            self.rooms(rooms, count_max);
            self.0.push(b'}');
        }
    }

    fn rooms(&mut self, SessionRooms { names, is_truncated }: &SessionRooms, count_max: usize) {
        self.raw("rooms", "[");
        for (n, name) in names.iter().take(count_max).enumerate() {
            if n > 0 {
                self.0.push(b',');
            }
            write_string(&mut self.0, name);
        }
        self.0.push(b']');
        if *is_truncated || names.len() > count_max {
            self.raw("more_rooms", "true");
        }
    }

    /// Writes the user. `null` for an anonymous client.
    fn user(&mut self, identity: Option<&Identity>) {
        let principal = identity.and_then(|identity| identity.principal.as_ref());
        match principal {
            None => self.raw("user", "null"),
            Some(principal) => {
                let texts = [("id", Some(&*principal.subject)), ("issuer", Some(&*principal.issuer))];
                self.texts("user", &texts);
            }
        }
        if let Some(info) = identity.and_then(|identity| identity.info.as_deref()) {
            self.raw("info", info);
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        // If a client's JSON had lone surrogates, which a backend may not parse, the questions of other
        // clients in the request would fail too.
        replace_lone_surrogates(&mut self.0);
        self.0
    }
}

/// Writes a question about a client's event.
pub(super) fn event(id: u64, event: &ClientEvent<'_>, rooms_max: usize) -> Vec<u8> {
    let ClientEvent {
        session,
        identity,
        protocol,
        address,
        namespace,
        name,
        arguments,
        rooms,
        wants_ack,
        ..
    } = *event;
    let mut object = Object::begin(id, HookKind::Event);
    let session = session.to_string();
    object.connection(Connection {
        session: Some(&session),
        protocol: Some(protocol),
        namespace: Some(namespace),
        address,
        rooms: Some((rooms, rooms_max)),
    });
    object.user(identity);
    object.text("event", name);
    object.raw("arguments", "[");
    object.0.extend_from_slice(arguments.json.as_bytes());
    object.0.push(b']');
    if !arguments.attachments.is_empty() {
        let mut list = String::from("[");
        for (n, attachment) in arguments.attachments.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            let _ = write!(list, "{comma}\"{}\"", STANDARD.encode(attachment));
        }
        list.push(']');
        object.raw("attachments", &list);
    }
    object.raw("acknowledge", if wants_ack { "true" } else { "false" });
    object.end()
}

/// Writes a question about a client that wants to subscribe or publish to a topic.
pub(super) fn access(
    id: u64,
    kind: HookKind,
    connection: Connection<'_>,
    identity: Option<&Identity>,
    topic: &Topic,
) -> Vec<u8> {
    let mut object = Object::begin(id, kind);
    object.connection(connection);
    object.user(identity);
    object.topic(topic);
    object.end()
}

/// Writes a notice without its number. The time is in milliseconds since 1970.
pub(super) fn notice(kind: HookKind, at_ms: u64, about: &About<'_>) -> Vec<u8> {
    let mut object = Object::notice(kind, at_ms);
    match *about {
        About::Session(connection, identity, topic) => {
            object.connection(connection);
            object.user(identity);
            topic.into_iter().for_each(|topic| object.topic(topic));
        }
        About::Topic(topic) => object.occupied(topic),
        About::Node(id) => object.text("lost_node", id),
    }
    object.end()
}

/// Writes a page of the list of occupied topics. `rooms` is a JSON array.
pub(super) fn page(at_ms: u64, id: u64, page: u64, is_last: bool, rooms: &[u8]) -> Vec<u8> {
    let mut object = Object::notice(HookKind::Resync, at_ms);
    object.raw("id", &id.to_string());
    object.raw("page", &page.to_string());
    object.raw("last", if is_last { "true" } else { "false" });
    object.raw("rooms", "");
    object.0.extend_from_slice(rooms);
    object.end()
}

/// Writes an occupied topic in a page.
pub(super) fn occupied(topic: &Topic) -> Vec<u8> {
    let mut object = Object::with("{");
    object.occupied(topic);
    // Removes the comma before the first member.
    object.0.remove(1);
    object.end()
}

/// Writes a question about a client that wants to connect. `session` is the id of the session that it will have.
pub(super) fn connect(
    id: u64,
    session: Option<&str>,
    client: &ClientFacts<'_>,
    token: Option<&str>,
    identity: Option<&Identity>,
) -> Vec<u8> {
    let ClientFacts { address, protocol, namespace, origin, user_agent, traceparent } = *client;
    let mut object = Object::begin(id, HookKind::Connect);
    let address = address.map(|address| address.to_string());
    object.connection(Connection {
        session,
        protocol: Some(protocol),
        namespace,
        address: address.as_deref(),
        rooms: None,
    });
    object.user(identity);
    let claimed =
        [("origin", origin), ("user_agent", user_agent), ("traceparent", traceparent), ("token", token)];
    object.texts("client", &claimed);
    object.end()
}
