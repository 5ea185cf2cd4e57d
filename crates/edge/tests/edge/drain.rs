//! A node that drains: all clients are notified, no request hangs, and the node ends in time.

use crate::harness::io::post;
use crate::harness::{HOUR, Http, Io, Server, Stream, Way, Ws, on_one_and_three, pass};
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{App, Options, StaticRoute};
use stentor_ports::{
    ClientConnection, Done, Drain, Location, NewConnections, NodeTag, Relay, RelayPermit, SessionName,
};

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Connects clients, and waits until a core has accepted each.
fn known<const N: usize>(server: &Server, make: impl Fn() -> Ws) -> [Ws; N] {
    let clients = std::array::from_fn(|_| make());
    server.until_metric("sessions", |sessions| sessions == N as u64);
    clients
}

#[test]
fn clients_receive_a_reconnect_delay() {
    on_one_and_three(|cores| {
        let _other = Server::start(1, |_| {});
        let server = Server::start(cores, |options| options.app = App::Chat);
        let mut clients: [Ws; 12] = known(&server, || server.ws("/ws"));
        let mut idle: Vec<Http> = (0..6).map(|_| server.http()).collect();
        for http in &mut idle {
            assert_eq!(http.get("/healthz").status, 200);
        }
        assert!(server.plane().readiness().is_ready());
        server.drain(HOUR);
        assert!(!server.plane().readiness().is_ready());
        for ws in &mut clients {
            assert_eq!(ws.expect_close(), (4500, "the server is shutting down".into()));
        }
        for http in &mut idle {
            http.expect_end();
        }
        assert_eq!(server.disconnects("shutdown"), 12);
        let addr = server.addr;
        drop((clients, idle));
        // Without sessions, the node ends long before the timeout.
        server.join();
        assert!(Stream::connect(addr).is_err(), "it still listens");
    });
}

#[test]
fn idle_connections_are_not_waited_for() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.limits.close_timeout = HOUR);
        let mut idle: Vec<Http> = (0..6).map(|_| server.http()).collect();
        let (answered, new) = idle.split_at_mut(3);
        for http in &mut *answered {
            assert_eq!(http.get("/healthz").status, 200);
        }
        let mut events = server.http();
        events.send(request("/sse/k"));
        assert_eq!(events.stream_head().status, 200);
        events.next_chunk();
        server.until_metric("connections", |connections| connections == 7);
        server.drain(HOUR);
        // The node ends although the clients don't close their side, like browsers.
        server.join();
        for http in answered.iter_mut().chain(new) {
            http.expect_end();
        }
        assert!(events.next_chunk().starts_with("retry: "));
        events.expect_end();
    });
}

/// Connects clients whose requests for documents wait: `/feed/0` and so on.
fn waiting(server: &Server) -> Vec<Http> {
    let begun = |n: usize| {
        let mut http = server.http();
        http.send(request(&format!("/feed/{n}")));
        server.wait_wanted(&n.to_string(), true);
        http
    };
    (0..6).map(begun).collect()
}

#[test]
fn requests_that_wait_are_answered_as_the_last_ones() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.limits.request_timeout = HOUR);
        let mut clients = waiting(&server);
        clients.iter_mut().for_each(|http| http.send(request("/healthz")));
        server.drain(HOUR);
        for (n, http) in clients.iter_mut().enumerate() {
            server.document(&n.to_string(), &n.to_string());
            let answer = http.response();
            assert_eq!((answer.text(), answer.header("connection")), (&*n.to_string(), "close"));
            http.expect_end();
        }
        drop(clients);
        server.join();
    });
}

#[test]
fn requests_that_wait_in_vain_are_answered_before_the_end() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| {
            options.limits.request_timeout = HOUR;
            options.limits.header_timeout = HOUR;
        });
        let mut clients = waiting(&server);
        let mut half = server.http();
        half.send("GET / HTTP/1.1\r\n");
        let bytes = 6 * request("/feed/0").len() as u64 + 16;
        server.until_metric("received_bytes", |received| received == bytes);
        // Half of the time is for waiting requests, and half for sending the answers.
        server.drain(Duration::from_secs(20));
        for http in &mut clients {
            let answer = http.response();
            assert_eq!((answer.status, answer.text()), (503, "the server is shutting down\n"));
            http.expect_end();
        }
        assert_eq!(half.response().status, 408);
        half.expect_end();
        drop((clients, half));
        server.until_metric("connections", |connections| connections == 0);
    });
}

#[test]
fn a_request_whose_body_arrives_after_the_window_is_answered() {
    let server = Server::quiet(1, App::Echo, |_| {});
    let mut io = Io::engine(&server, Way::Polling);
    let message = post(&io.target("polling"), "text/plain;charset=UTF-8", b"4hello");
    let (begin, end) = message.split_at(message.len() - 4);
    io.posts().send(begin);
    pass(SECOND);
    server.drain(HOUR);
    for part in end.chunks(2) {
        pass(SECOND);
        io.posts().send(part);
    }
    let answer = io.posts().response();
    assert_eq!((answer.status, answer.header("connection")), (400, "close"));
    io.posts().expect_end();
}

