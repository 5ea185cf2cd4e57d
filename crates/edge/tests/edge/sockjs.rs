//! SockJS: every transport, the start, end and cost of sessions, and published attacks.
//! The public suites check details such as headers and bodies of errors.

use crate::commands::room;
use crate::harness::{HOUR, Http, Seen, Server, now, on_one_and_three, request, takes};
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{
    App, Application, Connect, Context, DriverChoice, Envelope, Message, Node, Options, Origins, SockJs,
};
use stentor_hub::{FeedState, SessionId};
use stentor_wire::http1::Request;

fn post(target: &str, body: &str) -> String {
    request("POST", target, &format!("Content-Length: {}\r\n", body.len())) + body
}

/// A request for the next frames, which some transports make with POST.
fn receive(session: &str, transport: &str) -> String {
    let method = if transport.starts_with("xhr") { "POST" } else { "GET" };
    request(method, &format!("{session}/{transport}"), "Content-Length: 0\r\n")
}

/// The body of a poll.
fn poll(http: &mut Http, session: &str) -> String {
    let answer = http.ask(receive(session, "xhr"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().to_owned()
}

/// Opens a session by polling.
fn open(http: &mut Http, session: &str) {
    assert_eq!(poll(http, session), "o\n", "{session}");
}

/// Sends messages. Returns the status.
fn send(http: &mut Http, session: &str, messages: &str) -> u16 {
    http.ask(post(&format!("{session}/xhr_send"), messages)).status
}

/// Opens a stream and reads its prelude.
fn stream(server: &Server, session: &str, transport: &str) -> Http {
    let mut http = server.http();
    http.send(receive(session, transport));
    http.stream_head();
    http.next_chunk();
    http
}

/// Opens a stream that begins a session.
fn opened(server: &Server, session: &str, transport: &str) -> Http {
    let mut http = stream(server, session, transport);
    assert_eq!(http.next_chunk(), wrapped(transport, "o"));
    http
}

/// A frame as a transport wraps it.
fn wrapped(transport: &str, frame: &str) -> String {
    let script = frame.replace('\\', r"\\").replace('"', r#"\""#);
    let script = if transport.starts_with("htm") { script.replace('<', r"\u003c") } else { script };
    match &transport[..3] {
        "xhr" => format!("{frame}\n"),
        "eve" => format!("data: {frame}\r\n\r\n"),
        "htm" => format!("<script>\np(\"{script}\");\n</script>\r\n"),
        _ => format!("/**/cb(\"{script}\");\r\n"),
    }
}

const STREAMS: [&str; 3] = ["xhr_streaming", "eventsource", "htmlfile?c=cb"];

fn echo(cores: usize) -> Server {
    Server::start(cores, |options| options.app = App::Echo)
}

#[test]
fn every_stream_carries_both_ways() {
    on_one_and_three(|cores| {
        let server = echo(cores);
        for (n, transport) in STREAMS.iter().enumerate() {
            let session = format!("/sockjs/000/s{n}");
            let mut down = opened(&server, &session, transport);
            // Messages are sent on another connection than the stream, and possibly on another core.
            let mut up = server.http();
            for messages in [r#"["a","\u2028\"<"]"#, r#"["b"]"#] {
                assert_eq!(send(&mut up, &session, messages), 204);
                assert_eq!(down.next_chunk(), wrapped(transport, &format!("a{messages}")));
            }
        }
        // On a WebSocket, each message has a frame of its own.
        let mut ws = server.ws("/sockjs/000/w/websocket");
        assert_eq!(ws.next_text(), "o");
        ws.send_text(r#"["a","b"]"#);
        assert_eq!([ws.next_text(), ws.next_text()], [r#"a["a"]"#, r#"a["b"]"#]);
        drop(ws);
        server.check_empty();
    });
}

#[test]
fn polls_get_everything_that_waits_in_one_frame() {
    on_one_and_three(|cores| {
        let server = echo(cores);
        let mut http = server.http();
        open(&mut http, "/sockjs/0/x");
        // Pipelined requests are answered in order.
        let send = |n| post("/sockjs/0/x/xhr_send", &format!(r#"["{n}"]"#));
        http.send([send(1), send(2), send(3), receive("/sockjs/0/x", "xhr")].concat());
        for _ in 0..3 {
            assert_eq!(http.response().status, 204);
        }
        assert_eq!(http.response().text(), "a[\"1\",\"2\",\"3\"]\n");
        let mut http = server.http();
        assert_eq!(http.get("/sockjs/0/j/jsonp?c=cb").text(), wrapped("jsonp", "o"));
        let form = "application/x-www-form-urlencoded";
        let sent = http.ask(crate::harness::io::post("/sockjs/0/j/jsonp_send", form, b"d=%5B%22x%22%5D"));
        assert_eq!((sent.status, sent.text()), (200, "ok"));
        assert_eq!(http.get("/sockjs/0/j/jsonp?c=cb").text(), wrapped("jsonp", r#"a["x"]"#));
        // A waiting request is answered when a message arrives.
        http.send(receive("/sockjs/0/j", "jsonp?callback=cb"));
        assert_eq!(server.ask(post("/sockjs/1/j/jsonp_send", "[\"y\"]")).status, 200);
        assert_eq!(http.response().text(), wrapped("jsonp", r#"a["y"]"#));
    });
}

#[test]
fn a_volatile_message_skips_clients_between_two_polls() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut http = server.http();
        let session = "/sockjs/0/volatile";
        open(&mut http, session);
        assert_eq!(send(&mut http, session, r#"["{\"type\":\"subscribe\",\"room\":\"a\"}"]"#), 204);
        let shows = |frame: &str, data: u8| frame.contains(&format!(r#"\"data\":{data}"#));
        for data in [1, 4] {
            server.emit_volatile(room("a"), &data.to_string());
            server.emit(room("a"), &(data + 1).to_string());
            let frame = poll(&mut http, session);
            assert_eq!((shows(&frame, data), shows(&frame, data + 1)), (false, true), "{frame}");
            server.until_requested(|| http.send(receive(session, "xhr")));
            server.emit_volatile(room("a"), &(data + 2).to_string());
            assert!(shows(http.response().text(), data + 2));
        }
    });
}

#[test]
fn a_publication_reaches_every_transport() {
    let server = Server::start(1, |options| options.app = App::Chat);
    let mut plain = server.ws("/ws");
    let mut ws = server.ws("/sockjs/0/w/websocket");
    assert_eq!(ws.next_text(), "o");
    let mut raw = server.ws("/sockjs/websocket");
    let mut streams =
        STREAMS.map(|transport| opened(&server, &format!("/sockjs/0/{transport:.3}"), transport));
    // HTTP/1.0 has no chunks.
    let mut old = server.http();
    old.send("POST /sockjs/0/old/xhr_streaming HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(old.endless_head().header("connection"), "close");
    assert_eq!(&old.next_bytes(2_049 + 2)[2_048..], "\no\n");
    let [mut xhr, mut jsonp] = [server.http(), server.http()];
    open(&mut xhr, "/sockjs/0/p");
    assert_eq!(jsonp.get("/sockjs/0/q/jsonp?c=cb").text(), wrapped("jsonp", "o"));
    // Frames of 16 kB and more are in memfds.
    for text in ["é\"%<".to_owned(), "é\"".repeat(10_000)] {
        plain.send_text(&text);
        let json = serde_json::to_string(&[&text]).unwrap();
        assert_eq!((plain.next_text(), raw.next_text()), (text.clone(), text));
        assert_eq!(ws.next_text(), format!("a{json}"));
        let expect = |transport: &str| match &transport[..3] {
            "eve" => wrapped(transport, &format!("a{}", json.replace('%', "%25"))),
            _ => wrapped(transport, &format!("a{json}")),
        };
        for (http, transport) in streams.iter_mut().zip(STREAMS) {
            assert_eq!(http.next_chunk(), expect(transport));
        }
        assert_eq!(old.next_bytes(expect("xhr").len()), expect("xhr"));
        assert_eq!(poll(&mut xhr, "/sockjs/0/p"), expect("xhr"));
        assert_eq!(jsonp.get("/sockjs/0/q/jsonp?c=cb").text(), expect("jsonp"));
    }
}

/// A body with more messages than may be published or answered at once is handled over several turns, and no message is lost.
#[test]
fn long_bodies_are_taken_in_turns() {
    on_one_and_three(|cores| {
        for app in [App::Echo, App::Chat] {
            let server = Server::start(cores, |options| {
                options.app = app;
                options.limits.send_buffer_bytes_max = 60_000;
                options.sockjs[0].response_bytes_max = usize::MAX;
            });
            let mut down = opened(&server, "/sockjs/0/x", "xhr_streaming");
            // More than twice the maximum of a session's pending deliveries, and less than the kernel buffers for a client that
            // isn't scheduled in the meantime.
            let messages: Vec<String> = (0..150).map(|n| format!("{n:01000}")).collect();
            let mut up = server.http();
            let request = post("/sockjs/0/x/xhr_send", &serde_json::to_string(&messages).unwrap());
            up.stream().enqueue(request.as_bytes());
            let mut got: Vec<String> = Vec::new();
            while got.len() < messages.len() {
                let frame = down.next_chunk();
                let list = frame.trim_end().strip_prefix('a');
                let list = list.unwrap_or_else(|| panic!("{frame} after {}", got.len()));
                got.extend(serde_json::from_str::<Vec<String>>(list).unwrap());
            }
            assert!(got == messages);
            assert_eq!(up.response().status, 204);
        }
    });
}

#[test]
fn feeds_by_their_key() {
    const NOT_ACCEPTED: &str = r#"c[4400,"this connection accepts no messages"]"#;
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| {
            options.sockjs[0].disconnect_delay = Duration::from_secs(1);
        });
        server.document("a/b", r#"{"n":1}"#);
        let first = r#"a["{\"n\":1}"]"#;
        let mut down = opened(&server, "/sockjs/feed/a/b/0/s", "xhr_streaming");
        assert_eq!(down.next_chunk(), format!("{first}\n"));
        let mut ws = server.ws("/sockjs/feed/a/b/0/s/websocket");
        assert_eq!((ws.next_text(), ws.next_text()), ("o".into(), first.into()));
        let mut http = server.http();
        open(&mut http, "/sockjs/feed/a/b/0/p");
        assert_eq!(poll(&mut http, "/sockjs/feed/a/b/0/p"), format!("{first}\n"));
        server.document("a/b", "2");
        assert_eq!(down.next_chunk(), "a[\"2\"]\n");
        assert_eq!(ws.next_text(), r#"a["2"]"#);
        // The same id under another key, or without a key, is another session. Messages are refused.
        open(&mut http, "/sockjs/feed/a/c/0/s");
        open(&mut http, "/sockjs/0/s");
        assert_eq!(send(&mut http, "/sockjs/feed/a/b/0/s", r#"["x"]"#), 204);
        assert_eq!(down.next_chunk(), format!("{NOT_ACCEPTED}\n"));
        assert_eq!(down.chunk(), None);
        ws.send_text(r#"["x"]"#);
        assert_eq!(ws.next_text(), NOT_ACCEPTED);
        assert_eq!(ws.expect_close().0, 4400);
        let mut lost = opened(&server, "/sockjs/feed/gone/0/l", "xhr_streaming");
        server.wait_wanted("gone", true);
        server.state("gone", FeedState::NotFound, "404");
        assert_eq!(lost.next_chunk(), "c[4404,\"there is no such feed\"]\n");
        assert_eq!(http.get("/sockjs/feed/a%2fb/0/s/eventsource").status, 400);
        drop((down, ws, http, lost));
        server.until_metric("sockjs_sessions", |sessions| sessions == 0);
        server.until_metric("sessions", |sessions| sessions == 0);
        server.check_balance();
    });
}

#[test]
fn a_stomp_client_receives_an_error_in_its_own_protocol() {
    let server = Server::start(1, |_| {});
    for command in ["CONNECT\\n", "STOMP\\r\\n"] {
        let mut ws = server.ws("/sockjs/0/s/websocket");
        assert_eq!(ws.next_text(), "o");
        assert!(ws.next_text().contains("welcome"));
        ws.send_text(&format!("[\"{command}accept-version:1.2\\n\\n\\u0000\"]"));
        let answer = ws.next_text();
        let begin = r#"a["\n\n\u0000ERROR\nmessage:this server speaks stentor.v1, not STOMP\n"#;
        assert!(answer.starts_with(begin) && answer.ends_with("\\u0000\"]"), "{answer}");
        assert_eq!(ws.next_text(), r#"c[4401,"the request was malformed"]"#);
        assert_eq!(ws.expect_close().0, 4401);
    }
    let mut ws = server.ws("/sockjs/0/s/websocket");
    assert_eq!((ws.next_text(), ws.next_text().contains("welcome")), ("o".into(), true));
    ws.send_text(r#"["CONNECT"]"#);
    assert!(ws.next_text().contains("bad_json"));
}

#[test]
fn sessions_without_requests_end() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.app = App::Chat);
        let mut http = server.http();
        open(&mut http, "/sockjs/0/x");
        // The default of `disconnect_delay`.
        takes(Duration::from_secs(5), || server.until_metric("sessions", |sessions| sessions == 0));
        assert_eq!(send(&mut http, "/sockjs/0/x", r#"["late"]"#), 404);
        // The session's name can be used again.
        open(&mut http, "/sockjs/0/x");
        drop(http);
        server.check_empty();
    });
}

#[test]
fn a_lost_receiver_ends_its_session_and_a_second_doesnt() {
    const STILL_OPEN: &str = "c[2010,\"Another connection still open\"]";
    const INTERRUPTED: &str = "c[1002,\"Connection interrupted\"]\n";
    on_one_and_three(|cores| {
        let server = echo(cores);
        let ended = || server.until_metric("sessions", |sessions| sessions == 0);
        let mut http = server.http();
        let mut down = opened(&server, "/sockjs/0/x", "xhr_streaming");
        assert_eq!(poll(&mut http, "/sockjs/0/x"), format!("{STILL_OPEN}\n"));
        let mut second = stream(&server, "/sockjs/0/x", "eventsource");
        assert_eq!(second.next_chunk(), wrapped("eventsource", STILL_OPEN));
        assert_eq!(second.chunk(), None);
        // The connection of a stream that has ended can be used again.
        assert_eq!(send(&mut second, "/sockjs/0/x", r#"["still here"]"#), 204);
        assert_eq!(down.next_chunk(), "a[\"still here\"]\n");
        drop(down);
        ended();
        for _ in 0..2 {
            assert_eq!(poll(&mut http, "/sockjs/0/x"), INTERRUPTED);
        }
        // A waiting poll ends as well, even if its client only finishes sending.
        open(&mut http, "/sockjs/0/y");
        let mut waiting = server.http();
        server.until_requested(|| waiting.send(receive("/sockjs/0/y", "xhr")));
        waiting.finish_sending();
        waiting.expect_end();
        ended();
        assert_eq!(poll(&mut http, "/sockjs/0/y"), INTERRUPTED);
    });
}

#[test]
fn heartbeats() {
    let time = Duration::from_secs(1);
    let server = Server::start(1, |options| options.sockjs[0].heartbeat = time);
    for transport in STREAMS {
        let mut down = opened(&server, &format!("/sockjs/0/{transport:.3}"), transport);
        let welcome = down.next_chunk();
        assert!(welcome.contains("welcome"), "{welcome}");
        for _ in 0..3 {
            assert_eq!(takes(time, || down.next_chunk()), wrapped(transport, "h"));
        }
    }
    let mut http = server.http();
    open(&mut http, "/sockjs/0/p");
    assert!(poll(&mut http, "/sockjs/0/p").contains("welcome"));
    assert_eq!(takes(time, || poll(&mut http, "/sockjs/0/p")), "h\n");
}

#[test]
fn a_response_ends_when_it_has_carried_enough() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.sockjs[0].response_bytes_max = 1_000);
        server.document("k", &format!("{:?}", "x".repeat(900)));
        let mut down = opened(&server, "/sockjs/feed/k/0/s", "xhr_streaming");
        assert_eq!(down.next_chunk().len(), 900 + 10);
        // The frame that exceeds the limit is still sent, as in sockjs-node.
        server.document("k", &format!("{:?}", "y".repeat(5_000)));
        assert_eq!(down.next_chunk().len(), 5_000 + 10);
        assert_eq!(down.chunk(), None);
        server.document("k", "\"next\"");
        // The session continues, on the same connection if necessary.
        down.send(receive("/sockjs/feed/k/0/s", "xhr_streaming"));
        down.stream_head();
        assert_eq!(down.next_chunk().len(), 2_049);
        assert_eq!(down.next_chunk(), "a[\"\\\"next\\\"\"]\n");
    });
}

#[test]
fn draining_says_goodbye() {
    const GOODBYE: &str = r#"c[4500,"the server is shutting down"]"#;
    on_one_and_three(|cores| {
        let server = echo(cores);
        let mut down = opened(&server, "/sockjs/0/x", "eventsource");
        let mut waiting = server.http();
        open(&mut waiting, "/sockjs/0/y");
        server.until_requested(|| waiting.send(receive("/sockjs/0/y", "xhr")));
        let mut ws = server.ws("/sockjs/0/x/websocket");
        assert_eq!(ws.next_text(), "o");
        server.drain(HOUR);
        assert_eq!(down.next_chunk(), wrapped("eventsource", GOODBYE));
        assert_eq!(down.chunk(), None);
        down.expect_end();
        assert_eq!(waiting.response().text(), format!("{GOODBYE}\n"));
        waiting.expect_end();
        assert_eq!(ws.next_text(), GOODBYE);
        assert_eq!(ws.expect_close().0, 4500);
        drop((down, waiting, ws));
        server.join();
    });
}

/// The server disconnects a client that doesn't read, and frees its pending messages.
#[test]
fn slow_readers() {
    let server = Server::start(1, |options| {
        options.app = App::Chat;
        options.limits.send_buffer_bytes_max = 100_000;
        options.limits.close_timeout = Duration::from_millis(100);
        options.sockjs[0].disconnect_delay = HOUR;
        options.sockjs[0].response_bytes_max = usize::MAX;
    });
    let down = opened(&server, "/sockjs/0/x", "xhr_streaming");
    // This session isn't polled.
    open(&mut server.http(), "/sockjs/0/y");
    let mut speaker = server.ws("/ws");
    let text = "x".repeat(10_000);
    // Sends far more bytes than the kernel buffers.
    for sent in 0.. {
        assert!(sent < 10_000, "nobody is ended");
        speaker.echoes(&text);
        if server.disconnects("slow_consumer") == 2 {
            break;
        }
    }
    let told = poll(&mut server.http(), "/sockjs/0/y");
    assert_eq!(told, "c[4501,\"the client reads too slowly: its send buffer is full\"]\n");
    drop((down, speaker));
    server.until_metric("send_buffer_bytes", |bytes| bytes == 0);
    server.until_metric("memory_bytes{frames}", |bytes| bytes == 0);
    // A client with too many pending answers is disconnected, too.
    let server = Server::quiet(1, App::Echo, |options| options.limits.send_buffer_bytes_max = 100_000);
    let mut http = server.http();
    open(&mut http, "/sockjs/0/y");
    let body = format!("[{:?}]", "x".repeat(60_000));
    for _ in 0..2 {
        assert_eq!(send(&mut http, "/sockjs/0/y", &body), 204);
    }
    assert_eq!(server.disconnects("slow_consumer"), 1);
}

/// An application that records its calls and carries out commands.
struct Puppet;

impl Application for Puppet {
    fn connect(&mut self, ctx: &mut Context<'_>, request: &Request<'_>) -> Connect {
        match (ctx.prefix(), request.query()) {
            (_, "no") => Connect::Refuse { status: 403, message: "not you".into() },
            (Some("/late"), _) => {
                ctx.admit(ctx.request_id().unwrap(), Connect::Accept);
                Connect::Pending
            }
            (prefix, _) => Connect::AcceptWith(vec![("X-Prefix".into(), prefix.unwrap_or("none").into())]),
        }
    }

    fn opened(&mut self, ctx: &mut Context<'_>, session: SessionId, _: Envelope) {
        let prefix = ctx.prefix().unwrap_or("none").to_owned();
        ctx.send(session, Message::Text(&format!("opened {prefix}")));
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        match message {
            Message::Text("bytes") => ctx.send(session, Message::Binary(b"\xff\x00")),
            Message::Text("event") => ctx.emit(session, "e", Default::default()),
            Message::Text("later") => ctx.after(Duration::from_millis(1), 7),
            Message::Text("bye") => {
                ctx.send(session, Message::Text("last"));
                ctx.close_with(session, 3456, "bye");
            }
            _ => assert_eq!(message, Message::Text("nothing")),
        }
    }

    fn closed(&mut self, ctx: &mut Context<'_>, _: SessionId) {
        assert!(ctx.prefix().is_some());
    }

    fn timer(&mut self, ctx: &mut Context<'_>, token: u64) {
        assert_eq!((token, ctx.prefix()), (7, Some("/one")));
    }
}

#[test]
fn the_application_receives_the_prefix_and_decides_about_clients() {
    on_one_and_three(|cores| {
        let server = Server::with_app(cores, Arc::new(|_| Box::new(Puppet)), |options| {
            options.sockjs = vec![
                SockJs::at("/one"),
                SockJs { app: Some(App::Echo), ..SockJs::at("/one/echo") },
                SockJs { websocket: false, ..SockJs::at("/late") },
            ];
        });
        let mut http = server.http();
        let first = http.ask(receive("/one/0/x", "xhr"));
        assert_eq!((first.text(), first.header("x-prefix")), ("o\n", "/one"));
        assert_eq!(poll(&mut http, "/one/0/x"), "a[\"opened /one\"]\n");
        assert_eq!(
            send(&mut http, "/one/0/x", r#"["bytes","event","later","nothing","bye","not handled"]"#),
            204
        );
        // Messages from before the end arrive first.
        assert_eq!(poll(&mut http, "/one/0/x"), "a[\"/wA=\",\"[\\\"e\\\"]\",\"last\"]\n");
        assert_eq!(poll(&mut http, "/one/0/x"), "c[3456,\"bye\"]\n");
        let mut ws = server.ws("/one/0/x/websocket");
        assert_eq!((ws.next_text(), ws.next_text()), ("o".into(), "a[\"opened /one\"]".into()));
        ws.send_text(r#"["bye"]"#);
        assert_eq!((ws.next_text(), ws.next_text()), ("a[\"last\"]".into(), "c[3456,\"bye\"]".into()));
        assert_eq!(ws.expect_close(), (3456, "bye".into()));
        let mut raw = server.ws("/one/websocket");
        assert_eq!(raw.next_text(), "opened /one");
        raw.send_text("bye");
        assert_eq!((raw.next_text(), raw.expect_close()), ("last".into(), (3456, "bye".into())));
        // A prefix with an application of its own, and one whose application answers later.
        open(&mut http, "/one/echo/0/x");
        assert_eq!(send(&mut http, "/one/echo/0/x", r#"["x"]"#), 204);
        assert_eq!(poll(&mut http, "/one/echo/0/x"), "a[\"x\"]\n");
        open(&mut http, "/late/0/x");
        assert_eq!(poll(&mut http, "/late/0/x"), "a[\"opened /late\"]\n");
        assert_eq!(http.get("/one/0/new/eventsource?no").status, 403);
        assert_eq!(http.get("/late/0/x/websocket").status, 404);
    });
}

#[test]
fn invalid_prefixes_are_refused() {
    let control = || Arc::new(crate::harness::Control::default());
    for bad in [vec![""], vec!["/"], vec!["x"], vec!["/x/"], vec!["/x?"], vec!["/x", "/y", "/x"]] {
        let sockjs = bad.into_iter().map(SockJs::at).collect();
        let mut options = Options { listen: ([127, 0, 0, 1], 0).into(), cores: 1, ..Options::default() };
        options.sockjs = sockjs;
        assert!(Node::start(options, DriverChoice::Epoll, control(), None).is_err());
    }
}

#[test]
fn a_session_is_found_from_every_core() {
    let server = Server::start(3, |options| {
        options.app = App::Echo;
        // No session ends during the test.
        options.sockjs[0].disconnect_delay = HOUR;
    });
    let mut connections: Vec<Http> = (0..12).map(|_| server.http()).collect();
    for session in (0..20).map(|n| format!("/sockjs/0/{n}")) {
        open(&mut connections[0], &session);
        for (n, http) in connections.iter_mut().enumerate() {
            assert_eq!(send(http, &session, &format!("[\"{n}\"]")), 204);
        }
        let all: Vec<String> = (0..12).map(|n| format!("\"{n}\"")).collect();
        assert_eq!(poll(&mut connections[11], &session), format!("a[{}]\n", all.join(",")));
    }
    // Each core owns some of the sessions.
    assert!(server.by_core("sockjs_sessions").iter().all(|sessions| *sessions > 0));
    assert!(server.metric("connections_migrated") > 0);
}

#[test]
fn the_page_for_frames_is_for_pages_that_may_connect() {
    // The content of the frame has the server's own origin, so only allowed pages may frame it.
    for (list, expect) in [
        (&[][..], "frame-ancestors 'self'"),
        (&["https://a.test"], "frame-ancestors 'self' https://a.test"),
        (&["*"], ""),
    ] {
        let server = Server::start(1, |options| options.origins = Origins::parse(list).unwrap());
        let page = server.http().get("/sockjs/iframe-1.6.1.html");
        assert_eq!((page.status, page.header("content-security-policy")), (200, expect));
        // The page loads no code from another origin.
        assert!(page.text().contains("<script src=\"/sockjs.min.js\"></script>"), "{}", page.text());
    }
}

#[test]
fn streams_ask_proxies_not_to_buffer() {
    let server = echo(1);
    for transport in STREAMS {
        let mut http = server.http();
        http.send(receive(&format!("/sockjs/0/{transport:.3}"), transport));
        assert_eq!(http.stream_head().header("x-accel-buffering"), "no", "{transport}");
    }
    let poll = server.ask(receive("/sockjs/0/y", "xhr"));
    assert_eq!((poll.text(), poll.header("x-accel-buffering")), ("o\n", ""));
}

/// Runs an attack. Afterwards, other clients must be served, and all resources must be freed.
fn attacked(attack: impl Fn(&Server)) {
    let server = echo(1);
    attack(&server);
    let mut http = server.http();
    open(&mut http, "/sockjs/0/alive");
    assert_eq!(send(&mut http, "/sockjs/0/alive", r#"["alive"]"#), 204);
    assert_eq!(poll(&mut http, "/sockjs/0/alive"), "a[\"alive\"]\n");
    drop(http);
    server.check_empty();
}

#[test]
fn cve_2020_8823_callbacks_with_code() {
    attacked(|server| {
        for transport in ["htmlfile", "jsonp"] {
            for callback in
                ["%3Cscript%3Ealert(1)%3C/script%3E", "a;alert(1)//", "a%0d%0aX:%20y", "", &"a".repeat(33)]
            {
                let answer = server.http().get(&format!("/sockjs/a/b/{transport}?c={callback}"));
                assert_eq!((answer.status, answer.header("x")), (500, ""));
                assert_eq!(answer.text(), "invalid \"callback\" parameter\n");
            }
        }
    });
}

#[test]
fn hostile_bodies_and_messages() {
    attacked(|server| {
        let mut http = server.http();
        open(&mut http, "/sockjs/0/x");
        // The body is refused before it is buffered.
        let too_large = request("POST", "/sockjs/0/x/xhr_send", "Content-Length: 100000000\r\n");
        assert_eq!(server.ask(too_large).status, 413);
        for (body, status) in [
            ("[".repeat(500_000), 500),
            ("[\"\\ud800".repeat(10), 500),
            ("{\"a\":1}".into(), 500),
            ("[1]".into(), 500),
            ("[[\"a\"]]".into(), 500),
            (format!("[{}\"\"]", "\"\",".repeat(100_000)), 413),
        ] {
            assert_eq!(send(&mut http, "/sockjs/0/x", &body), status, "{body:.20}");
        }
        for message in [&b"[\"a"[..], b"{}", b"[1]", b"\xff"] {
            let mut ws = server.ws("/sockjs/0/x/websocket");
            assert_eq!(ws.next_text(), "o");
            match std::str::from_utf8(message) {
                Ok(text) => ws.send_text(text),
                Err(_) => ws.send_binary(message),
            }
            assert_eq!(ws.expect_close(), (3000, "Broken framing.".into()), "{message:?}");
        }
    });
}

#[test]
fn hostile_session_ids() {
    attacked(|server| {
        let mut http = server.http();
        let long = "x".repeat(256);
        for id in ["__proto__", "constructor", "%00", "%2e%2e", "%0d%0aX:%20y", "'\"<>", &long] {
            open(&mut http, &format!("/sockjs/0/{id}"));
            assert_eq!(send(&mut http, &format!("/sockjs/0/{id}"), "[]"), 204, "{id}");
        }
        assert_eq!(http.ask(receive(&format!("/sockjs/0/x{long}"), "xhr")).status, 404);
        // Many similar ids. Each costs the same, and all sessions end.
        for n in 0..3_000 {
            open(&mut http, &format!("/sockjs/0/{n:0200}"));
        }
    });
}

#[test]
fn a_page_in_pieces() {
    struct Pages;
    impl Application for Pages {
        fn page(&mut self, _: &mut Context<'_>, request: &Request<'_>) -> Option<stentor_edge::Page> {
            let later =
                vec![(Duration::from_secs(1), "two".into()), (Duration::from_secs(1), "three".into())];
            (request.path() == "/page").then(|| stentor_edge::Page {
                status: 200,
                content_type: "text/plain".into(),
                headers: vec![("X-A".into(), "b".into())],
                body: "one".into(),
                later,
            })
        }

        fn message(&mut self, _: &mut Context<'_>, _: SessionId, _: Message<'_>) {}
    }
    let server = Server::with_app(1, Arc::new(|_| Box::new(Pages)), |_| {});
    let mut http = server.http();
    // Later requests of the connection wait.
    let begun = now();
    http.send(request("GET", "/page", "") + &request("GET", "/healthz", ""));
    assert_eq!(http.stream_head().header("x-a"), "b");
    let pieces: Vec<String> = std::iter::from_fn(|| http.chunk()).collect();
    assert_eq!(pieces, ["one", "two", "three"]);
    assert!(now() - begun >= Duration::from_secs(2));
    assert_eq!(http.response().text(), "ok\n");
    let mut old = server.http();
    old.send("GET /page HTTP/1.0\r\n\r\n");
    old.endless_head();
    assert_eq!(old.next_bytes(11), "onetwothree");
    old.expect_end();
    assert_eq!(http.get("/other").status, 404);
    assert_eq!(server.ws("/ws").fence(), Vec::<Seen>::new());
}
