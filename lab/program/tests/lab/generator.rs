//! The generator against a server in a thread: results of an honest server, and detection of each fault.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use crate::server::{Fault, Server};
use stentor_lab::generator::{
    Audit, ChatPlan, Cut, FanoutPlan, LoadSpec, Misbehaviour, Outcome, Protocol, Publisher, Spec, Workers,
    run,
};
use stentor_wire::http1;
use stentor_wire::ws::{self, handshake};

const CONNECTIONS: usize = 20;
const ECHO_RATE_HZ: f64 = 2000.0;
/// Time to wait for late messages on a busy machine. Only lost messages take this time.
const LATE: Duration = Duration::from_secs(60);

fn echo() -> LoadSpec {
    echo_for(Duration::from_millis(200))
}

fn echo_for(measure: Duration) -> LoadSpec {
    LoadSpec::EchoOpen { bytes: 100, rate_hz: ECHO_RATE_HZ, warm_up: Duration::from_millis(50), measure }
}

fn fanout(bytes: usize) -> LoadSpec {
    LoadSpec::Fanout(FanoutPlan { bytes, rate_hz: 100.0, warm_up: 5, count: 20, publisher: Publisher::Own })
}

fn spec(server: &Server, load: LoadSpec) -> Spec {
    let mut spec = Spec::new(server.address, "/ws", CONNECTIONS, load);
    spec.idle = Duration::from_millis(10);
    spec.server_pids = vec![std::process::id()];
    spec
}

/// A specification for loads of which every message must come.
fn patient(server: &Server, load: LoadSpec) -> Spec {
    Spec { late: LATE, ..spec(server, load) }
}

fn check_honest(chat: bool, change: impl Fn(&mut Spec), load: LoadSpec, expected: Option<u64>) -> Outcome {
    let server = Server::start(chat, Fault::None);
    let mut spec = patient(&server, load);
    change(&mut spec);
    let outcome = run(&spec, |connected| {
        assert_eq!(connected.connections, CONNECTIONS as u64);
        Ok(())
    });
    let outcome = outcome.unwrap();
    let audit = &outcome.audit;
    assert_eq!(audit.delivered, audit.expected, "{audit:?}");
    assert_eq!(outcome.latency.len(), audit.delivered);
    assert_eq!(*audit, Audit { expected: audit.expected, delivered: audit.delivered, ..Audit::default() });
    match expected {
        Some(expected) => assert_eq!(audit.expected, expected),
        None => assert!(audit.expected > 0),
    }
    outcome
}

/// An echo in an open loop with messages between the two reads of the clocks. On a busy machine, no message may come in
/// so short a time, so longer times follow.
fn counted_echo(change: impl Fn(&mut Spec)) -> Outcome {
    for measure in [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)] {
        let outcome = check_honest(false, &change, echo_for(measure), None);
        let audit = &outcome.audit;
        let due = (ECHO_RATE_HZ * measure.as_secs_f64()) as u64;
        assert!(audit.expected.abs_diff(due) <= 1, "{due} {audit:?}");
        assert_eq!(outcome.lag.len(), audit.expected);
        if outcome.messages > 0 {
            return outcome;
        }
    }
    panic!("no message came in 5 s");
}

#[test]
fn an_open_loop_sends_on_schedule_and_gets_everything_back() {
    assert!(counted_echo(|_| {}).server_cpu_per_message().is_some());
}

#[test]
fn no_idle_cost_is_subtracted_if_it_was_not_measured() {
    let outcome = counted_echo(|spec| spec.idle = Duration::ZERO);
    assert!(outcome.idle.wall.is_zero() && outcome.server_cpu_per_message().is_some(), "{:?}", outcome.idle);
}

#[test]
fn a_closed_loop_has_one_message_under_way_on_each() {
    // The first message on each connection counts, however long it takes.
    let load =
        LoadSpec::EchoClosed { bytes: 64, warm_up: Duration::ZERO, measure: Duration::from_millis(500) };
    check_honest(false, |_| {}, load, None);
}

#[test]
fn a_fan_out_reaches_all_and_the_time_between_publications_is_cut_into_slices() {
    for slices in [0, 4u32] {
        let outcome =
            check_honest(true, |spec| spec.slices = slices, fanout(1000), Some(20 * CONNECTIONS as u64));
        assert_eq!((outcome.last_of_each_ns.len(), outcome.slices.len()), (20, 20 * slices as usize));
        let last = Duration::from_nanos(*outcome.last_of_each_ns.iter().max().unwrap());
        assert!(last >= outcome.latency.percentile(50.0));
        let uses_cpu = outcome.slices.iter().any(|slice| !slice.server_cpu.is_zero());
        assert_eq!(uses_cpu, slices > 0);
    }
}

