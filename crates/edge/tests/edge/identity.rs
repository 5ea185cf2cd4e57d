//! Tokens: their sources, the refusals of each protocol, expiry, renewal and revocation.

mod forged;
mod grants;
mod handshakes;
mod listed;
mod pending;
mod proxy_users;
mod rechecks;
mod recovery;
mod reserved;
mod reviews;
mod signatures;
mod user_limits;

use crate::harness::io::post;
use crate::harness::{
    Io, Response, Seen, Server, Way, Ws, answer, joins, leaves, on_one_and_three, unix_millis,
};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use stentor_edge::{Options, Origins};
use stentor_hub::{Room, Topic};
use stentor_ports::{
    Access, Asking, Authentication, Authenticator, Authorizer, Concerned, Credentials, Decision, Denial,
    Identity, IdentityFilter, IdentityReply, PROXY_ISSUER, PermissionReply, Principal, ProxyUser, Question,
    Recheck, RecheckAction, SignatureWork, Ticket,
};
use stentor_wire::engineio::Version;

/// An authenticator. The tokens `SUB`, `SUB.IAT` and `SUB.IAT.EXP` belong to the user SUB; `bad` and `expired` are refused; the
/// answer to a token that begins with `later` comes later. Anonymous clients can be allowed.
#[derive(Debug, Default)]
struct Issuer {
    lets_anonymous_in: bool,
    asked: Mutex<Vec<String>>,
    later: Mutex<Vec<IdentityReply>>,
    generation: AtomicU64,
    rules: Arc<Rules>,
}

/// An authorizer for these users.
#[derive(Debug, Default)]
struct Rules {
    revoked: Mutex<HashSet<String>>,
    /// Namespaces to which no client may connect.
    closed: Mutex<HashSet<String>>,
    /// Topics that no client may subscribe or publish to any more.
    forbidden: Mutex<HashSet<String>>,
    questions: AtomicU64,
    /// The state of the authorizer's backend: 0 if it works, 1 if it reports an error, 2 if it doesn't answer.
    down: AtomicU64,
    /// Questions about topics that begin with `public-later`, which are answered later.
    later: Mutex<Vec<PermissionReply>>,
    cancelled: Mutex<Vec<Ticket>>,
}

/// Allows one user the topics that begin with `public`, and the user's own.
#[derive(Debug)]
struct User(Option<String>, Arc<Rules>);

impl Authorizer for User {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        let Self(user, rules) = self;
        let subject =
            question.identity.unwrap().principal.as_ref().map(|principal| principal.subject.to_string());
        assert_eq!(subject, *user);
        rules.questions.fetch_add(1, Ordering::Relaxed);
        if matches!(question.access, Access::Subscribe(_)) {
            match rules.down.load(Ordering::Relaxed) {
                1 => return Decision::Deny(Denial::UNAVAILABLE),
                2 => return Decision::Pending,
                _ => {}
            }
        }
        let name = match question.access {
            Access::Connect { namespace: "/" } => return Decision::Allow,
            Access::Connect { namespace } => namespace.trim_start_matches('/'),
            Access::History(_) => return deny("not_allowed"),
            Access::Subscribe(Topic::Feed(key)) => key.as_str(),
            Access::Subscribe(Topic::Room(room)) | Access::Publish(room) => room.name(),
            Access::Presence(_) | Access::Subscribe(Topic::Presence(_)) => return deny("not_allowed"),
        };
        if name.starts_with("public-later") && !rules.forbidden.lock().unwrap().contains(name) {
            rules.later.lock().unwrap().push(question.later());
            return Decision::Pending;
        }
        let is_own = user.as_ref().is_some_and(|user| name.ends_with(&**user));
        let is_forbidden = rules.forbidden.lock().unwrap().contains(name);
        if (is_own || name.starts_with("public")) && !is_forbidden {
            Decision::Allow
        } else {
            deny("not_allowed")
        }
    }

    fn cancel(&self, ticket: Ticket) {
        self.1.cancelled.lock().unwrap().push(ticket);
    }

    fn is_cacheable(&self, access: Access<'_>) -> bool {
        matches!(access, Access::Publish(_))
    }
}

fn deny(code: &'static str) -> Decision {
    Decision::Deny(Denial::new(code, "refused by the test"))
}

