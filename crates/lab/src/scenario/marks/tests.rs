use super::*;
use crate::bench::Effort;
use crate::scenario::SCENARIOS;

/// The figures in a text, without the separators of thousands.
fn figures(text: &str) -> Vec<f64> {
    let text = text.replace(',', "").replace(['–', ';'], " ");
    text.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn what_is_drawn_is_what_the_scenario_says_was_published() {
    for scenario in SCENARIOS {
        let published: Vec<f64> = (scenario.published.iter())
            .flat_map(|published| {
                let text = format!("{} {}", published.who, published.figure);
                [figures(&text.replace(", ", " ")), figures(&text)].concat()
            })
            .collect();
        let mut drawn = 0;
        for case in (scenario.cases)(Effort::Full) {
            for curve in Curve::ALL.iter().copied() {
                for mark in marks(scenario.name, case.name, Over::Curve(curve)) {
                    drawn += 1;
                    // Its text ends with the figure.
                    let figure = figures(&mark.who.replace(", ", " ")).pop().unwrap();
                    assert!(published.contains(&figure), "{}: {mark:?} {published:?}", scenario.name);
                }
            }
        }
        let expect = match scenario.name {
            // Five levels of four servers, and three figures of memory.
            "chat-rtt" => 23,
            // Two cases.
            "cpu-budget" => 12,
            // Two cases, with two servers' times and memory.
            "echo-25k" => 8,
            "feed-capacity" => 3,
            // Two curves of six cases, and memory in three cases.
            "room-broadcast" => 18,
            _ => 0,
        };
        assert_eq!(drawn, expect, "{}", scenario.name);
    }
    let of_metric = |scenario, family, metric| marks(scenario, family, Over::Connections(metric)).len();
    assert_eq!(of_metric("echo-25k", "closed", Metric::Rate), 2);
    assert_eq!(of_metric("chat-rtt", "chat", Metric::Deliveries), 20);
    assert_eq!(of_metric("scale", "scale", Metric::LastReceiver), 1);
    assert_eq!(of_metric("idle", "idle", Metric::LastReceiver), 0);
}
