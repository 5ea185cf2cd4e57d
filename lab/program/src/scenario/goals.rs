//! The project's goals: Stentor beside bare loops, which do the least that any server must, and beside other servers.
//! docs/benchmarks.md has the results. Cases that a scenario has as well are declared there, with their goals.

use std::time::Duration;

use super::{Effort, Scenario, cpu_budget, fanout, feed_capacity, idle, slow_readers};
use crate::bench::Metric::{
    self, BytesPerConnection, BytesPerMessage, CallsPerMessage, CpuPerConnection, CpuPerMessage,
    CpuPerPublication, EngineBytes, IdleCpu, LastReceiver, LatencyP50, LatencyP99, MemoryGrowth, PeakMemory,
    Rate, Undelivered, UpstreamRatio, UpstreamRequests,
};
use crate::bench::{Case, Course, Target, bound, ratio};
use crate::document::Shape;
use crate::generator::{LoadSpec, Protocol, TopicsPlan};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "goals",
    question: "Does Stentor reach the goals of its CPU, memory and latency?",
    load: "Echo, fan-out, idle and slow clients on plain WebSocket, Socket.IO, SockJS and Server-Sent Events, and documents that \
           change a little. Each case has its own servers.",
    metric: "The figures that the goals are about; ratios are of Stentor's to the other server's.",
    source: "Our own.",
    published: &[],
    repaired: "",
    peers: &[],
    cases,
};

const TIMED: &[Metric] = &[CpuPerMessage, LatencyP50, LatencyP99];
/// Those that hold more connections than they have descriptors.
const DIRECT: &[&str] = &["stentor-uring", "bare-direct"];
/// For 1.65 GB a second: what copies it for each client takes most of a core, npm ws more than one.
const CROWD: &[&str] = &["stentor-uring", "bare-sendfile", "uws-cpp"];
const ALL: &[&str] = &["stentor-uring", "stentor-epoll", "bare-uring", "bare-epoll", "uws-cpp", "ws8"];
/// What is upon WebSocket, beside the same server on nothing but that.
const SOCKET_IO: &[&str] = &["stentor-epoll", "stentor-epoll-ws", "socketio4", "socketioxide"];
const SOCK_JS: &[&str] = &["stentor-epoll", "stentor-epoll-ws", "sockjs-node", "sockjs-tornado-pypy45"];
/// Nobody else has feeds, and without any nothing comes as Server-Sent Events.
const EVENTS: &[&str] = &["stentor-epoll", "stentor-epoll-ws"];
/// "The same" system calls per delivery: what timers and a busy turn's end add stays below a fiftieth.
const SAME_CALLS: f64 = 1.02;