impl Issuer {
    fn identity(&self, token: &str) -> Identity {
        let mut parts = token.split('.');
        let user = parts.next().unwrap().to_owned();
        let principal = Principal { issuer: "https://id.example.com".into(), subject: user.as_str().into() };
        Identity {
            token_principal: Some(principal.clone()),
            principal: Some(principal),
            issued_at: parts.next().map(|at| at.parse().unwrap()),
            expires_at: parts.next().map(|at| at.parse().unwrap()),
            join: vec![Room::plain("lobby").unwrap(), Room::new("/elsewhere", "lobby").unwrap()],
            ..Identity::anonymous(Arc::new(User(Some(user), self.rules.clone())))
        }
    }
}

impl Issuer {
    /// Answers a client whose user an authenticating proxy names.
    fn of_proxy(&self, user: &ProxyUser, token: Option<&str>) -> Authentication {
        if token.is_some_and(|token| token.split('.').next() != Some(&*user.subject)) {
            return Authentication::Refused(Denial::new("token_invalid", "another user's"));
        }
        let principal = Principal { issuer: PROXY_ISSUER.into(), subject: user.subject.clone() };
        Authentication::Accepted(Arc::new(Identity {
            principal: Some(principal),
            issued_at: Some(user.issued_at),
            expires_at: Some(user.issued_at + 15 * 60),
            ..Identity::anonymous(Arc::new(User(Some(user.subject.to_string()), self.rules.clone())))
        }))
    }
}

impl Authenticator for Issuer {
    fn authenticate(
        &self,
        asking: Asking<'_>,
        credentials: &Credentials<'_>,
        _: &mut SignatureWork,
    ) -> Authentication {
        let shown = format!("{credentials:?}");
        if credentials.client.namespace.is_some_and(|name| self.rules.closed.lock().unwrap().contains(name)) {
            return Authentication::Refused(Denial::new("not_allowed", "closed"));
        }
        if let Some(user) = credentials.user {
            return self.of_proxy(user, credentials.token);
        }
        let Some(token) = credentials.token else {
            if self.lets_anonymous_in {
                let nobody = Identity::anonymous(Arc::new(User(None, self.rules.clone())));
                return Authentication::Accepted(Arc::new(nobody));
            }
            return Authentication::Refused(Denial::TOKEN_MISSING);
        };
        // A short token may occur in the client's port by chance.
        assert!(token.len() <= 5 || !shown.contains(token), "{shown} shows the token");
        self.asked.lock().unwrap().push(format!("{}:{token}", credentials.client.protocol));
        if token.starts_with("later") {
            self.later.lock().unwrap().push(asking.later());
            return Authentication::Pending;
        }
        match token {
            "bad" => Authentication::Refused(Denial::new("token_invalid", "the signature is wrong")),
            "expired" => Authentication::Refused(Denial::new("token_expired", "the token has expired")),
            token => Authentication::Accepted(Arc::new(self.identity(token))),
        }
    }

    fn cancel(&self, ticket: Ticket) {
        self.rules.cancelled.lock().unwrap().push(ticket);
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn is_revoked(&self, identity: &Identity) -> bool {
        let Some(principal) = &identity.principal else { return false };
        self.rules.revoked.lock().unwrap().contains(&*principal.subject)
    }
}

/// A node with this issuer.
struct Node {
    server: Server,
    issuer: Arc<Issuer>,
}

impl Node {
    fn start(cores: usize, issuer: Issuer, set: impl FnOnce(&mut Options)) -> Self {
        let issuer = Arc::new(issuer);
        let port = issuer.clone();
        let server = Server::start(cores, move |options| {
            options.authenticator = Some(port);
            options.tokens.cookie = Some("session".into());
            options.origins = Origins::parse(&["https://app.example.com"]).unwrap();
            options.rooms.namespaces = vec!["/public".into(), "/secret".into()];
            options.rooms.rules = vec![joins("join"), leaves("leave")];
            set(options);
        });
        Self { server, issuer }
    }

    /// Connects a client with a token, and waits for its `welcome`.
    fn user(&self, token: &str) -> Ws {
        let mut ws = self.ws(&format!("/ws?token={token}"));
        assert_eq!(ws.next_json()["type"], "welcome");
        ws
    }

