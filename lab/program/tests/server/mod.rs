//! A WebSocket server in a thread: honest, or with one fault for the generator to find.

#![allow(
    dead_code,
    clippy::print_stderr,
    reason = "no test uses all of it; a server complains when it crashes"
)]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stentor_driver::{
    ConnId, Driver, EpollDriver, Event, ListenOptions, Options, ReceiveBuffer, Sending, Waker,
};
use stentor_wire::http1::{self, HeadScanner, parse_request};
use stentor_wire::ws::{self, Opcode, handshake};

/// The fault of a server. It affects every seventh delivery, unless another number is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Drops,
    Repeats,
    /// Sends a message after the next one to the same client.
    Swaps,
    Corrupts,
    /// Changes a bit in another byte each time: the first, the second, and so on. Counts the deliveries of each
    /// connection by themselves: two changed messages in a row on one connection would hide a second message behind one
    /// unreadable number.
    Flips,
    /// Changes the first digit of the number.
    Renumbers,
    Shortens,
    /// Does nothing for 200 ms of each second.
    Stalls,
    Closes,
    Masks,
    Refuses,
    /// Ends the process.
    Crashes,
    /// Answers in another protocol.
    Babbles,
}

impl Fault {
    /// The fault of this name.
    pub(crate) fn named(name: &str) -> Self {
        let all = [Self::None, Self::Corrupts, Self::Closes, Self::Stalls, Self::Crashes, Self::Babbles];
        all.into_iter().find(|fault| format!("{fault:?}").eq_ignore_ascii_case(name)).unwrap()
    }
}

const EVERY: u64 = 7;
const STALL: Duration = Duration::from_millis(200);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Number of faults so far.
    faults: Arc<AtomicU64>,
    /// Numbers of accepted connections, and of reset ones.
    pub(crate) accepted: Arc<AtomicU64>,
    pub(crate) reset: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(chat: bool, fault: Fault) -> Self {
        Self::start_with(chat, fault, EVERY)
    }

    /// Starts a server with a fault in every `every`th delivery.
    pub(crate) fn start_with(chat: bool, fault: Fault, every: u64) -> Self {
        let faults = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&faults);
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let (accepted, reset) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counts = (Arc::clone(&accepted), Arc::clone(&reset));
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut driver = EpollDriver::new(&Options::default()).unwrap();
            let address = driver.listen(SocketAddr::from(([127, 0, 0, 1], 0)), &ListenOptions::default());
            tell.send((address.unwrap(), driver.waker())).unwrap();
            let shared = ws::Shared::new(ws::Limits::default());
            let begun = Instant::now();
            let mut serving = Serving {
                driver,
                clients: Vec::new(),
                shared,
                chat,
                fault,
                every,
                faults: count,
                delivered: 0,
                counts,
            };
            let mut stalls = 0;
            while !seen.load(Ordering::Relaxed) {
                serving.driver.wait(Some(Duration::from_secs(60))).unwrap();
                if fault == Fault::Stalls && begun.elapsed().as_secs() >= stalls {
                    stalls = begun.elapsed().as_secs() + 1;
                    std::thread::sleep(STALL);
                }
                while let Some(event) = serving.driver.next_event() {
                    serving.on_event(event);
                }
            }
        });
        let (address, waker) = told.recv().unwrap();
        Self { address, faults, accepted, reset, over, waker, thread: Some(thread) }
    }

    /// Number of faults so far.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Client {
    conn: ConnId,
    head: Option<(HeadScanner, Vec<u8>)>,
    ws: ws::Connection,
    in_flight: bool,
    outbox: Vec<u8>,
    delivered: u64,
    /// The message to send after the next one.
    held: Vec<u8>,
}

struct Serving {
    driver: EpollDriver,
    clients: Vec<Client>,
    shared: ws::Shared,
    chat: bool,
    fault: Fault,
    every: u64,
    faults: Arc<AtomicU64>,
    delivered: u64,
    /// Numbers of accepted connections, and of reset ones.
    counts: (Arc<AtomicU64>, Arc<AtomicU64>),
}

