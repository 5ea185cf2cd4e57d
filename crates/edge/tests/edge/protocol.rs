//! Checks docs/protocol.md: runs its examples, and compares its tables with the code.

use crate::harness::{Server, Ws, on_one_and_three, until};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;
use stentor_edge::{Heartbeat, Limits};
use stentor_hub::{Disconnect, FeedState, HistoryLimits};
use stentor_ports::FeedUpdate;

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    std::fs::read_to_string(path).unwrap()
}

/// The rows of the table below a heading, by cells, without the table's header.
fn table(heading: &str) -> Vec<Vec<String>> {
    let document = document();
    let section = document.split(&format!("\n## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect())
        .collect()
}

#[test]
fn the_close_codes_are_those_of_the_code() {
    let row = |why: &Disconnect| {
        let reconnects = if why.reconnect() { "yes" } else { "no" };
        [why.code().to_string(), why.name().into(), reconnects.into(), why.reason().into()]
    };
    let mut expect: Vec<[String; 4]> = Disconnect::ALL.iter().map(row).collect();
    expect.sort();
    assert_eq!(table("Close codes"), expect);
}

#[test]
fn the_limits_are_those_of_the_code() {
    let Limits {
        message_bytes_max,
        fragments_max,
        message_timeout,
        header_bytes_max,
        headers_max,
        header_timeout,
        body_bytes_max,
        idle_timeout,
        request_timeout,
        close_timeout,
        send_buffer_bytes_max,
        replies_bytes_max,
        turn_bytes_max,
        json_depth_max,
        subscriptions_max,
        topics_max,
        feed_patches_max,
        // Internal limits, and limits that are off by default.
        feed_patches_bytes_max: _,
        feed_interval_min: _,
        connections_max,
        connections_per_second: _,
        memory_bytes_max,
        decisions_max: _,
        idempotency_keys_max: _,
        decision_timeout: _,
        // Limits between threads, which clients don't notice.
        inbox_messages_max: _,
        inbox_bytes_max: _,
        mailbox_messages_max: _,
        mailbox_bytes_max: _,
        relayed_connections_max: _,
        tls_handshake_timeout: _,
        tls_handshakes_max: _,
    } = Limits::default();
    let Heartbeat { interval, timeout } = Heartbeat::default();
    let count = |n: usize| {
        let digits = n.to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
        groups.join(",")
    };
    let time = |duration: Duration| format!("{} s", duration.as_secs());
    let expect = [
        ("limits.message_bytes_max", count(message_bytes_max)),
        ("limits.fragments_max", count(fragments_max as usize)),
        ("limits.message_timeout", time(message_timeout)),
        ("limits.header_bytes_max", count(header_bytes_max)),
        ("limits.headers_max", count(headers_max)),
        ("limits.header_timeout", time(header_timeout)),
        ("limits.body_bytes_max", count(body_bytes_max)),
        ("limits.idle_timeout", time(idle_timeout)),
        ("limits.request_timeout", time(request_timeout)),
        ("limits.close_timeout", time(close_timeout)),
        ("limits.send_buffer_bytes_max", count(send_buffer_bytes_max)),
        ("limits.replies_bytes_max", count(replies_bytes_max)),
        ("limits.turn_bytes_max", count(turn_bytes_max)),
        ("limits.json_depth_max", count(json_depth_max)),
        ("limits.subscriptions_max", count(subscriptions_max)),
        ("limits.topics_max", count(topics_max)),
        ("limits.feed_patches_max", count(feed_patches_max)),
        ("limits.connections_max", count(connections_max)),
        ("limits.memory_bytes_max", count(memory_bytes_max)),
        ("heartbeat.interval", time(interval)),
        ("heartbeat.timeout", time(timeout)),
    ]
    .map(|(name, value)| (name.to_owned(), value));
    let rows: Vec<(String, String)> =
        table("Limits").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    assert_eq!(rows, expect);
}

#[test]
fn the_error_codes_are_those_of_the_code() {
    const BUDGET: usize = 200_000;
    let mut told = Vec::new();
    // Records the code of the next error, and its `retry`.
    let mut take = |mut ws: Ws| {
        let is_error = |answer: &Value| answer["type"] == "error";
        let error = std::iter::repeat_with(|| ws.next_json()).find(is_error).unwrap();
        assert!(!error["message"].as_str().unwrap().is_empty());
        let retry = if error["retry"] == true { "yes" } else { "no" };
        told.push([error["code"].as_str().unwrap().to_owned(), retry.to_owned()]);
    };
    let server = Server::start(1, |options| {
        options.rooms.publish = true;
        let limits = HistoryLimits { publications_max: 1, bytes_max: 1, age_max: Duration::ZERO };
        options.rooms.history = vec![("kept".into(), limits)];
        options.limits.subscriptions_max = 1;
        options.limits.memory_bytes_max = BUDGET;
    });
    let strict = Server::start(1, |options| options.limits.topics_max = 0);
    let deep = format!(r#"{{"type":"publish","room":"r","data":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for (server, messages) in [
        (&server, &["{"][..]),
        (&server, &["{}"]),
        (&server, &[r#"{"type":"fly"}"#]),
        (&server, &[r#"{"type":"event","event":"e"}"#]),
        (&server, &[r#"{"type":"subscribe","feed":".."}"#]),
        (&server, &[r#"{"type":"subscribe","room":""}"#]),
        (&server, &[r#"{"type":"subscribe","room":"r","presence":true}"#]),
        (&server, &[r#"{"type":"subscribe","room":"r","policy":"latest"}"#]),
        (&server, &[r#"{"type":"subscribe","feed":"k","rate":0}"#]),
        (&strict, &[r#"{"type":"publish","room":"r"}"#]),
        (&server, &[&*deep]),
        (&server, &[r#"{"type":"subscribe","room":"a"}"#, r#"{"type":"subscribe","room":"b"}"#]),
        (&strict, &[r#"{"type":"subscribe","room":"a"}"#]),
        (&server, &[r#"{"type":"subscribe","room":"kept","epoch":1,"offset":1}"#]),
    ] {
        let mut ws = server.ws("/ws");
        messages.iter().for_each(|message| ws.send_text(message));
        take(ws);
    }
    let mut ws = server.client();
    let _subscribers = server.overload(BUDGET);
    ws.send_text(r#"{"type":"publish","room":"r"}"#);
    take(ws);
    // The control plane refuses to fetch another new key for this session.
    let server = Server::start(1, |_| {});
    let ws = server.ws("/ws?feed=cold");
    let mut requesters = Vec::new();
    until("a requester", || {
        requesters
            .extend(server.plane().take_key_interest().into_iter().flat_map(|wanted| wanted.requesters));
        !requesters.is_empty()
    });
    server.update("cold", FeedUpdate::Refuse(requesters[0]));
    take(ws);
    told.sort();
    let mut written: Vec<[String; 2]> =
        table("Errors").into_iter().map(|row| [row[0].clone(), row[1].clone()]).collect();
    written.sort();
    assert_eq!(told, written);
}

/// Replaces values that differ between runs by those of the document, and records the replacement.
fn normalise(value: &mut Value, expect: &Value, epochs: &mut HashMap<u64, u64>) {
    for field in ["session", "since"] {
        if !value[field].is_null() && !expect[field].is_null() {
            value[field] = expect[field].clone();
        }
    }
    for field in ["members", "joined", "left"] {
        let all = value.get_mut(field).and_then(Value::as_array_mut);
        if let (Some(all), Some(expect)) = (all, expect[field].as_array()) {
            all.iter_mut().zip(expect).for_each(|(value, expect)| normalise(value, expect, epochs));
        }
    }
    if let (Some(epoch), Some(written)) = (value["epoch"].as_u64(), expect["epoch"].as_u64())
        && *epochs.entry(written).or_insert(epoch) == epoch
    {
        value["epoch"] = written.into();
    }
}

fn run(example: &str, cores: usize) {
    let server = Server::start(cores, |options| {
        options.rooms.publish = true;
        let limits =
            HistoryLimits { publications_max: 10, bytes_max: 10_000, age_max: Duration::from_secs(60) };
        options.rooms.history = vec![("kept/".into(), limits)];
        options.rooms.presence.rooms = vec!["chat/".into()];
    });
    let mut ws: Option<Ws> = None;
    let mut other: Option<Ws> = None;
    let mut epochs = HashMap::new();
    for line in example.lines() {
        match line.split_at(2) {
            ("# ", what) => {
                if let Some(target) = what.strip_prefix("connect ") {
                    ws = Some(server.ws(target));
                } else if let Some(room) = what.strip_prefix("another client subscribes to the room ") {
                    let other = other.insert(server.ws("/ws"));
                    other.next_json();
                    other.ask(serde_json::json!({"type": "subscribe", "room": room}));
                } else if what == "the other client disconnects" {
                    other = None;
                } else if let Some((key, body)) =
                    what.strip_prefix("the feed ").and_then(|rest| rest.split_once(" becomes "))
                {
                    server.version(key, body);
                } else if let Some((key, rest)) =
                    what.strip_prefix("the feed ").and_then(|rest| rest.split_once(" is "))
                {
                    let (state, reason) = rest.split_once(": ").unwrap();
                    let state = [FeedState::Stale, FeedState::NotFound, FeedState::Complete, FeedState::Live]
                        .into_iter()
                        .find(|known| known.as_str() == state)
                        .unwrap();
                    server.state(key, state, reason);
                } else {
                    panic!("what is {line:?}?");
                }
            }
            ("> ", message) => {
                let mut message: Value = serde_json::from_str(message).unwrap();
                if let Some(epoch) = message["epoch"].as_u64() {
                    message["epoch"] = epochs.get(&epoch).copied().unwrap_or(epoch).into();
                }
                // The message is sent as in the document, except for the epoch.
                ws.as_mut().unwrap().send_json(message);
            }
            ("< ", message) => {
                let expect: Value = serde_json::from_str(message).unwrap();
                let mut got = ws.as_mut().unwrap().next_json();
                normalise(&mut got, &expect, &mut epochs);
                assert_eq!(got, expect, "{example}");
            }
            _ => panic!("what is {line:?}?"),
        }
    }
    if let Some(ws) = &mut ws {
        assert_eq!(ws.fence(), [], "{example}");
    }
}

#[test]
fn the_examples_happen() {
    let document = document();
    let examples: Vec<&str> =
        document.split("```stentor.v1\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 8);
    on_one_and_three(|cores| examples.iter().for_each(|example| run(example, cores)));
}

#[test]
fn the_links_of_the_document_have_targets() {
    let document = document();
    let anchors: Vec<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")))
        .map(|heading| heading.to_lowercase().replace(' ', "-").replace([':', '`'], ""))
        .collect();
    for link in document.split("](#").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        assert!(anchors.iter().any(|anchor| anchor == link), "{link} leads nowhere");
    }
}
