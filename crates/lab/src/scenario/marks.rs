//! Published figures that can be drawn into our plots: each has a place on the same axes, and who it is of. What was published
//! as a ratio of two others' figures (T1 to T3 of the live feed) has none, and stands in the page's table only.

use crate::bench::{Curve, Metric};
use crate::plot::{Mark, Place};

/// Over which axes a figure is drawn: those of a curve, or of a figure over connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Curve(Curve),
    Connections(Metric),
}

const LATENCY: Over = Over::Curve(Curve::Latency);
const AGE: Over = Over::Curve(Curve::AgeOverTime);
const CLIENTS: Over = Over::Curve(Curve::AgeOverClients);
const CPU: Over = Over::Curve(Curve::CpuOverConnections);
const MEMORY: Over = Over::Curve(Curve::MemoryOverConnections);
const LAST: Over = Over::Connections(Metric::LastReceiver);
const EACH: Over = Over::Connections(Metric::BytesPerConnection);
const RATE: Over = Over::Connections(Metric::Rate);

/// The scenario, what the names of its cases contain, the axes, whose figure it is, and where it is.
const FIGURES: &[(&str, &str, Over, &str, Place)] = &[
    // SockJS against Socket.IO, December 2011.
    ("chat-rtt", "chat-2000", MEMORY, "sockjs-node, 36 MB", Place::Point(2000.0, 36.0)),
    ("chat-rtt", "chat-2000", MEMORY, "tornado CPython, 52 MB", Place::Point(2000.0, 52.0)),
    ("chat-rtt", "chat-2000", MEMORY, "tornado PyPy, 100 MB", Place::Point(2000.0, 100.0)),
    // siobench, November 2011: connections by 5,000 ms of CPU.
    ("cpu-budget", "", CPU, "TCP, Node 0.4, 8000", Place::Point(8000.0, 5000.0)),
    ("cpu-budget", "", CPU, "Socket.IO 0.6.17, 2300", Place::Point(2300.0, 5000.0)),
    ("cpu-budget", "", CPU, "Socket.IO 0.7.11, 1800", Place::Point(1800.0, 5000.0)),
    ("cpu-budget", "", CPU, "Socket.IO 0.8.6, 1900", Place::Point(1900.0, 5000.0)),
    ("cpu-budget", "", CPU, "xhr-polling, 550", Place::Point(550.0, 5000.0)),
    ("cpu-budget", "", CPU, "xhr-polling, 450", Place::Point(450.0, 5000.0)),
    // IncludeOS against node/ws, October 2017, at 25,005 connections, in a closed loop.
    ("echo-25k", "-25k", LATENCY, "node/ws, closed, 680–750", Place::Band(680.0, 750.0)),
    ("echo-25k", "-25k", LATENCY, "IncludeOS, closed, 160–280", Place::Band(160.0, 280.0)),
    ("echo-25k", "-25k", MEMORY, "node/ws, 680 MB", Place::Point(25_005.0, 680.0)),
    ("echo-25k", "-25k", MEMORY, "IncludeOS, 320 MB", Place::Point(25_005.0, 320.0)),
    ("echo-25k", "closed", RATE, "node/ws, 30–35k", Place::Span(25_005.0, (30e3, 35e3))),
    ("echo-25k", "closed", RATE, "IncludeOS, 100–105k", Place::Span(25_005.0, (100e3, 105e3))),
    // A live feed, January 2014: the most clients of 165 kB a second.
    ("feed-capacity", "search", CLIENTS, "Socket.IO 0.9, 140 at most", Place::Across(140.0)),
    ("feed-capacity", "search", CLIENTS, "Engine.IO, 230 at most", Place::Across(230.0)),
    ("feed-capacity", "search", CLIENTS, "ws 0.4, 410 at most", Place::Across(410.0)),
    // Half a million notifications, June 2017: how long a broadcast took at most, on average, and what a connection took.
    ("room-broadcast", "", LATENCY, "average below 300 ms", Place::Band(300.0, 300.0)),
    ("room-broadcast", "", AGE, "average below 300 ms", Place::Band(300.0, 300.0)),
    ("room-broadcast", "room-1800", MEMORY, "Node, 34 kB each", Place::Point(1800.0, 61.2)),
    ("room-broadcast", "room-1800", MEMORY, "system, 73.9 kB each", Place::Point(1800.0, 133.02)),
    ("room-broadcast", "", LAST, "the aim, 300 ms", Place::Point(1300.0, 300.0)),
    ("room-broadcast", "", EACH, "Node, 34 kB", Place::Point(1800.0, 34e3)),
    ("room-broadcast", "", EACH, "system, 73.9 kB", Place::Point(1800.0, 73.9e3)),
    ("scale", "", LAST, "the aim, 500k in 1–2 s", Place::Span(500e3, (1000.0, 2000.0))),
];

/// SockJS against Socket.IO: thousand deliveries a second with a mean under 200 ms, by clients.
const CHAT_CLIENTS: [f64; 5] = [25.0, 100.0, 500.0, 1000.0, 2000.0];
const CHAT_MEAN_MS: f64 = 200.0;
const CHAT: [(&str, [f64; 5]); 4] = [
    ("sockjs-node", [50.0, 47.0, 50.0, 49.0, 44.0]),
    ("Socket.IO 0.8.7", [54.0, 51.0, 50.0, 47.0, 42.0]),
    ("tornado CPython", [55.0, 68.0, 56.0, 52.0, 70.0]),
    ("tornado PyPy", [171.0, 197.0, 160.0, 149.0, 146.0]),
];

/// What was published for these axes of this case, or family of cases.
pub(super) fn marks(scenario: &str, case: &str, over: Over) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (of, cases, axes, who, place) in FIGURES {
        if *of == scenario && case.contains(cases) && *axes == over {
            marks.push(Mark { who: (*who).to_owned(), place: *place });
        }
    }
    for (who, thousands) in CHAT.iter().filter(|_| scenario == "chat-rtt") {
        for (clients, thousands) in CHAT_CLIENTS.into_iter().zip(*thousands) {
            match over {
                Over::Curve(Curve::LatencyOverDeliveries) if case == format!("chat-{clients}") => {
                    let place = Place::Point(thousands * 1e3, CHAT_MEAN_MS);
                    marks.push(Mark { who: format!("{who}, {thousands}k"), place });
                }
                Over::Connections(Metric::Deliveries) => {
                    marks
                        .push(Mark { who: (*who).to_owned(), place: Place::Point(clients, thousands * 1e3) });
                }
                _ => {}
            }
        }
    }
    marks
}

#[cfg(test)]
mod tests;
