//! Further attacks of the table: those that exhaust hooks, recovery, presence, signatures, TLS and the admin port.
//!
//! Each attack has its own configuration. Most are judged by the service that other clients receive
//! meanwhile.

use crate::attacks::{Also, Attack, Others, PLAIN, Place, list};
use crate::script::{Port, Script, Step};
use crate::{doors, layers, strange, token, wire};
use bytes::Bytes;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Maximum time that another client waits for an answer that needs a hook, or for a session.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(500);

const ASKS_A_HOOK: Others = Others {
    what: "subscriptions that a hook decides",
    message: r#"{"id":1,"type":"subscribe","room":"asked/probe-{number}"}"#,
    answer: r#""type":"ok""#,
    wait_max: ANSWER_TIME_MAX,
    from: Ipv4Addr::LOCALHOST,
};

/// Like [`ASKS_A_HOOK`], from another address, because clients of one address share its turns.
const ASKS_FROM_ELSEWHERE: Others = Others { from: Ipv4Addr::new(127, 0, 0, 2), ..ASKS_A_HOOK };

const CONNECTS: Others = Others {
    what: "new sessions",
    message: r#"{"id":1,"type":"subscribe","room":"probe-{number}"}"#,
    answer: r#""type":"ok""#,
    wait_max: ANSWER_TIME_MAX,
    from: Ipv4Addr::LOCALHOST,
};

/// Logged reason for closing a connection to Redis.
const TOO_LARGE: &str = "a reply of the server is larger than anything that a node stores";

/// All attacks, in the order of the table.
pub(crate) const ALL: [Attack; 11] = [
    Attack {
        name: "A1",
        summary: "events whose question the backend answers with 500, or not at all",
        scripts: |clients| list(clients, |_| failing_event()),
        clients: 1,
        more: |backend| Ok(hook(backend, "some", 1)),
        also: Also::Others(ASKS_A_HOOK),
        ..PLAIN
    },
    Attack {
        name: "A2",
        summary: "sockets that can be recovered, in 900 rooms each",
        scripts: |clients| list(clients, suspended),
        clients: 100,
        more: |_| Ok("[socketio]\nrecovery_ttl = \"40s\"\n".to_owned()),
        back_max: Duration::from_secs(60),
        also: Also::Others(CONNECTS),
        ..PLAIN
    },
    Attack {
        name: "A3",
        summary: "users with presence in 300 rooms each come and go",
        scripts: |clients| list(clients, present),
        clients: 100,
        rooms: doors::ROOMS,
        more: |backend| Ok(doors::configuration(backend)),
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "A4",
        summary: "wrong ES384 tokens, each tried with four keys",
        scripts: |clients| list(clients, forged),
        clients: 800,
        more: |_| four_keys(),
        ..PLAIN
    },
    Attack {
        name: "A5",
        summary: "80 streams of one address ask a hook about 200 feeds each, again and again",
        scripts: |clients| list(clients, asks),
        clients: 80,
        more: |backend| Ok(hook(backend, "busy", 10)),
        also: Also::Others(ASKS_FROM_ELSEWHERE),
        ..PLAIN
    },
    Attack {
        name: "A6",
        summary: "silent and dripping connections on the admin port",
        scripts: |clients| list(clients, silent),
        clients: 256,
        also: Also::Health,
        ..PLAIN
    },
    Attack {
        name: "A7",
        summary: "messages of 15 MB and 3 MB of nils over the bridge",
        scripts: |clients| {
            let messages = Bytes::from([15_000_000, 3_000_000].map(nils).concat());
            list(clients, |client| bridged(client, &messages))
        },
        clients: 4,
        place: Place::Cluster,
        latency_max: Duration::MAX,
        also: Also::Log("a message of another server is refused"),
        ..PLAIN
    },
    Attack {
        name: "A8a",
        summary: "feeds whose value in Redis has 300 MB, and 63 MB",
        scripts: |clients| list(clients, |client| loads(strange::LARGE[client % 2])),
        clients: 2,
        place: Place::Cluster,
        latency_max: Duration::MAX,
        also: Also::Log(TOO_LARGE),
        ..PLAIN
    },
    Attack {
        name: "A8b",
        summary: "feeds for which Redis replies without end",
        scripts: |clients| list(clients, |client| loads(strange::ENDLESS[client % 4])),
        clients: 4,
        place: Place::Cluster,
        latency_max: Duration::MAX,
        also: Also::Log(TOO_LARGE),
        ..PLAIN
    },
    Attack {
        name: "A9",
        summary: "admin bodies of 960 kB that never end",
        scripts: |clients| {
            let mut body = wire::post_head("/api/v1/publish", "application/json", 960_000);
            body.resize(959_000, b' ');
            let body = Bytes::from(body);
            list(clients, |_| Script::at(Port::Admin, []).then([body.clone()]))
        },
        clients: 250,
        also: Also::Ledger,
        ..PLAIN
    },
    Attack {
        name: "A11",
        summary: "TLS hellos that make the server sign with RSA",
        scripts: |clients| list(clients, |_| Script::at(Port::Tls, [layers::client_hello()])),
        clients: 2_000,
        place: Place::Tls,
        ..PLAIN
    },
];