#[test]
fn a_response_that_a_client_is_still_receiving_is_not_cut_off() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.routes = vec![huge()]);
        let mut http = server.http();
        http.send(request("/huge"));
        server.until_metric("http_requests", |requests| requests == 1);
        server.drain(HOUR);
        pass(SECOND);
        let answer = http.response();
        assert_eq!((answer.status, answer.body.len()), (200, HUGE_BYTES));
        http.expect_end();
        server.join();
    });
}

#[test]
fn new_clients_are_refused_during_a_drain() {
    let server = Server::start(1, |_| {});
    let upgrade = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let begun = [(request("/readyz"), 503, ""), (upgrade.to_owned(), 503, "1"), (request("/no"), 404, "")];
    let begun = begun.map(|(request, status, retry_after)| {
        let mut http = server.http();
        http.send(&request[..10]);
        (http, request[10..].to_owned(), status, retry_after)
    });
    server.until_metric("received_bytes", |received| received == 10 * begun.len() as u64);
    server.drain(HOUR);
    server.until_metric("connections", |connections| connections == 3);
    for (mut http, end, status, retry_after) in begun {
        http.send(end);
        let answer = http.response();
        assert_eq!((answer.status, answer.header("retry-after")), (status, retry_after));
        assert_eq!(answer.header("connection"), "close");
        http.expect_end();
    }
    server.join();
}

const HUGE_BYTES: usize = 32 << 20;

/// A response that is larger than all buffers on its way.
fn huge() -> StaticRoute {
    let body = vec![b'x'; HUGE_BYTES].into();
    StaticRoute { path: "/huge".into(), content_type: "text/plain".into(), body }
}

#[test]
fn clients_that_do_not_read_delay_no_drain() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| {
            options.app = App::Echo;
            options.limits.close_timeout = HOUR;
            options.routes = vec![huge()];
        });
        server.document("k", &format!("\"{}\"", "x".repeat(HUGE_BYTES)));
        let mut sockets: [Ws; 4] = known(&server, || server.ws("/ws?feed=k"));
        for ws in &mut sockets {
            ws.send_text("hello");
        }
        let mut http = server.http();
        http.send(request("/huge"));
        server.until_metric("http_requests", |requests| requests == 5);
        server.drain(Duration::from_millis(100));
        server.join();
        drop((sockets, http));
    });
}

#[test]
fn a_second_drain_may_be_shorter() {
    let server = Server::start(3, |options| options.limits.request_timeout = HOUR);
    let mut http = server.http();
    http.send(request("/feed/k"));
    server.wait_wanted("k", true);
    server.drain(HOUR);
    server.drain(Duration::ZERO);
    server.join();
    http.rest();
}

/// A drain with a long window, on a server that keeps listening.
const SLOW: Drain = Drain {
    delay: Duration::from_secs(5),
    window: Duration::from_secs(30),
    timeout: Duration::from_secs(10),
    new_connections: NewConnections::Accepted,
};

#[test]
fn sessions_end_evenly_over_the_window() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.heartbeat.interval = HOUR);
        let mut clients: [Ws; 60] = known(&server, || server.client());
        assert_eq!(server.http().get("/readyz").status, 200);
        server.plane().drain(SLOW);
        // Load balancers notice the drain at once. Other requests are still served.
        let mut http = server.http();
        assert_eq!((http.get("/readyz").status, http.get("/healthz").status), (503, 200));
        let late = server.ws("/ws");
        pass(Duration::from_millis(4_500));
        assert_eq!(server.disconnects("shutdown"), 0);
        pass(Duration::from_millis(500));
        let mut ended = 0;
        for second in 1..=30_u64 {
            pass(Duration::from_secs(1));
            let now = server.disconnects("shutdown");
            // 61 sessions end in 30 s. The number on each core is off by at most one.
            let even = 61 * second / 30;
            assert!(now.abs_diff(even) <= 2 * cores as u64, "{now} of {even} after {second} s");
            assert!(now - ended <= 2 + 2 * cores as u64, "{} in second {second}", now - ended);
            ended = now;
        }
        assert_eq!(server.disconnects("shutdown"), 61);
        let told: Vec<u64> = clients.iter_mut().map(goodbye).collect();
        assert!(told.iter().all(|ms| *ms <= 1_000), "{told:?}");
        assert!(told.iter().filter(|ms| **ms < 500).count().abs_diff(30) < 20, "{told:?}");
        drop((clients, late, http));
    });
}

/// The reconnect delay of a `stentor.v1` client.
fn goodbye(ws: &mut Ws) -> u64 {
    let message = ws.next_json();
    assert_eq!((&message["type"], &message["code"]), (&"disconnect".into(), &4500.into()), "{message}");
    assert_eq!(ws.expect_close(), (4500, "the server is shutting down".into()));
    message["reconnect_after_ms"].as_u64().unwrap()
}

