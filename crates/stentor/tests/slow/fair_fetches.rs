//! Tests that clients that request thousands of keys that don't exist delay no other client (threat S5 in
//! docs/attacks.md).

use crate::process::{self, PATIENCE, Subscriber, answer, ask_from, until_metric, upstream};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Response time of the API.
const FETCH: Duration = Duration::from_millis(300);
/// Number of concurrent fetches.
const CONCURRENCY: usize = 8;

/// An API that has only the keys that begin with `real`.
struct Api {
    addr: SocketAddr,
    requests: Arc<AtomicUsize>,
    /// Requested keys that exist, each with the number of requests before it.
    real: Arc<Mutex<Vec<(String, usize)>>>,
}

fn api() -> Api {
    let (requests, real) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<Vec<(String, usize)>>>::default());
    let (count, seen) = (requests.clone(), real.clone());
    let addr = upstream(move |head| {
        let key = head.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
        let count = count.fetch_add(1, Ordering::SeqCst);
        let exists = key.starts_with("real");
        if exists {
            seen.lock().unwrap().push((key, count));
        }
        std::thread::sleep(FETCH);
        if exists { ("200 OK", "1") } else { ("404 Not Found", "") }
    });
    Api { addr, requests, real }
}

/// Subscribes to a thousand keys that don't exist. For each `not_found`, subscribes to one more.
fn flood(addr: &str, number: usize) {
    let mut socket = Subscriber::open(addr, "/ws");
    std::thread::spawn(move || {
        let mut count = 0;
        let mut subscribe = |socket: &mut Subscriber| {
            socket.send_text(&format!(r#"{{"type":"subscribe","feed":"none/{number}/{count}"}}"#));
            count += 1;
        };
        for _ in 0..1000 {
            subscribe(&mut socket);
        }
        // The stream ends with the server.
        while let Some(text) = socket.try_receive() {
            if text.contains(r#""state":"not_found""#) {
                subscribe(&mut socket);
            }
        }
    });
}

#[test]
fn a_flood_of_new_keys_does_not_delay_another_key() {
    let api = api();
    let server = process::start(&format!(
        "[limits]\nrequest_timeout = \"10min\"\ncold_keys_max = 1000\n\
         [[feeds]]\nname = \"api\"\nurl = \"http://{}\"\npoll_interval = \"1h\"\nconcurrency_max = {CONCURRENCY}\n",
        api.addr
    ));
    for number in 0..11 {
        flood(&server.addr, number);
    }
    // The maximum is 10,000 keys. Some are in flight, and others wait for a later retry.
    until_metric(&server.admin, "stentor_feed_waiting_keys", |keys| keys >= 8_000.0);
    for (from, key) in [("127.0.0.1", "real/1"), ("127.0.0.2", "real/2"), ("127.0.0.1", "real/3")] {
        let asked = api.requests.load(Ordering::SeqCst);
        let stream = ask_from(from, &server.addr, "GET", &format!("/feed/{key}"), "");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(answer(stream), (200, "1".to_owned()), "{key}");
        let real = api.real.lock().unwrap();
        let (_, count) = real.iter().find(|(seen, _)| seen == key).unwrap();
        // The key should wait for at most two fetches of each slot (2 × `CONCURRENCY`). The rest allows for a
        // busy machine, where the request arrives later. Without fairness, the key would wait for thousands
        // of fetches.
        let before = count - asked;
        assert!(before <= 6 * CONCURRENCY, "{before} other fetches came before {key}");
    }
}

#[test]
fn a_session_may_wait_for_a_bounded_number_of_new_keys() {
    let api = api();
    let server = process::start(&format!(
        "[limits]\ncold_keys_max = 20\n[[feeds]]\nname = \"api\"\nurl = \"http://{}\"\nconcurrency_max = {CONCURRENCY}\n",
        api.addr
    ));
    let mut socket = Subscriber::open(&server.addr, "/ws");
    for n in 0..100 {
        socket.send_text(&format!(r#"{{"type":"subscribe","feed":"none/{n}"}}"#));
    }
    let refusal = loop {
        let text = socket.receive();
        if text.contains("error") {
            break text;
        }
    };
    assert!(refusal.contains(r#""code":"too_many_cold_keys""#), "{refusal}");
    assert!(refusal.contains(r#""retry":true"#) && refusal.contains("limits.cold_keys_max"), "{refusal}");
    // A key that the server has already fetched doesn't count as new, so the session may subscribe to it.
    assert_eq!(answer(process::ask(&server.addr, "GET", "/feed/real/1", "")), (200, "1".to_owned()));
    socket.send_text(r#"{"type":"subscribe","feed":"real/1"}"#);
    while !socket.receive().contains(r#""type":"snapshot""#) {}
    until_metric(&server.admin, "stentor_feed_refused_cold_keys_total", |keys| keys > 0.0);
}

#[test]
fn the_log_names_the_limit_that_new_keys_wait_for() {
    let api = api();
    let server = process::start(&format!(
        "[limits]\nrequest_timeout = \"10min\"\n\
         [[feeds]]\nname = \"api\"\nurl = \"http://{}\"\nconcurrency_max = 1\n",
        api.addr
    ));
    // 24 fetches of 300 ms one after another take 7 s. The log reports a wait of more than 5 s.
    let keys = (0..24).map(|n| format!("/feed/real/{n}"));
    let requests: Vec<_> = keys.map(|path| ask_from("127.0.0.1", &server.addr, "GET", &path, "")).collect();
    let begins = ["new keys wait for their first document", "limit=\"concurrency_max\"", "upstream=\"api\""];
    server.until_logged(&begins, 1);
    for request in requests {
        request.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(answer(request), (200, "1".to_owned()));
    }
    server.until_logged(&["new keys no longer wait for their first document"], 1);
    assert_eq!(server.until_logged(&begins, 1), 1);
}
