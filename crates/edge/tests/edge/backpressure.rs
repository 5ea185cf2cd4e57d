//! Clients that don't read: their pending deliveries stay within the limits, other clients aren't affected, and all memory is
//! freed.

use crate::harness::ws::frame;
use crate::harness::{HOUR, Seen, Server, Ws, meet, on_one_and_three};
use serde_json::{Value, json};
use std::time::Duration;
use stentor_edge::{App, Options};
use stentor_wire::ws::Opcode;

/// Disables all timeouts, so that only the subject of a test ends a session.
fn patient(options: &mut Options) {
    options.heartbeat.interval = HOUR;
    options.limits.close_timeout = HOUR;
    options.limits.message_timeout = HOUR;
}

#[test]
fn a_server_that_is_not_read_from_stops_reading() {
    let server = Server::start(1, |options| {
        patient(options);
        options.app = App::Echo;
    });
    let mut ws = server.ws("/ws");
    let message = |n: usize| {
        assert!(n < 64_000, "the server reads on after {n} kB");
        frame(Opcode::Binary, &(n as u32).to_be_bytes().repeat(250), true, false)
    };
    let sent = ws.stream().send_until_stalled(message);
    // All sent messages are echoed once the client reads.
    for n in 0..sent {
        assert_eq!(ws.next_binary()[..4], (n as u32).to_be_bytes());
    }
    ws.echoes("and on");
    drop(ws);
    server.check_empty();
}

#[test]
fn a_client_that_never_reads_its_answers_is_disconnected() {
    let server = Server::start(1, |options| {
        options.app = App::Echo;
        options.heartbeat.interval = Duration::from_millis(50);
        options.heartbeat.timeout = Duration::from_millis(50);
        options.limits.close_timeout = Duration::from_millis(50);
    });
    let mut ws = server.ws("/ws");
    let message = frame(Opcode::Binary, &vec![0; 100_000], true, false);
    while ws.send_if_open(&message) {}
    server.check_empty();
    assert_eq!(server.disconnects("heartbeat_timeout"), 1);
}

fn speakers(server: &Server) -> Vec<Ws> {
    let mut clients = server.ws_on_each_core("/ws");
    meet(&mut clients, |ws, text| ws.send_text(text), Ws::next_text);
    clients
}

#[test]
fn a_slow_member_is_ended_and_the_others_do_not_notice() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| {
            patient(options);
            options.app = App::Chat;
            options.limits.send_buffer_bytes_max = 1 << 20;
        });
        let mut clients = speakers(&server);
        let mut slow = clients.pop().unwrap();
        let text = "x".repeat(100_000);
        let mut said = 0;
        while server.disconnects("slow_consumer") == 0 {
            clients[0].send_text(&format!("{said}{text}"));
            for ws in &mut clients {
                assert!(ws.next_text().starts_with(&said.to_string()));
            }
            said += 1;
            assert!(said < 1000, "nobody is too slow");
        }
        // The outbox and the kernel's buffers are full.
        assert!(said > 9, "{said} messages are less than an outbox");
        server.until_metric("send_buffer_bytes", |bytes| bytes == 0);
        // The slow client receives the reason as soon as it reads.
        let mut got = 0;
        let code = loop {
            match slow.next() {
                Seen::Text(next) => {
                    assert!(next.starts_with(&format!("{got}x")), "without a gap");
                    got += 1;
                }
                Seen::Closed(code, reason) => {
                    assert_eq!(reason, "the client reads too slowly: its send buffer is full");
                    break code;
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(code, 4501);
        assert_eq!(slow.next(), Seen::End);
        server.check_balance();
        clients[0].send_text("on");
        for ws in &mut clients {
            assert_eq!(ws.next_text(), "on");
        }
        drop((clients, slow));
        server.check_empty();
        server.until_metric("memory_bytes{publications}", |bytes| bytes == 0);
    });
}

#[test]
fn a_slow_member_that_never_reads_is_reset() {
    let server = Server::start(1, |options| {
        patient(options);
        options.app = App::Chat;
        options.limits.close_timeout = Duration::from_millis(50);
    });
    let mut clients = speakers(&server);
    let slow = clients.pop().unwrap();
    let others = clients.len() as u64;
    let text = "x".repeat(100_000);
    while server.metric("sessions") > others {
        clients[0].send_text(&text);
        for ws in &mut clients {
            assert_eq!(ws.next_text().len(), 100_000);
        }
    }
    server.until_metric("connections", |connections| connections == others);
    assert_eq!(server.disconnects("slow_consumer"), 1);
    drop((clients, slow));
    server.check_empty();
}

#[test]
fn a_slow_subscriber_of_a_feed_gets_the_newest() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, patient);
        let padding = "p".repeat(300_000);
        let version = |n: u32| format!("{{\"n\":{n},\"p\":\"{padding}\"}}");
        server.document("k", &version(0));
        let mut slow: Vec<Ws> = (0..3).map(|_| server.ws("/ws/k")).collect();
        let mut fast: Vec<Ws> = (0..3).map(|_| server.ws("/ws/k")).collect();
        let n_of = |text: String| serde_json::from_str::<Value>(&text).unwrap()["n"].as_u64().unwrap();
        for ws in &mut fast {
            assert_eq!(n_of(ws.next_text()), 0);
        }
        let mut last = 0;
        // Publishes until versions have been conflated for each slow client.
        while server.metric("deliveries_conflated") < 30 {
            last += 1;
            server.document("k", &version(last));
            for ws in &mut fast {
                assert_eq!(n_of(ws.next_text()), u64::from(last), "who reads misses none");
            }
            assert!(last < 1000);
        }
        // A few versions exist: the newest one, and those in flight to slow clients.
        let live = server.metric("memory_bytes{frames}") + server.metric("memory_bytes{publications}");
        assert!(live < 30 << 20, "{live} bytes for {last} versions");
        for ws in &mut slow {
            let mut seen = Vec::new();
            while seen.last() != Some(&u64::from(last)) {
                seen.push(n_of(ws.next_text()));
            }
            assert!(seen.is_sorted() && seen.len() < last as usize, "{seen:?}");
        }
        for name in ["slow_consumer", "overloaded", "heartbeat_timeout"] {
            assert_eq!(server.disconnects(name), 0);
        }
        drop((slow, fast));
        server.wait_wanted("k", false);
        server.update("k", stentor_ports::FeedUpdate::Forget);
        server.check_empty();
        server.until_metric("memory_bytes{publications}", |bytes| bytes == 0);
    });
}

