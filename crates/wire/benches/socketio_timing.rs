//! Measures the time for reading an event: `cargo bench -p stentor-wire --bench socketio_timing`.
//!
//! Also prints the time that serde_json needs to check the same JSON. Each figure is the best of several
//! rounds, because the machine runs other programs too.
#![allow(clippy::print_stdout, reason = "a benchmark that prints its measurements")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use stentor_wire::engineio::{self, Data, decode_message};
use stentor_wire::socketio::{Body, Decoder, Limits, Role, Version};
use stentor_wire::ws::Kind;

const CALLS: u32 = 100_000;

fn time(what: &str, mut call: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        best = best.min(start.elapsed());
    }
    println!("{:>8.1} ns  {what}", best.as_secs_f64() * 1e9 / f64::from(CALLS));
}

fn main() {
    let short = r#"42["message",{"a":1,"text":"twenty-four characters..","b":[2]}]"#.to_owned();
    let item = r#"{"id":17,"name":"Ada Lovelace","score":98.25,"tags":["a","bc"],"on":true},"#;
    let long = format!("42[\"update\",[{}null]]", item.repeat(13));
    for message in [&short, &long] {
        println!("{} bytes", message.len());
        let (mut scratch, limits) = (Vec::new(), Limits::default());
        let mut decoder = Decoder::new(Version::V5, Role::Server);
        time("WebSocket message to event, UTF-8 check included", || {
            let Some(message) = Kind::Text.message(black_box(message).as_bytes()) else { return };
            let packet = decode_message(engineio::Version::V4, message, &mut scratch);
            let Ok(engineio::Packet { data: Data::Text(text), .. }) = packet else { return };
            let packet = decoder.text(text, &limits);
            let Ok(Some(Body::Event(event))) = packet.map(|packet| packet.map(|packet| packet.body)) else {
                return;
            };
            black_box(event.name().len() + event.arguments.raw().len());
        });
        let payload = &message[2..];
        time("of which JSON", || assert!(black_box(stentor_json::check(black_box(payload))).is_ok()));
        time("serde_json, IgnoredAny", || {
            assert!(black_box(serde_json::from_str::<IgnoredAny>(black_box(payload))).is_ok());
        });
    }
}
