//! Published figures that are drawn into our plots, each at its place on the same axes.

use super::SCENARIOS;
use crate::bench::{Curve, Metric};
use crate::plot::{Mark, Place};

/// Over which axes a figure is drawn: those of a curve, or of a figure over connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Curve(Curve),
    Connections(Metric),
}

pub(super) const LATENCY: Over = Over::Curve(Curve::Latency);
pub(super) const AGE: Over = Over::Curve(Curve::AgeOverTime);
pub(super) const CLIENTS: Over = Over::Curve(Curve::AgeOverClients);
pub(super) const CPU: Over = Over::Curve(Curve::CpuOverConnections);
pub(super) const MEMORY: Over = Over::Curve(Curve::MemoryOverConnections);
pub(super) const LAST: Over = Over::Connections(Metric::LastReceiver);
pub(super) const EACH: Over = Over::Connections(Metric::BytesPerConnection);
pub(super) const RATE: Over = Over::Connections(Metric::Rate);

/// SockJS against Socket.IO: thousand deliveries a second with a mean under 200 ms, by clients.
const CHAT_CLIENTS: [f64; 5] = [25.0, 100.0, 500.0, 1000.0, 2000.0];
const CHAT_MEAN_MS: f64 = 200.0;

/// What was published for these axes of this case, or family of cases.
pub(super) fn marks(scenario: &str, case: &str, over: Over) -> Vec<Mark> {
    let of = SCENARIOS.iter().find(|known| known.name == scenario);
    let mut marks = Vec::new();
    for (who, figure, places) in of.map_or(&[][..], |scenario| scenario.published) {
        for (axes, cases, place) in *places {
            if *axes == over && case.contains(cases) {
                marks.push(Mark { who: format!("{who}, {figure}"), place: *place });
            }
        }
        if scenario == "chat-rtt" {
            marks.extend(of_chat(who, figure, case, over));
        }
    }
    marks
}

/// The marks of five figures in a row, one for each number of clients.
fn of_chat(who: &str, figures: &str, case: &str, over: Over) -> Vec<Mark> {
    let thousands: Vec<f64> = figures.split(", ").filter_map(|figure| figure.parse().ok()).collect();
    if thousands.len() < CHAT_CLIENTS.len() {
        return Vec::new();
    }
    let mark = |(clients, thousands): (f64, f64)| match over {
        Over::Curve(Curve::LatencyOverDeliveries) if case == format!("chat-{clients}") => {
            let place = Place::Point(thousands * 1e3, CHAT_MEAN_MS);
            Some(Mark { who: format!("{who}, {thousands}k"), place })
        }
        Over::Connections(Metric::Deliveries) => {
            Some(Mark { who: who.to_owned(), place: Place::Point(clients, thousands * 1e3) })
        }
        _ => None,
    };
    CHAT_CLIENTS.into_iter().zip(thousands).filter_map(mark).collect()
}

#[cfg(test)]
mod tests;
