//! Suspended sockets while memory is short: the server ends the largest ones first, before it disconnects any client.

use super::{come_back, hear, lose, lose_until, member, messages, publish, server_with};
use crate::harness::{Io, Way, on_one_and_three, pass};
use serde_json::json;
use std::time::Duration;
use stentor_edge::Recovery;

const BUDGET: usize = 4 << 20;
const ROOMS: usize = 500;

#[test]
fn new_clients_connect_whatever_suspended_sockets_hold() {
    on_one_and_three(|cores| {
        let recovery = Recovery { age_max: Duration::from_secs(1_000), ..Recovery::default() };
        let server = server_with(cores, recovery, |options| options.limits.memory_bytes_max = BUDGET);
        let (io, mut memory) = member(&server, Way::Socket);
        lose(&server, io, 1);
        // A connected client with as many rooms as any other.
        let mut witness = member(&server, Way::Socket);
        for room in 0..ROOMS {
            witness.0.send(&format!(r#"42["join","w-{room}"]"#));
        }
        for n in 0..60 {
            // The client is refused if the server has no room for it.
            let mut io = Io::socket(&server, Way::Socket);
            io.connect("", json!(null));
            for room in 0..ROOMS {
                io.send(&format!(r#"42["join","r{n}-{room}"]"#));
            }
            io.ask("join", &[json!("r")]);
            let suspended = server.metric("socketio_recovery_sockets");
            let ended = server.disconnects("overloaded");
            lose_until(&server, io, || {
                let now = server.metric("socketio_recovery_sockets");
                now > suspended || server.disconnects("overloaded") > ended
            });
            pass(Duration::from_millis(500));
            let bytes = server.metric("memory_bytes");
            assert!(bytes <= BUDGET as u64 * 95 / 100, "{bytes} bytes are held");
        }
        let (ended, bytes) = (server.disconnects("overloaded"), server.metric("memory_bytes"));
        assert!(ended >= 5, "{ended} ended, {bytes} bytes are held");
        // A socket with few rooms has stayed.
        let (mut io, missed, recovered) = come_back(&server, Way::Socket, &mut memory);
        assert_eq!((missed, recovered), (vec![], true), "after {ended} others have ended");
        publish(&server, 0..3);
        hear(&mut io, &mut memory, &messages(0..3));
        hear(&mut witness.0, &mut witness.1, &messages(0..3));
    });
}