impl Serving {
    fn on_event(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, .. } => {
                self.counts.0.fetch_add(1, Ordering::Relaxed);
                self.clients.push(Client {
                    conn,
                    head: Some((HeadScanner::default(), Vec::new())),
                    ws: ws::Connection::new(ws::Role::Server, None),
                    in_flight: false,
                    outbox: Vec::new(),
                    delivered: 0,
                    held: Vec::new(),
                });
            }
            Event::Received { conn, data, .. } => self.on_bytes(conn, data),
            Event::Sent(conn) => {
                if let Some(index) = self.index(conn) {
                    self.clients[index].in_flight = false;
                    self.write(index, &[]);
                }
            }
            Event::PeerFinished(conn) => {
                self.driver.close(conn);
                self.clients.retain(|client| client.conn != conn);
            }
            Event::Closed { conn, error } => {
                let reset = error.is_some_and(|error| error.kind() == ErrorKind::ConnectionReset);
                self.counts.1.fetch_add(u64::from(reset), Ordering::Relaxed);
                self.clients.retain(|client| client.conn != conn);
            }
            _ => {}
        }
    }

    fn index(&self, conn: ConnId) -> Option<usize> {
        self.clients.iter().position(|client| client.conn == conn)
    }

    fn on_bytes(&mut self, conn: ConnId, mut data: ReceiveBuffer) {
        let Some(index) = self.index(conn) else { return };
        if let Some((scanner, head)) = &mut self.clients[index].head {
            head.extend_from_slice(&data);
            let limits = http1::Limits::default();
            if let Some(end) = scanner.find_end(head, &limits).unwrap() {
                let request = parse_request(&head[..end], &limits).unwrap();
                let mut answer = Vec::new();
                if self.fault == Fault::Babbles {
                    answer.extend_from_slice(b"220 mail.example ESMTP\r\n\r\n");
                } else if self.fault == Fault::Refuses {
                    http1::write_response_head(&mut answer, 403, &[("Content-Length", "0")]);
                } else {
                    handshake::check_request(&request, None).unwrap().write_response(&mut answer, &[], None);
                }
                self.clients[index].head = None;
                self.write(index, &answer);
            }
            return;
        }
        let mut rest = &mut data[..];
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let received = self.clients[index].ws.receive(&mut self.shared, rest, &mut Vec::new());
            if let Some(ws::Event::Message(message)) = received.event {
                messages.push(message.bytes().to_vec());
            }
            let consumed = received.consumed;
            rest = &mut rest[consumed..];
        }
        self.driver.recycle(data);
        for message in messages {
            let to: Vec<usize> = if self.chat { (0..self.clients.len()).collect() } else { vec![index] };
            for index in to {
                self.deliver(index, &message);
            }
        }
    }

    fn deliver(&mut self, index: usize, message: &[u8]) {
        self.delivered += 1;
        self.clients[index].delivered += 1;
        let number = if self.fault == Fault::Flips { self.clients[index].delivered } else { self.delivered };
        let mut message = message.to_vec();
        let mut times = 1;
        let mut mask = None;
        let mut held = false;
        // The fault is in the middle of `every` deliveries, so more deliveries follow the last fault.
        if number % self.every == self.every / 2 {
            let fault = self.faults.fetch_add(1, Ordering::Relaxed);
            match self.fault {
                Fault::None | Fault::Stalls | Fault::Refuses => {}
                Fault::Babbles => {}
                Fault::Crashes => {
                    eprintln!("out of luck");
                    std::process::exit(3)
                }
                Fault::Swaps => held = true,
                Fault::Renumbers => message[0] = b'5',
                Fault::Drops => times = 0,
                Fault::Repeats => times = 2,
                Fault::Corrupts => *message.last_mut().unwrap() ^= 1,
                Fault::Flips => {
                    let len = message.len();
                    message[fault as usize % len] ^= 1;
                }
                Fault::Shortens => {
                    message.pop();
                }
                Fault::Masks => mask = Some([1, 2, 3, 4]),
                Fault::Closes => {
                    let mut close = Vec::new();
                    self.clients[index].ws.close(1001, "", &mut close);
                    self.write(index, &close);
                    return;
                }
            }
        }
        let mut frame = Vec::new();
        for _ in 0..times {
            ws::encode(&mut frame, Opcode::Text, &message, false, mask);
        }
        let held_before = std::mem::take(&mut self.clients[index].held);
        if held {
            self.clients[index].held = frame;
            return;
        }
        frame.extend_from_slice(&held_before);
        self.write(index, &frame);
    }

    fn write(&mut self, index: usize, bytes: &[u8]) {
        let client = &mut self.clients[index];
        client.outbox.extend_from_slice(bytes);
        if !client.in_flight && !client.outbox.is_empty() {
            let outbox = std::mem::take(&mut client.outbox);
            client.in_flight = self.driver.send_bytes(client.conn, &outbox) == Sending::InFlight;
        }
    }
}