#[test]
fn drop_oldest_leaves_out_the_oldest() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| {
            patient(options);
            options.rooms.publish = true;
            options.limits.send_buffer_bytes_max = 500_000;
        });
        let mut slow = server.client();
        slow.ask(json!({"type": "subscribe", "room": "r", "policy": "drop_oldest"}));
        let text = "x".repeat(50_000);
        let mut last: u64 = 0;
        while server.metric("deliveries_dropped") < 20 {
            last += 1;
            server.publish("r", &format!("[{last},\"{text}\"]"));
            // Messages of one turn are one burst. This test is about many bursts.
            server.until_metric("inbox_messages", |waiting| waiting == 0);
            assert!(last < 10_000);
        }
        assert!(server.metric("send_buffer_bytes") <= 500_000);
        let mut seen = Vec::new();
        while seen.last() != Some(&last) {
            seen.push(slow.next_json()["data"][0].as_u64().unwrap());
        }
        assert!(seen.is_sorted() && (seen.len() as u64) < last);
        slow.ask(json!({"type": "ping"}));
        drop(slow);
        server.check_empty();
    });
}

/// Each client receives the messages of each speaker in order. While the rings between cores are tiny, publishers wait, and no
/// message is lost.
#[test]
fn speakers_keep_their_order_and_full_rings_only_slow_them_down() {
    let set = |messages_max: Option<usize>| {
        move |options: &mut Options| {
            patient(options);
            options.app = App::Chat;
            options.limits.mailbox_messages_max = messages_max.unwrap_or(options.limits.mailbox_messages_max);
        }
    };
    check_order(Server::start(1, set(None)));
    check_order(Server::start(3, set(None)));
    check_order(Server::start(3, set(Some(2))));
    // The same with real threads.
    check_order(Server::on_sockets(3, set(None)));
    check_order(Server::on_sockets(3, set(Some(2))));
}

fn check_order(server: Server) {
    const EACH: usize = 300;
    let mut clients = speakers(&server);
    let count = clients.len();
    for (who, ws) in clients.iter_mut().enumerate() {
        let all = (0..EACH).flat_map(|n| frame(Opcode::Text, format!("{who} {n}").as_bytes(), true, false));
        ws.send_raw(&all.collect::<Vec<u8>>());
    }
    for ws in &mut clients {
        let mut next = vec![0; count];
        for _ in 0..count * EACH {
            let text = ws.next_text();
            let (who, n) = text.split_once(' ').unwrap();
            let next = &mut next[who.parse::<usize>().unwrap()];
            assert_eq!(n.parse(), Ok(*next), "of {who}");
            *next += 1;
        }
        assert_eq!(ws.fence(), []);
    }
    server.until_metric("connections_paused", |held| held == 0);
    server.until_metric("mailbox_overflow_messages", |waiting| waiting == 0);
    clients[0].send_text("on");
    for ws in &mut clients {
        assert_eq!(ws.next_text(), "on");
    }
    drop(clients);
    server.check_empty();
}

/// Messages that become much larger when they are decompressed are handled a few at a time, also if they arrived in one read.
/// They are handled in order, together with the messages that follow.
#[test]
fn compressed_messages_are_handled_a_few_at_a_time() {
    on_one_and_three(|cores| {
        for app in [App::Echo, App::Chat] {
            let server = Server::start(cores, |options| {
                patient(options);
                options.app = app;
            });
            let mut ws = Ws::open(server.addr, "/ws", &[], true).unwrap();
            let mut deflater = stentor_wire::ws::Deflater::new(9);
            let mut burst = Vec::new();
            for n in 0..100_u8 {
                let payload = deflater.deflate(&[b'a' + n % 26; 500_000], 15).to_vec();
                burst.extend(frame(Opcode::Text, &payload, true, true));
            }
            burst.extend(frame(Opcode::Ping, b"after", true, false));
            assert!(burst.len() < 64 * 1024, "{} bytes are more than a read", burst.len());
            ws.send_raw(&burst);
            let mut n = 0;
            while n < 100 {
                match ws.next() {
                    Seen::Text(text) => {
                        assert_eq!((text.len(), text.as_bytes()[0]), (500_000, b'a' + n % 26));
                        n += 1;
                    }
                    Seen::Pong(_) => assert_eq!((app, &n), (App::Chat, &n)),
                    other => panic!("{other:?}"),
                }
            }
            ws.send_text("on");
            loop {
                match ws.next() {
                    Seen::Text(text) => break assert_eq!(text, "on"),
                    Seen::Pong(payload) => assert_eq!(payload, b"after"),
                    other => panic!("{other:?}"),
                }
            }
            drop(ws);
            server.check_empty();
        }
    });
}
