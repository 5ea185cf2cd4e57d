//! Options that change while the node runs also apply to connected clients.

use crate::harness::{Server, on_one_and_three, until};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stentor_edge::{Hosts, Options, Origins};
use stentor_hub::HistoryLimits;
use stentor_ports::Done;

/// Changes the options, and waits until all cores have them.
fn configure(server: &Server, set: impl FnOnce(&mut Options)) {
    let mut options = Options::default();
    set(&mut options);
    let applied = Arc::new(AtomicBool::new(false));
    let done = applied.clone();
    server.node().configure(options.session, Done::new(move |_| done.store(true, Ordering::SeqCst)));
    until("the options to apply", || applied.load(Ordering::SeqCst));
}

#[test]
fn limits_and_permissions_change_for_clients_that_are_connected() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut clients = server.clients(6);
        let publish = json!({"type": "publish", "room": "r", "data": [[[1]]]});
        for ws in &mut clients {
            assert_eq!(ws.code_for(publish.clone()), "not_allowed");
        }
        configure(&server, |options| options.rooms.publish = true);
        for ws in &mut clients {
            ws.ask(publish.clone());
        }
        configure(&server, |options| {
            options.rooms.publish = true;
            options.limits.json_depth_max = 2;
            options.limits.subscriptions_max = 1;
        });
        for ws in &mut clients {
            ws.send_json(publish.clone());
            assert_eq!(ws.next_json()["type"], "error");
            ws.ask(json!({"type": "subscribe", "room": "one"}));
            ws.send_json(json!({"type": "subscribe", "room": "two"}));
            assert_eq!(ws.next_json()["type"], "error");
        }
        configure(&server, |options| options.limits.message_bytes_max = 1_000);
        for ws in &mut clients {
            ws.send_text(&" ".repeat(1_001));
            assert_eq!(ws.skip_to_close(), 1009);
        }
        assert_eq!(server.metric("memory_bytes_max"), 1 << 30);
        configure(&server, |options| options.limits.memory_bytes_max = 2 << 20);
        assert_eq!(server.metric("memory_bytes_max"), 2 << 20);
    });
}

#[test]
fn origins_and_hosts_change() {
    let server = Server::start(1, |_| {});
    let status = |headers: &str| server.ask(format!("GET /primus/spec HTTP/1.1\r\n{headers}\r\n")).status;
    let foreign = "Host: a\r\nOrigin: https://b.test\r\n";
    assert_eq!((status(foreign), status("Host: a\r\n")), (403, 200));
    configure(&server, |options| options.origins = Origins::parse(&["https://b.test"]).unwrap());
    assert_eq!(status(foreign), 200);
    configure(&server, |options| options.hosts = Hosts::parse(&["b"]).unwrap());
    assert_eq!((status(foreign), status("Host: b\r\n")), (421, 200));
}

#[test]
fn the_history_of_a_room_changes_but_not_whether_it_has_one() {
    on_one_and_three(|cores| {
        let limits = |length| HistoryLimits {
            publications_max: length,
            bytes_max: 1 << 20,
            age_max: Duration::from_secs(300),
        };
        let history = |length| vec![(String::new(), limits(length))];
        let server = Server::start(cores, |options| options.rooms.history = history(10));
        let _member = server.member("r");
        let publish = |n: u64| (0..n).for_each(|n| server.publish("r", &n.to_string()));
        publish(10);
        server.until_metric("room_history_publications", |kept| kept == 10);
        configure(&server, |options| options.rooms.history = history(3));
        publish(1);
        server.until_metric("room_history_publications", |kept| kept == 3);
        configure(&server, |_| {});
        publish(5);
        configure(&server, |options| options.rooms.history = history(5));
        publish(5);
        server.until_metric("room_history_publications", |kept| kept == 5);
    });
}
