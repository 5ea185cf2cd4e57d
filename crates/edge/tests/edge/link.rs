//! The application link from both sides: clients of Engine.IO, and a link that records what the cores report.

mod commands;
mod options;
mod random;

use crate::broker::Recorder;
use crate::harness::io::{body, post};
use crate::harness::{
    HOUR, Io, Packet, Server, TRANSPORTS, UPGRADE, VERSIONS, Way, Ws, now, on_one_and_three, pass, request,
    until,
};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stentor_edge::{LinkRoutes, Options, Origins, ProxyUsers};
use stentor_ports::fake::{self, Link, LinkCall, names};
use stentor_ports::{
    Broker, Busy, Charge, Class, Drain, EngineOptions, Ledger, LinkAcceptance, LinkApp, LinkApps,
    LinkBroadcast, LinkChange, LinkCloseReason, LinkDescription, LinkEntry, LinkHandshake, LinkMessage,
    LinkMessages, LinkParser, LinkQueued, LinkRefusal, LinkReport, LinkSelect, LinkSession, LinkSocket,
    Networks,
};
use stentor_wire::engineio::Version;

const APP: LinkApp = LinkApp(0);
const PATH: &str = "/app/";
/// The worker's link.
const WORKER: u32 = 7;

/// A node with an application, and the recorded reports.
struct Stage {
    server: Server,
    link: Arc<Link>,
    apps: Arc<LinkApps>,
    calls: std::cell::RefCell<Vec<LinkCall>>,
    /// Size of the waiting messages of the last session.
    queued: std::cell::RefCell<LinkQueued>,
}

fn unit(messages: &[&str]) -> LinkMessages {
    messages.iter().map(|text| LinkMessage::Text(Bytes::copy_from_slice(text.as_bytes()))).collect()
}

fn send(session: LinkSession, messages: &[&str]) -> LinkEntry {
    LinkEntry::Send {
        session,
        is_volatile: false,
        is_compressed: true,
        wants_receipt: false,
        messages: unit(messages),
    }
}

fn broadcast(rooms: &[&str], except: &[&str], text: &str) -> LinkEntry {
    LinkEntry::Broadcast(APP, "/".into(), fake::broadcast(rooms, except, text))
}

fn select(change: LinkChange, rooms: &[&str], targets: &[&str]) -> LinkEntry {
    let select = LinkSelect {
        change,
        is_local: false,
        rooms: names(rooms),
        except: Vec::new(),
        targets: names(targets),
    };
    LinkEntry::Select(APP, "/".into(), Arc::new(select))
}

impl Stage {
    fn new(cores: usize) -> Self {
        Self::with(cores, |_| {})
    }

    fn with(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        let link = Arc::new(Link::default());
        let sink = link.clone();
        let apps = Arc::new(LinkApps::new([EngineOptions::of_path(PATH)]));
        let routes = apps.clone();
        let server = Server::start(cores, |options| {
            options.heartbeat.interval = HOUR;
            options.link = Some(LinkRoutes { sink, apps: routes, http: None });
            set(options);
        });
        Self { server, link, apps, calls: Vec::new().into(), queued: LinkQueued::default().into() }
    }

    /// Gives the cores entries of the worker.
    fn entries(&self, entries: impl IntoIterator<Item = LinkEntry>) {
        self.entries_of(WORKER, entries);
    }

    fn entries_of(&self, link: u32, entries: impl IntoIterator<Item = LinkEntry>) {
        let mut entries: Vec<LinkEntry> = entries.into_iter().collect();
        until("the inboxes to have room", || self.server.plane().carry_out(link, &mut entries).is_ok());
        assert!(entries.is_empty());
    }