#[test]
fn in_the_window_no_session_begins_and_existing_ones_are_served() {
    let server = Server::start(1, |options| options.rooms.publish = true);
    let mut subscriber = server.member("r");
    server.plane().drain(Drain { delay: Duration::ZERO, ..SLOW });
    server.until_metric("drain_sessions_pending", |pending| pending == 1);
    server.publish("r", "1");
    let mut refused = server.http();
    refused.send(request("/sse/k"));
    let answer = refused.response();
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
    refused.expect_end();
    let message = subscriber.next_json();
    assert_eq!((&message["type"], &message["data"]), (&"message".into(), &1.into()), "{message}");
    // A second drain cuts the window short.
    server.plane().drain(Drain::within(HOUR));
    goodbye(&mut subscriber);
    server.until_metric("connections", |connections| connections == 0);
}

/// A drain after another process has taken over.
const TAKEOVER: Drain =
    Drain { delay: SECOND, window: HOUR, new_connections: NewConnections::Elsewhere, ..SLOW };

const SECOND: Duration = Duration::from_secs(1);

/// The relay of a node that doesn't pass on any connection.
#[derive(Debug)]
struct Unused;

impl Relay for Unused {
    fn reaches(&self, _: NodeTag) -> bool {
        false
    }

    fn relay(&self, _: NodeTag, _: ClientConnection, _: RelayPermit) {}

    fn find(&self, _: NodeTag, _: Done<Location>) {}

    fn locate(&self, _: SessionName<'_>, _: bool, _: Done<Location>) {}
}

/// Sets the options of a node of a cluster.
fn in_cluster(options: &mut Options) {
    options.node_tag = Some(NodeTag(1));
    options.relay = Some(Arc::new(Unused));
}

/// Connections without a request, as a proxy keeps them. Each has had a response.
fn pooled(server: &Server) -> Vec<Http> {
    let mut pool: Vec<Http> = (0..6).map(|_| server.http()).collect();
    for http in &mut pool {
        assert_eq!(http.get("/healthz").header("connection"), "keep-alive");
    }
    pool
}

#[test]
fn after_a_takeover_connections_end_without_a_request_or_after_their_response() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.limits.request_timeout = HOUR);
        // Sessions keep the window open.
        let members = server.members_on_each_core("r");
        let mut pool = pooled(&server);
        let mut requests = waiting(&server);
        let mut begun = server.http();
        begun.send(&request("/healthz")[..10]);
        server.plane().drain(TAKEOVER);
        pass(SECOND / 2);
        for http in &mut pool {
            assert_eq!(http.get("/healthz").header("connection"), "keep-alive");
        }
        pass(SECOND);
        pool.iter_mut().for_each(Http::expect_end);
        begun.send(&request("/healthz")[10..]);
        (0..requests.len()).for_each(|n| server.document(&n.to_string(), "1"));
        for http in requests.iter_mut().chain([&mut begun]) {
            let answer = http.response();
            assert_eq!((answer.status, answer.header("connection")), (200, "close"));
            http.expect_end();
        }
        assert_eq!(server.metric("connections"), members.len() as u64);
    });
}

/// In a cluster, the other process relays the requests of polling clients. A process without a cluster keeps its connections for
/// them.
#[test]
fn after_a_takeover_requests_of_polling_clients_reach_this_process() {
    for (is_in_cluster, connection) in [(true, "close"), (false, "keep-alive")] {
        let server = Server::quiet(1, App::Echo, |options| {
            if is_in_cluster {
                in_cluster(options);
            }
        });
        let mut pool = pooled(&server);
        let mut io = Io::engine(&server, Way::Polling);
        io.begin_poll();
        let message = post(&io.target("polling"), "text/plain;charset=UTF-8", b"4a");
        let (begin, end) = message.split_at(message.len() - 1);
        io.posts().send(begin);
        server.plane().drain(TAKEOVER);
        pass(SECOND * 2);
        io.posts().send(end);
        for answer in [io.posts().response(), io.end_poll()] {
            assert_eq!((answer.status, answer.header("connection")), (200, connection));
        }
        for http in &mut pool {
            if !is_in_cluster {
                assert_eq!(http.get("/healthz").header("connection"), "close");
            }
            http.expect_end();
        }
    }
}

#[test]
fn in_the_window_requests_reach_sessions_on_other_cores() {
    let server = Server::quiet(3, App::Echo, |_| {});
    // Sessions keep the window of each core open.
    let sockets = server.ws_on_each_core("/ws");
    let mut pool = pooled(&server);
    let mut io = Io::engine(&server, Way::Polling);
    server.plane().drain(Drain { delay: Duration::ZERO, window: HOUR, ..SLOW });
    pass(SECOND);
    let message = post(&io.target("polling"), "text/plain;charset=UTF-8", b"4a");
    for http in &mut pool {
        assert_eq!(http.ask(&message).text(), "ok");
        io.expect("4a");
    }
    drop(sockets);
}
