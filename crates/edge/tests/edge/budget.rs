//! The memory budget holds whatever clients do: attacks S1 to S3 and S9. Each attack fills one class of the ledger of a
//! server with a small budget. A well-behaved client must be served meanwhile.

use crate::harness::io::post;
use crate::harness::ws::frame;
use crate::harness::{HOUR, Http, Io, PATIENCE, Server, Stream, Way, Ws, now, pass, until};
use std::time::Duration;
use stentor_edge::{App, Options};
use stentor_hub::{Data, Room};
use stentor_ports::{Busy, Publish};
use stentor_wire::ws::{Deflater, Opcode};

const MIB: usize = 1 << 20;
const BUDGET: usize = 16 * MIB;
/// The overshoot that one turn of each core may cause: inputs of the connections that it handles in the turn.
const SLACK: usize = 4 * MIB;

fn server(set: impl FnOnce(&mut Options)) -> Server {
    Server::start(2, |options| {
        options.limits.memory_bytes_max = BUDGET;
        options.heartbeat.interval = HOUR;
        options.limits.idle_timeout = HOUR;
        options.limits.message_timeout = HOUR;
        options.limits.close_timeout = Duration::from_millis(100);
        options.rooms.publish = true;
        set(options);
    })
}

/// A well-behaved client of a room, and one that publishes to it.
struct Canary(Ws);

impl Canary {
    fn new(server: &Server) -> Self {
        Self(server.member("canary"))
    }

    /// Checks that a message still reaches the client.
    fn sings(&mut self, server: &Server) {
        server.publish("canary", "1");
        assert_eq!(self.0.next_json()["data"], 1);
    }
}

/// Runs an attack in steps. After each step, the budget must hold and the canary must be served. At the end, each of
/// `classes` must have held memory, and inputs, connections or sessions must have been refused or ended. After the
/// attackers have left, their memory must be freed (except for 64 KiB per class).
fn check<A>(server: &Server, classes: &[&str], attack: impl FnOnce(&mut dyn FnMut()) -> Vec<A>) {
    let mut canary = Canary::new(server);
    let mut most = 0;
    let mut seen = vec![0; classes.len()];
    let attackers = attack(&mut || {
        let bytes = server.metric("memory_bytes");
        assert!(bytes as usize <= BUDGET + SLACK, "{bytes} bytes are held");
        most = most.max(bytes);
        for (seen, class) in seen.iter_mut().zip(classes) {
            *seen = server.metric(&format!("memory_bytes{{{class}}}")).max(*seen);
        }
        canary.sings(server);
    });
    assert!(most as usize > BUDGET / 2, "the attack holds only {most} bytes");
    for (seen, class) in seen.iter().zip(classes) {
        assert!(*seen as usize > BUDGET / 4, "of {class} only {seen} bytes are counted");
    }
    let refused = server.metric("memory_inputs_refused")
        + server.metric("connections_refused")
        + server.disconnects("overloaded");
    assert!(refused > 0, "nothing was refused");
    drop(attackers);
    for class in ["receive_buffers", "messages", "bodies", "attachments", "replies", "poll_records"] {
        server.until_metric(&format!("memory_bytes{{{class}}}"), |bytes| bytes < 64 * 1024);
    }
    canary.sings(server);
    server.check_balance();
}