#[test]
fn holds_idle_connections_and_greets() {
    let load = LoadSpec::Idle { hold: Duration::from_millis(20) };
    let server = Server::start(false, Fault::None);
    let mut spec = spec(&server, load);
    spec.first_message = Some("hello".into());
    let outcome = run(&spec, |_| Ok(())).unwrap();
    assert_eq!(outcome.audit, Audit::default());
    assert_eq!(outcome.connections, CONNECTIONS as u64);
}

/// Runs `load` beside five clients that misbehave for `lasts`. All messages of the load must come nevertheless. Returns
/// the outcome of the five.
fn check_beside(how: Misbehaviour, lasts: Duration, load: LoadSpec, fault: Fault) -> (Outcome, Server) {
    let server = Server::start(matches!(load, LoadSpec::Fanout(FanoutPlan { .. })), fault);
    let mut others = spec(&server, LoadSpec::Misbehave { how, lasts });
    (others.connections, others.first_source) = (5, 100);
    let (tell, told) = std::sync::mpsc::channel();
    let beside = std::thread::spawn(move || {
        run(&others, |connected| {
            tell.send(connected.connections).unwrap();
            Ok(())
        })
    });
    let connected = told.recv().unwrap();
    assert_eq!(connected, if matches!(how, Misbehaviour::Churns { .. }) { 0 } else { 5 }, "{how:?}");
    if fault == Fault::None {
        let audit = run(&patient(&server, load), |_| Ok(())).unwrap().audit;
        let expected = audit.expected;
        assert_eq!(audit, Audit { expected, delivered: expected, ..Audit::default() }, "{how:?}");
        assert!(expected > 0);
    }
    (beside.join().unwrap().unwrap(), server)
}

#[test]
fn other_clients_receive_everything_beside_misbehaving_ones() {
    let every = Duration::from_millis(50);
    for (how, load) in [
        (Misbehaviour::NeverReads, fanout(165_000)),
        (Misbehaviour::ReadsSlowly { every }, fanout(165_000)),
        (Misbehaviour::Silent, fanout(1000)),
        (Misbehaviour::Mute, echo()),
        (Misbehaviour::Churns { every: Duration::from_millis(2) }, echo()),
        (Misbehaviour::Storms { every }, echo()),
        (Misbehaviour::Fragments, echo()),
    ] {
        // The number of reconnections in this time depends on the machine.
        let mut spans =
            [Duration::from_millis(400), Duration::from_secs(2), Duration::from_secs(10)].into_iter();
        let often = spans.any(|lasts| {
            let (outcome, server) = check_beside(how, lasts, load.clone(), Fault::None);
            let audit = &outcome.audit;
            let lost = (outcome.cut_off, audit.lost_connections, audit.corrupt);
            assert_eq!(lost, (0, 0, 0), "{how:?}: {audit:?}");
            let accepted = server.accepted.load(Ordering::Relaxed) - CONNECTIONS as u64;
            match how {
                // The clients connect again and again, and the server accepts each.
                Misbehaviour::Churns { .. } | Misbehaviour::Storms { .. } => {
                    assert_eq!(accepted, outcome.messages, "{how:?}: {outcome:?}");
                    return outcome.messages > 5;
                }
                Misbehaviour::Fragments => {
                    assert!(audit.delivered > 0 && audit.delivered == audit.expected, "{audit:?}");
                }
                _ => assert_eq!(accepted, 5, "{how:?}"),
            }
            true
        });
        assert!(often, "{how:?}: they didn't come back");
    }
}

#[test]
fn misbehaving_connections_that_a_server_ends_are_counted() {
    // This server ends a connection at every seventh delivery.
    let lasts = Duration::from_millis(400);
    let (outcome, _server) = check_beside(Misbehaviour::Fragments, lasts, echo(), Fault::Closes);
    assert!(outcome.audit.lost_connections > 0, "{:?}", outcome.audit);
    let server = Server::start(true, Fault::Closes);
    let how = Misbehaviour::Silent;
    let others = spec(&server, LoadSpec::Misbehave { how, lasts: Duration::from_millis(300) });
    let outcome = run(&others, |_| {
        // One client publishes, and the server ends some silent ones, which isn't checked. It may also end the
        // publisher and all receivers.
        let _ = run(&spec(&server, fanout(100)), |_| Ok(()));
        Ok(())
    });
    let outcome = outcome.unwrap();
    assert!(outcome.cut_off > 0, "{outcome:?}");
    assert_eq!(outcome.audit.lost_connections, 0);
}

#[test]
fn everybody_comes_back_from_a_storm() {
    assert_eq!(check_storm(Cut::Finish), 0);
    // A reset client has an unread message. The time until all have one depends on the machine.
    let mut tries = (0..3).map(|_| check_storm(Cut::Reset));
    assert!(tries.any(|reset| reset == CONNECTIONS as u64));
}

