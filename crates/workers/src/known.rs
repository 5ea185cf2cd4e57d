//! Handshake and sockets of each session, for OPEN and for the worker that resumes the session.
//!
//! The data plane has the sockets' ids and rooms. This table has the rest.

use crate::recovery::Brought;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use stentor_link::Json;
use stentor_ports::{LinkDescription, LinkHandshake, LinkHeaders, LinkQueued, LinkSession};

/// Maximum size of a socket's `data` in bytes.
const DATA_BYTES_MAX: usize = 64 << 10;
/// Maximum depth of a socket's `data` and state. RESUME nests them three levels deeper, and a JSON text of the link has at most 128.
const RESUMED_DEPTH_MAX: usize = 120;

/// Maximum number of questions to other nodes about the sockets of a session: a client could otherwise cause any number, each to all nodes. A
/// client shows a private id once in each namespace.
const SEARCHES_MAX: u8 = 32;

/// Bytes that a session or a socket needs beside its texts.
const ENTRY_BYTES: usize = 128;

/// Headers of which Node keeps the first value (`http.IncomingMessage.headers`).
const SINGLE_HEADERS: [&str; 19] = [
    "age",
    "authorization",
    "content-length",
    "content-type",
    "etag",
    "expires",
    "from",
    "host",
    "if-modified-since",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "proxy-authorization",
    "referer",
    "retry-after",
    "server",
    "set-cookie",
    "user-agent",
];

/// Approximate size of a handshake.
pub(crate) fn handshake_bytes(handshake: &LinkHandshake) -> usize {
    let pairs = handshake.headers.iter().chain(&handshake.query);
    size_of::<LinkHandshake>()
        + handshake.url.len()
        + pairs.map(|pair| size_of_val(pair) + pair.0.len() + pair.1.len()).sum::<usize>()
}

/// The headers of a request as Node has them: lower case, repeated ones joined.
fn joined(headers: &LinkHeaders) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        match all.get_mut(&name) {
            Some(Value::String(_)) if SINGLE_HEADERS.contains(&&*name) => {}
            Some(Value::String(text)) => {
                text.push_str(if name == "cookie" { "; " } else { ", " });
                text.push_str(value);
            }
            _ => _ = all.insert(name, Value::from(&**value)),
        }
    }
    all
}

/// The parameters of a query as Node has them: the values of a repeated one are a list.
fn listed(query: &LinkHeaders) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in query {
        let value = Value::from(&**value);
        match all.get_mut(&**name) {
            None => _ = all.insert((**name).to_owned(), value),
            Some(Value::Array(list)) => list.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    all
}

/// A socket of a session.
struct Socket {
    namespace: Arc<str>,
    pid: Box<str>,
    /// The object `{auth, time, issued}`.
    state: Json,
    data: Option<Json>,
    /// The end of the messages from the client's former nodes.
    brought: Option<Brought>,
}

impl Socket {
    fn bytes(&self) -> usize {
        let data = self.data.as_ref().map_or(0, |data| data.as_str().len());
        let last = self.brought.as_ref().map_or(0, |brought| brought.last.len());
        ENTRY_BYTES + self.pid.len() + self.state.as_str().len() + data + last
    }
}

/// A session of an application.
pub(crate) struct Known {
    /// Number of the application.
    pub(crate) app: usize,
    /// The handshake as a JSON object without `transport` and without the brace at its end.
    handshake: Box<str>,
    transport: &'static str,
    sockets: Vec<Socket>,
    /// Size of the session's messages that wait for its worker.
    pub(crate) queued: LinkQueued,
    /// `true` from a DISCONNECT of the client until its worker has removed a socket.
    is_leaving: bool,
    /// Number of questions to other nodes about sockets of the session.
    searches: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Handshake<'a> {
    sid: &'a str,
    protocol: u8,
    method: &'a str,
    url: &'a str,
    http_version: &'a str,
    headers: Map<String, Value>,
    query: Map<String, Value>,
    address: &'a str,
    port: u16,
    local_address: &'a str,
    local_port: u16,
    encrypted: bool,
}

#[derive(Serialize)]
struct Resumed<'a> {
    nsp: &'a str,
    id: &'a str,
    pid: &'a str,
    rooms: &'a [Box<str>],
    data: &'a RawValue,
    /// `true` if another worker has disconnected the socket, and the client hasn't been notified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disconnected: bool,
    #[serde(flatten)]
    state: Map<String, Value>,
}

