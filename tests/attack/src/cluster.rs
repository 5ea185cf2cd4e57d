//! Sessions that attack a cluster: the engine's messages between nodes, the relay, and the bridge to
//! Socket.IO's servers.
//!
//! The server under attack is a node without a secret. Any client of the engine can send as another node, and
//! no signature protects the decoders of frames. Rooms that a bridge shares keep no history, so the
//! [second](crate::second) server has the bridge. Names and formats repeat those of `crates/cluster`, because
//! the program shares no code with the server.

use crate::doors;
use crate::redis::{self, NODE, Redis};
use crate::script::{Addresses, Port, Script, Step};
use crate::wire;
use std::net::SocketAddr;
use std::time::Duration;

/// The id of the node as which scripts send.
const SENDER: u64 = 7;
/// The channel of [`SENDER`].
const OWN: &str = "stentor:{node:0000000000000007}";
/// The channel of all nodes.
const NODES: &str = "stentor:{nodes}";

/// Marks a node's answer to [`SENDER`] in a reply of Redis: a message of the sender's channel, not the
/// confirmation of the subscription.
pub(crate) const ANSWERED: &[u8] = b"{node:0000000000000007}\r\n$";

/// Version of the frames (`crates/cluster/src/frame/mod.rs`). Nodes ignore those of another one, and no door of the cluster is reached.
const FORMAT: u8 = 7;
/// Kinds of frames (`crates/cluster/src/frame/mod.rs`).
const MESSAGE: u8 = 0;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
const VERSION: u8 = 3;
const STATE: u8 = 4;
const SOCKET: u8 = 5;
const RELEASED: u8 = 6;
const ALIVE: u8 = 7;
const PRESENCE: u8 = 8;
const REVOCATIONS: u8 = 9;

/// Starts Redis at its address and returns it. Sets the addresses at which scripts reach Redis and the relay.
pub(crate) fn start(addresses: &mut Addresses) -> anyhow::Result<Redis> {
    let relay = SocketAddr::new(addresses.public.ip(), 8003);
    let engine = engine(addresses);
    let redis = Redis::start(engine)?;
    let (commands, introduced) = (redis::commands(engine)?, redis::introduced(relay)?);
    *addresses = Addresses { relay, introduced, redis: commands, ..*addresses };
    Ok(redis)
}

fn engine(addresses: &Addresses) -> SocketAddr {
    SocketAddr::new(addresses.public.ip(), 6379)
}

/// Returns the configuration of the engine and the relay's listener.
pub(crate) fn configuration(addresses: &Addresses) -> String {
    engine_and_relay(engine(addresses), addresses.relay)
}

fn engine_and_relay(engine: SocketAddr, relay: SocketAddr) -> String {
    format!("\n[cluster]\nengine = \"redis://{NODE}@{engine}\"\nlisten = \"{relay}\"\n")
}

/// Returns the configuration of the second server's bridges.
pub(crate) fn bridge(addresses: &Addresses) -> String {
    let shared = [("classic", "/"), ("sharded", "/a"), ("python", "/")];
    shared.map(|(adapter, namespace)| bridge_of(engine(addresses), adapter, namespace)).concat()
}

fn bridge_of(redis: SocketAddr, adapter: &str, namespace: &str) -> String {
    format!(
        "\n[[cluster.socketio]]\nurl = \"redis://{NODE}@{redis}\"\nnamespaces = [\"{namespace}\"]\n\
         adapter = \"{adapter}\"\n"
    )
}

/// Returns the configuration of a node with a bridge for the namespace `/b`.
pub(crate) fn beside_a_bridge(engine: SocketAddr, relay: SocketAddr) -> String {
    let bridge = bridge_of(engine, "classic", "/b");
    engine_and_relay(engine, relay) + &bridge
}

/// Returns the valid sessions.
pub(crate) fn sessions() -> Vec<Script> {
    vec![
        questions(),
        node(),
        log(),
        feeds(),
        direct(),
        Script::at(Port::Relay, [vec![0x5a; 75]]),
        relayed(),
        classic(),
        requests(),
        sharded(),
        python(),
    ]
}

/// Makes a Redis command whose last argument may have any bytes.
fn command(words: &str, argument: impl AsRef<[u8]>) -> Vec<u8> {
    [words.as_bytes(), b"\n", argument.as_ref()].concat()
}