/// Runs a storm on a server of its own. Returns the number of reset connections.
fn check_storm(cut: Cut) -> u64 {
    let server = Server::start(true, Fault::None);
    let load = LoadSpec::Reconnect { cut, bytes: 1000, publisher: Publisher::Own };
    let mut met = 0;
    let outcome = run(&patient(&server, load), |_| {
        met += 1;
        Ok(())
    });
    let outcome = outcome.unwrap();
    let all = CONNECTIONS as u64;
    // The callback ran when all were connected, and when all were back.
    assert_eq!((met, outcome.connections, outcome.back.len()), (2, all, all), "{cut:?}");
    assert!(outcome.back_in >= outcome.back.max() && outcome.server_cpu_per_connection().is_some());
    assert_eq!((outcome.audit.delivered, outcome.audit.expected), (3 * all, 3 * all), "{cut:?}");
    assert_eq!(outcome.audit.lost_connections + outcome.audit.gaps + outcome.audit.corrupt, 0, "{cut:?}");
    assert_eq!(server.accepted.load(Ordering::Relaxed), 2 * all);
    let reset = server.reset.load(Ordering::Relaxed);
    assert!(reset <= all, "{cut:?}: {reset}");
    reset
}

#[test]
fn several_servers_share_the_connections_out() {
    let servers = [Server::start(false, Fault::None), Server::start(false, Fault::None)];
    let program = PathBuf::from(env!("CARGO_BIN_EXE_stentor-lab"));
    let mut spec = patient(&servers[0], echo());
    spec.targets.push(servers[1].address);
    let outcome = Workers::connect(&program, &spec).unwrap().run().unwrap();
    let audit = &outcome.audit;
    assert!(audit.expected > 350 && audit.delivered == audit.expected, "{audit:?}");
    let accepted = servers.each_ref().map(|server| server.accepted.load(Ordering::Relaxed));
    assert_eq!((outcome.connections, accepted), (CONNECTIONS as u64, [CONNECTIONS as u64 / 2; 2]));
}

/// Accepts a connection that requests WebSocket. Returns the response that it waits for.
fn upgrade(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let mut answer = Vec::new();
    let request = http1::parse_request(&head, &http1::Limits::default()).unwrap();
    handshake::check_request(&request, None).unwrap().write_response(&mut answer, &[], None);
    (stream, answer)
}

