//! The fuzzer's corpus: valid sessions of every protocol as clients send them, and the attacks.
//!
//! The sessions' rooms and feeds differ from the canaries', so that no mutated publication can pass for a
//! canary's.

use crate::script::{Port, Script, Step};
use crate::wire::{self, BINARY, CLOSE, CONTINUATION, FIN, PING, TEXT};
use crate::{attacks, doors};
use bytes::Bytes;
use fastrand::Rng;
use std::time::Duration;

/// The content type of Engine.IO clients' payloads.
const PAYLOAD: &str = "text/plain;charset=UTF-8";
/// The content type of browsers' forms and of SockJS JSONP clients' messages.
const FORM: &str = "application/x-www-form-urlencoded";

/// One of this many sessions is an attack's client. More attacks would leave little of a round to other
/// sessions.
const ATTACK_SHARE: usize = 6;

/// The corpus, with or without sessions of a cluster.
pub(crate) struct Seeds {
    sessions: Vec<Script>,
    /// One client of each attack.
    attacks: Vec<Script>,
}

impl Seeds {
    pub(crate) fn new(is_clustered: bool) -> Self {
        let mut attacks: Vec<Script> =
            attacks::ALL.iter().map(|attack| (attack.scripts)(1).swap_remove(0)).collect();
        attacks.push(missing_attachments());
        let mut sessions = sessions();
        sessions.extend(doors::sessions(is_clustered));
        Self { sessions, attacks }
    }

    /// Returns a random session.
    pub(crate) fn pick(&self, rng: &mut Rng) -> &Script {
        let list = if rng.usize(..ATTACK_SHARE) == 0 { &self.attacks } else { &self.sessions };
        &list[rng.usize(..list.len())]
    }

