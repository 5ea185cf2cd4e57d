//! Published figures that can be drawn into our curves: each is a point of the same axes, with who it is of.

use crate::bench::Curve;

/// A point that was published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) who: &'static str,
    pub(super) at: (f64, f64),
}

/// SockJS against Socket.IO, December 2011: thousand deliveries a second with a mean under 200 ms, by clients.
const CHAT_CLIENTS: [&str; 5] = ["chat-25", "chat-100", "chat-500", "chat-1000", "chat-2000"];
const CHAT: [(&str, [f64; 5]); 4] = [
    ("sockjs-node, 2011", [50.0, 47.0, 50.0, 49.0, 44.0]),
    ("Socket.IO 0.8.7, 2011", [54.0, 51.0, 50.0, 47.0, 42.0]),
    ("tornado CPython, 2011", [55.0, 68.0, 56.0, 52.0, 70.0]),
    ("tornado PyPy, 2011", [171.0, 197.0, 160.0, 149.0, 146.0]),
];
const CHAT_MEAN_MS: f64 = 200.0;

/// siobench, November 2011: connections by 5,000 ms of CPU.
const BUDGET: [(&str, f64); 4] = [
    ("TCP, Node 0.4", 8000.0),
    ("Socket.IO 0.6.17", 2300.0),
    ("Socket.IO 0.7.11", 1800.0),
    ("Socket.IO 0.8.6", 1900.0),
];
const BUDGET_MS: f64 = 5000.0;

/// What was published for this curve of this case.
pub(super) fn marks(scenario: &str, case: &str, curve: Curve) -> Vec<Mark> {
    match (scenario, curve) {
        ("chat-rtt", Curve::LatencyOverDeliveries) => {
            let Some(nth) = CHAT_CLIENTS.iter().position(|known| *known == case) else { return Vec::new() };
            let mark = |(who, thousands): &(&'static str, [f64; 5])| Mark {
                who,
                at: (thousands[nth] * 1e3, CHAT_MEAN_MS),
            };
            CHAT.iter().map(mark).collect()
        }
        ("cpu-budget", Curve::CpuOverConnections) => {
            BUDGET.iter().map(|(who, connections)| Mark { who, at: (*connections, BUDGET_MS) }).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Effort, SCENARIOS};

    #[test]
    fn what_is_drawn_is_what_the_scenario_says_was_published() {
        let chat = SCENARIOS.iter().find(|scenario| scenario.name == "chat-rtt").unwrap();
        for case in (chat.cases)(Effort::Full) {
            let marks = marks(chat.name, case.name, Curve::LatencyOverDeliveries);
            assert_eq!(marks.len(), 4, "{}", case.name);
            for (mark, published) in marks.iter().zip(chat.published) {
                let thousands = format!("{:.0}", mark.at.0 / 1e3);
                assert!(
                    published.figure.split(", ").any(|figure| figure == thousands),
                    "{mark:?} {published:?}"
                );
            }
        }
        assert_eq!(marks("cpu-budget", "any", Curve::CpuOverConnections).len(), 4);
        assert_eq!(marks("idle", "any", Curve::Latency), []);
    }
}
