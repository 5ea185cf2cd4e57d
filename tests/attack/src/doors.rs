//! Doors: parts of the server that the fuzzer's other sessions don't reach. These are tokens, hooks,
//! presence, history, recovery, the admin API, the [`layers`] below HTTP, and a [`cluster`]. Each door has a
//! configuration, valid sessions, and a mark that only an answer from behind the door contains.

use crate::backend::RESPONSE_BYTES_MAX;
use crate::cluster;
use crate::layers;
use crate::script::{Port, Script, Step};
use crate::token::{self, USER, sign};
use crate::wire;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// A part of the server that sessions must reach.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) name: &'static str,
    /// Bytes that the server sends only to a client that has reached this part. No session sends them.
    pub(crate) mark: &'static [u8],
    /// The port that must send the mark. `None` for any port.
    pub(crate) port: Option<Port>,
    /// `true` if the door exists only in a cluster, which needs Redis.
    is_clustered: bool,
}

const fn door(name: &'static str, mark: &'static [u8]) -> Door {
    Door { name, mark, port: None, is_clustered: false }
}

const fn door_at(port: Port, name: &'static str, mark: &'static [u8]) -> Door {
    Door { port: Some(port), ..door(name, mark) }
}

const fn door_of_cluster(port: Port, name: &'static str, mark: &'static [u8]) -> Door {
    Door { is_clustered: true, ..door_at(port, name, mark) }
}

