//! Clients that request thousands of keys that don't exist delay nobody else: threat S5.

use crate::process::{self, PATIENCE, Subscriber, answer, ask_from, until_metric};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the API takes for an answer.
const FETCH: Duration = Duration::from_millis(300);
/// Fetches at once, the default.
const CONCURRENCY: usize = 8;

/// An API that is asked for keys, of which only those that begin with `real` exist.
struct Api {
    addr: SocketAddr,
    requests: Arc<AtomicUsize>,
    /// How many requests had come when a key that exists was asked for.
    real: Arc<Mutex<Vec<(String, usize)>>>,
}

fn respond(stream: TcpStream, requests: &AtomicUsize, real: &Mutex<Vec<(String, usize)>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let key = line.split(' ').nth(1)?.trim_start_matches('/').to_owned();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok()?;
        }
        let count = requests.fetch_add(1, Ordering::SeqCst);
        let exists = key.starts_with("real");
        if exists {
            real.lock().unwrap().push((key, count));
        }
        std::thread::sleep(FETCH);
        let answer = if exists {
            "200 OK\r\nContent-Length: 1\r\n\r\n1"
        } else {
            "404 Not Found\r\nContent-Length: 0\r\n\r\n"
        };
        stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).ok()?;
    }
}

fn api() -> Api {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (requests, real) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let (count, seen) = (requests.clone(), Arc::clone(&real));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (count, seen) = (count.clone(), Arc::clone(&seen));
            std::thread::spawn(move || respond(stream, &count, &seen));
        }
    });
    Api { addr, requests, real }
}

/// Subscribes to a thousand keys that don't exist, and to another whenever one of them has been found not to.
fn flood(addr: &str, number: usize) {
    let mut socket = Subscriber::open(addr, "/ws");
    std::thread::spawn(move || {
        let mut count = 0;
        let mut subscribe = |socket: &mut Subscriber| {
            socket.say(&format!(r#"{{"type":"subscribe","feed":"none/{number}/{count}"}}"#));
            count += 1;
        };
        for _ in 0..1000 {
            subscribe(&mut socket);
        }
        // Until the server is gone.
        while let Some(text) = socket.try_hear() {
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
         [[feeds]]\nname = \"api\"\nurl = \"http://{}\"\npoll_interval = \"1h\"\n",
        api.addr
    ));
    for number in 0..11 {
        flood(&server.addr, number);
    }
    // As many as there may be, but for those that are being fetched or looked at again later.
    until_metric(&server.admin, "stentor_feed_waiting_keys", |keys| keys >= 8_000.0);
    for (from, key) in [("127.0.0.1", "real/1"), ("127.0.0.2", "real/2"), ("127.0.0.1", "real/3")] {
        let asked = api.requests.load(Ordering::SeqCst);
        let stream = ask_from(from, &server.addr, "GET", &format!("/feed/{key}"), "");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(answer(stream), (200, "1".to_owned()), "{key}");
        let real = api.real.lock().unwrap();
        let (_, count) = real.iter().find(|(seen, _)| seen == key).unwrap();
        // Two fetch times are twice as many fetches as there may be at once; the rest is for a busy machine, on which the
        // request takes a while to arrive. Fair or not, there are thousands before it.
        let before = count - asked;
        assert!(before <= 6 * CONCURRENCY, "{before} other fetches came before {key}");
    }
}

#[test]
fn a_session_may_wait_for_a_bounded_number_of_new_keys() {
    let api = api();
    let server = process::start(&format!(
        "[limits]\ncold_keys_max = 20\n[[feeds]]\nname = \"api\"\nurl = \"http://{}\"\n",
        api.addr
    ));
    let mut socket = Subscriber::open(&server.addr, "/ws");
    for n in 0..100 {
        socket.say(&format!(r#"{{"type":"subscribe","feed":"none/{n}"}}"#));
    }
    let refusal = loop {
        let text = socket.hear();
        if text.contains("error") {
            break text;
        }
    };
    assert!(refusal.contains(r#""code":"too_many_cold_keys""#), "{refusal}");
    assert!(refusal.contains(r#""retry":true"#) && refusal.contains("limits.cold_keys_max"), "{refusal}");
    // A key that exists and is known isn't new.
    assert_eq!(answer(process::ask(&server.addr, "GET", "/feed/real/1", "")), (200, "1".to_owned()));
    socket.say(r#"{"type":"subscribe","feed":"real/1"}"#);
    while !socket.hear().contains(r#""type":"snapshot""#) {}
    until_metric(&server.admin, "stentor_feed_refused_cold_keys_total", |keys| keys > 0.0);
}