fn publish(channel: &str, payload: impl AsRef<[u8]>) -> Vec<u8> {
    command(&format!("PUBLISH {channel}"), payload)
}

/// Makes the command that publishes a frame without a position.
fn send(channel: &str, frame: impl AsRef<[u8]>) -> Vec<u8> {
    publish(channel, [b":", frame.as_ref()].concat())
}

fn frame(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    [&[FORMAT, kind][..], &SENDER.to_le_bytes(), &parts.concat()].concat()
}

fn count(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("counts are small").to_le_bytes()
}

fn text(text: &str) -> Vec<u8> {
    [&count(text.len())[..], text.as_bytes()].concat()
}

fn list(names: &[&str]) -> Vec<u8> {
    names.iter().fold(count(names.len()).to_vec(), |all, name| [all, text(name)].concat())
}

/// Encodes an event whose data is JSON.
fn content(event: &str, json: &str) -> Vec<u8> {
    [&[1][..], &text(event), &[0, 0], &text(json)].concat()
}

/// Encodes these rooms, without exceptions.
fn rooms(rooms: &[&str]) -> Vec<u8> {
    [text("/"), list(rooms), list(&[]), list(&[])].concat()
}

/// Encodes the selection of these rooms' members.
fn selected(named: &[&str]) -> Vec<u8> {
    [rooms(named), list(&[])].concat()
}

/// Sends a question to all nodes, as a node does, and reads their answers.
fn questions() -> Script {
    let ask = |parts: &[&[u8]]| send(NODES, frame(QUESTION, &[&[&9_u64.to_le_bytes()[..]], parts].concat()));
    let lobby = selected(&["lobby"]);
    Script::at(Port::Redis, [command("SUBSCRIBE", OWN)])
        .on(1, Port::Public, [wire::upgrade("/ws"), doors::subscribe("lobby", "")])
        .on(
            2,
            Port::Redis,
            [
                send(NODES, frame(ALIVE, &[])),
                ask(&[&[0], &lobby, &[4], &count(10)]),
                ask(&[&[0], &lobby, &[0], &content("framed", "[1]")]),
                ask(&[&[0], &lobby, &[1], &list(&["kept/joined"])]),
                ask(&[&[0], &selected(&["kept/joined"]), &[2], &list(&["kept/joined"])]),
                ask(&[&[1], &text("/"), &text("l"), &text(""), &count(10)]),
                ask(&[&[2], &text("/"), &text("kept/here"), &[0], &count(5)]),
                ask(&[&[3], &[1], &text("fuzz"), &[1], &text("nobody"), &[0, 0, 0], &[0]]),
                ask(&[&[9], &list(&["cold/probe-a"])]),
            ],
        )
}

/// A phantom node joins the cluster for a while. Commands wait for its answer until it has left. Late in a
/// round, other sessions have received their answers.
fn node() -> Script {
    let report = |more: &str| {
        let record = r#"{"name":"ph\u0061ntom","version":"1","address":"127.0.0.1:1","started_at_seconds":1,"connections":0"#;
        command(
            "HSET stentor:{nodes}:records 0000000000000008",
            format!("9999999999999:{record}{more},\"number\":1{{number}}}}"),
        )
    };
    let alive = || send(NODES, [&[FORMAT, ALIVE][..], &8_u64.to_le_bytes()].concat());
    let mut script = Script { steps: vec![Step::Pause(Duration::from_millis(1200))], ..Script::new([]) };
    for (number, more) in ["", r#","left":true"#].into_iter().enumerate() {
        script = script.on(2 * number, Port::Redis, [report(more), alive()]);
        script.steps.push(Step::Pause(Duration::from_millis(700)));
        script = script.on(2 * number + 1, Port::Admin, [wire::get("/api/v1/nodes")]);
    }
    script
}

/// Messages in a room's log, after other data was published on the room's channel.
fn log() -> Script {
    const ROOM: &str = "kept/logged-{number}";
    const NAME: &str = "stentor:{room:1:/kept/logged-{number}}";
    let message = |event: &str| frame(MESSAGE, &[&[1; 8], &rooms(&[ROOM]), &content(event, "[2]")]);
    let member = [doors::signed_in(), doors::subscribe(ROOM, ""), doors::publish(ROOM, "said", "1")];
    let others = [
        send(NAME, message("lost")),
        command(&format!("XADD {NAME} 2-0 t 9999999999999 d"), message("logged")),
        command(&format!("HSET {NAME}:head o"), "2"),
        publish(NAME, "{epoch}:2:garbage"),
    ];
    let last = [
        publish(NAME, [b"{epoch}:4:", &message("next")[..]].concat()),
        command("DEL", format!("{NAME}:head")),
        command("DEL", NAME),
        send(NAME, message("lost")),
    ];
    settled(settled(Script::new(member)).on(1, Port::Redis, others)).on(1, Port::Redis, last)
}

