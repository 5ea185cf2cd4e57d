//! Commands that send events and collect acknowledgements.

use crate::harness::{Io, PATIENCE, Server, Way, id_of, on_one_and_three, receive, until};
use serde_json::{Value, json};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use stentor_hub::Data;
use stentor_ports::{Command, Done, PublicId, Target};
use stentor_wire::engineio::Version;

/// Sends an event to sessions. Returns the number of expected acknowledgements, and a receiver for them.
fn call(server: &Server, target: Target, timeout: Duration) -> (usize, mpsc::Receiver<String>) {
    let (sender, answers) = mpsc::channel();
    let answered = Arc::new(move |data| {
        let Data::Arguments { json, .. } = data else { panic!("{data:?}") };
        let _ = sender.send(String::from_utf8(json.to_vec()).unwrap());
    });
    let (done, counted) = mpsc::channel();
    let done = Done::new(move |result| done.send(result).unwrap());
    let data = Data::Arguments { json: "1,\"two\"".into(), attachments: [].into() };
    server.plane().command(target, Command::Call { event: "q".into(), data, timeout, answered, done });
    (receive(&counted).unwrap().sessions, answers)
}

/// The acknowledgement number of the next event.
fn number(io: &mut Io) -> u64 {
    let text = io.next_text();
    let (number, event) = text.strip_prefix("42").unwrap().split_once('[').unwrap();
    assert_eq!(event, r#""q",1,"two"]"#);
    number.parse().unwrap()
}

#[test]
fn clients_of_socketio_answer_and_others_only_receive() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut target = Target::of("/").unwrap();
        let mut clients = Vec::new();
        for (version, way) in
            [(Version::V4, Way::Socket), (Version::V4, Way::Polling), (Version::V3, Way::Socket)]
        {
            let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
            let answer = io.connect("", Value::Null);
            let id = if version == Version::V4 { answer["sid"].as_str().unwrap() } else { &io.sid };
            target = target.session(PublicId::parse(id).unwrap());
            clients.push(io);
        }
        let (mut plain, id) = server.client_and_id();
        target = target.session(id);
        let (count, answers) = call(&server, target, PATIENCE);
        assert_eq!(count, clients.len());
        let message = plain.next_json();
        assert_eq!((&message["event"], &message["data"]), (&json!("q"), &json!([1, "two"])));
        let mut expected = Vec::new();
        for (n, io) in clients.iter_mut().enumerate() {
            let number = number(io);
            // Only the first acknowledgement with the right number counts.
            io.send(&format!("43{}[\"wrong\"]", number + (1 << 24)));
            io.send(&format!("43{number}[{n}]"));
            io.send(&format!("43{number}[\"again\"]"));
            expected.push(n.to_string());
        }
        let mut all: Vec<_> = clients.iter().map(|_| receive(&answers)).collect();
        all.sort();
        assert_eq!(all, expected);
        for io in &mut clients {
            // The answer shows that the client's earlier messages were handled.
            io.ask("subscribe", &[json!("a")]);
        }
        assert!(answers.try_recv().is_err());
    });
}

#[test]
fn the_wait_for_acknowledgements_ends_with_the_timeout() {
    let server = Server::start(1, |_| {});
    let mut io = Io::socket(&server, Way::Socket);
    let target = Target::of("/").unwrap().session(id_of(&io.connect("", Value::Null)["sid"]));
    let (count, answers) = call(&server, target, Duration::ZERO);
    assert_eq!(count, 1);
    let number = number(&mut io);
    // The server drops the receiver of the answers.
    until("nobody to wait", || answers.try_recv() == Err(mpsc::TryRecvError::Disconnected));
    io.send(&format!("43{number}[1]"));
    io.ask("subscribe", &[json!("a")]);
}
