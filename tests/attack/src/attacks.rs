//! The attacks that Stentor was found to be vulnerable to, each bounded in count and time, with the conditions that
//! must hold.
//!
//! The names are those of the measuring table in docs/attacks.md. Each attack is a list of [`Script`]s, so
//! that the same code runs attacks and the fuzzer's sessions. Each attack is also one of the fuzzer's seeds.

use crate::script::{Script, Step};
use crate::server::FETCH_TIME;
use crate::table::RETURN_TIME_MAX;
use crate::wire::{self, FIN, TEXT};
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// One attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// Makes the clients' scripts. The argument is the maximum number of clients.
    pub(crate) scripts: fn(usize) -> Vec<Script>,
    /// The number of clients in the table's attack.
    pub(crate) clients: usize,
    /// Additional lines of `[rooms]`. `more` returns further configuration for the address of the hooks'
    /// backend.
    pub(crate) rooms: &'static str,
    pub(crate) more: fn(SocketAddr) -> anyhow::Result<String>,
    pub(crate) place: Place,
    /// The server's limit of file descriptors. `None` keeps this process's limit.
    pub(crate) descriptors_max: Option<u64>,
    /// Maximum p99 latency of the canaries.
    pub(crate) latency_max: Duration,
    /// Maximum time until memory returns after the attack.
    pub(crate) back_max: Duration,
    /// The additional measurement.
    pub(crate) also: Also,
}

/// Servers that run beside the attacked one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Alone,
    /// A port with TLS, and a certificate with a key for RSA.
    Tls,
    /// A cluster with a [strange](crate::strange) Redis, and a bridge to Socket.IO's own servers.
    Cluster,
}

/// Measurements besides memory and canaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Also {
    Nothing,
    /// Waiting times of other sessions.
    Others(Others),
    /// Response times of `/healthz` on both ports.
    Health,
    /// Longest uninterrupted time above the memory bound.
    TimeAboveBound,
    /// Difference between the ledger and the memory that the process holds.
    Ledger,
    /// Share of short turns.
    Turns,
    /// Presence of this text in the log.
    Log(&'static str),
}

/// Other sessions, one after the other: each sends one message and waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Others {
    /// The subject of the measurement, in words.
    pub(crate) what: &'static str,
    /// `{number}` is replaced by the number of the session.
    pub(crate) message: &'static str,
    /// A part of the answer. An error instead of it is a refusal.
    pub(crate) answer: &'static str,
    pub(crate) wait_max: Duration,
    /// The address of these sessions. Attackers use 127.0.0.1.
    pub(crate) from: Ipv4Addr,
}

const NEW_KEYS: Others = Others {
    what: "new keys",
    message: r#"{"type":"subscribe","feed":"cold/probe-{number}"}"#,
    answer: "\"snapshot\"",
    wait_max: FETCH_TIME.saturating_mul(2),
    from: Ipv4Addr::LOCALHOST,
};

pub(crate) const PLAIN: Attack = Attack {
    name: "",
    summary: "",
    scripts: |_| Vec::new(),
    clients: 0,
    rooms: "",
    more: |_| Ok(String::new()),
    place: Place::Alone,
    descriptors_max: None,
    latency_max: Duration::from_millis(50),
    back_max: RETURN_TIME_MAX,
    also: Also::Nothing,
};

