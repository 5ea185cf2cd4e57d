//! Every protocol of the generator against the servers that speak it: Stentor, where it was built beside this test, and
//! the peers, where they are installed (`lab/peers/*/install`). What is missing is skipped, and that is said. Nothing is
//! measured: each message must come back, and come to all, intact and in order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor_lab::bench::{Application, Contestant, Options};
use stentor_lab::catalogue::Catalogue;
use stentor_lab::generator::{Invocation, LoadSpec, Misbehaviour, Protocol, Publisher, Spec, run};
use stentor_lab::measure::Server;

const CONNECTIONS: usize = 12;

fn options() -> Options {
    let invocation = Invocation { program: PathBuf::from(env!("CARGO_BIN_EXE_stentor-lab")) };
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers");
    Options { generator_core: 0, ..Options::new(invocation, peers) }
}

/// Returns how many messages were delivered.
fn check_load(server: &Server, path: &str, protocol: Protocol, load: LoadSpec, expected: Option<u64>) -> u64 {
    let what = format!("{protocol:?} {load:?}");
    let mut spec = Spec::new(server.address(), path, CONNECTIONS, load);
    spec.protocol = protocol;
    // Over TCP nothing tells that the server has taken a connection.
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
    audit.delivered
}

fn check(name: &str, protocols: &[Protocol]) {
    let options = options();
    let catalogue = Catalogue::read(&options.peers).unwrap();
    let known = catalogue.find(name).unwrap();
    let there = match &known.peer {
        Some(peer) => peer.is_installed(),
        None => options.stentor.is_some(),
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
            check_load(&echoing, path, *protocol, load, Some(60));
            check_load(&echoing, path, *protocol, LoadSpec::EchoClosed { bytes: 64, warm_up, measure }, None);
            let how = Misbehaviour::Churns { every: Duration::from_millis(5) };
            let load = LoadSpec::Misbehave { how, lasts: Duration::from_millis(300) };
            let mut spec = Spec::new(echoing.address(), path, CONNECTIONS, load);
            spec.protocol = *protocol;
            let outcome = run(&spec, |_| Ok(())).unwrap();
            assert_eq!(outcome.audit.lost_connections, 0, "{protocol:?}: {:?}", outcome.audit);
            assert!(outcome.messages >= CONNECTIONS as u64, "{protocol:?}: {} visits", outcome.messages);
            echoing.stop().unwrap();
        }
        let chatting = start(Application::Chat);
        // Mosquitto 2.0.11 stops reading in the midst of a message that is so long.
        let large = if name == "mosquitto" { 60_000 } else { 165_000 };
        for (bytes, count) in [(1000, 6), (large, 2)] {
            let load =
                LoadSpec::Fanout { bytes, rate_hz: 20.0, warm_up: 1, count, publisher: Publisher::Own };
            check_load(&chatting, path, *protocol, load, Some(count * CONNECTIONS as u64));
        }
        chatting.stop().unwrap();
    }
}

#[test]
fn stentor() {
    use Protocol::{
        EngineIo, EngineIo3, Primus, Primus6, SockJs, SockJsStreaming, SocketIo, SocketIo2, SocketIo2Polling,
        SocketIoPolling, WebSocket,
    };
    let websockets = [WebSocket, EngineIo, EngineIo3, SocketIo, SocketIo2, SockJs, Primus, Primus6];
    check("stentor-epoll", &websockets);
    check("stentor-epoll", &[SocketIoPolling, SocketIo2Polling, SockJsStreaming]);
}

#[test]
fn socketio4() {
    check("socketio4", &[Protocol::EngineIo, Protocol::SocketIo, Protocol::SocketIoPolling]);
}

#[test]
fn socketio4_redis() {
    check("socketio4-redis", &[Protocol::SocketIo, Protocol::SocketIoPolling]);
}

#[test]
fn socketio2() {
    check("socketio2", &[Protocol::SocketIo2, Protocol::SocketIo2Polling, Protocol::EngineIo3]);
}

#[test]
fn socketio2_redis() {
    check("socketio2-redis", &[Protocol::SocketIo2, Protocol::SocketIo2Polling]);
}

#[test]
fn socketio1() {
    check("socketio1", &[Protocol::SocketIo2, Protocol::SocketIo2Polling]);
}

#[test]
fn engineio07() {
    check("engineio07", &[Protocol::EngineIo3]);
}

#[test]
fn socketio09() {
    check("socketio09", &[Protocol::SocketIo09, Protocol::SocketIo09Polling]);
}

#[test]
fn socketio08() {
    check("socketio08", &[Protocol::SocketIo09, Protocol::SocketIo09Polling]);
}

#[test]
fn socketio07() {
    check("socketio07", &[Protocol::SocketIo07, Protocol::SocketIo09Polling]);
}

#[test]
fn socketio06() {
    check("socketio06", &[Protocol::SocketIo06]);
}

#[test]
fn primus8() {
    check("primus8", &[Protocol::Primus]);
}

#[test]
fn primus15() {
    check("primus15", &[Protocol::Primus6]);
}

#[test]
fn faye() {
    check("faye", &[Protocol::Bayeux]);
}

#[test]
fn centrifuge() {
    check("centrifuge", &[Protocol::Centrifuge]);
}

#[test]
fn nats() {
    check("nats", &[Protocol::Nats]);
}

#[test]
fn mosquitto() {
    check("mosquitto", &[Protocol::Mqtt]);
}

#[test]
fn socketioxide() {
    check("socketioxide", &[Protocol::SocketIo, Protocol::SocketIoPolling]);
}

#[test]
fn java_nettysio() {
    check("java-nettysio", &[Protocol::SocketIo]);
}

#[test]
fn sockjs_node() {
    check("sockjs-node", &[Protocol::SockJs, Protocol::SockJsStreaming]);
}

#[test]
fn sockjs02() {
    check("sockjs02", &[Protocol::SockJs, Protocol::SockJsStreaming]);
}

#[test]
fn sockjs03old() {
    check("sockjs03old", &[Protocol::SockJs, Protocol::SockJsStreaming]);
}

#[test]
fn sockjs_tornado() {
    check("sockjs-tornado-pypy45", &[Protocol::SockJs, Protocol::SockJsStreaming]);
    check("sockjs-tornado", &[Protocol::SockJs, Protocol::SockJsStreaming]);
}

#[test]
fn socketio4_bun() {
    check("socketio4-bun", &[Protocol::SocketIo, Protocol::SocketIoPolling]);
}

/// All that speak plain WebSocket or lines over TCP.
#[test]
fn plain() {
    let catalogue = Catalogue::read(&options().peers).unwrap();
    for known in &catalogue.servers {
        // The bare loops pass over a receiver that is behind, so that what arrives depends on the machine.
        if known.peer.is_none() || known.name.starts_with("bare-") {
            continue;
        }
        for protocol in known.speaks().filter(|spoken| [Protocol::WebSocket, Protocol::Tcp].contains(spoken))
        {
            check(&known.name, &[protocol]);
        }
    }
}
