use super::*;
use crate::bench::{Curve, Effort, Metric};
use crate::plot::Place;
use crate::scenario::SCENARIOS;

/// The numbers in a text, without thousands separators.
fn figures(text: &str) -> Vec<f64> {
    let text = text.replace(',', "").replace(['–', ';'], " ");
    text.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| word.parse().ok()).collect()
}

/// Returns `true` if one of these numbers is the place's: as it is, in thousands, or in MB for 1,800 connections.
fn is_of(figures: &[f64], place: Place) -> bool {
    let (across, (low, high)) = match place {
        Place::Point(across, up) => (across, (up, up)),
        Place::Span(across, range) => (across, range),
        Place::Band(low, high) => (f64::NAN, (low, high)),
        Place::Across(across) => (across, (f64::NAN, f64::NAN)),
    };
    let scaled = figures.iter().flat_map(|figure| [1.0, 1e3, 1.8].map(|unit| figure * unit));
    let places = [across, low, high];
    scaled.into_iter().any(|figure| places.iter().any(|place| (place - figure).abs() < 0.01))
}

#[test]
fn drawn_marks_are_the_published_figures_of_the_scenario() {
    for scenario in SCENARIOS.iter() {
        let mut drawn = 0;
        for case in scenario.cases(Effort::Full) {
            for curve in Curve::ALL.iter().copied() {
                for mark in marks(&scenario.name, &case.name, Over::Curve(curve)) {
                    drawn += 1;
                    assert!(is_of(&figures(&mark.who), mark.place), "{}: {mark:?}", scenario.name);
                }
            }
        }
        let expect = match scenario.name.as_str() {
            // Five levels of four servers, and three memory figures.
            "chat-rtt" => 23,
            // Two cases.
            "cpu-budget" => 12,
            // Two cases, with times and memory of two servers.
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
