//! All clients are disconnected, and reconnect at once.

use super::{Effort, Scenario};
use crate::bench::Case;
use crate::bench::Metric::{AllBack, ConnectP99, CpuPerConnection, LastReceiver, PeakMemory};
use crate::generator::{Cut, LoadSpec, Protocol, Publisher};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "storm",
    question: "How long does it take until everybody is back after everybody was cut off?",
    load: "Connections that are in a room are cut off all at once, by FIN or by RST, and come back all at once, with the whole \
           handshake; none waits, none tries twice. Then a message of 1,000 bytes goes to all, and every copy is audited.",
    metric: "From the cut until everybody is back, ms; p99 from the begin of a connection until it has joined, ms; server CPU \
             per connection that came back, µs; peak memory; the last receiver of the message afterwards, ms.",
    source: "Our own.",
    published: &[],
    repaired: "Nothing. The generator's half of a handshake costs about what the server's does, so a fast server waits for it: times \
               are upper bounds then, which is said, and the CPU per connection decides. The server has old and new connections at once \
               for a moment, so there are half as many as it may have descriptors.",
    peers: &["stentor", "uws-cpp", "ws8", "stentor:socketio", "socketio4"],
    cases,
};

fn cases(effort: Effort) -> Vec<Case> {
    let storm = |name, connections: usize, cut| {
        let how = if cut == Cut::Finish { "FIN" } else { "RST" };
        let load = LoadSpec::Reconnect { cut, bytes: 1000, publisher: Publisher::Own };
        let title = format!("{connections} clients cut off by {how}, all back at once");
        let metrics = &[CpuPerConnection, AllBack, ConnectP99, LastReceiver, PeakMemory];
        let case = Case::new(name, title, (connections, load), Protocol::WebSocket, metrics);
        effort.case(case.or(&[Protocol::SocketIo, Protocol::SockJs, Protocol::Tcp]))
    };
    match effort {
        Effort::Smoke => vec![storm("storm-200", 200, Cut::Finish)],
        Effort::Quick => vec![storm("storm-5k", 5000, Cut::Finish)],
        Effort::Full => vec![
            storm("storm-5k", 5000, Cut::Finish),
            storm("storm-5k-rst", 5000, Cut::Reset),
            storm("storm-9k", 9000, Cut::Finish),
        ],
    }
}