/// Runs `load` on one connection. When the generator waits for others for the last of `waits` times, the server pings
/// the connection, which must answer before the others are there. Each time has a new connection.
fn check_pings(load: LoadSpec, waits: usize) -> Result<Outcome, stentor_lab::Error> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (it_waits, waiting) = mpsc::channel();
    let (answered, answer) = mpsc::channel();
    let stays = matches!(load, LoadSpec::Idle { .. });
    let serving = std::thread::spawn(move || {
        for _ in 1..waits {
            let (mut stream, upgraded) = upgrade(&listener);
            stream.write_all(&upgraded).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let (mut stream, upgraded) = upgrade(&listener);
        stream.write_all(&upgraded).unwrap();
        waiting.recv().unwrap();
        stream.write_all(&[0x89, 0]).unwrap();
        let mut pong = [0; 6];
        stream.read_exact(&mut pong).unwrap();
        answered.send(pong[0]).unwrap();
        if stays {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let mut times = 0;
    let outcome = run(&Spec::new(address, "/ws", 1, load), move |_| {
        times += 1;
        if times == waits {
            it_waits.send(()).unwrap();
            assert_eq!(answer.recv_timeout(Duration::from_secs(60)), Ok(0x8a));
        }
        Ok(())
    });
    serving.join().unwrap();
    outcome
}

#[test]
fn answers_pings_while_it_waits_for_other_generators() {
    let outcome = check_pings(LoadSpec::Idle { hold: Duration::ZERO }, 1);
    assert_eq!(outcome.unwrap().audit, Audit::default());
}

#[test]
fn answers_pings_while_others_are_on_their_way_back() {
    let storm = LoadSpec::Reconnect { cut: Cut::Finish, bytes: 100, publisher: Publisher::Own };
    // The rest isn't checked, because the server is gone.
    assert!(check_pings(storm, 2).is_err());
}

#[test]
fn clients_that_have_to_say_that_they_live_do() {
    // A server of Engine.IO 3 that expects a ping every 20 ms.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, mut answer) = upgrade(&listener);
        let open = br#"0{"sid":"1","upgrades":[],"pingInterval":20,"pingTimeout":20}"#;
        ws::encode(&mut answer, ws::Opcode::Text, open, false, None);
        stream.write_all(&answer).unwrap();
        let mut said = Vec::new();
        // The client may be gone before it has read all.
        let _ = stream.read_to_end(&mut said);
        said
    });
    let mut spec = Spec::new(address, "/engine.io/", 1, LoadSpec::Idle { hold: Duration::from_millis(100) });
    spec.protocol = Protocol::EngineIo3;
    spec.idle = Duration::from_millis(10);
    let outcome = run(&spec, |_| Ok(())).unwrap();
    assert_eq!(outcome.audit, Audit::default());
    let mut ping = Vec::new();
    ws::encode(&mut ping, ws::Opcode::Text, b"2", false, Some([0; 4]));
    let said = serving.join().unwrap();
    assert!(!said.is_empty() && said.chunks(ping.len()).all(|frame| frame == ping), "{said:?}");
}

#[test]
fn names_why_a_connection_was_lost() {
    for (fault, why) in [(Fault::Closes, "close frame"), (Fault::Masks, "masked")] {
        let server = Server::start(false, fault);
        let outcome = run(&spec(&server, echo()), |_| Ok(())).unwrap();
        assert!(outcome.audit.lost_connections > 0, "{fault:?}: {:?}", outcome.audit);
        let doubts = outcome.doubts();
        let is_told = doubts.iter().any(|doubt| doubt.what.contains(why) && !doubt.latency_only);
        assert!(is_told, "{fault:?}: {doubts:?}");
    }
}

#[test]
fn says_why_nothing_opened() {
    let server = Server::start(false, Fault::Refuses);
    let outcome = run(&spec(&server, LoadSpec::Idle { hold: Duration::ZERO }), |connected| {
        assert_eq!(connected.connections, 0);
        Ok(())
    });
    let audit = outcome.unwrap().audit;
    assert_eq!(audit.lost_connections, CONNECTIONS as u64);
    assert!(audit.first_loss.as_deref().is_some_and(|why| why.contains("403")), "{audit:?}");
}

#[test]
fn works_from_a_process_of_its_own() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_stentor-lab"));
    let server = Server::start(true, Fault::None);
    let outcome = Workers::connect(&program, &patient(&server, fanout(1000))).unwrap().run().unwrap();
    assert_eq!(outcome.audit.delivered, 20 * CONNECTIONS as u64);
    assert_eq!(outcome.latency.len(), outcome.audit.delivered);
    // A load whose generators wait for each other in the middle.
    let storm = LoadSpec::Reconnect { cut: Cut::Finish, bytes: 100, publisher: Publisher::Own };
    let outcome = Workers::connect(&program, &patient(&server, storm)).unwrap().run().unwrap();
    assert_eq!(outcome.audit.delivered, 3 * CONNECTIONS as u64);
    drop(server);
    let nobody = Spec::new(([127, 0, 0, 1], 1).into(), "/", 1, fanout(100));
    let outcome = Workers::connect(&program, &nobody).and_then(|mut workers| workers.run());
    assert!(outcome.unwrap_err().to_string().contains("refused"));
}

#[test]
fn clients_of_events_cannot_send() {
    let server = Server::start(false, Fault::None);
    let mut spec = spec(&server, echo());
    spec.protocol = Protocol::Sse;
    assert!(run(&spec, |_| Ok(())).unwrap_err().to_string().contains("can't send"));
}

fn chat_plan() -> ChatPlan {
    ChatPlan {
        bytes: 44,
        first_hz: 100.0 * CONNECTIONS as f64,
        growth: 2.0,
        last_hz: 200.0 * CONNECTIONS as f64,
        step: Duration::from_millis(200),
        late: Duration::from_millis(500),
        mean_max: Duration::from_secs(5),
    }
}

#[test]
fn a_chat_gets_faster_step_by_step() {
    let server = Server::start(true, Fault::None);
    let minute = Duration::from_secs(60);
    // All messages come, however slowly: no deadline ends the chat.
    let plan = ChatPlan { late: minute, mean_max: minute, ..chat_plan() };
    let outcome = run(&spec(&server, LoadSpec::Chat(plan)), |_| Ok(())).unwrap();
    let steps = &outcome.steps;
    // A generator that is too busy ends the chat early.
    assert!(!steps.is_empty() && steps.len() <= 2, "{steps:?}");
    for (step, messages) in steps.iter().zip([20, 40]) {
        assert_eq!((step.wrong, step.latency.len()), (0, messages), "{step:?}");
        assert!(step.delivered_hz > 0.0, "{step:?}");
    }
}

#[test]
fn a_chat_that_loses_copies_ends() {
    for fault in [Fault::Drops, Fault::Repeats] {
        let server = Server::start(true, fault);
        let outcome = run(&spec(&server, LoadSpec::Chat(chat_plan())), |_| Ok(())).unwrap();
        assert_eq!(outcome.steps.len(), 1, "{fault:?}");
        assert!(outcome.steps[0].wrong > 0, "{fault:?}: {:?}", outcome.steps[0]);
    }
}
