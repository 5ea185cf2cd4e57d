//! Behaviour that clients of other servers rely on although the protocols don't specify it. Each case was found with
//! a stock client. Compared with socket.io 4.8, engine.io 6.6 and ws 8.

use crate::harness::io::post;
use crate::harness::{Io, Packet, Server, VERSIONS, Way, Ws, on_one_and_three, request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use stentor_edge::{
    Admission, App, Application, Arguments, Context, Message, NamespaceRequest, Origins, SameSite,
};
use stentor_hub::SessionId;
use stentor_wire::engineio::Version;

/// MIME style (RFC 2045, section 6.8): lines of 76 characters, each ended by `end`.
fn mime(bytes: &[u8], end: &str) -> String {
    let base64 = STANDARD.encode(bytes);
    base64.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line) + end).collect()
}

/// `io.socket:socket.io-client` 2.1.1, for Java and Android, polls in this way.
#[test]
fn polled_base64_may_have_line_breaks_and_no_padding() {
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        for version in VERSIONS {
            for (length, end) in
                [(0, "\n"), (3, "\n"), (57, "\n"), (58, "\r\n"), (1_000, "\n"), (100_000, "\r\n")]
            {
                let mut io = Io::open(server.addr, "/engine.io/", version, Way::Polling, "");
                let bytes: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
                for text in [mime(&bytes, end), mime(&bytes, end).replace('=', "")] {
                    let body = match version {
                        Version::V4 => format!("b{text}"),
                        Version::V3 => format!("{}:b4{text}", text.len() + 2),
                    };
                    let request = post(&io.target("polling"), "text/plain", body.as_bytes());
                    let status = io.posts().ask(&request).status;
                    assert_eq!(status, 200, "{version:?}, {length} bytes, {end:?}");
                    assert_eq!(io.next(), Packet::Binary(bytes.clone()));
                }
            }
        }
    });
}

/// python-engineio and rust_socketio don't reconnect after the close packet, and OkHttp's Socket.IO client takes 43 s
/// to notice a Close frame. Both are therefore sent only to clients that shouldn't reconnect: those that break the
/// protocol, in `threats_io.rs`.
#[test]
fn a_slow_client_that_polls_is_to_reconnect() {
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Echo, |options| options.limits.send_buffer_bytes_max = 20_000);
        let mut io = Io::connected(&server, Version::V4, Way::Polling);
        server.until_requested(|| io.begin_poll());
        // The answers are larger than an outbox, and the client doesn't poll.
        io.send(&format!("42[\"x\",\"{}\"]", "x".repeat(30_000)));
        assert_eq!(io.expect_end(), 503);
        assert_eq!(server.disconnects("slow_consumer"), 1);
    });
}

/// ws, and so engine.io, selects the first offered subprotocol. Browsers fail a connection that offers some and gets none.
#[test]
fn a_named_subprotocol_is_taken_on_engineio() {
    let server = Server::echo(1);
    let named = [("Sec-WebSocket-Protocol", "one, two")];
    let taken = |target: &str| {
        let ws = Ws::open(server.addr, target, &named, false).unwrap();
        ws.head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Protocol: ").map(str::to_owned))
    };
    assert_eq!(taken("/engine.io/?EIO=4&transport=websocket").as_deref(), Some("one"));
    let io = Io::socket(&server, Way::Polling);
    assert_eq!(taken(&io.target("websocket")).as_deref(), Some("one"));
    // The client can't tell `stentor.v1` from the protocol that it offered, so no subprotocol is selected.
    assert_eq!(taken("/ws"), None);
}

/// Sends each client the `auth` that it connected with.
struct TellAuth;

impl Application for TellAuth {
    fn message(&mut self, _: &mut Context<'_>, _: SessionId, _: Message<'_>) {}

    fn connect_namespace(&mut self, _: &mut Context<'_>, _: &NamespaceRequest<'_>) -> Admission {
        Admission::Accept
    }

    fn joined(&mut self, ctx: &mut Context<'_>, session: SessionId, request: &NamespaceRequest<'_>, _: &str) {
        ctx.emit(session, "auth", Arguments { json: request.auth, attachments: &[] });
    }
}

/// socket.io 4 hands the query of an old client's namespace to the application as `auth`.
#[test]
fn the_query_of_a_namespace_is_auth_for_clients_of_version_3() {
    let server = Server::with_app(1, Arc::new(|_| Box::new(TellAuth)), |_| {});
    let mut io = Io::open(server.addr, "/socket.io/", Version::V3, Way::Socket, "&x=1");
    io.expect("40");
    // The handshake's query isn't part of `auth`.
    io.expect("42[\"auth\",{}]");
    for (query, auth) in [
        ("", "{}"),
        ("?", "{}"),
        ("?token=a%20b%22&n=1&n=2&empty", r#"{"token":"a b\"","n":["1","2"],"empty":""}"#),
        ("?a=%zz+c", r#"{"a":"%zz c"}"#),
    ] {
        io.send(&format!("40/ns{query}"));
        io.expect("40/ns,");
        io.expect(&format!("42/ns,[\"auth\",{auth}]"));
        io.send("41/ns");
    }
}

/// `*` lets every page read, but without the user's cookies.
#[test]
fn any_origin_may_read_without_credentials() {
    let server = Server::quiet(1, App::Rooms, |options| {
        options.origins = Origins::parse(&["*", "https://named.test"]).unwrap();
    });
    server.document("k", "1");
    let heads = |target: &str, origin: &str| {
        let mut http = server.http();
        http.send(request("GET", target, &format!("Origin: {origin}\r\n")));
        let answer = if target.starts_with("/sse") { http.stream_head() } else { http.response() };
        ["access-control-allow-origin", "access-control-allow-credentials"]
            .map(|name| answer.header(name).to_owned())
    };
    let own = [String::from("*"), String::new()];
    for target in [
        "/engine.io/?EIO=4&transport=polling",
        "/socket.io/?EIO=4&transport=polling",
        "/engine.io/?EIO=9",
        "/sse/k",
        "/feed/k",
    ] {
        assert_eq!(heads(target, "https://any.test"), own, "{target}");
        let named = heads(target, "https://named.test");
        assert_eq!(named[0], "https://named.test", "{target}");
        assert_eq!(named[1], "true", "{target}");
    }
    // Polls and POSTs behave alike.
    let io = Io::engine(&server, Way::Polling);
    let target = io.target("polling");
    assert_eq!(heads(&target.replace(&io.sid, "none"), "null"), own);
    // sockjs-client always sends cookies, so responses to it name the origin.
    let named = ["https://any.test".to_owned(), "true".to_owned()];
    assert_eq!(heads("/sockjs/info", "https://any.test"), named);
}

#[test]
fn the_cookie_has_the_attributes_that_were_asked_for() {
    for (secure, same_site, expect) in [
        (false, SameSite::Lax, "; Path=/; HttpOnly; SameSite=Lax"),
        (true, SameSite::None, "; Path=/; HttpOnly; Secure; SameSite=None"),
        (true, SameSite::Strict, "; Path=/; HttpOnly; Secure; SameSite=Strict"),
    ] {
        let server = Server::start(1, |options| {
            options.engine.cookie = Some("io".into());
            options.engine.cookie_secure = secure;
            options.engine.cookie_same_site = same_site;
        });
        let answer = server.get("/engine.io/?EIO=4&transport=polling");
        assert!(answer.header("set-cookie").ends_with(expect), "{}", answer.header("set-cookie"));
    }
}
