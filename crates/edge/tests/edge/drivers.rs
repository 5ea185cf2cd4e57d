//! Each protocol once over real sockets, on epoll and io_uring, and behaviour that only a kernel or real threads show.

use crate::harness::io::post;
use crate::harness::tls::{Certificates, TlsStream, client};
use crate::harness::{HOUR, Http, Io, Packet, Server, Stream, WAYS, Ws, meet, request, until};
use serde_json::json;
use std::sync::Arc;
use stentor_edge::{
    App, Application, Connect, Context, DriverChoice, LinkRoutes, Message, Options, StaticRoute,
};
use stentor_hub::SessionId;
use stentor_ports::fake::{Link, LinkCall};
use stentor_ports::{EngineOptions, LinkApps, LinkEntry, LinkMessage, LinkReport};
use stentor_wire::engineio::Version;
use stentor_wire::http1::Request;

const CORES: usize = 2;
const PAGE_BYTES: usize = 8 << 20;

/// Runs a test on each driver that works here.
fn on_drivers(test: impl Fn(DriverChoice)) {
    test(DriverChoice::Epoll);
    match stentor_driver::probe().fallback_reason {
        None => test(DriverChoice::IoUring),
        Some(reason) => eprintln!("skipped on io_uring: {reason}"),
    }
}

fn check(set: impl Fn(&mut Options), test: impl Fn(&Server)) {
    on_drivers(|driver| {
        let server = Server::on_driver(driver, CORES, None, &set);
        test(&server);
        server.until_metric("connections", |connections| connections == 0);
        server.check_balance();
    });
}

fn get(server: &Server, target: &str) -> Http {
    let mut http = server.http();
    http.send(request("GET", target, ""));
    http
}

#[test]
fn websocket() {
    check(
        |options| options.app = App::Chat,
        |server| {
            let mut clients = server.ws_on_each_core("/ws");
            meet(&mut clients, Ws::send_text, Ws::next_text);
            let large = "x".repeat(900_000);
            clients[0].send_text(&large);
            for ws in &mut clients {
                assert_eq!(ws.next_text(), large);
            }
            let mut deflating = Ws::open(server.addr, "/ws", &[], true).unwrap();
            deflating.send_deflated(&large);
            assert_eq!(deflating.next_text(), large);
            deflating.send_close(1000, "");
            assert_eq!(deflating.expect_close().0, 1000);
        },
    );
}

#[test]
fn stentor_v1() {
    check(
        |options| options.rooms.publish = true,
        |server| {
            let mut clients = server.ws_on_each_core("/ws?feed=k");
            server.document("k", "1");
            for ws in &mut clients {
                assert_eq!(ws.next_json()["type"], "welcome");
                assert_eq!(ws.next_json()["data"], 1);
                ws.ask(json!({"type": "subscribe", "room": "r"}));
            }
            server.publish("r", "2");
            for ws in &mut clients {
                ws.expect_json(json!({"type": "message", "room": "r", "data": 2}));
            }
        },
    );
}