/// All attacks, in the order of the table.
pub(crate) const ALL: [Attack; 15] = [
    Attack {
        name: "S1",
        summary: "deflated text of 1 kB that an error would repeat seven times as long",
        scripts: |clients| list(clients, reflected_error),
        clients: 300,
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "S2",
        summary: "SockJS frames of 100,000 messages, answers unread",
        scripts: |clients| list(clients, sockjs_flood),
        clients: 20,
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "S3a",
        summary: "WebSocket messages of 1 MB that never end",
        scripts: |clients| list(clients, |_| unfinished_message()),
        clients: 250,
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "S3b",
        summary: "polling bodies of 1 MB that never end",
        scripts: |clients| list(clients, |_| unfinished_body()),
        clients: 250,
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "S3c",
        summary: "Socket.IO packets of 900 kB whose last attachment never comes",
        scripts: |clients| list(clients, |_| unfinished_attachments()),
        clients: 250,
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "S3d",
        summary: "polled sessions that nobody fetches from, in a busy room",
        scripts: |clients| {
            let mut scripts = list(clients, |_| never_polled());
            scripts.extend(list(2, |_| busy_publisher()));
            scripts
        },
        clients: 300,
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "S3e",
        summary: "100,000 rooms with names of 200 bytes",
        scripts: |clients| list(clients, many_rooms),
        clients: 100,
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "S4a",
        summary: "deflated lists of numbers, 1 kB for 1 MB",
        scripts: |clients| list(clients, |_| deflated_numbers()),
        clients: 10,
        latency_max: Duration::from_millis(20),
        also: Also::Turns,
        ..PLAIN
    },
    Attack {
        name: "S4b",
        summary: "deflated text that an error would repeat, answers read",
        scripts: |clients| list(clients, |_| reflected_bytes()),
        clients: 10,
        latency_max: Duration::from_millis(20),
        also: Also::Turns,
        ..PLAIN
    },
    Attack {
        name: "S5a",
        summary: "11 sockets ask for 10,890 keys that don't exist",
        scripts: |clients| list(clients, cold_keys),
        clients: 11,
        also: Also::Others(NEW_KEYS),
        ..PLAIN
    },
    Attack {
        name: "S5b",
        summary: "one socket keeps 990 keys that don't exist in the queue",
        scripts: |clients| list(clients, |_| cold_keys_forever()),
        clients: 1,
        also: Also::Others(NEW_KEYS),
        ..PLAIN
    },
    Attack {
        name: "S7",
        summary: "1,500 sockets where 1,024 descriptors are allowed",
        scripts: |clients| list(clients, |_| Script::new([]).persistent()),
        clients: 1500,
        descriptors_max: Some(1024),
        also: Also::Health,
        ..PLAIN
    },
    Attack {
        name: "S8",
        summary: "join and leave in a loop",
        scripts: |clients| list(clients, join_and_leave),
        clients: 10,
        ..PLAIN
    },
    Attack {
        name: "S9a",
        summary: "2,000 sessions that don't read 120 kB each",
        scripts: |clients| over_budget(clients, 2),
        clients: 2_000,
        also: Also::TimeAboveBound,
        ..PLAIN
    },
    Attack {
        name: "S9b",
        summary: "10,000 sessions that don't read 60 kB each",
        scripts: |clients| over_budget(clients, 1),
        clients: 10_000,
        also: Also::TimeAboveBound,
        ..PLAIN
    },
];

pub(crate) fn list(clients: usize, script: impl Fn(usize) -> Script) -> Vec<Script> {
    (0..clients).map(script).collect()
}

