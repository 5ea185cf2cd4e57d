//! Published figures that can be drawn into our plots: each has a place on the same axes, and who it is of. What was published
//! as a ratio of two others' figures (T1 to T3 of the live feed) has none, and stands in the page's table only.

use crate::bench::{Curve, Metric};
use crate::plot::{Mark, Place};

/// SockJS against Socket.IO, December 2011: thousand deliveries a second with a mean under 200 ms, by clients; and megabytes at
/// 2,000 of them.
const CHAT_CLIENTS: [&str; 5] = ["chat-25", "chat-100", "chat-500", "chat-1000", "chat-2000"];
const CHAT: [(&str, [f64; 5], Option<f64>); 4] = [
    ("sockjs-node", [50.0, 47.0, 50.0, 49.0, 44.0], Some(36.0)),
    ("Socket.IO 0.8.7", [54.0, 51.0, 50.0, 47.0, 42.0], None),
    ("tornado CPython", [55.0, 68.0, 56.0, 52.0, 70.0], Some(52.0)),
    ("tornado PyPy", [171.0, 197.0, 160.0, 149.0, 146.0], Some(100.0)),
];
const CHAT_MEAN_MS: f64 = 200.0;

/// siobench, November 2011: connections by 5,000 ms of CPU.
const BUDGET: [(&str, f64); 6] = [
    ("TCP, Node 0.4", 8000.0),
    ("Socket.IO 0.6.17", 2300.0),
    ("Socket.IO 0.7.11", 1800.0),
    ("Socket.IO 0.8.6", 1900.0),
    ("xhr-polling", 550.0),
    ("xhr-polling", 450.0),
];
const BUDGET_MS: f64 = 5000.0;

/// IncludeOS against node/ws, October 2017, at 25,005 connections: round trips a second, milliseconds, megabytes.
struct Echo {
    who: &'static str,
    rate: (f64, f64),
    latency_ms: (f64, f64),
    megabytes: f64,
}
const ECHO_CONNECTIONS: f64 = 25_005.0;
const ECHO: [Echo; 2] = [
    Echo { who: "node/ws", rate: (30e3, 35e3), latency_ms: (680.0, 750.0), megabytes: 680.0 },
    Echo { who: "IncludeOS", rate: (100e3, 105e3), latency_ms: (160.0, 280.0), megabytes: 320.0 },
];

/// A live feed, January 2014: the most clients of 165 kB a second.
const FEED: [(&str, f64); 3] = [("Socket.IO 0.9", 140.0), ("Engine.IO", 230.0), ("ws 0.4", 410.0)];

/// Half a million notifications, June 2017: of a connection, kB, at 1,800 of them; how long a broadcast took at most, on average,
/// and the aim in the end.
const ROOM_CONNECTIONS: f64 = 1800.0;
const ROOM_KB: [(&str, f64); 2] = [("Node", 34.0), ("system", 73.9)];
const ROOM_MS: f64 = 300.0;
const SCALE_CLIENTS: f64 = 500e3;
const SCALE_MS: (f64, f64) = (1000.0, 2000.0);

fn mark(who: String, place: Place) -> Mark {
    Mark { who, place }
}