/// Returns the configuration of a hook, and of the feeds and rooms about which it decides.
fn hook(backend: SocketAddr, path: &str, batch_max: usize) -> String {
    format!(
        r#"
[[feeds]]
name = "asked"
prefix = "asked/"
push = true

[[hooks]]
name = "asked"
url = "http://{backend}/{path}"
on = ["event", "subscribe"]
topics = ["asked/**"]
events = ["ask-failing"]
batch_max = {batch_max}
"#
    )
}

fn failing_event() -> Script {
    let event = wire::text(r#"{"id":1,"type":"event","event":"ask-failing","data":1}"#);
    let mut script = Script::new([wire::upgrade("/ws")]).repeating([event.into()]);
    script.steps.push(Step::Receive(0));
    script
}

fn suspended(client: usize) -> Script {
    let joins = (0..900).map(|room| {
        let name = format!("{client:04}-{room:04}-{}", "r".repeat(90));
        wire::text(&format!(r#"42["join","{name}"]"#)).into()
    });
    let open = wire::upgrade("/socket.io/?EIO=4&transport=websocket");
    let mut script = Script::new([open, wire::text("40")]).then(joins);
    script.steps.push(Step::Pause(Duration::from_millis(500)));
    script.steps.push(Step::Reset(0));
    script
}

/// Joins and leaves a room with presence. Four users share each room.
fn present(client: usize) -> Script {
    let token = token::sign(&format!("user-{client}"), token::VALID);
    let open =
        wire::upgrade_with("/ws", &format!("Sec-WebSocket-Protocol: stentor.v1, stentor.bearer.{token}\r\n"));
    let group = client / 4;
    let joins = (0..300)
        .map(|room| wire::text(&format!(r#"{{"type":"subscribe","room":"kept/{group}-{room}"}}"#)).into());
    let mut script = Script::new([open]).then(joins);
    script.steps.extend([
        Step::Pause(Duration::from_secs(3)),
        Step::Close(0),
        Step::Pause(Duration::from_secs(2)),
    ]);
    script.repeat_from = Some(0);
    script
}

fn forged(client: usize) -> Script {
    let token = token::forge(&format!("user-{client}"));
    Script::new([wire::upgrade("/ws"), wire::text(&format!(r#"{{"id":1,"type":"auth","token":"{token}"}}"#))])
}

/// Returns the configuration of an issuer with four keys without ids, so that each token is verified with all
/// of them.
fn four_keys() -> anyhow::Result<String> {
    let mut toml = String::from(
        "[auth]\nanonymous = \"allow\"\n\n[[permissions]]\ntopics = [\"*\", \"canary/**\"]\nallow = [\"subscribe\"]\nto = \"anyone\"\n\n\
         [[auth.issuers]]\nissuer = \"fuzz\"\nalgorithms = [\"ES384\"]\nkeys = [",
    );
    for _ in 0..4 {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)?;
        write!(toml, "{{ public_key = {:?} }}, ", key.public_key_pem())?;
    }
    Ok(toml + "]\n")
}

/// Opens an SSE stream, which asks the hook about all its feeds at once. A WebSocket asks about one feed
/// after the other.
fn asks(client: usize) -> Script {
    let feeds: Vec<String> = (0..200).map(|feed| format!("feed=asked/{client}/{{number}}/{feed}")).collect();
    let asks = wire::get(&format!("/sse?{}", feeds.join("&")));
    let mut script = Script::new([asks]).persistent();
    script.steps.push(Step::Pause(Duration::from_millis(500)));
    script.repeat_from = Some(0);
    script
}

/// The first client publishes to Redis as a Socket.IO server does. The other clients are in the room.
fn bridged(client: usize, messages: &Bytes) -> Script {
    if client > 0 {
        let open = wire::upgrade("/socket.io/?EIO=4&transport=websocket");
        return Script::new([open, wire::text("40/b,"), wire::text(r#"42/b,["join","shared"]"#)]);
    }
    let mut script = Script::at(Port::Redis, []).repeating([messages.clone()]);
    script.steps.push(Step::Pause(Duration::from_secs(1)));
    script
}

/// Makes the command that publishes a list of nils with the classic adapter.
fn nils(count: u32) -> Vec<u8> {
    let nils = vec![0xc0; usize::try_from(count).unwrap_or_default()];
    let head = b"\x93\xa6fuzzed\x83\xa4type\x02\xa4data\x92\xa4nils\xdd";
    let tail = b"\xa3nsp\xa2/b\x83\xa5rooms\x91\xa6shared\xa6except\x90\xa5flags\x80";
    let message = [&head[..], &count.to_be_bytes(), &nils, tail].concat();
    let command = format!("*3\r\n$7\r\nPUBLISH\r\n$13\r\nsocket.io#/b#\r\n${}\r\n", message.len());
    [command.as_bytes(), &message, b"\r\n"].concat()
}

/// Subscribes to feeds for which Redis has a strange reply.
fn loads(kind: &str) -> Script {
    let feed = wire::text(&format!(r#"{{"type":"subscribe","feed":"cold/{kind}-{{number}}"}}"#));
    let mut script = Script::new([wire::upgrade("/ws")]).repeating([feed.into()]);
    script.steps.push(Step::Pause(Duration::from_secs(1)));
    script
}

fn silent(client: usize) -> Script {
    let mut script = Script::at(Port::Admin, []).persistent();
    if client % 2 == 1 {
        let request = wire::get(&format!("/healthz?{}", "a".repeat(200)));
        script.steps.push(Step::Dribble(0, request.into(), Duration::from_millis(100)));
    }
    script
}