/// A `ping` whose `epoch` is a string of `length_bytes` control characters.
fn reflected_ping(length_bytes: usize) -> Bytes {
    let epoch = "\u{7f}".repeat(length_bytes);
    wire::deflated_text(format!(r#"{{"type":"ping","epoch":"{epoch}"}}"#).as_bytes()).into()
}

/// Returns bytes that all clients of an attack share. Otherwise this program would need more memory than the
/// server.
fn shared(make: impl FnOnce() -> Bytes, cell: &'static std::sync::OnceLock<Bytes>) -> Bytes {
    cell.get_or_init(make).clone()
}

macro_rules! shared {
    ($make:expr) => {{
        static CELL: std::sync::OnceLock<Bytes> = std::sync::OnceLock::new();
        shared(|| $make, &CELL)
    }};
}

fn reflected_error(_client: usize) -> Script {
    let ping = shared!(reflected_ping(999_000));
    Script::new([wire::upgrade_deflate("/ws")]).then(vec![ping; 4]).deaf()
}

fn sockjs_flood(client: usize) -> Script {
    let flood = shared!({
        let messages = vec![r#""""#; 100_000].join(",");
        wire::text(&format!("[{messages}]")).into()
    });
    let open = wire::upgrade(&format!("/sockjs/000/flood-{client}/websocket"));
    Script::new([open]).then(vec![flood; 2]).deaf()
}

fn unfinished_message() -> Script {
    let message = shared!({
        let mut message = wire::frame_head(FIN | TEXT, 999_999);
        message.resize(message.len() + 999_000, b'a');
        message.into()
    });
    Script::new([wire::upgrade("/ws")]).then([message])
}

fn unfinished_body() -> Script {
    let body = shared!({
        let target = "/engine.io/?EIO=4&transport=polling&sid={sid}";
        let mut body = wire::post_head(target, "text/plain;charset=UTF-8", 1_000_000);
        body.push(b'4');
        body.resize(999_000, b'a');
        body.into()
    });
    Script::new([wire::get("/engine.io/?EIO=4&transport=polling")]).then([body])
}

fn unfinished_attachments() -> Script {
    let packet = shared!({
        let placeholders: Vec<String> =
            (0..10).map(|number| format!(r#"{{"_placeholder":true,"num":{number}}}"#)).collect();
        let mut packet = wire::text(&format!(r#"4510-["x",{}]"#, placeholders.join(",")));
        for _ in 0..9 {
            packet.extend_from_slice(&wire::frame(FIN | wire::BINARY, &[7; 100_000]));
        }
        packet.into()
    });
    let open = wire::upgrade("/socket.io/?EIO=4&transport=websocket");
    Script::new([open, wire::text("40")]).then([packet])
}

fn never_polled() -> Script {
    let target = "/socket.io/?EIO=4&transport=polling";
    let post = |body: &[u8]| wire::post(&format!("{target}&sid={{sid}}"), "text/plain;charset=UTF-8", body);
    Script::new([wire::get(target), post(b"40"), post(br#"42["join","flood"]"#)])
}

fn busy_publisher() -> Script {
    let messages = shared!({
        let message = wire::text(r#"{"type":"publish","room":"flood","data":1}"#);
        message.repeat(100).into()
    });
    let mut script = Script::new([wire::upgrade("/ws")]);
    // The other clients join before the first client publishes.
    script.steps.push(Step::Pause(Duration::from_secs(2)));
    script.repeating([messages])
}

fn many_rooms(client: usize) -> Script {
    let subscriptions = (0..1000).map(|room| {
        let name = format!("{client:04}-{room:04}-{}", "r".repeat(190));
        wire::text(&format!(r#"{{"type":"subscribe","room":"{name}"}}"#)).into()
    });
    Script::new([wire::upgrade("/ws")]).then(subscriptions)
}

fn deflated_numbers() -> Script {
    let message = shared!({
        let numbers = "1,".repeat(499_900);
        wire::deflated_text(format!(r#"{{"type":"ping","epoch":1,"data":[{numbers}1]}}"#).as_bytes()).into()
    });
    Script::new([wire::upgrade_deflate("/ws")]).repeating(vec![message; 60])
}

fn reflected_bytes() -> Script {
    let message = shared!(reflected_ping(999_000));
    Script::new([wire::upgrade_deflate("/ws")]).repeating(vec![message; 60])
}

fn subscribe_cold(key: &str) -> Vec<u8> {
    wire::text(&format!(r#"{{"type":"subscribe","feed":"cold/{key}"}}"#))
}

fn cold_keys(client: usize) -> Script {
    let keys = (0..990).map(|key| subscribe_cold(&format!("{client}/{key}")).into());
    Script::new([wire::upgrade("/ws")]).then(keys)
}

/// The placeholder is as long as its replacement, so that the frame's length stays correct.
fn cold_keys_forever() -> Script {
    let keys: Vec<u8> = (0..990).flat_map(|key| subscribe_cold(&format!("{{number}}/{key}"))).collect();
    let mut script = Script::new([wire::upgrade("/ws")]).repeating([keys.into()]);
    script.steps.push(Step::Pause(Duration::from_millis(500)));
    script
}

fn join_and_leave(client: usize) -> Script {
    let mut loops = Vec::new();
    for room in 0..100 {
        for kind in ["subscribe", "unsubscribe"] {
            let message = format!(r#"{{"type":"{kind}","room":"loop-{client}-{room}"}}"#);
            loops.extend_from_slice(&wire::text(&message));
        }
    }
    Script::new([wire::upgrade("/ws")]).repeating([loops.into()])
}

/// Sessions that don't read, each subscribed to its own room, and four clients that publish to all rooms.
fn over_budget(sessions: usize, messages: usize) -> Vec<Script> {
    const PUBLISHERS: usize = 4;
    let subscribe = |room: usize| {
        let message = wire::text(&format!(r#"{{"type":"subscribe","room":"own-{room}"}}"#));
        Script::new([wire::upgrade("/ws")]).then([message.into()]).deaf()
    };
    let publish = |publisher: usize| {
        let data = "a".repeat(60_000);
        let message = |room: usize| {
            let text = format!(r#"{{"type":"publish","room":"own-{room}","data":"{data}"}}"#);
            Bytes::from(wire::deflated_text(text.as_bytes()))
        };
        let mut script = Script::new([wire::upgrade_deflate("/ws")]);
        script.steps.push(Step::Pause(Duration::from_secs(4)));
        let rooms = (publisher..sessions).step_by(PUBLISHERS);
        script.then((0..messages).flat_map(|_| rooms.clone().map(message)))
    };
    (0..sessions).map(subscribe).chain((0..PUBLISHERS).map(publish)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_has_clients_and_a_name_of_its_own() {
        let all: Vec<_> = ALL.iter().chain(&crate::faults::ALL).collect();
        for (at, attack) in all.iter().enumerate() {
            let scripts = (attack.scripts)(4);
            assert!((4..=8).contains(&scripts.len()), "{}", attack.name);
            assert!(all[..at].iter().all(|other| other.name != attack.name), "{}", attack.name);
            assert!(!attack.summary.is_empty() && attack.clients > 0, "{}", attack.name);
        }
    }

    #[test]
    fn small_on_the_wire_and_large_inflated() {
        for bytes in [reflected_ping(999_000), deflated_numbers().steps.last().map(sent).unwrap()] {
            assert!(bytes.len() < 3_000, "{}", bytes.len());
        }
    }

    fn sent(step: &Step) -> Bytes {
        match step {
            Step::Send(_, bytes) => bytes.clone(),
            other => panic!("{other:?}"),
        }
    }
}