/// Appends a pause in which everything sent so far takes effect.
fn settled(mut script: Script) -> Script {
    script.steps.push(Step::Pause(Duration::from_millis(300)));
    script
}

fn feeds() -> Script {
    const FEED: &str = "stentor:{feed:cold/probe-a}";
    let state = [&[1][..], &text("because"), &[1], &[3; 8]].concat();
    let version = |base: &[u8]| {
        let document = [&[1][..], &text("application/json"), &count(2), &[7; 8], &text("garbage")].concat();
        frame(VERSION, &[&[9; 8], base, &state, &[0], &document])
    };
    let based = [&[1][..], &[5; 16], &[1], &text("[]")].concat();
    Script::new([wire::upgrade("/ws?feed=cold/probe-a")]).on(
        1,
        Port::Redis,
        [
            send(FEED, frame(STATE, &[&[9; 8], &state])),
            send(FEED, version(&[0])),
            send(FEED, version(&based)),
            publish(FEED, [b"1:2:", &version(&[0])[..]].concat()),
            command("DEL", format!("{FEED}:lease")),
            command(&format!("HSET {FEED} e"), "7"),
            send(FEED, frame(RELEASED, &[&[1; 8]])),
        ],
    )
}

/// Sends frames to one node.
fn direct() -> Script {
    const NODE: &str = "stentor:{node:{node}}";
    let id = 9_u64.to_le_bytes();
    const ROOM: &str = "kept/framed";
    let room = [text("/"), text(ROOM)].concat();
    let filter = [0; 5];
    Script::new([doors::signed_in(), doors::subscribe(ROOM, r#","presence":true"#)]).on(
        1,
        Port::Redis,
        [
            command("HKEYS", "stentor:{nodes}:records"),
            send(NODE, frame(ANSWER, &[&id, &[1, 0], &count(1), &count(0)])),
            send(NODE, frame(SOCKET, &[&[0], &id, &text("unknown"), &text("/"), &[0, 1]])),
            send(NODE, frame(SOCKET, &[&[1], &id, &[1], &id])),
            send(NODE, frame(PRESENCE, &[&room, &[0], &count(0)])),
            send(NODE, frame(PRESENCE, &[&room, &[2], &id, &count(1), &count(0)])),
            send(NODE, frame(PRESENCE, &[&room, &[1], &id, &[8; 8], &count(1), &count(0), &count(0)])),
            send(NODE, frame(REVOCATIONS, &[&[0], &id, &[0]])),
            send(NODE, frame(REVOCATIONS, &[&[1], &id, &count(1), &filter, &[1; 8]])),
            send(NODES, frame(REVOCATIONS, &[&[2], &count(1), &filter, &[1; 8]])),
        ],
    )
}

/// Requests of a client that another node relays.
fn relayed() -> Script {
    Script::at(
        Port::Introduced,
        [
            wire::get("/engine.io/?EIO=4&transport=polling"),
            wire::get("/engine.io/?EIO=4&transport=polling&sid={sid}"),
        ],
    )
    .on(1, Port::Introduced, [wire::post("/sockjs/000/relayed/xhr_send", "text/plain", b"[\"x\"]")])
}

/// A client of the second server, and publications of Socket.IO's servers.
fn bridged(namespace: &str, published: impl IntoIterator<Item = Vec<u8>>) -> Script {
    let join = match namespace {
        "" => r#"420["join","shared"]"#.to_owned(),
        namespace => format!(r#"42{namespace},0["join","shared"]"#),
    };
    let connect = if namespace.is_empty() { "40".to_owned() } else { format!("40{namespace},") };
    let target = "/socket.io/?EIO=4&transport=websocket";
    let sends = [wire::upgrade(target), wire::text(&connect), wire::text(&join)];
    settled(Script::at(Port::Second, sends)).on(1, Port::Redis, published)
}

/// Encodes a short text in MessagePack.
fn packed(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("the text is short");
    assert!(length < 32, "{text}");
    [&[0xa0 | length][..], text.as_bytes()].concat()
}

fn classic() -> Script {
    let broadcast = |data: &[u8]| {
        let packet =
            [&[0x83][..], &packed("type"), &[2], &packed("data"), data, &packed("nsp"), &packed("/")]
                .concat();
        let options =
            [&[0x83][..], &packed("rooms"), &[0x90], &packed("except"), &[0x90], &packed("flags"), &[0x80]]
                .concat();
        [&[0x93][..], &packed("fuzzed"), &packet, &options].concat()
    };
    let event = |data: &[u8]| broadcast(&[&[0x92][..], &packed("bridged"), data].concat());
    bridged(
        "",
        [
            publish("socket.io#/#", event(&[1])),
            publish("socket.io#/#", event(&[0xc4, 3, 1, 2, 3])),
            publish("socket.io#/#shared#", event(&[0x81, 0xa1, b'a', 0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0])),
            publish(
                "socket.io#/#",
                r#"["fuzzed",{"type":2,"data":["worded",1],"nsp":"/"},{"rooms":["shared"],"except":[],"flags":{}}]"#,
            ),
        ],
    )
}

/// Requests of Socket.IO's servers. The bridge publishes its answers in Redis.
fn requests() -> Script {
    const REQUEST: &str = "socket.io-request#/#";
    const OPTIONS: &str = r#""opts":{"rooms":["shared"],"except":[]}"#;
    let ask = |fields: &str| publish(REQUEST, format!(r#"{{"uid":"fuzzed","requestId":"r",{fields}}}"#));
    let sends = [
        ask(&format!(r#""type":5,{OPTIONS}"#)),
        ask(r#""type":0,"rooms":["shared"]"#),
        ask(r#""type":1"#),
        ask(&format!(r#""type":2,{OPTIONS},"rooms":["more"]"#)),
        ask(&format!(r#""type":3,{OPTIONS},"rooms":["more"]"#)),
        ask(r#""type":4,"sid":"unknown","close":true"#),
        ask(r#""type":6,"data":["serverside",1]"#),
        ask(&format!(r#""type":7,"packet":{{"type":2,"data":["acked"],"nsp":"/"}},{OPTIONS}"#)),
    ];
    let watching = Script::new([]).on(2, Port::Redis, [command("SUBSCRIBE", "socket.io-response#/#")]);
    let asking = bridged("", sends);
    Script { steps: [&watching.steps[1..], &asking.steps[..]].concat(), ..asking }
}

fn sharded() -> Script {
    let send = |kind: u8, data: &str| {
        let message = format!(r#"{{"uid":"0123456789abcdef","nsp":"/a","type":{kind},"data":{{{data}}}}}"#);
        command("SPUBLISH socket.io#/a#", message)
    };
    const OPTIONS: &str = r#""opts":{"rooms":[],"except":[],"flags":{}}"#;
    bridged(
        "/a",
        [
            send(3, &format!(r#""packet":{{"type":2,"data":["sharded",1],"nsp":"/a"}},{OPTIONS}"#)),
            send(4, &format!(r#""rooms":["more"],{OPTIONS}"#)),
            send(5, &format!(r#""rooms":["more"],{OPTIONS}"#)),
            send(7, &format!(r#""requestId":"r",{OPTIONS}"#)),
            send(9, r#""requestId":"r","packet":["serverside",1]"#),
        ],
    )
}

fn python() -> Script {
    let send = |method: &str, fields: &str| {
        let message = format!(r#"{{"method":"{method}","namespace":"/","host_id":"fuzzed",{fields}}}"#);
        publish("socketio", message)
    };
    bridged(
        "",
        [
            send("emit", r#""event":"pythonic","data":1,"room":null,"skip_sid":null,"callback":null"#),
            send(
                "emit",
                r#""event":"binary","binary":true,"data":[{"_placeholder":true,"num":0},"AQI="],"room":"shared""#,
            ),
            send("enter_room", r#""sid":"unknown","room":"shared""#),
            send("close_room", r#""room":"more""#),
            send("disconnect", r#""sid":"unknown""#),
            send("callback", r#""sid":"unknown","id":1,"args":[]"#),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn frames_have_the_version_of_the_server() -> anyhow::Result<()> {
        let frames = include_str!("../../../crates/cluster/tests/frames.txt");
        let version = frames.lines().next().context("the file is empty")?;
        assert_eq!(version, format!("version {FORMAT}"));
        Ok(())
    }
}
