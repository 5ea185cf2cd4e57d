//! Options of an application's workers, as its clients see them.

use super::{APP, PATH, Stage, unit};
use crate::harness::io::{packets, post};
use crate::harness::{Packet, Response, UPGRADE, Way, now, request};
use std::time::Duration;
use stentor_ports::fake::LinkCall;
use stentor_ports::{
    EngineCookie, EngineCors, EngineOptions, EngineOrigins, LinkAcceptance, LinkCloseReason, LinkEntry,
    LinkRefused, LinkReport,
};
use stentor_wire::engineio::Version;

/// A node whose application has these options.
fn with(options: EngineOptions) -> Stage {
    let stage = Stage::new(1);
    stage.apps.set(APP, options);
    stage
}

fn default() -> EngineOptions {
    EngineOptions::of_path(PATH)
}

impl Stage {
    /// The response to a client's first request, which the worker accepts.
    fn begin(&self, target: &str, headers: &str) -> Response {
        let mut http = self.server.http();
        http.send(request("GET", target, headers));
        let (session, _) = self.opened();
        self.entries([LinkEntry::Accept(session, Box::<LinkAcceptance>::default())]);
        http.response()
    }

    fn error(&self, target: &str, headers: &str) -> (u16, String) {
        let answer = self.server.request("GET", target, headers);
        (answer.status, answer.text().to_owned())
    }
}

/// The packet with which a session begins.
fn open_packet(answer: &Response) -> serde_json::Value {
    let Some(Packet::Text(text)) = packets(Version::V4, answer).into_iter().next() else {
        panic!("{answer:?}")
    };
    serde_json::from_str(&text[1..]).unwrap()
}

#[test]
fn a_session_begins_with_the_options_of_its_application() {
    let stage = with(EngineOptions {
        ping_interval: Some(Duration::from_millis(300)),
        ping_timeout: Some(Duration::from_millis(200)),
        message_bytes_max: Some(100),
        cookie: Some(EngineCookie {
            name: "io".into(),
            attributes: "; Path=/; HttpOnly; SameSite=Lax".into(),
        }),
        ..default()
    });
    let answer = stage.begin("/app/?EIO=4&transport=polling", "");
    let open = open_packet(&answer);
    let sid = open["sid"].as_str().unwrap();
    assert_eq!(answer.header("set-cookie"), format!("io={sid}; Path=/; HttpOnly; SameSite=Lax"));
    assert_eq!((open["pingInterval"].as_u64(), open["pingTimeout"].as_u64()), (Some(300), Some(200)));
    assert_eq!(
        (open["maxPayload"].as_u64(), &open["upgrades"]),
        (Some(100), &serde_json::json!(["websocket"]))
    );
    let stage = with(EngineOptions { allows_upgrades: false, ..default() });
    let open = open_packet(&stage.begin("/app/?EIO=4&transport=polling", ""));
    assert_eq!((&open["upgrades"], open["pingTimeout"].as_u64()), (&serde_json::json!([]), Some(20_000)));
}

/// The server has started, and its clients are faster than the workers.
#[test]
fn a_client_that_comes_before_the_first_worker_has_the_workers_options() {
    let stage = Stage::new(1);
    let mut http = stage.server.http();
    http.send(request("GET", "/app/?EIO=4&transport=polling", ""));
    let (session, _) = stage.opened();
    let cors = EngineCors {
        origins: EngineOrigins::Reflected,
        credentials: false,
        methods: "GET".into(),
        allowed_headers: None,
        exposed_headers: None,
        max_age: None,
        preflight_status: 204,
    };
    // The server can't know whether this page may connect.
    let page = |method| {
        stage.server.request(method, "/app/?EIO=4&transport=polling", "Origin: http://page.test\r\n")
    };
    for method in ["GET", "OPTIONS"] {
        let answer = page(method);
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{method}");
    }
    assert_eq!(stage.server.metric("origins_refused"), 0);
    let ping_interval = Some(Duration::from_millis(300));
    stage.apps.set(APP, EngineOptions { ping_interval, cors: Some(cors), ..default() });
    stage.entries([LinkEntry::Accept(session, Box::default())]);
    assert_eq!(open_packet(&http.response())["pingInterval"].as_u64(), Some(300));
    assert_eq!(page("OPTIONS").status, 204);
}

#[test]
fn heartbeats_have_the_times_of_the_application() {
    let (interval, timeout) = (Duration::from_millis(300), Duration::from_millis(200));
    for way in [Way::Polling, Way::Socket] {
        let stage =
            with(EngineOptions { ping_interval: Some(interval), ping_timeout: Some(timeout), ..default() });
        let begun = now();
        let (mut io, session) = stage.open(Version::V4, way);
        io.ignore_pings();
        stage.expect(
            session,
            LinkReport::Closed { reason: LinkCloseReason::PingTimeout, sockets: Vec::new() },
        );
        let passed = now() - begun;
        assert!(passed >= interval + timeout && passed < 2 * (interval + timeout), "{way:?}: {passed:?}");
    }
}

#[test]
fn messages_have_the_maximum_size_of_the_application() {
    let large = "a".repeat(101);
    for way in [Way::Socket, Way::Polling] {
        let stage = with(EngineOptions { message_bytes_max: Some(100), ..default() });
        let (mut io, session) = stage.open(Version::V4, way);
        if way == Way::Polling {
            let answer =
                stage.server.ask(post(&io.target("polling"), "text/plain", format!("4{large}").as_bytes()));
            assert_eq!(answer.status, 413);
            continue;
        }
        io.begin_send(&[&format!("4{}", &large[..100])]);
        stage.expect(session, LinkReport::Messages(unit(&[&large[..100]])));
        io.begin_send(&[&format!("4{large}")]);
        stage
            .expect(session, LinkReport::Closed { reason: LinkCloseReason::ParseError, sockets: Vec::new() });
    }
}