/// What was published for this curve of this case.
pub(super) fn marks_of_curve(scenario: &str, case: &str, curve: Curve) -> Vec<Mark> {
    match (scenario, curve) {
        ("chat-rtt", Curve::LatencyOverDeliveries) => {
            let Some(nth) = CHAT_CLIENTS.iter().position(|known| *known == case) else { return Vec::new() };
            let place = |thousands: &[f64; 5]| Place::Point(thousands[nth] * 1e3, CHAT_MEAN_MS);
            CHAT.iter()
                .map(|(who, thousands, _)| mark(format!("{who}, {}k", thousands[nth]), place(thousands)))
                .collect()
        }
        ("chat-rtt", Curve::MemoryOverConnections) if case == "chat-2000" => {
            let known = CHAT.iter().filter_map(|(who, _, megabytes)| Some((who, (*megabytes)?)));
            known
                .map(|(who, megabytes)| {
                    mark(format!("{who}, {megabytes} MB"), Place::Point(2000.0, megabytes))
                })
                .collect()
        }
        ("cpu-budget", Curve::CpuOverConnections) => {
            let place = |connections: f64| Place::Point(connections, BUDGET_MS);
            BUDGET
                .iter()
                .map(|(who, connections)| mark(format!("{who}, {connections}"), place(*connections)))
                .collect()
        }
        ("echo-25k", Curve::Latency) if case.ends_with("-25k") => {
            let loops = if case.starts_with("closed") { "" } else { "closed loop, " };
            let of = |Echo { who, latency_ms: (low, high), .. }: &Echo| {
                mark(format!("{who}, {loops}{low}–{high}"), Place::Band(*low, *high))
            };
            ECHO.iter().map(of).collect()
        }
        ("echo-25k", Curve::MemoryOverConnections) if case.ends_with("-25k") => {
            let of = |Echo { who, megabytes, .. }: &Echo| {
                mark(format!("{who}, {megabytes} MB"), Place::Point(ECHO_CONNECTIONS, *megabytes))
            };
            ECHO.iter().map(of).collect()
        }
        ("feed-capacity", Curve::AgeOverClients) if case == "search" => FEED
            .iter()
            .map(|(who, clients)| mark(format!("{who}, {clients} at most"), Place::Across(*clients)))
            .collect(),
        ("room-broadcast", Curve::Latency | Curve::AgeOverTime) => {
            vec![mark(format!("average below {ROOM_MS} ms"), Place::Band(ROOM_MS, ROOM_MS))]
        }
        ("room-broadcast", Curve::MemoryOverConnections) if case.starts_with("room-1800") => {
            let place = |kilobytes: f64| Place::Point(ROOM_CONNECTIONS, ROOM_CONNECTIONS * kilobytes / 1e3);
            ROOM_KB.iter().map(|(who, kb)| mark(format!("{who}, {kb} kB each"), place(*kb))).collect()
        }
        _ => Vec::new(),
    }
}

/// What was published for this figure over connections.
pub(super) fn marks_of_metric(scenario: &str, family: &str, metric: Metric) -> Vec<Mark> {
    match (scenario, family, metric) {
        ("echo-25k", "closed", Metric::Rate) => {
            let of = |Echo { who, rate, .. }: &Echo| {
                let (low, high) = (rate.0 / 1e3, rate.1 / 1e3);
                mark(format!("{who}, {low}–{high}k"), Place::Span(ECHO_CONNECTIONS, *rate))
            };
            ECHO.iter().map(of).collect()
        }
        ("chat-rtt", "chat", Metric::Deliveries) => {
            let clients = CHAT_CLIENTS.map(|case| case.trim_start_matches("chat-").parse().unwrap_or(0.0));
            let of = |(who, thousands, _): &(&str, [f64; 5], _)| {
                let points = clients.into_iter().zip(*thousands);
                let who = (*who).to_owned();
                points
                    .map(move |(at, thousands)| mark(who.clone(), Place::Point(at, thousands * 1e3)))
                    .collect::<Vec<_>>()
            };
            CHAT.iter().flat_map(of).collect()
        }
        ("room-broadcast", _, Metric::LastReceiver) => {
            vec![mark(format!("the aim, {ROOM_MS} ms"), Place::Point(1300.0, ROOM_MS))]
        }
        ("room-broadcast", _, Metric::BytesPerConnection) => {
            let of = |(who, kb): &(&str, f64)| {
                mark(format!("{who}, {kb} kB"), Place::Point(ROOM_CONNECTIONS, kb * 1e3))
            };
            ROOM_KB.iter().map(of).collect()
        }
        ("scale", _, Metric::LastReceiver) => {
            vec![mark("the aim, 500k in 1–2 s".to_owned(), Place::Span(SCALE_CLIENTS, SCALE_MS))]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