/// All doors.
pub(crate) const DOORS: [Door; 43] = [
    door("token accepted", b"\"user\":\"fuzzed-user\",\"info\""),
    door("token renewed", br#"{"type":"ok","id":"renewal"}"#),
    door("token expired", br#""code":"token_expired""#),
    door("token invalid", br#""code":"token_invalid""#),
    door("token expiring", br#"{"type":"token_expiring""#),
    door("token revoked", b"\x11\x37the token"),
    door("hook event", b"hook-answer"),
    door("hook connect", br#"40/a,{"sid""#),
    door("hook refusal", b"hook-refusal"),
    door("hook failure", br#""id":"badly","code":"unavailable""#),
    door("hook timeout", br#""id":"slowly","code":"unavailable""#),
    door("session of lines", br#"{"type":"session","sid""#),
    door("presence list", br#"{"type":"presence","id":"#),
    door("presence notice", br#""joined":[{"session""#),
    door("history", b"kept-message"),
    door("history expired", br#""code":"history_expired""#),
    door("recovery", b"missed-message"),
    door("admin publish", br#"{"published":1"#),
    door("admin command", br#"{"sessions":"#),
    door("admin members", br#""members":[{"session""#),
    door("admin revocation", br#""subject":"revoked-user""#),
    door("admin push", br#"{"changed":"#),
    door("admin status", br#""uptime"#),
    door("admin metrics", b"stentor_memory_bytes"),
    door("admin reload", br#"{"applied":["#),
    door_at(Port::Tls, "TLS handshake", layers::CERTIFIED.as_bytes()),
    door_at(Port::Tls, "TLS alert", b"\x15\x03\x03\x00\x02\x02"),
    door_at(Port::Tls, "plain HTTP at TLS", b"Plain HTTP was sent"),
    door_at(Port::Tunnel, "TLS", br#""type":"welcome""#),
    door_at(Port::Proxy, "PROXY v1", br#""type":"welcome""#),
    door_at(Port::Proxy, "PROXY v2", br#"0{"sid""#),
    door_of_cluster(Port::Redis, "cluster answer", cluster::ANSWERED),
    door_of_cluster(Port::Public, "cluster command", br#""event":"framed""#),
    door_of_cluster(Port::Public, "cluster log", br#""event":"logged""#),
    door_of_cluster(Port::Admin, "cluster node", br#""name":"phantom""#),
    door_of_cluster(Port::Relay, "relay challenge", b"stentor2"),
    door_of_cluster(Port::Introduced, "relay", br#"0{"sid""#),
    door_of_cluster(Port::Second, "bridge in MessagePack", br#"42["bridged""#),
    door_of_cluster(Port::Second, "bridge in JSON", br#"42["worded""#),
    door_of_cluster(Port::Second, "bridge, sharded", br#"42/a,["sharded""#),
    door_of_cluster(Port::Second, "bridge, Python", br#"42["pythonic""#),
    door_of_cluster(Port::Second, "bridge with attachments", br#"451-["bridged""#),
    door_of_cluster(Port::Redis, "bridge request", br#""sockets":[{"#),
];

/// Number of times that each of [`DOORS`] was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached([u64; DOORS.len()]);

impl Default for Reached {
    fn default() -> Self {
        Self([0; DOORS.len()])
    }
}

impl Reached {
    /// Counts the doors whose marks are in bytes that a client of this port received.
    pub(crate) fn look(&mut self, port: Port, bytes: &[u8]) {
        for (door, count) in DOORS.iter().zip(&mut self.0) {
            let is_here = door.port.is_none_or(|wanted| wanted == port);
            *count += u64::from(is_here && memchr::memmem::find(bytes, door.mark).is_some());
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(all, some)| *all += some);
    }

    /// Returns the names of the doors that weren't reached. Without a cluster, its doors are left out.
    pub(crate) fn missed(&self, is_clustered: bool) -> Vec<&'static str> {
        let doors = DOORS.iter().zip(self.0);
        let doors = doors.filter(|(door, count)| *count == 0 && door.is_clustered <= is_clustered);
        doors.map(|(door, _)| door.name).collect()
    }

    /// Returns a line with the count of each door.
    pub(crate) fn summary(&self, is_clustered: bool) -> String {
        let doors = DOORS.iter().zip(self.0).filter(|(door, _)| door.is_clustered <= is_clustered);
        let counts: Vec<_> = doors.map(|(door, count)| format!("{} {count}", door.name)).collect();
        let left_out = if is_clustered {
            ""
        } else {
            "; redis-server isn't installed: cluster, relay and bridge are left out"
        };
        format!("fuzz: doors reached: {}{left_out}", counts.join(", "))
    }
}

/// Additional lines of `[rooms]`: rooms with history and presence.
pub(crate) const ROOMS: &str = r#"presence = ["kept/"]
presence_grace = "500ms"
history_length = 20
history_bytes_max = "16KiB"
history_ttl = "2s"
"#;

/// Returns the configuration of issuers, permissions and hooks. Clients without a token have the canaries'
/// permissions.
pub(crate) fn configuration(backend: SocketAddr) -> String {
    let mut toml = format!(
        r#"
[auth]
anonymous = "allow"
renewal_lead = "1s"
revocations_max = 1000

[[auth.issuers]]
issuer = "fuzz"
algorithms = ["HS256"]
keys = [{{ secret = "{}" }}]

[[permissions]]
topics = ["*", "cold/**", "canary/**", "kept/**", "pushed/**"]
allow = ["subscribe"]
to = "anyone"

[[permissions]]
namespace = "/a"
rooms = ["**"]
allow = ["subscribe"]
to = "anyone"

[[permissions]]
topics = ["kept/**"]
allow = ["presence", "history"]

# Different after each reload: all subscriptions are authorized again.
[[permissions]]
topics = ["reload/{{reload}}"]
allow = ["subscribe"]

[origins]
allow = ["https://reload-{{reload}}.example.com"]

[[feeds]]
name = "pushed"
prefix = "pushed/"
push = true

[[hooks]]
name = "connect"
url = "http://{backend}/well"
on = ["connect"]
namespaces = ["/a"]

[[hooks]]
name = "notices"
url = "http://{backend}/well"
on = ["connected", "disconnected", "subscribed", "occupied", "vacated"]
waiting_bytes_max = "64KiB"
"#,
        token::SECRET
    );
    for name in ["well", "badly", "slowly"] {
        // Writing into a string can't fail.
        let _ = write!(
            toml,
            r#"
[[hooks]]
name = "{name}"
url = "http://{backend}/{name}"
on = ["event", "subscribe", "publish"]
topics = ["ask-{name}*"]
events = ["ask-{name}"]
timeout = "300ms"
waiting_max = 100
response_bytes_max = {RESPONSE_BYTES_MAX}
secret = "{}"
"#,
            token::SECRET
        );
    }
    toml
}

/// Returns the valid sessions, with or without those of a cluster.
pub(crate) fn sessions(is_clustered: bool) -> Vec<Script> {
    let mut sessions = vec![
        renewed(),
        brief(),
        in_requests(),
        in_socketio(),
        revoked(),
        presence(),
        presence_over_socketio(),
        history(Duration::ZERO),
        history(Duration::from_millis(300)),
        pushed_feed(),
        recovery(),
        connect_hook(),
        publications(),
        commands(),
        lists(),
    ];
    let wrong = token::WRONG.map(|claims| sign(USER, claims));
    sessions.extend([sign(USER, token::EXPIRED)].into_iter().chain(wrong).map(|token| refused(&token)));
    sessions.extend(layers::sessions());
    sessions.extend(["well", "badly", "slowly"].map(hook));
    if is_clustered {
        sessions.extend(cluster::sessions());
    }
    sessions
}

fn message(fields: &str) -> Vec<u8> {
    wire::text(&format!("{{{fields}}}"))
}

pub(crate) fn subscribe(room: &str, more: &str) -> Vec<u8> {
    message(&format!(r#""id":1,"type":"subscribe","room":"{room}"{more}"#))
}

pub(crate) fn publish(room: &str, event: &str, data: &str) -> Vec<u8> {
    message(&format!(r#""id":2,"type":"publish","room":"{room}","event":"{event}","data":{data}"#))
}

fn json(target: &str, body: &str) -> Vec<u8> {
    wire::post(target, "application/json", body.as_bytes())
}

/// Makes the WebSocket handshake of [`USER`].
pub(crate) fn signed_in() -> Vec<u8> {
    let token = sign(USER, token::VALID);
    wire::upgrade_with("/ws", &format!("Sec-WebSocket-Protocol: stentor.v1, stentor.bearer.{token}\r\n"))
}

fn auth(token: &str) -> Vec<u8> {
    message(&format!(r#""id":"renewal","type":"auth","token":"{token}""#))
}

/// Renews its token, then presents another user's token, a brief one and an expired one.
fn renewed() -> Script {
    Script::new([
        signed_in(),
        auth(&sign(USER, token::Claims { ends_s: 7200, ..token::VALID })),
        auth(&sign("another-user", token::VALID)),
        auth("{brief}"),
        subscribe("kept/renewed", ""),
        auth(&sign(USER, token::EXPIRED)),
    ])
}

/// Stays connected until its token expires.
fn brief() -> Script {
    Script::new([wire::upgrade("/ws"), auth("{brief}"), subscribe("lobby", "")])
}

fn refused(token: &str) -> Script {
    Script::new([
        wire::get(&format!("/feed/cold/probe-a?token={token}")),
        wire::upgrade("/ws"),
        auth(token),
        wire::upgrade(&format!("/ws?token={token}")),
    ])
}

/// Presents a token in each part of a request.
fn in_requests() -> Script {
    let token = sign(USER, token::VALID);
    let header = format!(
        "GET /feed/cold/probe-a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let both = format!(
        "GET /feed/cold/probe-a?token={} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n",
        sign("another-user", token::VALID)
    );
    Script::new([
        header.into_bytes(),
        both.into_bytes(),
        wire::get(&format!("/socket.io/?EIO=4&transport=polling&token={token}")),
        wire::post("/socket.io/?EIO=4&transport=polling&sid={sid}", "text/plain", b"40"),
        wire::get(&format!("/socket.io/?EIO=4&transport=polling&sid={{sid}}&token={token}")),
        wire::get(&format!("/sse?feed=cold/probe-a&token={token}")),
    ])
}

fn in_socketio() -> Script {
    let token = sign(USER, token::VALID);
    Script::new([
        wire::upgrade("/socket.io/?EIO=4&transport=websocket"),
        wire::text(&format!(r#"40{{"token":"{token}"}}"#)),
        wire::text(&format!(r#"40/a,{{"token":"{}"}}"#, sign("another-user", token::VALID))),
        wire::text(r#"420["join","kept/a"]"#),
    ])
}

/// A session that the admin API ends by revoking its token.
fn revoked() -> Script {
    let revoke = |body: &str| json("/api/v1/revocations", body);
    Script::new([wire::upgrade("/ws"), auth("{brief}")]).on(
        1,
        Port::Admin,
        [
            revoke(r#"{"token_id":"{number}"}"#),
            revoke(r#"{"subject":"nobody","action":"refresh"}"#),
            revoke(r#"{"subject":"revoked\u002duser"}"#),
            wire::get("/api/v1/revocations"),
        ],
    )
}

/// Events, subscriptions and publications that the backend decides. `mood` selects valid, invalid or slow
/// responses.
fn hook(mood: &str) -> Script {
    let event =
        |data: &str| message(&format!(r#""id":"{mood}","type":"event","event":"ask-{mood}","data":{data}"#));
    let room = format!("ask-{mood}");
    Script::new([
        wire::upgrade("/ws"),
        event(r#"{"room":"lobby","text":"\u00e9"}"#),
        subscribe(&room, ""),
        publish(&room, "said", "1"),
        subscribe(&format!("{room}-no"), ""),
        event("[1,[2],{\"a\":null}]"),
        event("null"),
    ])
    .on(
        1,
        Port::Public,
        [
            wire::upgrade("/socket.io/?EIO=4&transport=websocket"),
            wire::text("40"),
            wire::text(&format!(r#"420["ask-{mood}","a",2]"#)),
            wire::text(&format!(r#"451-1["ask-{mood}",{{"_placeholder":true,"num":0}}]"#)),
            wire::frame(wire::FIN | wire::BINARY, b"attached"),
            wire::text("41"),
        ],
    )
}

fn connect_hook() -> Script {
    Script::new([
        wire::upgrade("/socket.io/?EIO=4&transport=websocket"),
        wire::text(r#"40/a,{"token":"for the backend"}"#),
        wire::text(r#"42/a,0["join","lobby"]"#),
        wire::text("41/a,"),
        wire::text("40/a,"),
    ])
}

/// One client watches a room's members; another one joins and leaves.
fn presence() -> Script {
    let list = |more: &str| message(&format!(r#""id":3,"type":"presence","room":"kept/here"{more}"#));
    let mut script = Script::new([
        signed_in(),
        subscribe("kept/here", r#","presence":true"#),
        list(""),
        list(r#","limit":1"#),
        list(r#","members":false,"after":"x""#),
    ])
    .on(
        1,
        Port::Public,
        [signed_in(), subscribe("kept/here", ""), subscribe("kept/here", r#","presence":true"#)],
    );
    script.steps.push(Step::Pause(Duration::from_millis(300)));
    script.steps.push(Step::Close(1));
    script.steps.push(Step::Pause(Duration::from_millis(900)));
    script
}

fn presence_over_socketio() -> Script {
    Script::new([
        wire::upgrade("/socket.io/?EIO=4&transport=websocket"),
        wire::text(&format!(r#"40{{"token":"{}"}}"#, sign(USER, token::VALID))),
        wire::text(r#"420["join","kept/here"]"#),
        wire::text(r#"421["stentor:presence","kept/here",{"subscribe":true}]"#),
        wire::text(r#"422["stentor:presence","kept/here",{"subscribe":false,"limit":2}]"#),
        wire::text(r#"42["leave","kept/here"]"#),
    ])
}

/// Leaves a room and subscribes again from its last position. Without a pause, answers of a cluster are still
/// in transit.
fn history(pause: Duration) -> Script {
    const ROOM: &str = "kept/{number}";
    let leave = || message(&format!(r#""id":4,"type":"unsubscribe","room":"{ROOM}""#));
    let mut script = Script::new([
        signed_in(),
        subscribe(ROOM, ""),
        publish(ROOM, "said", "1"),
        message(r#""id":3,"type":"ping""#),
        leave(),
    ])
    .on(
        1,
        Port::Admin,
        [json("/api/v1/publish", &format!(r#"{{"room":"{ROOM}","event":"kept\u002dmessage","data":2}}"#))],
    );
    for bytes in [
        subscribe(ROOM, r#","epoch":{epoch},"offset":{offset}"#),
        subscribe(ROOM, r#","epoch":{epoch},"offset":18446744073709551615"#),
        leave(),
        subscribe(ROOM, r#","epoch":7,"offset":1,"policy":"drop_oldest""#),
    ] {
        script.steps.push(Step::Pause(pause));
        script.steps.push(Step::Send(0, bytes.into()));
        script.steps.push(Step::Receive(0));
    }
    script
}

/// Pushes a feed's document and resumes the feed at a position.
fn pushed_feed() -> Script {
    const FEED: &str = "pushed/{number}";
    let put = |body: &str| {
        format!(
            "PUT /api/v1/feeds/{FEED} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    let delete = format!("DELETE /api/v1/feeds/{FEED} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
    let from = |position: &str| message(&format!(r#""id":1,"type":"subscribe","feed":"{FEED}"{position}"#));
    let first = [wire::upgrade("/ws"), from("")];
    let again = [wire::upgrade("/ws"), from(r#","epoch":{epoch},"offset":{offset}"#)];
    Script::at(Port::Admin, [put(r#"{"a":[1,2,3],"b":"c"}"#)])
        .on(1, Port::Public, first)
        .on(2, Port::Admin, [put(r#"{"a":[1,2],"b":"d"}"#), put(r#"{"a":[1,2],"b":"e"}"#)])
        .on(3, Port::Public, again)
        .on(2, Port::Admin, [delete])
}

/// Loses its connection, misses a message and recovers.
fn recovery() -> Script {
    const ROOM: &str = "recovered-{number}";
    let mut script = Script::new([
        wire::upgrade("/socket.io/?EIO=4&transport=websocket"),
        wire::text("40"),
        wire::text(&format!(r#"420["join","{ROOM}"]"#)),
    ])
    .on(1, Port::Admin, []);
    let event = |name: &str, data: u8| {
        json("/api/v1/publish", &format!(r#"{{"room":"{ROOM}","event":"{name}","data":{data}}}"#))
    };
    script.steps.extend([
        // A pong, after which only the event can arrive.
        Step::Send(0, wire::text("3").into()),
        Step::Send(1, event("mark", 1).into()),
        Step::Receive(1),
        Step::Receive(0),
        Step::Close(0),
        Step::Send(1, event(r"missed\u002dmessage", 2).into()),
        Step::Receive(1),
    ]);
    script.on(
        0,
        Port::Public,
        [
            wire::upgrade("/socket.io/?EIO=4&transport=websocket"),
            wire::text(r#"40{"pid":"{pid}","offset":"{mark}"}"#),
            wire::text(r#"420["leave","recovered-{number}"]"#),
        ],
    )
}

fn publications() -> Script {
    let publication = r#"{"room":"lobby","event":"said","data":[1],"idempotency_key":"{number}"}"#;
    let chunked = format!(
        "POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{publication}\r\n1\r\n\n\r\n0\r\n\r\n",
        publication.len()
    );
    Script::at(
        Port::Admin,
        [
            json("/api/v1/publish", r#"{"room":"lobby","data":"\ud83d\ude00"}"#),
            json("/api/v1/publish", publication),
            json("/api/v1/publish", publication),
            chunked.into_bytes(),
            json("/api/v1/publish", r#"{"room":"kept/here","namespace":"/a","data":null}"#),
        ],
    )
}

/// Sends commands about sessions, one of which ends its own session. No command concerns a canary's room or a
/// whole namespace.
fn commands() -> Script {
    const OWN: &str = "doomed-{number}";
    let command = |name: &str, body: &str| json(&format!("/api/v1/{name}"), body);
    Script::new([wire::upgrade("/ws"), subscribe(OWN, "")]).on(
        1,
        Port::Admin,
        [
            command(
                "emit",
                r#"{"rooms":["lobby"],"except":{"rooms":["x"]},"event":"e","data":1,"volatile":true}"#,
            ),
            command("join", r#"{"rooms":["lobby"],"join":["kept/joined"]}"#),
            command("leave", r#"{"rooms":["kept/joined"],"leave":["kept/joined"]}"#),
            command("sessions", r#"{"rooms":["lobby"],"limit":10}"#),
            command("disconnect", &format!(r#"{{"rooms":["{OWN}"],"close":true}}"#)),
        ],
    )
}

fn lists() -> Script {
    let targets = ["/api/v1/status", "/api/v1/nodes", "/metrics", "/readyz"];
    let asked = targets.map(wire::get).into_iter().chain([json("/api/v1/reload", "")]);
    let members = wire::get("/api/v1/rooms/members?room=kept/here&limit=5");
    // Other sessions join the room before its members are requested.
    let mut script = Script::at(Port::Admin, asked);
    script.steps.insert(0, Step::Pause(Duration::from_millis(300)));
    script.on(1, Port::Admin, [wire::get("/api/v1/rooms?prefix=l&limit=2"), members])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise an echo of a session's own bytes would pass for an answer.
    #[test]
    fn no_session_sends_a_mark() {
        for script in sessions(true) {
            for step in &script.steps {
                let Step::Send(_, bytes) = step else { continue };
                for door in &DOORS {
                    let found = memchr::memmem::find(bytes, door.mark);
                    assert!(found.is_none(), "{}: {}", door.name, String::from_utf8_lossy(bytes));
                }
            }
        }
    }

    #[test]
    fn a_door_that_was_not_reached_is_named() {
        let mut reached = Reached([1; DOORS.len()]);
        assert!(reached.missed(true).is_empty());
        (reached.0[0], reached.0[DOORS.len() - 1]) = (0, 0);
        assert_eq!(reached.missed(true), ["token accepted", "bridge request"]);
        assert_eq!(reached.missed(false), ["token accepted"]);
        let all = reached.summary(true);
        assert!(all.starts_with("fuzz: doors reached: token accepted 0, token renewed 1,"), "{all}");
        assert!(all.ends_with(", bridge request 0"), "{all}");
        let few = reached.summary(false);
        assert!(
            few.ends_with("PROXY v2 1; redis-server isn't installed: cluster, relay and bridge are left out"),
            "{few}"
        );
    }

    #[test]
    fn a_mark_counts_at_its_port() {
        let mut reached = Reached::default();
        reached.look(Port::Public, b"..stentor2..");
        assert_eq!(reached, Reached::default());
        reached.look(Port::Relay, b"..stentor2..");
        assert_eq!(reached.missed(true).len(), DOORS.len() - 1);
    }
}