    /// Returns the valid sessions.
    pub(crate) fn sessions(&self) -> &[Script] {
        &self.sessions
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Script> {
        self.sessions.iter().chain(&self.attacks)
    }
}

fn sessions() -> Vec<Script> {
    let mut seeds = vec![
        stentor_v1(),
        stentor_v1_deflated(),
        stentor_v1_fragmented(),
        feed_over_websocket(),
        engineio_websocket(),
        engineio_polling(),
        engineio_upgrade(),
        engineio_3_polling(),
        engineio_3_jsonp(),
        engineio_3_websocket(),
        socketio_websocket(),
        socketio_binary(),
        socketio_polling(),
        socketio_3_polling(),
        sockjs_websocket(),
        sockjs_raw_websocket(),
        sockjs_polling(),
        sockjs_jsonp(),
        primus(),
        ndjson(),
        http_requests(),
        http_bodies(),
    ];
    for transport in ["xhr_streaming", "eventsource", "htmlfile?c=a.b"] {
        seeds.push(sockjs_streaming(transport));
    }
    for target in
        ["/sse?feed=cold/probe-a&feed=cold/probe-b&delta=1", "/sse/cold/probe-a", "/sse?feed=cold/none"]
    {
        seeds.push(Script::new([wire::get(target)]));
    }
    seeds
}

fn message(fields: &str) -> Vec<u8> {
    wire::text(&format!("{{{fields}}}"))
}

fn stentor_v1() -> Script {
    Script::new([
        wire::upgrade("/ws?feed=cold/probe-{number}"),
        message(r#""id":1,"type":"subscribe","room":"lobby""#),
        message(r#""id":2,"type":"publish","room":"lobby","event":"said","data":{"text":"hello"}"#),
        message(r#""id":"x","type":"subscribe","feed":"cold/probe-a","delta":true,"rate":2"#),
        message(r#""type":"subscribe","feed":"cold/probe-a","policy":"queue","epoch":7,"offset":1"#),
        message(r#""type":"subscribe","room":"lobby","policy":"drop_oldest""#),
        message(r#""id":3,"type":"unsubscribe","room":"lobby""#),
        message(r#""id":4,"type":"ping""#),
        wire::frame(FIN | PING, b"beat"),
        wire::frame(FIN | CLOSE, b"\x03\xe8bye"),
    ])
}

fn stentor_v1_deflated() -> Script {
    let publish = |data: &str| {
        wire::deflated_text(format!(r#"{{"type":"publish","room":"lobby","data":{data}}}"#).as_bytes())
    };
    Script::new([
        wire::upgrade_deflate("/ws"),
        wire::deflated_text(br#"{"type":"subscribe","room":"lobby"}"#),
        publish("[1,2.50,\"\\u00e9\"]"),
        publish(&format!("\"{}\"", "x".repeat(20_000))),
        publish(&format!("{}1{}", "[".repeat(100), "]".repeat(100))),
    ])
}

fn stentor_v1_fragmented() -> Script {
    Script::new([wire::upgrade("/ws")]).then(
        [
            wire::frame(TEXT, br#"{"type":"publish","#),
            wire::frame(FIN | PING, b""),
            wire::frame(CONTINUATION, br#""room":"lobby","#),
            wire::frame(CONTINUATION, b""),
            wire::frame(FIN | CONTINUATION, br#""data":"in parts"}"#),
            wire::frame(FIN | BINARY, &[0, 1, 2, 255]),
        ]
        .map(Bytes::from),
    )
}

fn feed_over_websocket() -> Script {
    Script::new([wire::upgrade_deflate("/ws/cold/probe-a?policy=queue"), wire::text("nothing is accepted")])
}

fn engineio_websocket() -> Script {
    Script::new([
        wire::upgrade("/engine.io/?EIO=4&transport=websocket"),
        wire::text(r#"4{"type":"subscribe","room":"lobby"}"#),
        wire::text(r#"4{"type":"publish","room":"lobby","data":1}"#),
        wire::frame(FIN | BINARY, b"bytes"),
        wire::text("3"),
        wire::text("1"),
    ])
}

/// Makes a session with polls on lane 0 and posts on lane 1.
fn polled(target: &str, payloads: &[&str]) -> Script {
    let mut script = Script::new([wire::get(target)]);
    let target = format!("{target}&sid={{sid}}");
    script.steps.push(Step::Open(1, Port::Public));
    for payload in payloads {
        script.steps.push(Step::Send(1, wire::post(&target, PAYLOAD, payload.as_bytes()).into()));
        script.steps.push(Step::Receive(1));
        script.steps.push(Step::Send(0, wire::get(&target).into()));
        script.steps.push(Step::Receive(0));
    }
    script
}

fn engineio_polling() -> Script {
    polled(
        "/engine.io/?EIO=4&transport=polling",
        &[
            "4{\"type\":\"subscribe\",\"room\":\"lobby\"}\x1e4{\"type\":\"ping\"}",
            "bAQIDBA==\x1e4{\"type\":\"publish\",\"room\":\"lobby\",\"data\":1}",
            "3",
            "1",
        ],
    )
}

fn engineio_upgrade() -> Script {
    let mut script = polled("/engine.io/?EIO=4&transport=polling", &["4{\"type\":\"ping\"}"]);
    let sends = [
        wire::upgrade("/engine.io/?EIO=4&transport=websocket&sid={sid}"),
        wire::text("2probe"),
        wire::text("5"),
        wire::text("4{\"type\":\"ping\"}"),
        wire::text("1"),
    ];
    script.steps.push(Step::Open(2, Port::Public));
    for bytes in sends {
        script.steps.push(Step::Send(2, bytes.into()));
        script.steps.push(Step::Receive(2));
    }
    script
}

fn engineio_3_polling() -> Script {
    let mut script = polled(
        "/engine.io/?EIO=3&transport=polling",
        &["16:4{\"type\":\"ping\"}1:2", "13:b4AQIDBAUGBwg=3:4\u{e9}x", "1:1"],
    );
    let octets = [&b"\x00\x05\xff4{\"a\"\x01\x03\xff\x04ab"[..]].map(|body| {
        wire::post("/engine.io/?EIO=3&transport=polling&sid={sid}", "application/octet-stream", body)
    });
    script.steps.insert(4, Step::Receive(1));
    script.steps.splice(4..4, octets.map(|octets| Step::Send(1, octets.into())));
    script
}

fn engineio_3_jsonp() -> Script {
    let target = "/engine.io/?EIO=3&transport=polling&j=0";
    let mut script = Script::new([wire::get(target)]);
    let with_sid = format!("{target}&sid={{sid}}");
    for bytes in [
        wire::post(&with_sid, FORM, b"d=16%3A4%7B%22type%22%3A%22ping%22%7D"),
        wire::get(&with_sid),
        wire::post(&with_sid, FORM, b"d=1%3A1"),
    ] {
        script.steps.push(Step::Send(0, bytes.into()));
        script.steps.push(Step::Receive(0));
    }
    script
}

fn engineio_3_websocket() -> Script {
    Script::new([
        wire::upgrade("/engine.io/?EIO=3&transport=websocket"),
        wire::text("2"),
        wire::text("4{\"type\":\"ping\"}"),
        wire::frame(FIN | BINARY, b"\x04bytes"),
        wire::text("1"),
    ])
}

fn socketio_websocket() -> Script {
    Script::new([
        wire::upgrade("/socket.io/?EIO=4&transport=websocket&feed=cold/probe-a"),
        wire::text(r#"40{"token":"abc"}"#),
        wire::text(r#"420["join","lobby"]"#),
        wire::text(r#"42["say",{"room":"lobby","text":"hello"}]"#),
        wire::text(r#"421["subscribe","cold/probe-{number}",{"delta":true}]"#),
        wire::text(r#"422["unsubscribe","cold/probe-a"]"#),
        wire::text("40/none,"),
        wire::text(r#"42["leave","lobby"]"#),
        wire::text("430[1]"),
        wire::text("41"),
    ])
}

fn socketio_binary() -> Script {
    Script::new([
        wire::upgrade("/socket.io/?EIO=4&transport=websocket"),
        wire::text("40"),
        wire::text(r#"42["join","lobby"]"#),
        wire::text(
            r#"452-7["say",{"room":"lobby","a":{"_placeholder":true,"num":0}},{"_placeholder":true,"num":1}]"#,
        ),
        wire::frame(FIN | BINARY, b"first"),
        wire::frame(FIN | BINARY, &[9; 3000]),
    ])
}

fn socketio_polling() -> Script {
    polled(
        "/socket.io/?EIO=4&transport=polling",
        &[
            "40",
            "42[\"join\",\"lobby\"]\x1e420[\"say\",{\"room\":\"lobby\",\"text\":\"\u{e9}\u{1f600}\"}]",
            "451-[\"say\",{\"room\":\"lobby\",\"b\":{\"_placeholder\":true,\"num\":0}}]\x1ebAQIDBA==",
            "41",
        ],
    )
}

fn socketio_3_polling() -> Script {
    polled(
        "/socket.io/?EIO=3&transport=polling&b64=1",
        &["19:420[\"join\",\"lobby\"]", "29:42[\"say\",{\"room\":\"lobby\",\"a\":1}]", "2:41"],
    )
}

fn missing_attachments() -> Script {
    polled(
        "/socket.io/?EIO=4&transport=polling",
        &["40\x1e451-[\"x\",{\"_placeholder\":true,\"num\":0}]", "3"],
    )
}

fn sockjs_websocket() -> Script {
    Script::new([
        wire::upgrade("/sockjs/000/ws{number}/websocket"),
        wire::text(r#"["{\"type\":\"subscribe\",\"room\":\"lobby\"}"]"#),
        wire::text(r#"["{\"type\":\"publish\",\"room\":\"lobby\",\"data\":1}","{\"type\":\"ping\"}"]"#),
        wire::text(r#""{\"type\":\"ping\"}""#),
        wire::text("[]"),
    ])
}

fn sockjs_raw_websocket() -> Script {
    Script::new([wire::upgrade("/sockjs/websocket"), message(r#""type":"subscribe","room":"lobby""#)])
}

/// Appends the messages of a SockJS session, which are sent on lane 1.
fn sockjs_sends(script: &mut Script, target: &str) {
    script.steps.push(Step::Open(1, Port::Public));
    for body in [
        r#"["{\"type\":\"subscribe\",\"room\":\"lobby\"}","{\"type\":\"ping\"}"]"#,
        r#"["{\"type\":\"publish\",\"room\":\"lobby\",\"data\":\"\u200c\"}"]"#,
    ] {
        script.steps.push(Step::Send(1, wire::post(target, "text/plain", body.as_bytes()).into()));
        script.steps.push(Step::Receive(1));
    }
}

fn sockjs_polling() -> Script {
    let xhr = || wire::post("/sockjs/000/xhr{number}/xhr", "text/plain", b"");
    let mut script = Script::new([wire::get("/sockjs/info"), xhr()]);
    sockjs_sends(&mut script, "/sockjs/000/xhr{number}/xhr_send");
    for _ in 0..3 {
        script.steps.push(Step::Send(0, xhr().into()));
        script.steps.push(Step::Receive(0));
    }
    script
}

fn sockjs_streaming(transport: &str) -> Script {
    let session = format!("/sockjs/000/stream{}{{number}}", transport.len());
    let request = match transport {
        "xhr_streaming" => wire::post(&format!("{session}/{transport}"), "text/plain", b""),
        _ => wire::get(&format!("{session}/{transport}")),
    };
    let mut script = Script::new([request]);
    sockjs_sends(&mut script, &format!("{session}/xhr_send"));
    script
}

fn sockjs_jsonp() -> Script {
    let poll = || wire::get("/sockjs/000/jsonp{number}/jsonp?c=a.b");
    Script::new([
        poll(),
        wire::post("/sockjs/000/jsonp{number}/jsonp_send", FORM, b"d=%5B%22%7B%7D%22%5D"),
        poll(),
        wire::get("/sockjs/iframe-1.html"),
    ])
}

fn ndjson() -> Script {
    let mut script = Script::new([wire::get("/ndjson?feed=cold/probe-a")]);
    script.steps.push(Step::Open(1, Port::Public));
    for (number, body) in [
        (1, &b"{\"type\":\"subscribe\",\"room\":\"lobby\"}\n{\"type\":\"ping\"}\n"[..]),
        (1, b"{\"type\":\"ping\"}"),
        (2, b"\n{\"type\":\"publish\",\"room\":\"lobby\",\"data\":\"\\u2028\"}\r\n"),
    ] {
        let target = format!("/ndjson/{{sid}}?n={number}");
        script.steps.push(Step::Send(1, wire::post(&target, "application/x-ndjson", body).into()));
        script.steps.push(Step::Receive(1));
    }
    for query in ["received=2&bytes=0", "received=5&bytes=1", "received=1"] {
        script.steps.push(Step::Send(1, wire::get(&format!("/ndjson/{{sid}}?{query}")).into()));
        script.steps.push(Step::Receive(1));
    }
    script
}

fn primus() -> Script {
    Script::new([
        wire::upgrade("/primus/?feed=cold/probe-a&_primuscb=Abc"),
        wire::text(r#""primus::pong::1700000000000""#),
        wire::text(r#""primus::id::""#),
        wire::text(r#"{"type":"subscribe","room":"lobby"}"#),
        wire::text(r#""text""#),
    ])
}

fn http_requests() -> Script {
    let mut script = Script::new([
        wire::get("/feed/cold/probe-{number}"),
        wire::get("/feed/cold/probe-a?wait=abc"),
        b"HEAD /feed/cold/probe-a HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \"a\", W/\"b\"\r\n\r\n"
            .to_vec(),
        wire::get("/healthz"),
        wire::get("/primus/spec"),
        b"OPTIONS /socket.io/ HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n".to_vec(),
    ]);
    let pipelined: Vec<u8> =
        ["/healthz", "/feed/cold/none", "/stentor.js", "/none"].into_iter().flat_map(wire::get).collect();
    script.steps.push(Step::Send(0, pipelined.into()));
    script.steps.push(Step::Pause(Duration::from_millis(300)));
    script
}

fn http_bodies() -> Script {
    Script::new([
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nA: b\r\n\r\n"
            .to_vec(),
        b"POST /engine.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\
          Content-Length: 2\r\n\r\n40"
            .to_vec(),
        b"GET /feed/cold/probe-a HTTP/1.0\r\n\r\n".to_vec(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_session_opens_its_lanes_before_it_uses_them() {
        for (number, seed) in Seeds::new(true).all().enumerate() {
            let mut open = Vec::new();
            for step in &seed.steps {
                match step {
                    Step::Open(lane, _) => open.push(*lane),
                    Step::Send(lane, _) | Step::Receive(lane) => {
                        assert!(open.contains(lane), "{number}: {step:?}");
                    }
                    _ => {}
                }
            }
            assert!(!open.is_empty(), "{number}");
        }
    }
}