    /// Connects a Socket.IO client whose CONNECT has a token.
    fn socketio_user(&self, token: &str) -> Io {
        let mut io = Io::socket(self, Way::Socket);
        io.connect("", json!({"token": token}));
        io
    }

    fn recheck(&self, filter: IdentityFilter, action: RecheckAction) -> Concerned {
        answer(|done| self.plane().recheck(Recheck { filter, action }, done)).unwrap()
    }

    fn revoke(&self, user: &str) -> Concerned {
        self.issuer.rules.revoked.lock().unwrap().insert(user.into());
        self.authorize_again()
    }

    /// Changes the rules without a notice to the server.
    fn change_rules(&self, forbidden: &str) {
        self.issuer.rules.forbidden.lock().unwrap().insert(forbidden.into());
        self.issuer.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn forbid(&self, topic: &str) -> Concerned {
        self.issuer.rules.forbidden.lock().unwrap().insert(topic.into());
        self.authorize_again()
    }

    fn authorize_again(&self) -> Concerned {
        self.issuer.generation.fetch_add(1, Ordering::Relaxed);
        self.recheck(IdentityFilter::default(), RecheckAction::Authorize)
    }

    /// `GET target` with headers.
    fn get(&self, target: &str, headers: &[(&str, &str)]) -> Response {
        self.ask(request(target, headers))
    }
}

impl std::ops::Deref for Node {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn request(target: &str, headers: &[(&str, &str)]) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

fn unix_seconds() -> u64 {
    unix_millis() / 1_000
}

const PAGE: (&str, &str) = ("Origin", "https://app.example.com");

/// Subscribes to a room. Returns the type or code of the answer.
fn subscribe(ws: &mut Ws, room: &str) -> Value {
    ws.send_json(json!({"type": "subscribe", "room": room}));
    let answer = ws.next_json();
    if answer["type"] == "ok" { json!("ok") } else { answer["code"].clone() }
}

/// Joins a room by a rule.
fn join(io: &mut Io, room: &str) {
    assert_eq!(io.ask("join", &[json!(room)]), json!([{"ok": true}]), "{room}");
}

/// Expects the notice that a subscription to a room has ended.
fn expect_withdrawn(ws: &mut Ws, room: &str) {
    let notice = ws.next_json();
    assert!(notice["code"] == "not_allowed" && notice["room"] == room, "{notice}");
}

#[test]
fn a_token_comes_from_a_header_a_subprotocol_the_query_or_a_cookie() {
    let node = Node::start(1, Issuer::default(), |_| {});
    let open = |target: &str, headers: &[(&str, &str)]| Ws::open(node.addr, target, headers, false);
    let with: [(&str, &[(&str, &str)]); 6] = [
        ("/ws", &[("Authorization", "Bearer 42")]),
        ("/ws", &[("Sec-WebSocket-Protocol", "stentor.bearer.42, stentor.v1")]),
        ("/ws?token=42", &[]),
        ("/ws", &[("Cookie", "a=b; session=42"), PAGE]),
        // The same token in two places.
        ("/ws?token=42", &[("Authorization", "bearer 42")]),
        // A browser sends its cookie in addition to the page's token.
        ("/ws?token=42", &[("Cookie", "session=bad"), PAGE]),
    ];
    for (target, headers) in with {
        let mut ws = open(target, headers).unwrap();
        assert_eq!(ws.next_json()["type"], "welcome", "{target} {headers:?}");
        assert_eq!(subscribe(&mut ws, "user:42"), "ok");
        assert_eq!(subscribe(&mut ws, "user:43"), "not_allowed");
        let selects = ws.head.to_ascii_lowercase().contains("sec-websocket-protocol: stentor.v1");
        assert_eq!(selects, headers.iter().any(|(name, _)| *name == "Sec-WebSocket-Protocol"));
        assert!(!ws.head.contains("bearer"), "{}", ws.head);
    }
    let without: [(&str, &[(&str, &str)]); 6] = [
        ("/ws", &[]),
        ("/ws?token=", &[]),
        ("/ws", &[("Authorization", "Basic NDI6")]),
        // The server ignores cookies of programs, and of pages whose origins aren't listed.
        ("/ws", &[("Cookie", "session=42")]),
        ("/ws?token=42", &[("Authorization", "Bearer 43")]),
        ("/ws?token=42&token=43", &[]),
    ];
    for (target, headers) in without {
        assert_eq!(open(target, headers).err(), Some(401), "{target} {headers:?}");
    }
    // A query parameter `Authorization` isn't the header.
    assert_eq!(open("/ws?Authorization=Bearer%2042", &[]).err(), Some(401));
}

#[test]
fn a_websocket_of_engine_io_that_knows_the_close_codes_is_closed_with_one() {
    let node = Node::start(1, Issuer::default(), |_| {});
    for (token, code) in [("expired", 4505), ("bad", 4408)] {
        let target = "/engine.io/?EIO=4&transport=websocket";
        let offer = format!("stentor.v1, stentor.bearer.{token}");
        let mut ws = Ws::open(node.addr, target, &[("Sec-WebSocket-Protocol", &offer)], false).unwrap();
        assert_eq!(ws.skip_to_close(), code, "{token}");
        // Other clients read the status.
        let other = Ws::open(node.addr, &format!("{target}&token={token}"), &[PAGE], false);
        assert_eq!(other.err(), Some(401), "{token}");
    }
}

#[test]
fn shared_caches_keep_no_document_of_a_user() {
    let node = Node::start(1, Issuer { lets_anonymous_in: true, ..Issuer::default() }, |_| {});
    node.document("public", "1");
    let cookie = ("Cookie", "session=42");
    let requests: [(&[(&str, &str)], &str); 3] = [
        (&[], "no-cache"),
        (&[("Authorization", "Bearer 42")], "private, no-cache"),
        (&[cookie, ("Sec-Fetch-Site", "same-origin")], "private, no-cache"),
    ];
    for (headers, cache_control) in requests {
        let answer = node.get("/feed/public", headers);
        let tag = answer.header("etag");
        let unchanged = node.get("/feed/public", &[headers, &[("If-None-Match", tag)]].concat());
        for answer in [&answer, &unchanged] {
            assert_eq!(answer.header("cache-control"), cache_control, "{headers:?}");
            let vary = answer.headers.iter().filter(|(name, _)| name == "Vary").map(|(_, value)| &**value);
            let vary: Vec<&str> = vary.collect();
            assert_eq!(vary, ["Origin", "Authorization, Cookie, Sec-Fetch-Site"], "{headers:?}");
        }
    }
}

#[test]
fn a_cookie_of_any_page_is_not_a_token() {
    let node = Node::start(1, Issuer::default(), |options| options.origins = Origins::parse(&["*"]).unwrap());
    let cookie = ("Cookie", "session=42");
    let open = |headers: &[(&str, &str)]| {
        let mut ws = Ws::open(node.addr, "/ws", headers, false).unwrap();
        matches!(ws.next(), Seen::Text(_))
    };
    assert!(!open(&[cookie, ("Origin", "https://evil.example.com")]));
    let own = format!("http://{}", node.addr);
    assert!(open(&[cookie, ("Origin", &own)]));
    // An EventSource of the server's own page has no Origin.
    node.document("public", "1");
    let site = |site: &str| node.get("/feed/public", &[cookie, ("Sec-Fetch-Site", site)]).status;
    assert_eq!((site("same-origin"), site("cross-site")), (200, 401));
}

#[test]
fn refusals_have_the_form_of_each_protocol() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        for (token, page_code) in [("", 4408), ("?token=bad", 4408), ("?token=expired", 4505)] {
            for path in ["/ws", "/ws/public", "/primus/", "/sockjs/websocket"] {
                let target = format!("{path}{token}");
                assert_eq!(Ws::open(node.addr, &target, &[], false).err(), Some(401), "{target}");
                // A page can't read the status of a handshake, so the server opens its WebSocket and sends a close code.
                let mut ws = Ws::open(node.addr, &target, &[PAGE], false).unwrap();
                assert_eq!(ws.skip_to_close(), page_code, "{target}");
            }
            let mut ws =
                Ws::open(node.addr, &format!("/sockjs/0/x/websocket{token}"), &[PAGE], false).unwrap();
            assert!(ws.next_text().starts_with(&format!("c[{page_code},")));
            assert_eq!(ws.skip_to_close(), page_code);
            for path in ["/feed/public", "/sse/public", "/engine.io/"] {
                let query = if path == "/engine.io/" { "EIO=4&transport=polling&" } else { "" };
                let target = format!("{path}?{query}{}", token.trim_start_matches('?'));
                let response = node.get(&target, &[PAGE]);
                assert_eq!(response.status, 401, "{target}");
                let challenge = match token {
                    "" => "Bearer".to_owned(),
                    _ => format!(
                        "Bearer error=\"invalid_token\", error_description=\"token_{}\"",
                        token.trim_start_matches("?token=").replace("bad", "invalid")
                    ),
                };
                assert_eq!(response.header("www-authenticate"), challenge, "{target}");
                assert!(
                    response.header("access-control-expose-headers").contains("WWW-Authenticate")
                        || path == "/sse/public"
                );
            }
            for transport in ["xhr", "xhr_streaming", "eventsource", "htmlfile?c=a&", "jsonp?c=a&"] {
                let joined = if transport.ends_with('&') { token.replace('?', "") } else { token.to_owned() };
                let target = format!("/sockjs/0/{}/{transport}{joined}", transport.len());
                let response = if transport.starts_with("xhr") {
                    node.ask(post(&target, "text/plain", b""))
                } else {
                    node.get(&target, &[])
                };
                let text = response.text();
                assert!(text.contains(&format!("c[{page_code},")), "{target}: {text}");
            }
        }
        // A Socket.IO client connects first, and then presents its token.
        let mut io = Io::socket(&node, Way::Socket);
        io.send("40");
        io.expect(r#"44{"message":"a token is needed","data":{"code":"token_missing","retry":false}}"#);
        io.send(r#"40{"token":"bad"}"#);
        io.expect(r#"44{"message":"the signature is wrong","data":{"code":"token_invalid","retry":false}}"#);
        io.send(r#"40/secret,{"token":"42"}"#);
        io.expect(
            r#"44/secret,{"message":"refused by the test","data":{"code":"not_allowed","retry":false}}"#,
        );
        assert!(io.connect("/public", json!({"token": "42"}))["sid"].is_string());
        let mut old = Io::open(node.addr, "/socket.io/", Version::V3, Way::Socket, "&token=bad");
        assert!(old.next_text().starts_with("44"));
        let mut old = Io::open(node.addr, "/socket.io/", Version::V3, Way::Socket, "&token=42");
        assert_eq!(old.next_text(), "40");
        // Refused clients opened no session.
        drop((io, old));
        node.until_metric("tokens_refused", |refused| refused > 30);
        node.until_metric("identities", |identities| identities == 0);
    });
}

#[test]
fn rooms_of_an_identity_are_joined_and_publishing_is_a_permission() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        let mut ws = node.user("42");
        ws.fence();
        node.publish("lobby", "1");
        assert_eq!(ws.next_json()["data"], 1);
        let mut io = node.socketio_user("42");
        join(&mut io, "user:42");
        assert_eq!(io.ask("join", &[json!("user:43")])[0]["code"], "not_allowed");
        let questions = || node.issuer.rules.questions.load(Ordering::Relaxed);
        let publish = json!({"type": "publish", "room": "public", "data": 1});
        ws.ask(publish.clone());
        let before = questions();
        ws.ask(publish.clone());
        assert_eq!(questions(), before, "decisions about a room are kept");
        node.forbid("public");
        assert_eq!(ws.code_for(publish), "not_allowed");
        // A client that may not read the history of a room is subscribed without missed messages.
        ws.send_json(json!({"type": "subscribe", "room": "user:42", "epoch": 1, "offset": 0}));
        ws.expect_json(json!({"type": "ok"}));
        assert_eq!(ws.next_json()["code"], "history_expired");
    });
}

#[test]
fn a_session_ends_when_its_token_does_unless_it_is_renewed() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        let exp = unix_seconds() + 3;
        let target = |path: &str| format!("{path}token=42.1.{exp}");
        let mut plain = node.ws(&target("/ws?"));
        let mut renewed = node.ws(&target("/ws?"));
        let mut raw = node.ws(&target("/ws?format=raw&"));
        let [mut io, mut renewed_io] = [(); 2].map(|()| node.socketio_user(&format!("42.1.{exp}")));
        node.document("public", "1");
        let mut sse = node.http();
        sse.send(request(&target("/sse/public?"), &[]));
        assert_eq!(sse.stream_head().status, 200);
        let mut poll = node.http();
        let tag = node.get("/feed/public?token=42", &[]).header("etag").to_owned();
        poll.send(request(&target(&format!("/feed/public?wait={tag}&")), &[]));
        for ws in [&mut plain, &mut renewed] {
            ws.next_json();
            assert_eq!(subscribe(ws, "user:42"), "ok");
        }
        for ws in [&mut plain, &mut renewed] {
            let expiring = ws.next_json();
            assert_eq!(expiring["type"], "token_expiring");
            assert!((1..=1_600).contains(&expiring["expires_in_ms"].as_u64().unwrap()), "{expiring}");
        }
        for io in [&mut io, &mut renewed_io] {
            assert_eq!(io.event()[0], "stentor:token_expiring");
        }
        renewed.ask(json!({"type": "auth", "token": format!("42.2.{}", exp + 60)}));
        assert_eq!(renewed.code_for(json!({"type": "auth", "token": "43"})), "not_allowed", "another user's");
        let token = json!({"token": format!("42.2.{}", exp + 60)});
        assert_eq!(renewed_io.ask("stentor:auth", &[token]), json!([{"ok": true}]));
        assert_eq!(renewed_io.ask("stentor:auth", &[json!({"token": "bad"})])[0]["code"], "token_invalid");
        assert_eq!(plain.expect_close(), (4505, "the token has expired; reconnect with a new one".into()));
        let late = i128::from(unix_millis()) - i128::from(exp) * 1_000;
        assert!((0..500).contains(&late), "the session ended {late} ms after its token");
        assert_eq!(raw.skip_to_close(), 4505);
        // The connection ends without a Close frame, so its client reconnects.
        assert_eq!(io.expect_end(), 1006);
        assert!(!sse.rest().ends_with(b"0\r\n\r\n"), "its client wouldn't return");
        let response = poll.response();
        assert_eq!(response.status, 401);
        assert!(response.header("www-authenticate").contains("token_expired"));
        // Other clients aren't affected.
        renewed.ask(json!({"type": "ping"}));
        join(&mut renewed_io, "user:42");
        assert_eq!(node.disconnects("token_expired"), 4);
        node.until_metric("identities", |identities| identities == 2);
    });
}

