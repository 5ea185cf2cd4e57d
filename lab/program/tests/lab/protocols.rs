//! Every protocol of the generator against the servers that speak it: Stentor, if it was built beside this test, and
//! the installed servers (`lab/peers/*/install`). Missing servers are skipped with a message. Nothing is measured: each
//! message must come back, or reach all clients, intact and in order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fakes::side_by_side;
use stentor_lab::bench::{Application, Contestant, Options};
use stentor_lab::catalogue::Catalogue;
use stentor_lab::generator::{FanoutPlan, LoadSpec, Misbehaviour, Protocol, Publisher, Spec, run};
use stentor_lab::measure::Server;

const CONNECTIONS: usize = 12;

fn options() -> Options {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_stentor-lab"));
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
    let mut options = Options::new(program, peers);
    options.placing.generator_core = 0;
    options
}

/// Checks that all messages of a load arrive intact and in order, and their number if it is known.
fn check_load(
    name: &str,
    server: &Server,
    (path, protocol): (&str, Protocol),
    load: LoadSpec,
    expected: Option<u64>,
) {
    let what = format!("{name}: {protocol:?} {load:?}");
    let mut spec = Spec::new(server.address(), path, CONNECTIONS, load);
    spec.protocol = protocol;
    // Over TCP, a client can't see that the server has accepted it.
    spec.idle = Duration::from_millis(if protocol == Protocol::Tcp { 200 } else { 10 });
    let outcome =
        run(&spec, |_| Ok(())).unwrap_or_else(|error| panic!("{what}: {}", server.error(&error.to_string())));
    let audit = &outcome.audit;
    assert_eq!(outcome.connections, CONNECTIONS as u64, "{what}: {audit:?}");
    assert_eq!((audit.delivered, audit.lost_connections), (audit.expected, 0), "{what}: {audit:?}");
    let faults = (audit.gaps, audit.repeated, audit.wrong_length, audit.corrupt);
    assert_eq!(faults, (0, 0, 0, 0), "{what}: {audit:?}");
    if let Some(expected) = expected {
        assert_eq!(audit.expected, expected, "{what}");
    }
}

fn check(name: &str, protocols: &[Protocol]) {
    let options = options();
    let catalogue = Catalogue::read(&options.placing.peers_dir).unwrap();
    let known = catalogue.find(name).unwrap();
    let there = match &known.peer {
        Some(peer) => peer.is_installed(),
        None => options.placing.stentor.is_some(),
    };
    if !there {
        eprintln!("skipped: {name} isn't there");
        return;
    }
    let contestant = Contestant::find(name, &catalogue, &options).unwrap();
    for protocol in protocols {
        let start = |application| {
            let mut command = contestant.command(application, *protocol, None);
            command.core = None;
            Server::start(&command).unwrap()
        };
        let path = contestant.path(Application::Echo, *protocol);
        let knows = |mode: &str| known.peer.as_ref().is_none_or(|peer| peer.knows(mode));
        if knows("echo") {
            let echoing = start(Application::Echo);
            let (warm_up, measure) = (Duration::from_millis(50), Duration::from_millis(150));
            let load = LoadSpec::EchoOpen { bytes: 100, rate_hz: 400.0, warm_up, measure };
            check_load(name, &echoing, (path, *protocol), load, Some(60));
            check_load(
                name,
                &echoing,
                (path, *protocol),
                LoadSpec::EchoClosed { bytes: 64, warm_up, measure },
                None,
            );
            let how = Misbehaviour::Churns { every: Duration::from_millis(5) };
            let load = LoadSpec::Misbehave { how, lasts: Duration::from_millis(300) };
            let mut spec = Spec::new(echoing.address(), path, CONNECTIONS, load);
            spec.protocol = *protocol;
            let outcome = run(&spec, |_| Ok(())).unwrap();
            assert_eq!(outcome.audit.lost_connections, 0, "{name}: {protocol:?}: {:?}", outcome.audit);
            assert!(
                outcome.messages >= CONNECTIONS as u64,
                "{name}: {protocol:?}: {} visits",
                outcome.messages
            );
            echoing.stop().unwrap();
        }
        let chatting = start(Application::Chat);
        // Mosquitto 2.0.11 stops reading within a longer message.
        let large = if name == "mosquitto" { 60_000 } else { 165_000 };
        for (bytes, count) in [(1000, 6), (large, 2)] {
            let load = LoadSpec::Fanout(FanoutPlan {
                bytes,
                rate_hz: 20.0,
                warm_up: 1,
                count,
                publisher: Publisher::Own,
            });
            check_load(name, &chatting, (path, *protocol), load, Some(count * CONNECTIONS as u64));
        }
        chatting.stop().unwrap();
    }
}

/// All servers with other protocols than plain WebSocket and lines over TCP.
#[test]
fn every_server_passes_messages_on() {
    use Protocol::{
        Bayeux, Centrifuge, EngineIo, EngineIo3, Mqtt, Nats, Primus, Primus6, SockJs, SockJsStreaming,
        SocketIo, SocketIo2, SocketIo2Polling, SocketIo06, SocketIo07, SocketIo09, SocketIo09Polling,
        SocketIoPolling, WebSocket,
    };
    let cases: [(&str, &[Protocol]); 26] = [
        ("stentor-epoll", &[WebSocket, EngineIo, EngineIo3, SocketIo, SocketIo2, SockJs, Primus, Primus6]),
        ("stentor-epoll", &[SocketIoPolling, SocketIo2Polling, SockJsStreaming]),
        ("socketio4", &[EngineIo, SocketIo, SocketIoPolling]),
        ("socketio4-redis", &[SocketIo, SocketIoPolling]),
        ("socketio4-bun", &[SocketIo, SocketIoPolling]),
        ("socketio2", &[SocketIo2, SocketIo2Polling, EngineIo3]),
        ("socketio2-redis", &[SocketIo2, SocketIo2Polling]),
        ("socketio1", &[SocketIo2, SocketIo2Polling]),
        ("engineio07", &[EngineIo3]),
        ("socketio09", &[SocketIo09, SocketIo09Polling]),
        ("socketio08", &[SocketIo09, SocketIo09Polling]),
        ("socketio07", &[SocketIo07, SocketIo09Polling]),
        ("socketio06", &[SocketIo06]),
        ("socketioxide", &[SocketIo, SocketIoPolling]),
        ("java-nettysio", &[SocketIo]),
        ("primus8", &[Primus]),
        ("primus15", &[Primus6]),
        ("faye", &[Bayeux]),
        ("centrifuge", &[Centrifuge]),
        ("nats", &[Nats]),
        ("mosquitto", &[Mqtt]),
        ("sockjs-node", &[SockJs, SockJsStreaming]),
        ("sockjs02", &[SockJs, SockJsStreaming]),
        ("sockjs03old", &[SockJs, SockJsStreaming]),
        ("sockjs-tornado-pypy45", &[SockJs, SockJsStreaming]),
        ("sockjs-tornado", &[SockJs, SockJsStreaming]),
    ];
    side_by_side(2, &cases, |(name, protocols)| check(name, protocols));
}

/// All servers with plain WebSocket or lines over TCP.
#[test]
fn plain() {
    let catalogue = Catalogue::read(&options().placing.peers_dir).unwrap();
    for known in &catalogue.servers {
        // The bare loops skip slow receivers, so the number of messages depends on the machine.
        if known.peer.is_none() || known.name.starts_with("bare-") {
            continue;
        }
        for protocol in known.speaks().filter(|spoken| [Protocol::WebSocket, Protocol::Tcp].contains(spoken))
        {
            check(&known.name, &[protocol]);
        }
    }
}
