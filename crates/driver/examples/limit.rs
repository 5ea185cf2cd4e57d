//! What a driver adds to the bare loops of lab/peers/bare: the same blind WebSocket server on it, to be
//! driven by the same clients. Not for a network: nothing is checked.
//!
//!     limit epoll|uring echo|fanout [LONE_SENDS [DIRECT_FROM]]
//!
//! `fanout` broadcasts 1,000 bytes 20 times a second; `echo` sends each small frame back. The port is printed.

#![allow(clippy::print_stdout, clippy::unwrap_used)] // A measuring program.

use std::time::Duration;
use stentor_driver::{
    ConnId, Driver, EpollDriver, Event, Frame, ListenOptions, Meter, Options, Sending, UringDriver,
    UringOptions,
};

const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
const PERIOD: Duration = Duration::from_millis(50);

#[derive(Clone, Default)]
struct Client {
    conn: Option<ConnId>,
    is_open: bool,
    in_flight: bool,
}

fn run<D: Driver>(mut driver: D, echoes: bool) {
    let addr = driver.listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    println!("ready http://{addr}");
    let mut clients: Vec<Client> = Vec::new();
    let mut due = driver.now() + PERIOD;
    if !echoes {
        driver.timer_set(due, 0);
    }
    let mut frames = Vec::new();
    let meter = Meter::default();
    let mut skipped = 0_u64;
    loop {
        driver.wait(None).unwrap();
        while let Some(event) = driver.next_event() {
            match event {
                Event::Accepted { conn, .. } => {
                    if clients.len() <= conn.index() {
                        clients.resize(conn.index() + 1, Client::default());
                    }
                    clients[conn.index()] = Client { conn: Some(conn), ..Client::default() };
                }
                Event::Received { conn, mut data, .. } => {
                    let client = &mut clients[conn.index()];
                    if !client.is_open {
                        assert!(data.ends_with(b"\r\n\r\n"));
                        client.is_open = true;
                        client.in_flight = driver.send_bytes(conn, HEAD) == Sending::InFlight;
                    } else if echoes {
                        // A whole frame of less than 126 bytes, as the clients send here.
                        let len = usize::from(data[1] & 0x7f);
                        let (head, payload) = data[..6 + len].split_at_mut(6);
                        for (nth, byte) in payload.iter_mut().enumerate() {
                            *byte ^= head[2 + nth % 4];
                        }
                        head[4] = head[0];
                        head[5] = len as u8;
                        client.in_flight = driver.send_bytes(conn, &data[4..6 + len]) == Sending::InFlight;
                    }
                    driver.recycle(data);
                }
                Event::Sent(conn) => clients[conn.index()].in_flight = false,
                Event::PeerFinished(conn) => {
                    clients[conn.index()].conn = None;
                    driver.close(conn);
                }
                Event::Closed { conn, .. } => clients[conn.index()].conn = None,
                Event::Timer(_) => {
                    due += PERIOD;
                    driver.timer_set(due, 0);
                    let frame = Frame::shared(&[&[0x82, 126, 3, 0xe8], &[b'x'; 1000]], &meter);
                    for client in &mut clients {
                        let Some(conn) = client.conn.filter(|_| client.is_open) else { continue };
                        if client.in_flight {
                            skipped += 1;
                            assert!(skipped < 100_000, "nobody reads");
                            continue;
                        }
                        frames.push(frame.clone());
                        client.in_flight = driver.send(conn, &mut frames) == Sending::InFlight;
                    }
                }
                Event::AcceptFailed(error) => println!("{error}"),
                Event::Connected(_) | Event::Woken => {}
            }
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let echoes = words[1] == "echo";
    let options = Options::default();
    match words[0].as_str() {
        "epoll" => run(EpollDriver::new(&options).unwrap(), echoes),
        _ => {
            let mut uring_options = UringOptions::default();
            if let Some(lone) = words.get(2) {
                uring_options.lone_sends_per_turn = lone.parse().unwrap();
            }
            uring_options.direct_from = words.get(3).map(|number| number.parse().unwrap());
            run(UringDriver::with(&options, &uring_options).unwrap(), echoes);
        }
    }
}
