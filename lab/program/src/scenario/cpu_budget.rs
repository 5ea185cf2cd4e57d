//! Connections that a budget of CPU lasts for (siobench, 2011).

use super::marks::CPU;
use super::{Effort, Scenario};
use crate::bench::Metric::{Connections, CpuPerConnection, CpuPerMessage, LatencyP99};
use crate::bench::{Case, ratio};
use crate::generator::{BudgetPlan, CONNECTIONS_PER_PROCESS_MAX, LoadSpec, Protocol};
use crate::plot::Place::Point;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "cpu-budget",
    question: "How many connections does a budget of CPU last for?",
    load: "Clients connect: `one-by-one` each when the one before is up, `budget` at 1,000 a second. Each that is connected sends \
           17 bytes a second, which are echoed. It ends when the server has used its budget: 5,000 ms of CPU (quick: 1,000, \
           smoke: 100). A generator has 15,000 connections at most; who has budget left then echoes on until it is used, and \
           its connections are a lower bound.",
    metric: "Connections by then; CPU per connect and per echo, µs, by least squares: cpu = a + b connects + c echoes.",
    source: "siobench, November 2011: 5,000 ms of CPU, the next client connects when the last one is up.",
    published: &[
        ("TCP, Node 0.4", "8,000 connections", &[(CPU, "", Point(8000.0, 5000.0))]),
        ("Socket.IO 0.6.17", "2,300", &[(CPU, "", Point(2300.0, 5000.0))]),
        ("Socket.IO 0.7.11", "1,800", &[(CPU, "", Point(1800.0, 5000.0))]),
        ("Socket.IO 0.8.6", "1,900", &[(CPU, "", Point(1900.0, 5000.0))]),
        ("xhr-polling", "550", &[(CPU, "", Point(550.0, 5000.0))]),
        ("xhr-polling", "450", &[(CPU, "", Point(450.0, 5000.0))]),
    ],
    repaired: "One by one, a slow handshake is charged with more echoes, which a fixed rate of connecting (`budget`) repairs. Every \
               echo is audited and timed.",
    peers: &[
        "stentor:socketio",
        "tcp",
        "socketio4",
        "tcp-node08",
        "socketio06",
        "socketio07",
        "socketio08",
        "socketio08:socketio09-polling",
    ],
    cases,
};

fn cases(effort: Effort) -> Vec<Case> {
    match effort {
        Effort::Smoke => vec![at_rate(effort)],
        Effort::Quick | Effort::Full => {
            vec![budget(effort, "one-by-one", "one connect after the other", None), at_rate(effort)]
        }
    }
}

/// A fixed rate of connecting, which doesn't charge slow handshakes with more echoes.
pub(super) fn at_rate(effort: Effort) -> Case {
    let (how, rate_hz) = effort.of(
        ("1,000 connects a second", 1000.0),
        ("1,000 connects a second", 1000.0),
        ("100 connects a second", 100.0),
    );
    let usual = &["stentor-epoll", "tcp", "stentor-epoll-ws", "socketio4"];
    budget(effort, "budget", how, Some(rate_hz)).goals(usual, vec![ratio(Connections, "tcp", 1.1)])
}

fn budget(effort: Effort, name: &'static str, how: &str, rate_hz: Option<f64>) -> Case {
    let cpu = effort.span(5.0, 1.0, 0.1);
    // A smoke's budget lasts for some tenths of a second, and echoes are to be among what it is used for.
    let every = effort.span(1.0, 1.0, 0.2);
    let load = LoadSpec::Budget(BudgetPlan { bytes: 17, every, cpu, one_by_one: rate_hz.is_none() });
    let case = Case::new(
        name,
        format!("{how} until {cpu:?} of CPU are used"),
        (CONNECTIONS_PER_PROCESS_MAX, load),
        Protocol::SocketIo,
        &[Connections, CpuPerConnection, CpuPerMessage, LatencyP99],
    );
    let case = Case { connect_rate_hz: rate_hz, ..case.or(&[Protocol::WebSocket, Protocol::Tcp]) };
    effort.steady_case(case)
}
