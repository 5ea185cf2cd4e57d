//! A core that needs a large encoding which another core is making continues to serve its clients.

use crate::harness::{Server, Ws};
use fastrand::Rng;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the document: so many take long to deflate.
const DOCUMENT_BYTES: usize = 8_000_000;
/// Number of attempts: on a busy machine, every client may have to wait.
const TRIES: usize = 8;

/// A client of each core.
fn on_each_core(server: &Server, deflate: bool) -> [Ws; 2] {
    let mut found = [None, None];
    while found.iter().any(Option::is_none) {
        let before = server.by_core("sessions");
        let client = Ws::open(server.addr, "/ws", &[], deflate).unwrap();
        let count = before.iter().sum::<u64>() + 1;
        server.until_metric("sessions", |sessions| sessions == count);
        let core = usize::from(server.by_core("sessions")[0] == before[0]);
        match &mut found[core] {
            // Excess connections of this core are closed before the next one is counted.
            Some(_) => {
                drop(client);
                server.until_metric("sessions", |sessions| sessions == count - 1);
            }
            found => *found = Some(client),
        }
    }
    found.map(Option::unwrap)
}

/// The longest that a client waits for an echo, until `ends`.
fn longest_echo(client: &mut Ws, ends: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !ends.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.fence();
        longest = longest.max(begun.elapsed());
    }
    longest
}

#[test]
fn only_the_core_that_deflates_a_large_document_is_busy_with_it() {
    let server = Server::on_sockets(2, |_| {});
    let mut echoing = on_each_core(&server, false);
    let mut plain = on_each_core(&server, false);
    let mut random = Rng::with_seed(7);
    let mut waits = Vec::new();
    for attempt in 0..TRIES {
        let key = format!("large/{attempt}");
        let digits: String =
            (0..DOCUMENT_BYTES).map(|_| char::from(b'0' + random.usize(..10) as u8)).collect();
        let subscribe = json!({"type": "subscribe", "feed": key});
        // Both cores have it already.
        for client in &mut plain {
            client.send_json(subscribe.clone());
        }
        server.wait_wanted(&key, true);
        server.document(&key, &format!("\"{digits}\""));
        for client in &mut plain {
            while !client.next_text().contains(&digits) {}
        }
        // Both need it deflated at the same time.
        let mut deflating = on_each_core(&server, true);
        let ends = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let echoes = echoing.each_mut().map(|client| scope.spawn(|| longest_echo(client, &ends)));
            for client in &mut deflating {
                client.send_json(subscribe.clone());
            }
            for client in &mut deflating {
                while !client.next_text().contains(&digits) {}
            }
            ends.store(true, Ordering::Relaxed);
            echoes.map(|echo| echo.join().unwrap())
        });
        drop(deflating);
        server.until_metric("sessions", |sessions| sessions == 4);
        let (quiet, busy) = (longest[0].min(longest[1]), longest[0].max(longest[1]));
        waits.push((quiet, busy));
        if quiet * 4 < busy {
            return;
        }
    }
    panic!("both cores were busy each time: {waits:?}");
}