impl Known {
    fn new(app: usize, handshake: &LinkHandshake) -> Self {
        let mut text = to_text(&Handshake {
            sid: &handshake.sid,
            protocol: handshake.protocol,
            method: &handshake.method,
            url: &handshake.url,
            http_version: handshake.http_version,
            headers: joined(&handshake.headers),
            query: listed(&handshake.query),
            address: &handshake.address,
            port: handshake.port,
            local_address: &handshake.local_address,
            local_port: handshake.local_port,
            encrypted: handshake.encrypted,
        });
        text.pop();
        let queued = handshake.queued.clone();
        let (transport, sockets) = (handshake.transport, Vec::new());
        Self { app, handshake: text.into(), transport, sockets, queued, is_leaving: false, searches: 0 }
    }

    /// The handshake for OPEN.
    fn handshake(&self) -> Json {
        json(format!(r#"{},"transport":"{}"}}"#, self.handshake, self.transport))
    }

    /// The text of RESUME. A socket that the data plane no longer has was disconnected while no worker could notify its client.
    /// The next worker notifies the client.
    pub(crate) fn resumed(&self, description: &LinkDescription) -> Json {
        let empty = RawValue::from_string("{}".into()).unwrap_or_default();
        let null = Json::new("null");
        let sockets = description.sockets.iter().map(|socket| {
            let known = self.sockets.iter().find(|known| known.namespace == socket.namespace);
            let state = known.map(|known| &known.state).or(null.as_ref());
            let state = state.and_then(|state| serde_json::from_str(state.as_str()).ok());
            let data = known.and_then(|known| known.data.as_ref());
            let data = data.and_then(|data| serde_json::from_str::<&RawValue>(data.as_str()).ok());
            Resumed {
                nsp: &socket.namespace,
                id: &socket.id,
                pid: known.map_or("", |known| &known.pid),
                rooms: &socket.rooms,
                data: data.unwrap_or(&empty),
                disconnected: false,
                state: state.unwrap_or_default(),
            }
        });
        let is_lost =
            |known: &&Socket| !description.sockets.iter().any(|found| found.namespace == known.namespace);
        let lost = self.sockets.iter().filter(is_lost).map(|known| Resumed {
            nsp: &known.namespace,
            id: "",
            pid: "",
            rooms: &[],
            data: &empty,
            disconnected: true,
            state: Map::new(),
        });
        let sockets = to_text(&sockets.chain(lost).collect::<Vec<_>>());
        let (transport, upgraded) = (self.transport, description.upgraded);
        let text = |sockets: &str| {
            let handshake = &self.handshake;
            format!(r#"{handshake},"transport":"{transport}","upgraded":{upgraded},"sockets":{sockets}}}"#)
        };
        json(text(&sockets))
    }

    /// The private id of a socket, its last data, and the end of the messages from its former nodes.
    ///
    /// `None` if the client has left a namespace, because the worker may not have handled that packet.
    pub(crate) fn kept(&self, namespace: &str) -> Option<(Box<str>, Json, Option<Brought>)> {
        let is_kept = |socket: &&Socket| *socket.namespace == *namespace && !self.is_leaving;
        let socket = self.sockets.iter().find(is_kept)?;
        let data = socket.data.clone().or_else(|| Json::new("{}"))?;
        Some((socket.pid.clone(), data, socket.brought.clone()))
    }

    /// The namespaces of the session's sockets.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.sockets.iter().map(|socket| &*socket.namespace)
    }

    pub(crate) fn upgrade(&mut self, transport: &'static str) {
        self.transport = transport;
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.handshake.len() + self.sockets.iter().map(Socket::bytes).sum::<usize>()
    }
}

/// The text of a request without a session.
pub(crate) fn request(handshake: &LinkHandshake) -> Json {
    Known::new(0, handshake).handshake()
}

/// Writes a value whose maps have texts as keys.
fn to_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns `true` if RESUME and RESTORED can have this text of a socket: RESUME nests it three levels deeper.
pub(crate) fn can_be_kept(text: &Json) -> bool {
    text.as_str().len() <= DATA_BYTES_MAX && text.depth() <= RESUMED_DEPTH_MAX
}

fn json(text: String) -> Json {
    Json::new(text).expect("serde writes JSON")
}

/// The sessions of all applications.
#[derive(Default)]
pub(crate) struct Sessions {
    known: HashMap<LinkSession, Known>,
    bytes: usize,
    /// Number of STATE, RELEASED and PERSIST whose data exceeded the bound.
    pub(crate) data_refused: u64,
}

impl Sessions {
    /// Adds a session. Returns the handshake for OPEN.
    pub(crate) fn open(&mut self, session: LinkSession, app: usize, handshake: &LinkHandshake) -> Json {
        let known = Known::new(app, handshake);
        let text = known.handshake();
        self.bytes += known.bytes();
        self.known.insert(session, known);
        text
    }

    pub(crate) fn get(&self, session: LinkSession) -> Option<&Known> {
        self.known.get(&session)
    }

    pub(crate) fn upgrade(&mut self, session: LinkSession, transport: &'static str) {
        if let Some(known) = self.known.get_mut(&session) {
            known.upgrade(transport);
        }
    }

    /// Forgets a session.
    pub(crate) fn close(&mut self, session: LinkSession) {
        if let Some(known) = self.known.remove(&session) {
            self.bytes -= known.bytes();
        }
    }

    /// Adds a socket. A socket that is added again keeps its data. A state that is too large or deep isn't kept, because a
    /// client chooses it.
    pub(crate) fn add(&mut self, session: LinkSession, namespace: &Arc<str>, pid: Box<str>, state: Json) {
        let state = if can_be_kept(&state) { state } else { json("null".into()) };
        self.change(session, |sockets, _| {
            let found = sockets.iter_mut().find(|socket| socket.namespace == *namespace);
            match found {
                Some(socket) => (socket.pid, socket.state) = (pid, state),
                None => {
                    let (namespace, data, brought) = (namespace.clone(), None, None);
                    sockets.push(Socket { namespace, pid, state, data, brought });
                }
            }
        });
    }

    /// Counts a question to the other nodes about a socket of a session. Returns `false` if there were [`SEARCHES_MAX`].
    pub(crate) fn may_search(&mut self, session: LinkSession) -> bool {
        let known = self.known.get_mut(&session).filter(|known| known.searches < SEARCHES_MAX);
        known.map(|known| known.searches += 1).is_some()
    }

    /// The client has sent DISCONNECT for a namespace.
    pub(crate) fn leave(&mut self, session: LinkSession) {
        if let Some(known) = self.known.get_mut(&session) {
            known.is_leaving = true;
        }
    }

    /// Removes a socket.
    pub(crate) fn delete(&mut self, session: LinkSession, namespace: &str) {
        if let Some(known) = self.known.get_mut(&session) {
            known.is_leaving = false;
        }
        self.change(session, |sockets, _| sockets.retain(|socket| *socket.namespace != *namespace));
    }

    /// Keeps the data of a recovered socket, and the end of the messages from its former nodes.
    pub(crate) fn recover(
        &mut self,
        session: LinkSession,
        namespace: &str,
        data: Json,
        brought: Option<Brought>,
    ) {
        self.set_data(session, namespace, data);
        self.change(session, |sockets, _| {
            let found = sockets.iter_mut().find(|socket| *socket.namespace == *namespace);
            if let Some(socket) = found {
                socket.brought = brought;
            }
        });
    }

    /// Keeps the data of a socket, unless they are too large.
    pub(crate) fn set_data(&mut self, session: LinkSession, namespace: &str, data: Json) {
        self.change(session, |sockets, refused| {
            let found = sockets.iter_mut().find(|socket| *socket.namespace == *namespace);
            match found {
                Some(_) if !can_be_kept(&data) => *refused += 1,
                Some(socket) => socket.data = Some(data),
                None => {}
            }
        });
    }

    fn change(&mut self, session: LinkSession, change: impl FnOnce(&mut Vec<Socket>, &mut u64)) {
        if let Some(known) = self.known.get_mut(&session) {
            self.bytes -= known.bytes();
            change(&mut known.sockets, &mut self.data_refused);
            self.bytes += known.bytes();
        }
    }

    /// Bytes that the table holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_ports::LinkSocket;

    fn pairs(pairs: &[(&str, &str)]) -> LinkHeaders {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn handshake() -> LinkHandshake {
        LinkHandshake {
            sid: "s".into(),
            protocol: 4,
            transport: "polling",
            method: "GET".into(),
            url: "/socket.io/?EIO=4&a=1&a=2".into(),
            http_version: "1.1",
            headers: pairs(&[
                ("Host", "a"),
                ("host", "b"),
                ("Cookie", "c=1"),
                ("cookie", "d=\"2\""),
                ("X-A", "1"),
                ("x-a", "2"),
            ]),
            query: pairs(&[("EIO", "4"), ("a", "1"), ("a", "2"), ("a", "3")]),
            address: "127.0.0.1".into(),
            port: 5000,
            local_address: "::1".into(),
            local_port: 8000,
            encrypted: false,
            queued: LinkQueued::default(),
        }
    }

    const COMMON: &str = r#"{"sid":"s","protocol":4,"method":"GET","url":"/socket.io/?EIO=4&a=1&a=2","httpVersion":"1.1","headers":{"cookie":"c=1; d=\"2\"","host":"a","x-a":"1, 2"},"query":{"EIO":"4","a":["1","2","3"]},"address":"127.0.0.1","port":5000,"localAddress":"::1","localPort":8000,"encrypted":false,"#;

    #[test]
    fn a_worker_learns_the_request_as_node_has_it() {
        let mut sessions = Sessions::default();
        let open = sessions.open(LinkSession::from_bits(1), 0, &handshake());
        assert_eq!(open.as_str(), format!(r#"{COMMON}"transport":"polling"}}"#));
    }

    #[test]
    fn a_session_is_resumed_with_its_sockets_and_their_data() {
        let (mut sessions, id) = (Sessions::default(), LinkSession::from_bits(1));
        sessions.open(id, 0, &handshake());
        let json = |text: &str| Json::new(text).unwrap();
        sessions.add(id, &"/".into(), "p".into(), json(r#"{"auth":{"t":1},"time":"now","issued":5}"#));
        sessions.add(id, &"/b".into(), "".into(), json("[]"));
        sessions.add(id, &"/c".into(), "".into(), json("{}"));
        sessions.set_data(id, "/", json(r#"{ "a": 1.0 }"#));
        sessions.set_data(id, "/", json(&format!("\"{}\"", ".".repeat(DATA_BYTES_MAX))));
        sessions.add(id, &"/".into(), "q".into(), json(r#"{"auth":null}"#));
        sessions.delete(id, "/c");
        sessions.upgrade(id, "websocket");
        let socket = |namespace: &str, rooms: &[&str]| LinkSocket {
            namespace: namespace.into(),
            id: "i".into(),
            rooms: rooms.iter().map(|room| (*room).into()).collect(),
        };
        let sockets = vec![socket("/", &["i", "r"]), socket("/b", &[])];
        let description = LinkDescription { request: 7, upgraded: true, sockets };
        let resumed = sessions.get(id).unwrap().resumed(&description);
        let expect = format!(
            r#"{COMMON}"transport":"websocket","upgraded":true,"sockets":[{{"nsp":"/","id":"i","pid":"q","rooms":["i","r"],"data":{{ "a": 1.0 }},"auth":null}},{{"nsp":"/b","id":"i","pid":"","rooms":[],"data":{{}}}}]}}"#
        );
        assert_eq!(resumed.as_str(), expect);
        assert_eq!(sessions.data_refused, 1);
        // Another worker has disconnected a socket.
        let description = LinkDescription { request: 8, upgraded: false, sockets: vec![socket("/", &[])] };
        let resumed = sessions.get(id).unwrap().resumed(&description);
        let lost = r#"{"nsp":"/b","id":"","pid":"","rooms":[],"data":{},"disconnected":true}]}"#;
        assert!(resumed.as_str().ends_with(lost), "{resumed:?}");
        assert!(sessions.bytes() > 0);
        sessions.close(id);
        assert_eq!(sessions.bytes(), 0);
    }
}