    /// Waits for a call of the cores that `find` takes. Other calls are kept.
    fn call<T>(&self, what: &str, find: impl Fn(&LinkCall) -> Option<T>) -> T {
        let mut found = None;
        until(what, || {
            let mut calls = self.calls.borrow_mut();
            calls.extend(self.link.take());
            if let Some(at) = calls.iter().position(|call| find(call).is_some()) {
                found = find(&calls.remove(at));
            }
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits for the next report about a session, and removes it.
    fn report(&self, session: LinkSession) -> LinkReport {
        self.call("a report", |call| match call {
            LinkCall::Report(of, report) if *of == session => Some(report.clone()),
            _ => None,
        })
    }

    fn expect(&self, session: LinkSession, report: LinkReport) {
        assert_eq!(self.report(session), report);
    }

    /// Waits for a request of a client.
    fn opened(&self) -> (LinkSession, LinkHandshake) {
        let (session, handshake) = self.call("a request", |call| match call {
            LinkCall::Report(session, LinkReport::Opened(APP, handshake)) => {
                Some((*session, (**handshake).clone()))
            }
            _ => None,
        });
        *self.queued.borrow_mut() = handshake.queued.clone();
        (session, handshake)
    }

    /// Opens a session that the worker accepts.
    fn open(&self, version: Version, way: Way) -> (Io, LinkSession) {
        self.open_for(WORKER, version, way, LinkAcceptance::default())
    }

    fn open_for(
        &self,
        link: u32,
        version: Version,
        way: Way,
        acceptance: LinkAcceptance,
    ) -> (Io, LinkSession) {
        let number = if version == Version::V4 { 4 } else { 3 };
        let target = |transport: &str| format!("{PATH}?EIO={number}&transport={transport}");
        let accept = |session: LinkSession| {
            self.entries_of(link, [LinkEntry::Accept(session, Box::new(acceptance.clone()))]);
        };
        let (mut io, session) = if way == Way::Socket {
            let stream = Ws::begin_open(self.server.addr, &target("websocket"));
            let (session, _) = self.opened();
            accept(session);
            (Io::of_ws(self.server.addr, PATH, version, Ws::answered(stream, None).unwrap()), session)
        } else {
            let mut http = self.server.http();
            http.send(request("GET", &target("polling"), ""));
            let (session, _) = self.opened();
            accept(session);
            let answer = http.response();
            (Io::of_answer(self.server.addr, PATH, version, http, &answer), session)
        };
        if way == Way::Moved {
            io.upgrade();
            self.expect(session, LinkReport::Upgraded("websocket"));
        }
        (io, session)
    }

    /// Opens a session, whose socket in the main namespace has these rooms and the id `id`.
    fn socket(&self, way: Way, id: &str, rooms: &[&str]) -> (Io, LinkSession) {
        let (io, session) = self.open(Version::V4, way);
        let rooms = names(&[&[id], rooms].concat());
        let socket = LinkSocket { namespace: "/".into(), id: id.into(), rooms };
        self.entries([LinkEntry::Add { session, socket: Box::new(socket) }]);
        (io, session)
    }
}

#[test]
fn messages_pass_in_both_directions() {
    for (version, way) in TRANSPORTS {
        for cores in [1, 3] {
            let stage = Stage::new(cores);
            let (mut io, session) = stage.open(version, way);
            io.begin_send(&["42[\"a\"]"]);
            stage.expect(session, LinkReport::Messages(unit(&["2[\"a\"]"])));
            if way == Way::Polling {
                stage.expect(session, LinkReport::Confirm);
                stage.entries([LinkEntry::Handled(session)]);
            }
            io.end_send();
            stage.entries([send(session, &["2[\"b\"]", "2[\"c\"]"]), send(session, &["2[\"d\"]"])]);
            for name in ["b", "c", "d"] {
                io.expect(&format!("42[\"{name}\"]"));
            }
            let binary = LinkMessage::Binary(Bytes::from_static(b"\x00\x01"));
            stage.entries([LinkEntry::Send {
                session,
                is_volatile: false,
                is_compressed: true,
                wants_receipt: false,
                messages: [binary].into_iter().collect(),
            }]);
            assert_eq!(io.next(), Packet::Binary(vec![0, 1]));
            drop(io);
            if way != Way::Polling {
                let reason = LinkCloseReason::TransportClose;
                stage.expect(session, LinkReport::Closed { reason, sockets: Vec::new() });
                stage.entries([send(session, &["2[\"late\"]"])]);
                stage.server.check_empty();
                stage.server.until_metric("memory_bytes{link}", |bytes| bytes == 0);
            }
        }
    }
}

#[test]
fn a_packet_and_its_attachments_are_reported_together() {
    for parser in [LinkParser::Json, LinkParser::Opaque] {
        let stage = Stage::new(1);
        let acceptance = LinkAcceptance { parser, ..LinkAcceptance::default() };
        let (mut io, session) = stage.open_for(WORKER, Version::V4, Way::Socket, acceptance);
        io.send("451-[\"a\",{\"_placeholder\":true,\"num\":0}]");
        io.send_binary(b"xyz");
        let text = unit(&["51-[\"a\",{\"_placeholder\":true,\"num\":0}]"]);
        let binary = LinkMessage::Binary(Bytes::from_static(b"xyz"));
        if parser == LinkParser::Json {
            stage.expect(session, LinkReport::Messages(text.into_iter().chain([binary]).collect()));
        } else {
            stage.expect(session, LinkReport::Messages(text));
            stage.expect(session, LinkReport::Messages([binary].into_iter().collect()));
        }
    }
}

/// The timeout starts with the packet's first part, and attachments don't extend it. A client that the worker has paused can't send them.
#[test]
fn attachments_that_never_come_end_the_session() {
    const PACKET: &str = r#"452-[{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#;
    for way in [Way::Socket, Way::Polling] {
        let stage = Stage::with(1, |options| {
            options.limits.message_timeout = Duration::from_millis(500);
            options.limits.request_timeout = HOUR;
        });
        let (mut paused, waiting) = stage.open(Version::V4, way);
        stage.entries([LinkEntry::Pause(waiting)]);
        stage.server.check_serves();
        paused.begin_send(&[PACKET]);
        let (mut late, session) = stage.open(Version::V4, way);
        late.send(PACKET);
        late.send_binary(b"x");
        stage.expect(
            session,
            LinkReport::Closed { reason: LinkCloseReason::ForcedClose, sockets: Vec::new() },
        );
        assert_eq!(stage.server.disconnects("message_timeout"), 1, "{way:?}");
        stage.entries([LinkEntry::Continue(waiting)]);
        paused.end_send();
        paused.send_binary(b"x");
        paused.begin_send_binary(b"y");
        let LinkReport::Messages(unit) = stage.report(waiting) else { panic!("{way:?}") };
        assert_eq!(unit.len(), 3, "{way:?}");
    }
}

#[test]
fn workers_see_a_proxys_user_only_if_it_counts_and_never_its_secret() {
    let stage = Stage::with(1, |options| {
        options.origins = Origins::parse(&["*"]).unwrap();
        options.tokens.proxy = Some(ProxyUsers {
            user_header: "Remote-User".into(),
            groups_header: Some("Remote-Groups".into()),
            from: Networks::parse(&["127.0.0.0/8"]).unwrap(),
            secret: Some(("X-Proxy-Secret".into(), "0123456789abcdef".into())),
        });
    });
    for (origin, expect) in
        [("http://a.test", &["Remote-Groups", "Remote-User"][..]), ("http://evil.test", &[])]
    {
        let headers = format!(
            "Origin: {origin}\r\nX-Proxy-Secret: 0123456789abcdef\r\nX_Proxy-Secret: s\r\n\
             Remote-User: ann\r\nRemote-Groups: a\r\n"
        );
        let mut http = stage.server.http();
        http.send(request("GET", "/app/?EIO=4&transport=polling", &headers));
        let (_, handshake) = stage.opened();
        let mut seen: Vec<&str> = handshake.headers.iter().map(|(name, _)| &**name).collect();
        seen.retain(|name| !matches!(*name, "Host" | "Origin"));
        seen.sort_unstable();
        assert_eq!(seen, expect, "{origin}");
    }
}

#[test]
fn the_request_is_described_and_answered_with_the_workers_headers() {
    let stage = Stage::new(1);
    let mut http = stage.server.http();
    http.send(request("GET", "/app/?EIO=4&transport=polling&a=b%20c", "X-Token: t\r\nCookie: k=v\r\n"));
    let (session, handshake) = stage.opened();
    assert_eq!((handshake.protocol, handshake.transport, &*handshake.method), (4, "polling", "GET"));
    assert_eq!(&*handshake.url, "/app/?EIO=4&transport=polling&a=b%20c");
    assert_ne!(handshake.port, 0);
    assert_eq!(
        (handshake.http_version, &*handshake.address, handshake.encrypted),
        ("1.1", "127.0.0.1", false)
    );
    let has = |pairs: &[(Box<str>, Box<str>)], name: &str, value: &str| {
        pairs.iter().any(|pair| (&*pair.0, &*pair.1) == (name, value))
    };
    assert!(has(&handshake.headers, "X-Token", "t") && has(&handshake.headers, "Cookie", "k=v"));
    assert!(has(&handshake.query, "a", "b c"));
    let header = |name: &str, value: &str| (name.into(), value.into());
    let acceptance = LinkAcceptance {
        first: vec![
            header("Set-Cookie", "s=1"),
            header("X-Bad", "a\r\nInjected: b"),
            header("Content-Length", "9"),
        ],
        all: vec![header("X-All", "yes"), header("cache-control", "private")],
        parser: LinkParser::Json,
    };
    stage.entries([LinkEntry::Accept(session, Box::new(acceptance)), send(session, &["0"])]);
    let answer = http.response();
    assert_eq!((answer.header("set-cookie"), answer.header("x-all")), ("s=1", "yes"));
    let all = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-all"));
    assert_eq!(all.count(), 1);
    assert_eq!((answer.header("x-bad"), answer.header("injected")), ("", ""));
    assert_eq!(answer.header("cache-control"), "private", "the worker's header replaces ours");
    let mut io = Io::of_answer(stage.server.addr, PATH, Version::V4, http, &answer);
    assert_eq!(io.sid, &*handshake.sid);
    io.begin_poll();
    let answer = io.end_poll();
    assert_eq!((answer.text(), answer.header("x-all"), answer.header("set-cookie")), ("40", "yes", ""));
}

#[test]
fn a_refused_client_receives_the_workers_response() {
    for transport in ["polling", "websocket"] {
        let stage = Stage::new(1);
        let mut http = stage.server.http();
        let upgrade = if transport == "websocket" { UPGRADE } else { "" };
        http.send(request("GET", &format!("/app/?EIO=4&transport={transport}"), upgrade));
        let (session, _) = stage.opened();
        let refusal = LinkRefusal {
            status: 418,
            headers: vec![("X-Why".into(), "tea".into()), ("Content-Type".into(), "text/plain".into())],
            body: Bytes::from_static(b"no coffee"),
        };
        stage.entries([LinkEntry::Refuse(session, Box::new(refusal)), send(session, &["late"])]);
        let answer = http.response();
        assert_eq!((answer.status, answer.text()), (418, "no coffee"));
        assert_eq!((answer.header("x-why"), answer.header("content-type")), ("tea", "text/plain"));
        drop(http);
        stage.server.check_empty();
        assert_eq!(stage.link.take(), [LinkCall::Space]);
    }
}

#[test]
fn a_client_that_leaves_before_the_answer_is_reported() {
    let stage = Stage::new(1);
    let mut http = stage.server.http();
    http.send(request("GET", "/app/?EIO=4&transport=polling", ""));
    let (session, _) = stage.opened();
    drop(http);
    stage
        .expect(session, LinkReport::Closed { reason: LinkCloseReason::TransportClose, sockets: Vec::new() });
    stage.entries([LinkEntry::Accept(session, Box::default())]);
    stage.server.check_empty();
}

#[test]
fn without_a_link_that_takes_requests_clients_are_unavailable() {
    let stage = Stage::new(1);
    stage.link.set_full(true);
    let answer = stage.server.get("/app/?EIO=4&transport=polling");
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
    stage.server.check_empty();
}

#[test]
fn a_post_is_answered_before_the_effects_of_its_messages() {
    for version in VERSIONS {
        let stage = Stage::new(1);
        let (mut io, session) = stage.open(version, Way::Polling);
        io.begin_poll();
        io.begin_send(&["42[\"a\"]", "42[\"b\"]"]);
        stage.expect(session, LinkReport::Messages(unit(&["2[\"a\"]"])));
        stage.expect(session, LinkReport::Messages(unit(&["2[\"b\"]"])));
        stage.expect(session, LinkReport::Confirm);
        // A second POST waits for the first.
        let mut second = stage.server.http();
        let packets = body(version, &["42[\"c\"]"]);
        second.send(post(&io.target("polling"), "text/plain", packets.as_bytes()));
        stage.server.check_serves();
        assert_eq!(stage.link.take(), []);
        stage.entries([LinkEntry::Handled(session), send(session, &["2[\"reply\"]"])]);
        io.end_send();
        assert!(io.end_poll().text().ends_with("42[\"reply\"]"));
        stage.expect(session, LinkReport::Messages(unit(&["2[\"c\"]"])));
        stage.expect(session, LinkReport::Confirm);
        stage.entries([LinkEntry::Handled(session)]);
        assert_eq!(second.response().text(), "ok");
    }
}

#[test]
fn a_paused_client_is_not_read() {
    for way in [Way::Socket, Way::Polling] {
        let stage = Stage::new(1);
        let (mut io, session) = stage.open(Version::V4, way);
        stage.entries([LinkEntry::Pause(session)]);
        stage.server.check_serves();
        io.begin_send(&["4a", "4b"]);
        stage.expect(session, LinkReport::Messages(unit(&["a"])));
        stage.server.check_serves();
        stage.calls.borrow_mut().extend(stage.link.take());
        assert!(!stage.calls.borrow().iter().any(|call| matches!(call, LinkCall::Report(..))));
        stage.entries([LinkEntry::Continue(session)]);
        stage.expect(session, LinkReport::Messages(unit(&["b"])));
        if way == Way::Polling {
            stage.expect(session, LinkReport::Confirm);
            stage.entries([LinkEntry::Handled(session)]);
        }
        io.end_send();
    }
}

/// The link's answer takes a while, so the core itself counts.
#[test]
fn a_client_is_not_read_while_too_many_of_its_messages_wait() {
    for way in [Way::Socket, Way::Polling] {
        let stage = Stage::new(1);
        stage.apps.set(APP, EngineOptions { queue_bytes_max: 25, ..EngineOptions::of_path(PATH) });
        let (mut io, session) = stage.open(Version::V4, way);
        let texts: Vec<String> = (0..8).map(|n| format!("4message {n}")).collect();
        io.begin_send(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        for (n, text) in texts.iter().enumerate() {
            stage.expect(session, LinkReport::Messages(unit(&[&text[1..]])));
            if n % 3 != 2 {
                continue;
            }
            stage.expect(session, LinkReport::Full);
            stage.server.check_serves();
            stage.calls.borrow_mut().extend(stage.link.take());
            assert!(
                !stage.calls.borrow().iter().any(|call| matches!(call, LinkCall::Report(..))),
                "{way:?} {n}"
            );
            assert_eq!(stage.queued.borrow().bytes(), 27);
            stage.queued.borrow().leave(27);
            stage.entries([LinkEntry::Continue(session)]);
        }
        if way == Way::Polling {
            stage.expect(session, LinkReport::Confirm);
            stage.entries([LinkEntry::Handled(session)]);
        }
        io.end_send();
    }
}

#[test]
fn messages_that_the_link_refuses_are_reported_later_in_order() {
    for way in [Way::Socket, Way::Polling] {
        let stage = Stage::new(1);
        let (mut io, session) = stage.open(Version::V4, way);
        stage.link.set_full(true);
        io.begin_send(&["4a", "4b", "4c"]);
        stage.server.check_serves();
        stage.link.set_full(false);
        stage.server.plane().reports_have_space();
        for text in ["a", "b", "c"] {
            stage.expect(session, LinkReport::Messages(unit(&[text])));
        }
        if way == Way::Polling {
            stage.expect(session, LinkReport::Confirm);
            stage.entries([LinkEntry::Handled(session)]);
        }
        io.end_send();
        stage.server.until_metric("memory_bytes{attachments}", |bytes| bytes == 0);
    }
}

#[test]
fn a_closed_session_receives_what_was_sent_before() {
    for way in [Way::Socket, Way::Polling, Way::Moved] {
        let stage = Stage::new(1);
        let (mut io, session) = stage.socket(way, "x", &[]);
        stage.entries([
            broadcast(&[], &[], "2[\"all\"]"),
            send(session, &["2[\"last\"]"]),
            LinkEntry::Close { session, discards: false },
        ]);
        io.expect("42[\"all\"]");
        io.expect("42[\"last\"]");
        io.expect_end();
        let sockets = vec![LinkSocket { namespace: "/".into(), id: "x".into(), rooms: names(&["x"]) }];
        stage.expect(session, LinkReport::Closed { reason: LinkCloseReason::ForcedClose, sockets });
        drop(io);
        stage.server.until_metric("memory_bytes{link}", |bytes| bytes == 0);
    }
}

#[test]
fn broadcasts_and_messages_to_one_client_keep_their_order_on_all_cores() {
    for cores in [1, 3] {
        let stage = Stage::new(cores);
        let mut sockets: Vec<(Io, LinkSession)> = (0..6)
            .map(|n| stage.socket([Way::Socket, Way::Polling, Way::Moved][n % 3], &format!("s{n}"), &[]))
            .collect();
        for round in 0..20 {
            let text = |step: &str| format!("2[\"{round} {step}\"]");
            let mut entries = vec![broadcast(&[], &[], &text("all"))];
            for (_, session) in &sockets {
                let room = || names(&["r"]);
                entries.push(send(*session, &[&text("own")]));
                entries.push(LinkEntry::Join { session: *session, namespace: "/".into(), rooms: room() });
                entries.push(broadcast(&["r", "s0"], &[], &text("room")));
                entries.push(LinkEntry::Leave { session: *session, namespace: "/".into(), room: "r".into() });
            }
            entries.push(broadcast(&["r"], &[], &text("nobody")));
            entries.push(broadcast(&[], &["s0"], &text("except")));
            stage.entries(entries);
            for (n, (io, _)) in sockets.iter_mut().enumerate() {
                let mut expect = vec!["all"];
                if n == 0 {
                    expect.extend(["own", "room", "room", "room", "room", "room", "room"]);
                } else {
                    expect.extend(["own", "room", "except"]);
                }
                for step in expect {
                    io.expect(&format!("4{}", text(step)));
                }
            }
        }
    }
}

#[test]
fn selections_change_sockets_of_all_cores_and_are_reported() {
    let stage = Stage::new(3);
    let mut sockets: Vec<(Io, LinkSession)> = (0..6)
        .map(|n| stage.socket(Way::Socket, &format!("s{n}"), if n < 3 { &["low"] } else { &[] }))
        .collect();
    stage.entries([select(LinkChange::Join, &["low"], &["a", "b"]), broadcast(&["a"], &[], "joined")]);
    let reported = |change: LinkChange| {
        let mut sessions = Vec::new();
        while sessions.len() < 3 {
            sessions.extend(stage.call("a selection", |call| match call {
                LinkCall::ReportSelected(selected)
                    if selected.select.change == change && selected.link == WORKER =>
                {
                    Some(selected.sessions.clone())
                }
                _ => None,
            }));
        }
        sessions.sort();
        sessions
    };
    let mut low: Vec<LinkSession> = sockets[..3].iter().map(|(_, session)| *session).collect();
    low.sort();
    assert_eq!(reported(LinkChange::Join), low);
    for (io, _) in &mut sockets[..3] {
        io.expect("4joined");
    }
    stage.entries([LinkEntry::Describe { session: sockets[0].1, request: 9 }]);
    let socket =
        LinkSocket { namespace: "/".into(), id: "s0".into(), rooms: names(&["a", "b", "low", "s0"]) };
    let description = LinkDescription { request: 9, upgraded: false, sockets: vec![socket] };
    stage.expect(sockets[0].1, LinkReport::Described(description));
    stage.entries([
        select(LinkChange::Leave, &["a"], &["a"]),
        broadcast(&["a"], &[], "nobody"),
        select(LinkChange::Disconnect { closes: false }, &["b"], &[]),
        broadcast(&[], &[], "others"),
    ]);
    assert_eq!(reported(LinkChange::Leave), low);
    assert_eq!(reported(LinkChange::Disconnect { closes: false }), low);
    for (io, session) in &mut sockets {
        if !low.contains(session) {
            io.expect("4others");
        }
    }
    stage.entries(low.iter().map(|session| send(*session, &["end"])));
    for (io, _) in &mut sockets[..3] {
        io.expect("4end");
    }
}

#[test]
fn local_broadcasts_reach_the_sessions_of_their_link() {
    let stage = Stage::new(1);
    let (mut own, _) = stage.socket(Way::Socket, "own", &[]);
    let (mut moved, session) = stage.socket(Way::Socket, "moved", &[]);
    stage.entries_of(8, [LinkEntry::Own(session)]);
    let local = LinkBroadcast {
        rooms: Vec::new(),
        except: Vec::new(),
        is_local: true,
        is_volatile: false,
        is_compressed: true,
        messages: unit(&["local"]),
    };
    let local = |link| {
        stage.entries_of(link, [LinkEntry::Broadcast(APP, "/".into(), Arc::new(local.clone()))]);
        stage.entries_of(link, [broadcast(&[], &[], &format!("from {link}"))]);
    };
    local(WORKER);
    local(8);
    for text in ["4local", "4from 7", "4from 8"] {
        own.expect(text);
    }
    for text in ["4from 7", "4local", "4from 8"] {
        moved.expect(text);
    }
}

#[test]
fn volatile_messages_are_dropped_while_others_are_pending() {
    let volatile = |session, text: &str| LinkEntry::Send {
        session,
        is_volatile: true,
        is_compressed: true,
        wants_receipt: true,
        messages: unit(&[text]),
    };
    let stage = Stage::new(1);
    let (mut io, session) = stage.open(Version::V4, Way::Socket);
    stage.entries([volatile(session, "one"), volatile(session, "two"), send(session, &["three"])]);
    io.expect("4one");
    io.expect("4three");
    stage.expect(session, LinkReport::Receipt);
    stage.expect(session, LinkReport::Receipt);
    let (mut io, session) = stage.open(Version::V4, Way::Polling);
    stage.entries([volatile(session, "no poll")]);
    stage.expect(session, LinkReport::Receipt);
    io.begin_poll();
    stage.server.check_serves();
    stage.entries([volatile(session, "poll"), volatile(session, "more")]);
    assert_eq!(io.end_poll().text(), "4poll");
    stage.expect(session, LinkReport::Receipt);
    stage.expect(session, LinkReport::Receipt);
}

#[test]
fn a_client_that_does_not_read_is_reported() {
    let stage = Stage::new(1);
    let (mut io, session) = stage.open(Version::V4, Way::Polling);
    let text = "x".repeat(40_000);
    stage.entries([send(session, &[&text]), send(session, &[&text])]);
    stage.expect(session, LinkReport::Pressure(true));
    io.expect(&format!("4{text}"));
    stage.expect(session, LinkReport::Pressure(false));
    stage.entries([send(session, &["more"])]);
    io.expect(&format!("4{text}"));
    io.expect("4more");
}

#[test]
fn a_client_without_heartbeat_is_reported() {
    let stage = Stage::with(1, |options| options.heartbeat.interval = Duration::from_secs(25));
    let (mut io, session) = stage.open(Version::V4, Way::Socket);
    io.ignore_pings();
    stage.expect(session, LinkReport::Closed { reason: LinkCloseReason::PingTimeout, sockets: Vec::new() });
}

/// The messages that wait for its worker count for the client.
#[test]
fn a_client_whose_messages_wait_is_closed_while_memory_is_short() {
    const BUDGET: usize = 16 << 20;
    let ledger = Arc::new(Ledger::new(BUDGET));
    let shared = ledger.clone();
    let stage = Stage::with(1, |options| {
        options.limits.memory_bytes_max = BUDGET;
        options.ledger = Some(shared);
    });
    let open = || {
        let mut http = stage.server.http();
        http.send(request("GET", &format!("{PATH}?EIO=4&transport=polling"), ""));
        let (session, handshake) = stage.opened();
        stage.entries([LinkEntry::Accept(session, Box::default())]);
        assert_eq!(http.response().status, 200);
        (http, session, handshake.queued)
    };
    let ((_, modest, few), (_, greedy, many)) = (open(), open());
    few.0.store(1_000, Ordering::Relaxed);
    many.0.store(BUDGET, Ordering::Relaxed);
    let waiting = Charge::of(ledger, Class::Link, BUDGET + 1);
    stage.expect(greedy, LinkReport::Closed { reason: LinkCloseReason::ForcedClose, sockets: Vec::new() });
    drop(waiting);
    stage.entries([LinkEntry::Describe { session: modest, request: 1 }]);
    assert!(matches!(stage.report(modest), LinkReport::Described(_)));
}

/// The rooms of a client count for the client. Otherwise a client that an application lets join any room would keep memory short.
#[test]
fn a_client_in_many_rooms_is_closed_while_memory_is_short() {
    let stage = Stage::with(1, |options| options.limits.memory_bytes_max = 16 << 20);
    let (mut modest, _) = stage.socket(Way::Socket, "modest", &["lobby"]);
    let (_greedy, session) = stage.socket(Way::Socket, "greedy", &[]);
    for n in 0..100 {
        let rooms: Vec<String> = (0..200).map(|m| format!("{:01000}", 200 * n + m)).collect();
        let rooms: Vec<&str> = rooms.iter().map(String::as_str).collect();
        stage.entries([LinkEntry::Join { session, namespace: "/".into(), rooms: names(&rooms) }]);
    }
    let LinkReport::Closed { reason, sockets } = stage.report(session) else { panic!() };
    assert_eq!((reason, &*sockets[0].id), (LinkCloseReason::ForcedClose, "greedy"));
    stage.server.until_metric("memory_bytes{link}", |bytes| bytes < 1 << 20);
    stage.entries([broadcast(&["lobby"], &[], "news")]);
    modest.expect("4news");
}

/// The worker's answer to the POST comes when its connection has gone.
#[test]
fn a_session_whose_post_was_cut_still_needs_heartbeats() {
    let stage = Stage::with(1, |options| options.heartbeat.interval = Duration::from_secs(25));
    let (io, session) = stage.open(Version::V4, Way::Polling);
    let mut cut = stage.server.http();
    cut.send(post(&io.target("polling"), "text/plain", body(Version::V4, &["4a"]).as_bytes()));
    stage.expect(session, LinkReport::Messages(unit(&["a"])));
    stage.expect(session, LinkReport::Confirm);
    let connections = stage.server.metric("connections");
    cut.reset();
    stage.server.until_metric("connections", |open| open == connections - 1);
    stage.entries([LinkEntry::Handled(session)]);
    stage.expect(session, LinkReport::Closed { reason: LinkCloseReason::PingTimeout, sockets: Vec::new() });
}

#[test]
fn longer_paths_belong_to_the_application() {
    let stage = Stage::new(1);
    for path in ["/app", "/app/default/"] {
        let mut http = stage.server.http();
        http.send(request("GET", &format!("{path}?EIO=4&transport=polling"), ""));
        let (session, _) = stage.opened();
        stage.entries([LinkEntry::Accept(session, Box::default())]);
        assert_eq!(http.response().status, 200);
    }
    assert_eq!(stage.server.get("/socket.io/?EIO=4&transport=polling").status, 200, "the server's own");
}

#[test]
fn a_full_inbox_takes_all_entries_of_a_call_or_none() {
    let stage = Stage::with(2, |options| options.limits.inbox_messages_max = 1);
    let mut sockets: Vec<(Io, LinkSession)> = Vec::new();
    while (0..2).any(|core| sockets.iter().all(|(_, session)| session.core() != core)) {
        assert!(sockets.len() < 100, "the kernel doesn't spread connections");
        let id = format!("s{}", sockets.len());
        sockets.push(stage.socket(Way::Socket, &id, &[]));
    }
    let of_core = |core: usize| sockets.iter().find(|(_, session)| session.core() == core).unwrap().1;
    stage.server.stop_core(1, true);
    stage.entries([send(of_core(1), &["first"])]);
    let mut entries = vec![send(of_core(0), &["both"]), broadcast(&[], &[], "all")];
    let before = entries.clone();
    assert_eq!(stage.server.plane().carry_out(WORKER, &mut entries), Err(Busy));
    assert_eq!(entries, before, "the caller keeps the entries");
    stage.link.take();
    stage.server.stop_core(1, false);
    stage.call("space", |call| matches!(call, LinkCall::Space).then_some(()));
    stage.entries(entries);
    let (first, second) = (of_core(1), of_core(0));
    for (io, session) in &mut sockets {
        if *session == first {
            io.expect("4first");
        }
        if *session == second {
            io.expect("4both");
        }
        io.expect("4all");
    }
}

#[test]
fn entries_with_many_rooms_take_several_turns() {
    let stage = Stage::new(1);
    let (mut io, session) = stage.socket(Way::Socket, "s", &[]);
    let rooms: Vec<String> = (0..2_500).map(|n| format!("room {n}")).collect();
    let rooms: Vec<&str> = rooms.iter().map(String::as_str).collect();
    let join = || LinkEntry::Join { session, namespace: "/".into(), rooms: names(&rooms) };
    // 10,000 steps each: a turn has 8,192.
    stage.entries([join(), join(), broadcast(&rooms, &[], "to all"), send(session, &["end"])]);
    io.expect("4to all");
    io.expect("4end");
    assert_eq!(stage.server.metric("command_yields"), 3);
}

#[test]
fn a_long_selection_takes_several_turns_and_later_entries_wait_for_it() {
    let stage = Stage::new(1);
    let mut sockets: Vec<(Io, LinkSession)> =
        (0..12).map(|n| stage.socket(Way::Socket, &format!("s{n}"), &[])).collect();
    let targets: Vec<String> = (0..2_000).map(|n| format!("room {n}")).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    stage.entries([
        select(LinkChange::Join, &[], &targets),
        broadcast(&["room 1999"], &[], "joined"),
        select(LinkChange::Leave, &[], &targets),
        broadcast(&["room 0", "room 1999"], &[], "nobody"),
        broadcast(&[], &[], "left"),
    ]);
    for (io, _) in &mut sockets {
        io.expect("4joined");
        io.expect("4left");
    }
    assert!(stage.server.metric("command_yields") >= 4, "12 sockets with 2,000 rooms exceed a turn");
    drop(sockets);
    stage.server.check_empty();
    stage.server.until_metric("memory_bytes{link}", |bytes| bytes == 0);
}

#[test]
fn a_node_of_a_cluster_that_drains_waits_for_sockets_that_the_link_keeps() {
    const SECOND: Duration = Duration::from_secs(1);
    on_one_and_three(|cores| {
        for (is_in_cluster, kept_for, seconds) in [(true, None, 5), (true, Some(2), 2), (false, None, 0)] {
            let _other = Server::start(1, |_| {});
            let Stage { server, link, .. } = Stage::with(cores, |options| {
                options.broker = is_in_cluster.then(|| Arc::new(Recorder::default()) as Arc<dyn Broker>);
            });
            link.set_keeping(true);
            let begun = now();
            server.plane().drain(Drain { window: SECOND, timeout: HOUR, ..Drain::default() });
            if let Some(seconds) = kept_for {
                pass(seconds * SECOND);
                link.set_keeping(false);
            }
            server.join();
            let passed = now() - begun;
            assert!((seconds..seconds + 2).contains(&passed.as_secs()), "{passed:?}, not {seconds} s");
        }
    });
}