#[test]
fn engineio_and_socketio() {
    check(
        |options| options.app = App::Echo,
        |server| {
            for way in WAYS {
                let mut io = Io::engine(server, way);
                io.echoes("4text");
                io.send_binary(&[0xff; 100_000]);
                assert_eq!(io.next(), Packet::Binary(vec![0xff; 100_000]));
                io.leave();
                let mut io = Io::connected(server, Version::V4, way);
                io.echoes(r#"42["say",1]"#);
                io.leave();
            }
        },
    );
}

#[test]
fn sockjs() {
    check(
        |options| options.app = App::Echo,
        |server| {
            let mut ws = server.ws("/sockjs/0/a/websocket");
            assert_eq!(ws.next_text(), "o");
            ws.send_text(r#"["text"]"#);
            assert_eq!(ws.next_text(), r#"a["text"]"#);
            let (mut poll, mut send) = (server.http(), server.http());
            assert_eq!(poll.ask(post("/sockjs/0/b/xhr", "text/plain", b"")).text(), "o\n");
            poll.send(post("/sockjs/0/b/xhr", "text/plain", b""));
            send.send(post("/sockjs/0/b/xhr_send", "text/plain", br#"["text"]"#));
            assert_eq!((send.response().status, poll.response().text()), (204, "a[\"text\"]\n"));
        },
    );
}

#[test]
fn server_sent_events_and_polling() {
    check(
        |_| {},
        |server| {
            let mut events = get(server, "/sse/k");
            events.stream_head();
            assert!(events.next_chunk().starts_with("retry"));
            let mut waiting = get(server, "/feed/k");
            server.wait_wanted("k", true);
            server.document("k", "1");
            assert!(events.next_chunk().ends_with("data: 1\n\n"));
            let answer = waiting.response();
            let mut waiting =
                get(server, &format!("/feed/k?wait={}", answer.header("etag").trim_matches('"')));
            server.until_metric("http_requests", |requests| requests == 3);
            server.document("k", "2");
            assert_eq!((answer.text(), waiting.response().text()), ("1", "2"));
        },
    );
}

#[test]
fn primus() {
    check(
        |options| options.app = App::Echo,
        |server| {
            let mut ws = server.ws("/primus/?_primuscb=P");
            ws.send_json(json!({"a": [1]}));
            ws.expect_json(json!({"a": [1]}));
        },
    );
}

/// A page that is larger than all buffers, for a slow client and over TLS.
#[test]
fn http_and_tls() {
    let pages = |options: &mut Options| {
        let body = (0..PAGE_BYTES).map(|at| (at % 251) as u8).collect();
        options.routes = vec![StaticRoute { path: "/page".into(), content_type: "text/html".into(), body }];
        options.app = App::Echo;
    };
    let is_page = |body: &[u8]| {
        body.len() == PAGE_BYTES && body.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8)
    };
    check(pages, |server| {
        let mut slow = get(server, "/page");
        let mut http = get(server, "/page");
        assert!(is_page(&http.response().body));
        assert!(is_page(&slow.response().body));
        assert_eq!(http.get("/healthz").text(), "ok\n");
    });
    let certificates = Certificates::new(&["localhost"]);
    let with_tls = |options: &mut Options| {
        pages(options);
        options.tls = Some(certificates.handle());
    };
    check(with_tls, |server| {
        let config = Arc::new(client(rustls::DEFAULT_VERSIONS));
        let open = || {
            let stream = Stream::connect(server.addr).unwrap();
            TlsStream::open(stream, config.clone(), "localhost").unwrap()
        };
        assert!(is_page(&Http::over(open()).get("/page").body));
        Ws::over(open(), "/ws").echoes(&"x".repeat(900_000));
    });
}

#[test]
fn a_drain_ends_a_node() {
    on_drivers(|driver| {
        let server = Server::on_driver(driver, CORES, None, |_| {});
        let mut clients = server.ws_on_each_core("/ws");
        server.drain(HOUR);
        clients.iter_mut().for_each(|ws| assert_eq!(ws.skip_to_close(), 4500));
        let addr = server.addr;
        drop(clients);
        server.join();
        assert!(std::net::TcpStream::connect(addr).is_err(), "it still listens");
    });
}

struct Panics;

impl Application for Panics {
    fn connect(&mut self, _: &mut Context<'_>, _: &Request<'_>) -> Connect {
        panic!("on purpose")
    }

    fn message(&mut self, _: &mut Context<'_>, _: SessionId, _: Message<'_>) {}
}

/// The panic doesn't end the process.
#[test]
fn a_core_that_panics_is_reported_while_the_others_go_on() {
    let server = Server::on_driver(DriverChoice::Epoll, 2, Some(Arc::new(|_| Box::new(Panics))), |_| {});
    let _stream = Ws::begin_open(server.addr, "/ws");
    let failed = server.wait_failed();
    assert_eq!(failed.to_string(), format!("core {} has panicked", failed.core));
}

#[test]
fn application_link() {
    let link = Arc::new(Link::default());
    let sink = link.clone();
    let set = move |options: &mut Options| {
        options.link = Some(LinkRoutes {
            sink: sink.clone(),
            apps: Arc::new(LinkApps::new([EngineOptions::of_path("/app/")])),
            http: None,
        });
    };
    check(set, |server| {
        let mut calls = Vec::new();
        let mut session_of = |what: &str, is_it: fn(&LinkReport) -> bool| {
            let mut found = None;
            until(what, || {
                calls.extend(link.take());
                found = calls.iter().find_map(|call| match call {
                    LinkCall::Report(session, report) if is_it(report) => Some(*session),
                    _ => None,
                });
                found.is_some()
            });
            calls.clear();
            found.unwrap()
        };
        for transport in ["polling", "websocket"] {
            let target = format!("/app/?EIO=4&transport={transport}");
            let mut http = None;
            let mut stream = None;
            if transport == "polling" {
                http = Some(get(server, &target));
            } else {
                stream = Some(Ws::begin_open(server.addr, &target));
            }
            let session = session_of("a request", |report| matches!(report, LinkReport::Opened(..)));
            let mut entries = vec![LinkEntry::Accept(session, Box::default())];
            server.plane().carry_out(1, &mut entries).unwrap();
            let mut io = match (http, stream) {
                (Some(mut http), _) => {
                    let answer = http.response();
                    Io::of_answer(server.addr, "/app/", Version::V4, http, &answer)
                }
                (_, stream) => {
                    let ws = Ws::answered(stream.unwrap(), None).unwrap();
                    Io::of_ws(server.addr, "/app/", Version::V4, ws)
                }
            };
            io.begin_send(&["4a"]);
            assert_eq!(session_of("a message", |report| matches!(report, LinkReport::Messages(_))), session);
            let messages = [LinkMessage::Text("b".into())].into_iter().collect();
            let (is_volatile, is_compressed, wants_receipt) = (false, true, false);
            let send = LinkEntry::Send { session, is_volatile, is_compressed, wants_receipt, messages };
            server.plane().carry_out(1, &mut vec![LinkEntry::Handled(session), send]).unwrap();
            io.end_send();
            io.expect("4b");
            server.plane().carry_out(1, &mut vec![LinkEntry::Close { session, discards: false }]).unwrap();
            io.expect_end();
        }
    });
}