/// Opens a polling Engine.IO session. `None` if it is refused, because sessions are refused while memory is short.
fn polling_session(http: &mut Http) -> Option<String> {
    let target = "/engine.io/?EIO=4&transport=polling";
    let open = http.get_if_open(target).filter(|open| open.status == 200)?;
    let sid = open.text().split(r#""sid":""#).nth(1)?.split('"').next()?;
    Some(format!("{target}&sid={sid}"))
}

/// Sends as many bytes as the socket accepts. Returns whether the connection is open.
fn push(stream: &mut Stream, bytes: &[u8]) -> bool {
    stream.enqueue(bytes);
    pass(Duration::from_millis(10));
    stream.is_open()
}

/// The header of a masked frame of `bytes` bytes.
fn frame_head(opcode: Opcode, bytes: u64) -> Vec<u8> {
    let mut head = vec![0x80 | opcode as u8, 0xff];
    head.extend_from_slice(&bytes.to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    head
}

/// S3: messages that never end.
#[test]
fn unfinished_messages() {
    let server = server(|options| options.app = App::Rooms);
    check(&server, &["messages"], |step| {
        let begun = [frame_head(Opcode::Text, 1_000_000), vec![b'x'; 900_000]].concat();
        (0..60)
            .filter_map(|_| {
                let mut ws = Ws::open_if_accepted(server.addr, "/ws", false).ok()?;
                push(ws.stream(), &begun);
                step();
                Some(ws)
            })
            .collect()
    });
}

/// S3: bodies that never end.
#[test]
fn unfinished_bodies() {
    let server = server(|_| {});
    check(&server, &["bodies"], |step| {
        let body = vec![b'4'; 900_000];
        let kinds = [("Content-Length: 1000000", &b""[..]), ("Transfer-Encoding: chunked", b"dbba0\r\n")];
        (0..60)
            .map(|n| {
                let mut http = server.http();
                if let Some(target) = polling_session(&mut http) {
                    let (length, begin) = kinds[n % 2];
                    http.send_if_open(format!("POST {target} HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n"));
                    push(http.stream(), &[begin, &body].concat());
                }
                step();
                http
            })
            .collect()
    });
}

/// S3: Socket.IO packets whose attachments never come.
#[test]
fn unfinished_attachments() {
    let server = server(|_| {});
    check(&server, &["attachments"], |step| {
        let attachment = vec![7; 300_000];
        (0..80)
            .filter_map(|_| {
                let mut ws =
                    Ws::open_if_accepted(server.addr, "/socket.io/?EIO=4&transport=websocket", false).ok()?;
                ws.next_text();
                ws.send_text("40");
                ws.next_text();
                let placeholders = r#"{"_placeholder":true,"num":0},{"_placeholder":true,"num":1},{"_placeholder":true,"num":2},{"_placeholder":true,"num":3}"#;
                ws.send_text(&format!(r#"454-["say",{placeholders}]"#));
                for _ in 0..3 {
                    ws.send_frame_if_open(Opcode::Binary, &attachment);
                }
                step();
                Some(ws)
            })
            .collect()
    });
}

/// S3: answers for clients that no longer poll.
#[test]
fn answers_that_are_not_polled_for() {
    let server = server(|options| {
        options.app = App::Echo;
        options.sockjs = Vec::new();
    });
    let (mut refused, mut seen) = (0, 0);
    let text = "4".to_owned() + &"x".repeat(900_000);
    for _ in 0..60 {
        let mut http = server.http();
        let Some(target) = polling_session(&mut http) else {
            refused += 1;
            continue;
        };
        http.send_if_open(post(&target, "text/plain", text.as_bytes()));
        let bytes = server.metric("memory_bytes") as usize;
        assert!(bytes <= BUDGET + SLACK, "{bytes} bytes are held");
        seen = seen.max(server.metric("memory_bytes{poll_records}"));
    }
    until("poll records to be counted", || {
        seen.max(server.metric("memory_bytes{poll_records}")) as usize > BUDGET / 4
    });
    refused += server.metric("memory_inputs_refused") + server.disconnects("overloaded");
    assert!(refused > 0, "nothing was refused");
    // The sessions aren't polled. They time out, or are closed to free memory.
    until("room for others", || server.metric("memory_bytes") as usize <= BUDGET);
}

/// S3: very many rooms.
#[test]
fn rooms() {
    let server = server(|options| options.limits.subscriptions_max = 5_000);
    check(&server, &["rooms"], |step| {
        (0..20)
            .filter_map(|n| {
                let mut ws = Ws::open_if_accepted(server.addr, "/ws", false).ok()?;
                for batch in 0..5 {
                    let subscribe = |m| {
                        let message = format!(r#"{{"type":"subscribe","room":"{n}/{batch}/{m}"}}"#);
                        frame(Opcode::Text, message.as_bytes(), true, false)
                    };
                    let burst: Vec<u8> = (0..1_000).flat_map(subscribe).collect();
                    if !push(ws.stream(), &burst) || ws.read_some(1_000) == 0 {
                        break;
                    }
                }
                step();
                Some(ws)
            })
            .collect()
    });
}

/// Messages that inflate to a thousand times their size, to an echo that isn't read.
#[test]
fn inflated_echoes() {
    let server = server(|options| options.app = App::Echo);
    let payload = Deflater::new(9).deflate(&vec![b'x'; 1_000_000], 15).to_vec();
    let bomb = frame(Opcode::Binary, &payload, true, true);
    let mut most = 0;
    let attackers: Vec<Ws> = (0..100)
        .filter_map(|_| {
            let mut ws = Ws::open_if_accepted(server.addr, "/ws", true).ok()?;
            for _ in 0..8 {
                push(ws.stream(), &bomb);
            }
            most = most.max(server.metric("memory_bytes") as usize);
            Some(ws)
        })
        .collect();
    assert!(most <= BUDGET + SLACK, "{most} bytes were held");
    until("room", || server.metric("memory_bytes") as usize <= BUDGET);
    drop(attackers);
    server.until_metric("memory_bytes{replies}", |bytes| bytes == 0);
    server.check_serves();
}

/// S9: many sessions exceed the budget at once. They end within seconds, not one per second.
#[test]
fn many_slow_sessions_at_once_are_ended_in_seconds() {
    let server = server(|options| options.limits.send_buffer_bytes_max = 100 * MIB);
    let mut canary = Canary::new(&server);
    let slow: Vec<Ws> = (0..400).map(|n| server.member(&format!("slow/{n}"))).collect();
    let message = Data::Json(format!("\"{}\"", "x".repeat(200_000)).into());
    let publish = |n: usize| {
        let room = Room::plain(&format!("slow/{n}")).unwrap();
        server.plane().publish(Publish { room, event: None, data: message.clone() })
    };
    // The kernel buffers data for each client, which doesn't count, so filling the budget takes several rounds.
    let deadline = now() + PATIENCE;
    'filling: for n in (0..slow.len()).cycle() {
        while publish(n) == Err(Busy) {
            if server.disconnects("overloaded") > 0 {
                break 'filling;
            }
            assert!(now() < deadline, "nothing overflows");
            pass(Duration::from_millis(1));
        }
        let bytes = server.metric("memory_bytes") as usize;
        // The ring to the other core and its content are counted in addition to the budget.
        assert!(bytes <= 2 * BUDGET + SLACK, "{bytes} bytes are held");
    }
    let begun = now();
    until("room", || server.metric("memory_bytes") as usize <= BUDGET);
    let took = now() - begun;
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    until("publications to be taken again", || publish(0) != Err(Busy));
    canary.sings(&server);
    drop(slow);
    server.check_balance();
}

/// A client that fills the budget once doesn't lock others out: after two seconds above 95 %, the largest holders are closed.
#[test]
fn a_full_budget_does_not_lock_clients_out() {
    let server = server(|_| {});
    let mut attackers = Vec::new();
    // Large inputs that would exceed 95 % are refused, and small ones are not.
    let mut fill = |bytes: usize, is_full: &dyn Fn() -> bool| {
        let begun = [frame_head(Opcode::Text, 1_000_000), vec![b'x'; bytes]].concat();
        until("memory to be short", || {
            if let Ok(mut ws) = Ws::open_if_accepted(server.addr, "/ws", false) {
                push(ws.stream(), &begun);
                attackers.push(ws);
            }
            is_full()
        });
    };
    fill(900_000, &|| server.metric("memory_inputs_refused") > 0);
    fill(12_000, &|| server.metric("memory_bytes") as usize > BUDGET / 100 * 95);
    // No client leaves, but there is room again for a new client with a large message.
    until("a newcomer to be served", || {
        let Ok(mut ws) = Ws::open_if_accepted(server.addr, "/ws", false) else { return false };
        ws.send_text(&format!(r#"{{"type":"publish","room":"r","data":"{}"}}"#, "y".repeat(100_000)));
        ws.answers_ok()
    });
    assert!(server.disconnects("overloaded") > 0);
}

#[test]
fn gauges_cover_what_is_configured() {
    let server = server(|_| {});
    assert_eq!(server.metric("memory_bytes_max") as usize, BUDGET);
    let _polling = Io::engine(&server, Way::Polling);
    let _http: Vec<Http> = (0..10).map(|_| server.http()).collect();
    let _ws = server.ws("/ws");
    server.until_metric("memory_bytes{connections}", |bytes| bytes > 1_000);
    server.until_metric("memory_bytes{sessions}", |bytes| bytes > 0);
}