/// The goal that a figure is at most this multiple of each of these servers'.
fn cpu(goals: &[(&'static str, f64)]) -> Vec<Target> {
    goals.iter().map(|(server, most)| ratio(CpuPerMessage, server, *most)).collect()
}

fn cases(effort: Effort) -> Vec<Case> {
    let mut cases = websocket(effort);
    cases.extend(socketio(effort));
    cases.extend(fallbacks(effort));
    cases.extend(feeds(effort));
    cases.extend(tls(effort));
    cases.extend(tokens(effort));
    cases.push(deflate(effort));
    cases.extend(nodes(effort));
    cases.extend(two_cores(effort));
    cases.extend([topics(effort), presence(effort), publish(effort)]);
    cases.push(many(effort, "feed-many", [1000, 1000, 100], Shape { bytes: 5000, changes: 3 }, 70.0));
    cases.push(many(effort, "feed-165kB", [100, 100, 20], Shape { bytes: 165_000, changes: 20 }, 400.0));
    if effort == Effort::Quick {
        // Servers that no goal names.
        for Case { usual, targets, .. } in &mut cases {
            let baseline = usual[0];
            usual.retain(|name| {
                *name == baseline || targets.iter().any(|target| target.against == Some(name))
            });
        }
    }
    cases
}

/// An echo of 64 bytes.
fn echo(effort: Effort, name: &'static str, how: &str, connections: usize) -> Case {
    let title = format!("echo of 64 bytes on {connections} connections{how}, open loop");
    let (warm_up, measure) = (effort.span(1.5, 0.7, 0.5), effort.span(5.0, 2.0, 1.5));
    let load = (connections, LoadSpec::EchoOpen { bytes: 64, rate_hz: 0.0, warm_up, measure });
    effort.case(Case::new(name, title, load, Protocol::WebSocket, TIMED))
}

/// A fan-out of 1 kB.
fn fanout(effort: Effort, name: &'static str, how: &str) -> Case {
    let clients = effort.of(2000, 2000, 200);
    let title = format!("fan-out of 1,000 bytes to {clients} connections{how}, 20 a second");
    let load = (clients, LoadSpec::to_all(1000, 20.0, effort.of(20, 15, 4), effort.of(100, 50, 10)));
    effort.case(Case::new(name, title, load, Protocol::WebSocket, TIMED))
}

/// Connects at a fixed rate.
fn connect(effort: Effort, name: &'static str, how: &str) -> Case {
    let connecting = effort.of(10_000, 6000, 2000);
    let title = format!("connect, handshake, join in chat{how}; {connecting} connections at 2,000 a second");
    let load = (connecting, LoadSpec::Idle { hold: Duration::ZERO });
    let case = Case::new(name, title, load, Protocol::WebSocket, &[CpuPerConnection]);
    effort.case(case.connecting_at(2000.0))
}

/// Everything over TLS, beside a server that does it by OpenSSL, and beside nginx that does it for us.
fn tls(effort: Effort) -> Vec<Case> {
    let usual = &["stentor-epoll-tls", "stentor-uring-tls", "uws-cpp-tls", "stentor-epoll-nginx-tls"];
    let goals = |uws_ratio| cpu(&[("uws-cpp-tls", uws_ratio), ("stentor-epoll-nginx-tls", 0.8)]);
    let resting = effort.of(5000, 5000, 500);
    let idle = Case::new(
        "tls-idle",
        format!("{resting} idle connections in chat over TLS"),
        (resting, LoadSpec::Idle { hold: Duration::ZERO }),
        Protocol::WebSocket,
        &[BytesPerConnection],
    );
    vec![
        echo(effort, "tls-echo", " over TLS", effort.of(1000, 1000, 200)).goals(usual, goals(1.0)),
        fanout(effort, "tls-fanout", " over TLS").goals(usual, goals(0.85)),
        effort.steady_case(
            idle.goals(&["stentor-epoll-tls", "uws-cpp-tls"], vec![bound(BytesPerConnection, 4500.0)]),
        ),
    ]
}

/// Rooms with few members, of which many are published to.
fn topics(effort: Effort) -> Case {
    let (topics, rate_hz) = (effort.of(10_000, 10_000, 1000), effort.of(10_000.0, 10_000.0, 500.0));
    let (readers, subscribers) = (effort.of(2000, 2000, 200), 10);
    let (warm_up, measure) = (effort.span(2.0, 1.0, 0.5), effort.span(5.0, 3.0, 1.0));
    let title = format!(
        "{topics} topics with {subscribers} subscribers each, on {readers} connections; {rate_hz} publications of 100 bytes a \
         second in random order"
    );
    let load = LoadSpec::Topics(TopicsPlan { bytes: 100, topics, subscribers, rate_hz, warm_up, measure });
    let case = Case::new("topics", title, (readers + 1, load), Protocol::Rooms, TIMED);
    effort.case(case.goals(&["stentor-epoll", "uws-cpp"], cpu(&[("uws-cpp", 0.8)])))
}

/// A room whose members are notified of who joins and leaves. Stentor gathers that for 100 ms; others notify at once.
fn presence(effort: Effort) -> Case {
    let (members, moving, rate_hz) = (effort.of(500, 500, 100), 50, 50.0);
    let title = format!("a room of {members} with presence: {rate_hz} clients a second leave and join");
    let load = LoadSpec::Presence { moving, rate_hz, measure: effort.span(10.0, 4.0, 1.5) };
    let metrics = &[CpuPerMessage, Undelivered];
    let case =
        Case::new("presence", title, (members, load), Protocol::Rooms, metrics).or(&[Protocol::Centrifuge]);
    let goals = [("uws-cpp", 1.0), ("centrifuge", 1.0)];
    let usual = ["stentor-epoll", "uws-cpp", "centrifuge"];
    let goals = [cpu(&goals), vec![bound(Undelivered, 0.0)]].concat();
    effort.steady_case(Case {
        only: &["stentor-uring", "stentor-epoll", "uws-cpp", "centrifuge"],
        ..case.goals(&usual, goals)
    })
}

/// What a backend publishes, by the CPU of all threads: those of the control plane take most of it.
fn publish(effort: Effort) -> Case {
    let (warm_up, measure) = (effort.span(2.0, 1.0, 0.5), effort.span(5.0, 3.0, 1.0));
    let title =
        "POST /api/v1/publish, a message of 64 bytes per request, on 64 connections, closed loop".to_owned();
    let load = (64, LoadSpec::EchoClosed { bytes: 64, warm_up, measure });
    let case = Case::new("publish-api", title, load, Protocol::PublishApi, &[CpuPerMessage, Rate]);
    let goals = vec![bound(CpuPerMessage, 25.0)];
    effort.steady_case(Case {
        only: &["stentor-epoll", "stentor-uring"],
        ..case.goals(&["stentor-epoll"], goals)
    })
}

/// Documents with a subscriber each, all of which change once a second: fetched, compared, and sent as what changed.
fn many(
    effort: Effort,
    name: &'static str,
    [full, quick, smoke]: [usize; 3],
    shape: Shape,
    most_us: f64,
) -> Case {
    let documents = effort.of(full, quick, smoke);
    let title = format!(
        "{documents} documents of {} kB with {} changed values a second, one subscriber each",
        shape.bytes / 1000,
        shape.changes
    );
    let load = LoadSpec::Receive { measure: effort.span(10.0, 4.0, 2.0) };
    let metrics = &[CpuPerMessage, LatencyP50, LatencyP99, PeakMemory];
    let case = Case::new(name, title, (documents, load), Protocol::StentorV1, metrics).by_feed(Some(shape));
    // So that they are fetched one after the other from then on.
    let case = case.connecting_at(documents as f64);
    let goals = vec![bound(CpuPerMessage, most_us)];
    effort.steady_case(Case {
        only: &["stentor-epoll", "stentor-uring"],
        ..case.goals(&["stentor-epoll"], goals)
    })
}

/// On two cores, of which the generator has one as well: the CPU counts, not the time.
fn two_cores(effort: Effort) -> [Case; 2] {
    let goals = || cpu(&[("stentor-epoll", 1.1)]);
    let usual = &["stentor-epoll-2", "stentor-epoll"];
    [
        echo(effort, "two-cores-echo", " of two cores", effort.of(1000, 1000, 200)).goals(usual, goals()),
        fanout(effort, "two-cores-fanout", " of two cores").goals(usual, goals()),
    ]
}

/// Compressed, beside the same server without compression: what all get is compressed once.
fn deflate(effort: Effort) -> Case {
    let clients = effort.of(2000, 2000, 200);
    let title = format!(
        "fan-out of 1,000 bytes of JSON to {clients} connections with permessage-deflate, 5 a second"
    );
    let load = (clients, LoadSpec::to_all(1000, 5.0, effort.of(10, 5, 2), effort.of(40, 15, 5)));
    let metrics = &[CpuPerMessage, BytesPerMessage, LatencyP50, LatencyP99];
    let case = Case::new("deflate-fanout", title, load, Protocol::WebSocket, metrics);
    let goals = [("stentor-epoll", 1.1), ("uws-cpp-deflate", 0.5), ("ws8-deflate", 0.1)];
    effort.case(
        case.goals(
            &["stentor-epoll-deflate", "stentor-epoll", "uws-cpp-deflate", "ws8-deflate"],
            cpu(&goals),
        ),
    )
}

/// Clients with tokens, and permissions for what they do, beside the same server without.
fn tokens(effort: Effort) -> Vec<Case> {
    let with = &["stentor-epoll-auth", "stentor-epoll"];
    let connecting = |name, how, server, most| {
        let goal = ratio(CpuPerConnection, "stentor-epoll", most);
        connect(effort, name, how).goals(&[server, "stentor-epoll"], vec![goal])
    };
    vec![
        echo(effort, "auth-echo", " with permissions", effort.of(1000, 1000, 200))
            .goals(with, cpu(&[("stentor-epoll", 1.02)])),
        fanout(effort, "auth-fanout", " with permissions").goals(with, cpu(&[("stentor-epoll", 1.02)])),
        connecting("auth-connect", ", with a token that is known", "stentor-epoll-auth", 1.1),
        connecting("auth-connect-hs256", ", each with its own token, HS256", "stentor-epoll-hs256", 1.1),
        // 70 µs more than without, which takes 22 µs.
        connecting("auth-connect-es256", ", each with its own token, ES256", "stentor-epoll-es256", 4.2),
    ]
}

/// Several nodes with a Redis on the generator's core: clients of one node, and publications at another one.
fn nodes(effort: Effort) -> Vec<Case> {
    let usual = &["stentor-epoll-2nodes", "stentor-epoll", "socketio4-2nodes"];
    let clients = effort.of(2000, 2000, 200);
    let fanout = Case::new(
        "cluster-fanout",
        format!("an event of 1,000 bytes at one node to {clients} Socket.IO clients of another, 10 a second"),
        (clients, LoadSpec::to_all(1000, 10.0, effort.of(20, 10, 5), effort.of(60, 30, 15))),
        Protocol::SocketIo,
        TIMED,
    );
    let latency = Case::new(
        "cluster-latency",
        "an event of 1,000 bytes at one node to a Socket.IO client of another, 100 a second".to_owned(),
        (2, LoadSpec::to_all(1000, 100.0, effort.of(100, 100, 20), effort.of(1000, 300, 50))),
        Protocol::SocketIo,
        &[LatencyP50, LatencyP99, CpuPerPublication, EngineBytes],
    );
    let added = [bound(LatencyP50, 1.0), bound(LatencyP99, 5.0), bound(CpuPerPublication, 60.0)];
    let readers = effort.of(300, 300, 60);
    let (warm_up, count) = (effort.of(3, 2, 1), effort.of(20, 10, 3));
    let feed = Case::new(
        "cluster-feed",
        format!("a document of 165 kB with 20 changed values a second to {readers} clients of three nodes"),
        (readers, LoadSpec::to_all(1000, 1.0, warm_up, count)),
        Protocol::StentorV1,
        &[EngineBytes, UpstreamRequests, UpstreamRatio, CpuPerMessage, LatencyP50, LatencyP99],
    );
    let feed =
        Case { only: &["stentor-epoll-3nodes"], ..feed.by_feed(Some(Shape { bytes: 165_000, changes: 20 })) };
    vec![
        effort.case(fanout.goals(usual, cpu(&[("stentor-epoll", 1.05), ("socketio4-2nodes", 0.45)]))),
        effort.steady_case(latency.goals(usual, added.to_vec())),
        effort.steady_case(
            feed.goals(
                &["stentor-epoll-3nodes"],
                vec![bound(EngineBytes, 5000.0), bound(UpstreamRatio, 1.1)],
            ),
        ),
    ]
}

fn websocket(effort: Effort) -> Vec<Case> {
    let echo = |name, usual: &[&'static str], connections: usize| {
        let mut goals = cpu(&[("bare-epoll", 1.15), ("bare-uring", 1.15), ("uws-cpp", 1.0)]);
        goals.push(ratio(LatencyP50, "uws-cpp", 1.0));
        goals.push(ratio(LatencyP99, "uws-cpp", 1.0));
        echo(effort, name, "", connections).goals(usual, goals)
    };
    let direct = effort.of(100_000, 30_000, 25_000);
    let direct = Case::new(
        "direct",
        format!("fan-out of 1,000 bytes to {direct} connections, every two seconds"),
        (direct, LoadSpec::to_all(1000, 0.5, effort.of(2, 1, 1), effort.of(5, 3, 2))),
        Protocol::WebSocket,
        &[CpuPerMessage, LatencyP99, PeakMemory],
    );
    let crowd = effort.of(10_000, 10_000, 2000);
    let (warm_up, count) = (effort.of(4, 3, 1), effort.of(16, 8, 4));
    let crowd = Case::new(
        "crowd",
        format!("a feed of 165,000 bytes to {crowd} connections, once a second"),
        (crowd, LoadSpec::to_all(165_000, 1.0, warm_up, count)),
        Protocol::WebSocket,
        &[CpuPerMessage, LatencyP99, PeakMemory, MemoryGrowth, Undelivered],
    );
    let mut cases = vec![
        echo("echo-1k", ALL, effort.of(1000, 1000, 200)),
        echo(
            "echo-10k",
            &["stentor-uring", "bare-uring", "bare-epoll", "uws-cpp"],
            effort.of(10_000, 10_000, 1000),
        ),
    ];
    cases.extend([fanout::small(effort), fanout::large(effort), idle::case(effort)]);
    cases.push(connect(effort, "connect", "").goals(
        &["stentor-uring", "bare-epoll", "uws-cpp", "ws8"],
        vec![ratio(CpuPerConnection, "uws-cpp", 0.95)],
    ));
    cases.push(slow_readers::never_read(effort));
    let direct = direct.goals(DIRECT, cpu(&[("bare-direct", 1.15)]));
    cases.push(effort.long_case(Case { only: DIRECT, ..direct }));
    let flat = vec![bound(Undelivered, 0.0), bound(MemoryGrowth, 1.0)];
    cases.push(effort.long_case(crowd.by_feed(None).goals(CROWD, flat)));
    cases
}

fn socketio(effort: Effort) -> Vec<Case> {
    let case = |name, title, load, metrics| Case::new(name, title, load, Protocol::SocketIo, metrics);
    let clients = effort.of(2000, 2000, 300);
    let fanout = case(
        "io-fanout",
        format!(
            "fan-out of an event of 1,000 bytes to {clients} Socket.IO clients over WebSocket, 10 a second"
        ),
        (clients, LoadSpec::to_all(1000, 10.0, effort.of(20, 10, 5), effort.of(60, 30, 15))),
        &[CpuPerMessage, LatencyP50, LatencyP99, CallsPerMessage],
    );
    let mut goals = cpu(&[("stentor-epoll-ws", 1.10), ("socketio4", 0.45), ("socketioxide", 0.75)]);
    goals.push(ratio(CallsPerMessage, "stentor-epoll-ws", SAME_CALLS));
    let echoing = effort.of(1000, 1000, 200);
    let (warm_up, measure) = (effort.span(2.0, 1.0, 0.5), effort.span(5.0, 2.0, 1.5));
    let echo = case(
        "io-echo",
        format!("echo of an event of 64 bytes on {echoing} Socket.IO clients over WebSocket, closed loop"),
        (echoing, LoadSpec::EchoClosed { bytes: 64, warm_up, measure }),
        &[CpuPerMessage],
    );
    let resting = effort.of(10_000, 10_000, 1000);
    // The interval of pings, so that each connection has one.
    let hold = effort.span(25.0, 0.0, 2.0);
    let (metrics, bounds): (&[Metric], _) = match hold.is_zero() {
        true => (&[BytesPerConnection], Vec::new()),
        false => (&[BytesPerConnection, IdleCpu], vec![bound(IdleCpu, 0.5)]),
    };
    let idle = case(
        "io-idle",
        format!("{resting} idle Socket.IO clients over WebSocket, {hold:?} with heartbeats"),
        (resting, LoadSpec::Idle { hold }),
        metrics,
    );
    let memory = [bound(BytesPerConnection, 1000.0), ratio(BytesPerConnection, "socketio4", 1.0 / 16.0)];
    let connecting = effort.of(5000, 3000, 1000);
    let connect = case(
        "io-connect",
        format!("connect and enter, Socket.IO over WebSocket only; {connecting} clients at 1,000 a second"),
        (connecting, LoadSpec::Idle { hold: Duration::ZERO }),
        &[CpuPerConnection],
    );
    let polling = effort.of(1300, 1300, 300);
    let polled = Case::new(
        "io-polling",
        format!(
            "fan-out of an event of 1,000 bytes to {polling} long-polling Socket.IO clients, once a second"
        ),
        (polling, LoadSpec::to_all(1000, 1.0, effort.of(5, 3, 2), effort.of(10, 6, 3))),
        Protocol::SocketIoPolling,
        &[CpuPerMessage, LatencyP50, LatencyP99, Undelivered],
    );
    let polled_goals = vec![ratio(CpuPerMessage, "socketio4", 0.25), bound(Undelivered, 0.0)];
    vec![
        effort.case(fanout.goals(SOCKET_IO, goals)),
        effort.case(echo.goals(SOCKET_IO, cpu(&[("stentor-epoll-ws", 1.2), ("socketio4", 0.333)]))),
        effort.long_case(idle.goals(SOCKET_IO, [&memory[..], &bounds].concat())),
        effort.case(connect.connecting_at(1000.0).goals(
            SOCKET_IO,
            vec![bound(CpuPerConnection, 38.0), ratio(CpuPerConnection, "socketio4", 0.1)],
        )),
        effort.steady_case(polled.goals(&["stentor-epoll", "socketio4", "socketioxide"], polled_goals)),
        cpu_budget::at_rate(effort),
    ]
}

fn fallbacks(effort: Effort) -> Vec<Case> {
    let room = effort.of(1000, 1000, 200);
    let clients = effort.of(2000, 2000, 300);
    let resting = effort.of(10_000, 10_000, 1000);
    let (warm_up, count) = (effort.of(40, 20, 10), effort.of(100, 40, 30));
    let to_room = |name, transport, protocol| {
        let title =
            format!("fan-out of 1,000 characters to a room of {room} over SockJS {transport}, 20 a second");
        let load = LoadSpec::to_all(1000, 20.0, warm_up, count);
        Case::new(name, title, (room, load), protocol, TIMED)
    };
    let events = Case::new(
        "sse-fanout",
        format!("a feed of 1,000 bytes to {clients} clients of Server-Sent Events, 20 versions a second"),
        (clients, LoadSpec::to_all(1000, 20.0, warm_up, count)),
        Protocol::Sse,
        TIMED,
    );
    let idle = |name, what, feed, protocol, usual: &[&'static str]| {
        let load = (resting, LoadSpec::Idle { hold: Duration::ZERO });
        let title = format!("{resting} idle {what}");
        let case = Case::new(name, title, load, protocol, &[BytesPerConnection]);
        let case = Case { feed, ..case };
        effort.steady_case(case.goals(usual, vec![bound(BytesPerConnection, 1000.0)]))
    };
    let room_goals = &[("stentor-epoll-ws", 1.10), ("sockjs-node", 0.35), ("sockjs-tornado-pypy45", 0.55)];
    vec![
        effort.steady_case(
            to_room("sockjs-fanout", "websocket", Protocol::SockJs).goals(SOCK_JS, cpu(room_goals)),
        ),
        effort.steady_case(
            to_room("xhr-streaming-fanout", "xhr_streaming", Protocol::SockJsStreaming)
                .goals(&SOCK_JS[..3], cpu(&[("stentor-epoll-ws", 1.20)])),
        ),
        effort.steady_case(events.by_feed(None).goals(EVENTS, cpu(&[("stentor-epoll-ws", 1.10)]))),
        idle(
            "sockjs-idle",
            "clients in a room, SockJS websocket",
            false,
            Protocol::SockJs,
            &["stentor-epoll", "sockjs-node", "sockjs-tornado-pypy45"],
        ),
        idle("sse-idle", "clients of Server-Sent Events, subscribed to a feed", true, Protocol::Sse, EVENTS),
    ]
}

fn feeds(effort: Effort) -> Vec<Case> {
    let clients = effort.of(4000, 4000, 300);
    let asking = effort.of(10_000, 10_000, 1000);
    let delta = Case::new(
        "feed-delta",
        format!(
            "a document of 165 kB with 20 changed values a second to {clients} clients: what changed, the document, or a \
             message of 1,000 bytes"
        ),
        (clients, LoadSpec::to_all(1000, 1.0, effort.of(3, 2, 1), effort.of(10, 6, 3))),
        Protocol::StentorV1,
        feed_capacity::COSTS,
    );
    let delta = delta.by_feed(Some(Shape { bytes: 165_000, changes: 20 }));
    let delta = delta.connecting_at(effort.of(500.0, 1000.0, 500.0));
    let mut goals = cpu(&[("stentor-epoll-ws", 1.3), ("stentor-epoll-documents", 1.0 / 3.0)]);
    goals.push(ratio(BytesPerMessage, "stentor-epoll-documents", 0.01));
    goals.push(bound(LatencyP99, 50.0));
    let cold = Case::new(
        "feed-cold",
        format!("{asking} clients ask at once for a document of 5 kB that the server has to fetch first"),
        (asking, LoadSpec::Ask),
        Protocol::StentorV1,
        &[LastReceiver, UpstreamRequests, CpuPerMessage, Undelivered],
    );
    let once = vec![bound(LastReceiver, 1000.0), bound(UpstreamRequests, 1.0), bound(Undelivered, 0.0)];
    let usual = ["stentor-epoll", "stentor-epoll-ws", "stentor-epoll-documents"];
    let cold = Case {
        only: &["stentor-epoll", "stentor-uring"],
        course: Course::Cold(Duration::from_millis(100)),
        ..cold.by_feed(Some(Shape { bytes: 5000, changes: 1 })).goals(&["stentor-epoll"], once)
    };
    vec![effort.steady_case(delta.goals(&usual, goals)), effort.steady_case(cold)]
}