#[test]
fn transports_and_versions_are_those_of_the_application() {
    let unknown = r#"{"code":0,"message":"Transport unknown"}"#.to_owned();
    let stage = with(EngineOptions { has_polling: false, ..default() });
    assert_eq!(stage.error("/app/?EIO=4&transport=polling", ""), (400, unknown.clone()));
    let stage = with(EngineOptions { has_websocket: false, ..default() });
    assert_eq!(stage.error("/app/?EIO=4&transport=websocket", UPGRADE), (400, unknown));
    let open = open_packet(&stage.begin("/app/?EIO=4&transport=polling", ""));
    assert_eq!(open["upgrades"], serde_json::json!([]));
    let stage = with(EngineOptions { allows_version_3: false, ..default() });
    let (status, body) = stage.error("/app/?EIO=3&transport=polling", "");
    assert_eq!((status, &body[..9]), (400, r#"{"code":5"#));
    // The server's own clients have the options of the server.
    assert_eq!(stage.server.get("/socket.io/?EIO=3&transport=polling").status, 200);
}

#[test]
fn the_path_of_an_application_changes_with_its_workers() {
    let stage = with(EngineOptions { path: "/other".into(), ..EngineOptions::default() });
    assert_eq!(stage.server.get("/app/?EIO=4&transport=polling").status, 404);
    for path in ["/other", "/other/", "/other/default/"] {
        assert_eq!(stage.begin(&format!("{path}?EIO=4&transport=polling"), "").status, 200);
    }
}

#[test]
fn refused_requests_are_reported_to_workers_that_listen() {
    let stage = with(default());
    let refused = || {
        let mut calls = stage.calls.borrow_mut();
        calls.extend(stage.link.take());
        calls
            .drain(..)
            .filter_map(|call| match call {
                LinkCall::ReportRefused(refused) => Some(refused),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(stage.error("/app/?EIO=4&transport=none", "").0, 400);
    assert_eq!(refused(), []);
    stage.apps.set_reports(APP, 6);
    let check = |method: &str, query: &str, expect: (u8, &str, &str, &str)| {
        assert_eq!(stage.server.request(method, &format!("/app/?{query}"), "X-A: b\r\n").status, 400);
        let all = refused();
        let [LinkRefused { code, message, context: (name, value), request, .. }] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((*code, *message, *name, &**value), expect);
        assert_eq!((&*request.method, &*request.url), (method, &*format!("/app/?{query}")));
        assert!(request.headers.contains(&("X-A".into(), "b".into())));
    };
    check("GET", "EIO=4&transport=none", (0, "Transport unknown", "transport", "none"));
    check("GET", "EIO=4&transport=polling&sid=x", (1, "Session ID unknown", "sid", "x"));
    check("PUT", "EIO=4&transport=polling", (2, "Bad handshake method", "method", "PUT"));
    check("GET", "EIO=4&transport=websocket", (3, "Bad request", "name", "TRANSPORT_HANDSHAKE_ERROR"));
    check("GET", "EIO=7&transport=polling", (5, "Unsupported protocol version", "protocol", "7"));
    // The server's own clients are none of the application's.
    assert_eq!(stage.server.get("/socket.io/?EIO=4&transport=none").status, 400);
    assert_eq!((refused(), stage.apps.reports(APP)), (Vec::new(), 1));
    // Further ones are reported only when the link permits it again.
    check("GET", "EIO=4&transport=none", (0, "Transport unknown", "transport", "none"));
    assert_eq!(stage.error("/app/?EIO=4&transport=none", "").0, 400);
    assert_eq!(refused(), []);
}

#[test]
fn pages_of_other_origins_connect_as_the_application_allows() {
    let target = "/app/?EIO=4&transport=polling";
    let page = "Origin: http://page.test\r\n";
    assert_eq!(with(default()).error(target, page).0, 403);
    let stage = with(EngineOptions {
        cors: Some(EngineCors {
            origins: EngineOrigins::Listed(vec!["http://page.test".into()]),
            credentials: true,
            methods: "GET,POST".into(),
            allowed_headers: Some("content-type".into()),
            exposed_headers: Some("X-A".into()),
            max_age: None,
            preflight_status: 204,
        }),
        ..default()
    });
    assert_eq!(stage.error(target, "Origin: http://another.test\r\n").0, 403);
    let shown = |answer: &Response| {
        let names = ["allow-origin", "allow-credentials", "expose-headers", "allow-methods", "allow-headers"];
        names.map(|name| answer.header(&format!("access-control-{name}")).to_owned()).join(" ")
    };
    let common = "http://page.test true X-A";
    let answer = stage.begin(target, page);
    assert_eq!((answer.status, shown(&answer)), (200, format!("{common}  ")));
    let vary = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
    assert_eq!(vary.count(), 1);
    let preflight = stage.server.request("OPTIONS", "/app/default/?EIO=4&transport=polling", page);
    assert_eq!((preflight.status, shown(&preflight)), (204, format!("{common} GET,POST content-type")));
    // Pages can read errors, too.
    let error = stage.server.request("GET", "/app/?EIO=4&transport=none", page);
    assert_eq!((error.status, shown(&error)), (400, format!("{common}  ")));
    // The configuration's rules are those of the server's own clients.
    assert_eq!(stage.server.request("GET", "/socket.io/?EIO=4&transport=polling", page).status, 403);
}