#[test]
fn requests_of_a_polling_session_may_renew_its_token_but_not_change_its_user() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        for path in ["/engine.io/", "/socket.io/"] {
            let mut io = Io::open(node.addr, path, Version::V4, Way::Polling, "&token=42.1");
            if path == "/socket.io/" {
                io.connect("", Value::Null);
            }
            let target = io.target("polling");
            let send = |token: &str| {
                let packet = if path == "/socket.io/" { "42[\"a\"]" } else { "4{\"type\":\"ping\"}" };
                node.ask(post(&format!("{target}{token}"), "text/plain", packet.as_bytes())).status
            };
            let asked = || node.issuer.asked.lock().unwrap().len();
            let before = asked();
            assert_eq!(send(""), 200, "the session's own");
            assert_eq!(send("&token=42.1"), 200, "the same token");
            assert_eq!(asked(), before, "which isn't verified again");
            assert_eq!(send("&token=43.2"), 403, "another user's");
            assert_eq!(send("&token=bad"), 401);
            assert_eq!(send("&token=42.2"), 200, "a newer one");
            assert_eq!(send("&token=42.1"), 200, "an older one changes nothing");
        }
        let send = |path: &str| node.ask(post(path, "text/plain", b"[\"{}\"]")).status;
        assert_eq!(node.ask(post("/sockjs/0/poll/xhr?token=42.1", "text/plain", b"")).text(), "o\n");
        for (query, status) in
            [("", 204), ("?token=42.1", 204), ("?token=43", 403), ("?token=bad", 401), ("?token=42.2", 204)]
        {
            assert_eq!(send(&format!("/sockjs/0/poll/xhr_send{query}")), status, "{query}");
        }
        let mut stream = node.http();
        stream.send(request("/ndjson?token=42.1", &[]));
        stream.stream_head();
        let opened: Value = serde_json::from_str(&stream.next_chunk()).unwrap();
        let session = format!("/ndjson/{}", opened["sid"].as_str().unwrap());
        let line = |query: &str| node.ask(post(&format!("{session}?n=1{query}"), "text/plain", b"{}")).status;
        assert_eq!(line(""), 401, "the id alone doesn't suffice");
        assert_eq!(line("&token=43"), 403, "another user's");
        assert_eq!(line("&token=bad"), 401);
        assert_eq!(line("&token=42.1"), 204);
        assert_eq!(node.get(&format!("{session}?received=9&token=43"), &[]).status, 403);
    });
}

