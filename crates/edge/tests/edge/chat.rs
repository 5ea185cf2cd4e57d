//! `--app chat`: messages reach all clients on all cores, including the sender. The order of each speaker is tested in
//! `backpressure.rs`.

use crate::harness::{Server, Ws, meet, on_one_and_three};
use stentor_edge::App;

fn chat(cores: usize) -> (Server, Vec<Ws>) {
    let server = Server::start(cores, |options| options.app = App::Chat);
    let mut clients = server.ws_on_each_core("/ws");
    meet(&mut clients, |ws, text| ws.send_text(text), Ws::next_text);
    (server, clients)
}

#[test]
fn text_stays_text_and_bytes_stay_bytes() {
    let (server, mut clients) = chat(3);
    let large = "ü".repeat(100_000);
    clients[0].send_text(&large);
    clients[0].send_binary(&[0xff; 100_000]);
    clients[0].send_text("");
    for ws in &mut clients {
        assert_eq!(ws.next_text(), large);
        assert_eq!(ws.next_binary(), [0xff; 100_000]);
        assert_eq!(ws.next_text(), "");
    }
    drop(clients);
    server.check_empty();
}

#[test]
fn a_client_that_leaves_receives_nothing_and_the_others_continue() {
    on_one_and_three(|cores| {
        let (server, mut clients) = chat(cores);
        let mut left = clients.pop().unwrap();
        left.send_close(1000, "");
        assert_eq!(left.expect_close().0, 1000);
        drop(clients.remove(0));
        let count = clients.len() as u64;
        server.until_metric("sessions", |sessions| sessions == count);
        // A core records its metrics at the end of a turn, so the turns that delivered the first messages must be over.
        for ws in &mut clients {
            assert_eq!(ws.fence(), []);
        }
        let due = server.metric("deliveries_due");
        clients[0].send_text("still here");
        for ws in &mut clients {
            assert_eq!(ws.next_text(), "still here");
        }
        server.until_metric("deliveries_due", |now| now == due + count);
    });
}

/// A burst of one turn is larger than an outbox, but a client that reads isn't closed as a slow consumer.
#[test]
fn a_burst_does_not_close_clients_that_read() {
    let server = Server::start(1, |options| {
        options.app = App::Chat;
        options.limits.send_buffer_bytes_max = 32 * 1024;
    });
    let mut clients: Vec<Ws> = (0..4).map(|_| server.ws("/ws")).collect();
    meet(&mut clients, |ws, text| ws.send_text(text), Ws::next_text);
    // One write, which the server reads at once: 60 kB, which is twice an outbox.
    let message = vec![b'm'; 1000];
    let burst = crate::harness::ws::frame(stentor_wire::ws::Opcode::Binary, &message, true, false).repeat(60);
    for _ in 0..20 {
        clients[0].send_raw(&burst);
        for ws in &mut clients {
            for _ in 0..60 {
                assert_eq!(ws.next_binary(), message);
            }
        }
    }
    assert_eq!(server.disconnects("slow_consumer"), 0);
    server.check_balance();
}