#[test]
fn an_anonymous_session_may_become_a_users_by_its_own_message_only() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer { lets_anonymous_in: true, ..Issuer::default() }, |_| {});
        let mut ws = node.client();
        assert_eq!(subscribe(&mut ws, "user:42"), "not_allowed");
        ws.ask(json!({"type": "auth", "token": "42"}));
        assert_eq!(subscribe(&mut ws, "user:42"), "ok");
        // An attacker that opened the session for a user knows its id, so a token in a request doesn't change its user.
        let io = Io::engine(&node, Way::Polling);
        let target = format!("{}&token=42", io.target("polling"));
        assert_eq!(node.ask(post(&target, "text/plain", b"4{}")).status, 403);
    });
}

#[test]
fn revoked_users_are_disconnected_and_changed_permissions_end_subscriptions() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        let (mut other, mut ws) = (node.user("43"), node.user("42"));
        for (ws, user) in [(&mut other, 43), (&mut ws, 42)] {
            for room in [format!("user:{user}"), "public".into()] {
                assert_eq!(subscribe(ws, &room), "ok");
            }
        }
        let mut io = node.socketio_user("42");
        join(&mut io, "public");
        assert_eq!(node.forbid("public"), Concerned { sessions: 3, ..Concerned::default() });
        for ws in [&mut other, &mut ws] {
            expect_withdrawn(ws, "public");
        }
        let event = io.event();
        assert!(event[0] == "stentor:unsubscribed" && event[1]["room"] == "public", "{event}");
        node.publish("public", "1");
        node.publish("user:42", "2");
        // A room that the identity names needs no decision.
        node.publish("lobby", "3");
        let mut received = [ws.next_json()["data"].as_u64(), ws.next_json()["data"].as_u64()];
        received.sort_unstable();
        assert_eq!(received, [Some(2), Some(3)]);
        io.event();

        let revoked = node.revoke("42");
        assert_eq!(revoked, Concerned { sessions: 3, refused: 2, ..Concerned::default() });
        assert_eq!(ws.expect_close(), (4407, "the token was revoked".into()));
        // The session ends with a packet after which its client doesn't reconnect.
        io.expect("41");
        other.fence();
        let of = |user: &str| IdentityFilter { subject: Some(user.into()), ..IdentityFilter::default() };
        assert_eq!(node.recheck(of("44"), RecheckAction::Disconnect), Concerned::default());
        assert_eq!(node.recheck(of("43"), RecheckAction::Renew).sessions, 1);
        // Earlier publications precede the notice.
        while other.next_json()["type"] != "token_expiring" {}
        assert_eq!(node.recheck(of("43"), RecheckAction::Disconnect).refused, 1);
        assert_eq!(other.skip_to_close(), 4407);
        // A list from another node ends only the sessions that it names.
        let mut late = node.user("43");
        let end_revoked = || node.recheck(IdentityFilter::default(), RecheckAction::EndRevoked);
        assert_eq!(end_revoked(), Concerned::default());
        node.issuer.rules.revoked.lock().unwrap().insert("43".into());
        assert_eq!(end_revoked(), Concerned { sessions: 1, refused: 1, ..Concerned::default() });
        assert_eq!(late.skip_to_close(), 4407);
        // Without a namespace, the client would stay connected for a while.
        io.leave();
        node.until_metric("memory_bytes{identities}", |bytes| bytes == 0);
    });
}

#[test]
fn tokens_are_ignored_without_an_authenticator() {
    let server = Server::start(1, |_| {});
    let mut ws = server.ws("/ws?token=bad");
    ws.next_json();
    assert_eq!(subscribe(&mut ws, "user:42"), "ok");
    ws.ask(json!({"type": "auth", "token": "bad"}));
    assert_eq!(server.metric("identities"), 0);
}
