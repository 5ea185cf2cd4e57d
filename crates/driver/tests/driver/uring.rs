//! What only the io_uring driver has: batches, a ring that the kernel holds on to, a probe.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use stentor_driver::{
    ConnId, Driver, EpollDriver, Event, Frame, Kind, ListenOptions, Meter, Options, Sending, UringDriver,
    UringOptions, probe,
};

/// After this, a test that waits for the kernel has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// None, and a word about it, where there is no io_uring.
#[allow(clippy::print_stderr)] // It is how a test tells.
fn uring(uring_options: &UringOptions) -> Option<UringDriver> {
    if let Some(reason) = probe().fallback_reason {
        eprintln!("skipped: {reason}");
        return None;
    }
    Some(UringDriver::with(&Options::default(), uring_options).unwrap())
}

/// Everything leaves by the ring, whose queues are too small for it.
fn batching() -> UringOptions {
    UringOptions { submission_entries: 8, lone_sends_per_turn: 0, ..UringOptions::default() }
}

fn listen(driver: &mut impl Driver) -> SocketAddr {
    driver.listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap()
}

/// A server, its clients, and what they have told.
struct Net<S> {
    server: S,
    client: EpollDriver,
    accepted: HashMap<SocketAddr, ConnId>,
    connected: usize,
    sent: HashMap<ConnId, usize>,
    heard: usize,
    peers_finished: usize,
    received: HashMap<ConnId, Vec<u8>>,
    finished: Vec<ConnId>,
    closed: Vec<(ConnId, Option<std::io::ErrorKind>)>,
}

impl<S: Driver> Net<S> {
    fn new(server: S) -> Self {
        Self {
            server,
            client: EpollDriver::new(&Options::default()).unwrap(),
            accepted: HashMap::new(),
            connected: 0,
            sent: HashMap::new(),
            heard: 0,
            peers_finished: 0,
            received: HashMap::new(),
            finished: Vec::new(),
            closed: Vec::new(),
        }
    }

    fn turn(&mut self) {
        self.server.wait(Some(Duration::ZERO)).unwrap();
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Accepted { conn, peer, .. } => drop(self.accepted.insert(peer, conn)),
                Event::Sent(conn) => *self.sent.entry(conn).or_default() += 1,
                Event::Received { data, .. } => {
                    self.heard += data.len();
                    self.server.recycle(data);
                }
                Event::PeerFinished(_) => self.peers_finished += 1,
                _ => {}
            }
        }
        self.client.wait(Some(Duration::from_millis(1))).unwrap();
        while let Some(event) = self.client.next_event() {
            match event {
                Event::Connected(_) => self.connected += 1,
                Event::Received { conn, data, .. } => {
                    self.received.entry(conn).or_default().extend_from_slice(&data);
                    self.client.recycle(data);
                }
                Event::PeerFinished(conn) => self.finished.push(conn),
                Event::Closed { conn, error } => self.closed.push((conn, error.map(|error| error.kind()))),
                _ => {}
            }
        }
    }

    #[track_caller]
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "never");
            self.turn();
        }
    }

    /// Connections to the server: the clients' ends.
    fn connect(&mut self, count: usize) -> Vec<ConnId> {
        let addr = listen(&mut self.server);
        let conns = (0..count).map(|_| self.client.connect(addr, None).unwrap()).collect();
        self.until(|net| net.connected == count && net.accepted.len() == count);
        conns
    }

    fn server_ends(&self) -> Vec<ConnId> {
        self.accepted.values().copied().collect()
    }
}

#[test]
fn a_broadcast_larger_than_the_queue_arrives_in_order() {
    let Some(server) = uring(&batching()) else { return };
    let mut net = Net::new(server);
    let near = net.connect(300);
    let meter = Meter::default();
    let frames: Vec<Frame> =
        (0..5_u8).map(|nth| Frame::shared(&[&[nth; 50][..usize::from(nth) * 10]], &meter)).collect();
    let whole: Vec<u8> = frames.iter().flat_map(Frame::copy_to_vec).collect();
    for round in 1..=3 {
        let mut in_flight = 0;
        for far in net.server_ends() {
            // One frame, or several.
            let mut frames = if round == 1 { vec![frames[4].clone()] } else { frames.clone() };
            assert_eq!(net.server.send(far, &mut frames), Sending::InFlight);
            // Until the kernel has taken them, which is before `Sent`.
            in_flight += net.server.in_flight_bytes(far);
        }
        assert!(in_flight > 0, "{round}");
        net.until(|net| net.server_ends().iter().all(|far| net.sent.get(far) == Some(&round)));
        assert!(net.server_ends().iter().all(|far| net.server.in_flight_bytes(*far) == 0));
    }
    let expected = [&[4; 40][..], &whole, &whole].concat();
    net.until(|net| near.iter().all(|near| net.received.get(near).is_some_and(|got| got.len() >= 240)));
    assert!(near.iter().all(|near| net.received[near] == expected));
    drop(frames);
    assert_eq!(meter.bytes(), 0);
}

#[test]
fn a_close_in_the_same_turn_does_not_truncate_a_send() {
    let Some(server) = uring(&batching()) else { return };
    let mut net = Net::new(server);
    let near = net.connect(50);
    for far in net.server_ends() {
        assert_eq!(net.server.send(far, &mut vec![Frame::from_static(b"farewell")]), Sending::InFlight);
        net.server.close(far);
    }
    assert_eq!(net.server.connections(), 0);
    net.until(|net| net.finished.len() == 50);
    assert!(near.iter().all(|near| net.received[near] == b"farewell"));
    assert!(net.closed.is_empty() && net.sent.is_empty());
}

#[test]
fn a_large_frame_shows_its_progress() {
    let Some(server) = uring(&batching()) else { return };
    let mut net = Net::new(server);
    let near = net.connect(1)[0];
    let far = net.server_ends()[0];
    net.client.pause(near);
    let bytes = vec![1; 20 << 20];
    net.server.send(far, &mut vec![Frame::owned(bytes.clone())]);
    let mut last = bytes.len();
    net.until(|net| {
        let left = net.server.in_flight_bytes(far);
        let moved = left < last;
        last = left;
        moved
    });
    net.client.resume(near);
    net.until(|net| net.received.get(&near).is_some_and(|got| got.len() == bytes.len()));
    assert_eq!(net.received[&near], bytes);
}

#[test]
fn many_direct_connections_can_finish_at_once() {
    // More than receives can be under way.
    let uring_options = UringOptions { direct_from: Some(0), ..UringOptions::default() };
    let (Some(mut server), Some(mut client)) = (uring(&uring_options), uring(&uring_options)) else { return };
    let addr = listen(&mut server);
    for _ in 0..300 {
        client.connect(addr, None).unwrap();
    }
    let (mut far, mut ended, begun) = (Vec::new(), 0, Instant::now());
    while ended < 300 {
        assert!(begun.elapsed() < PATIENCE, "{ended} ended");
        server.wait(Some(Duration::ZERO)).unwrap();
        while let Some(event) = server.next_event() {
            match event {
                Event::Accepted { conn, .. } => far.push(conn),
                Event::Closed { error, .. } => {
                    assert!(error.is_none(), "{error:?}");
                    ended += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        if far.len() == 300 {
            far.drain(..).for_each(|far| server.finish(far, PATIENCE));
        }
        client.wait(Some(Duration::ZERO)).unwrap();
        while let Some(event) = client.next_event() {
            match event {
                Event::PeerFinished(conn) => client.close(conn),
                Event::Connected(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_direct_connection_is_read_before_timers() {
    let uring_options = UringOptions { direct_from: Some(0), ..UringOptions::default() };
    let Some(server) = uring(&uring_options) else { return };
    let mut net = Net::new(server);
    let near = net.connect(100);
    let due = net.server.now() + Duration::from_millis(30);
    net.server.timer_set(due, 0);
    for near in near {
        assert_eq!(net.client.send_bytes(near, b"in time"), Sending::Done);
    }
    while Instant::now() < due + Duration::from_millis(20) {
        std::thread::yield_now();
    }
    net.server.wait(Some(Duration::ZERO)).unwrap();
    for _ in 0..100 {
        assert!(matches!(net.server.next_event(), Some(Event::Received { .. })));
    }
    assert!(matches!(net.server.next_event(), Some(Event::Timer(0))));
}

/// Drivers whose completion queue is full at once, so that polls end by themselves; with descriptors or without.
fn overflowing() -> Vec<UringDriver> {
    [None, Some(0)]
        .into_iter()
        .filter_map(|direct_from| {
            uring(&UringOptions { submission_entries: 1, direct_from, ..UringOptions::default() })
        })
        .collect()
}

#[test]
fn polls_that_end_by_themselves_are_replaced() {
    for server in overflowing() {
        let mut net = Net::new(server);
        let near = net.connect(100);
        for round in 1..=3 {
            for far in net.server_ends() {
                net.server.pause(far);
            }
            for near in &near {
                assert_eq!(net.client.send_bytes(*near, b"x"), Sending::Done);
            }
            (0..20).for_each(|_| net.turn());
            assert_eq!(net.heard, (round - 1) * 200);
            for far in net.server_ends() {
                net.server.resume(far);
            }
            net.until(|net| net.heard == round * 200 - 100);
            // Now without a pause.
            for near in &near {
                assert_eq!(net.client.send_bytes(*near, b"y"), Sending::Done);
            }
            net.until(|net| net.heard == round * 200);
        }
    }
}

#[test]
fn a_driver_sleeps_after_its_connections_end() {
    for server in overflowing() {
        let mut net = Net::new(server);
        let near = net.connect(100);
        // Their peers stay half open.
        near.into_iter().for_each(|near| net.client.finish(near, PATIENCE));
        net.until(|net| net.peers_finished == 100);
        // A poll is replaced in each turn.
        (0..300).for_each(|_| net.turn());
        let until = Instant::now() + Duration::from_millis(100);
        let mut turns = 0;
        while Instant::now() < until {
            net.server.wait(Some(until.saturating_duration_since(Instant::now()))).unwrap();
            assert!(net.server.next_event().is_none());
            turns += 1;
        }
        assert!(turns < 50, "{turns} turns for nothing");
    }
}

#[test]
fn a_direct_connection_ends_the_sleep() {
    let uring_options = UringOptions { direct_from: Some(0), ..UringOptions::default() };
    let Some(mut server) = uring(&uring_options) else { return };
    let addr = listen(&mut server);
    let thread = std::thread::spawn(move || {
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        let mut buffer = [0];
        for _ in 0..100 {
            std::io::Write::write_all(&mut client, b"x").unwrap();
            std::io::Read::read_exact(&mut client, &mut buffer).unwrap();
        }
    });
    let begun = Instant::now();
    let mut heard = 0;
    while heard < 100 {
        server.wait(Some(PATIENCE)).unwrap();
        assert!(begun.elapsed() < PATIENCE, "it slept over {heard}");
        while let Some(event) = server.next_event() {
            if let Event::Received { conn, data, .. } = event {
                heard += data.len();
                assert_eq!(server.send_bytes(conn, &data), Sending::Done);
                server.recycle(data);
            }
        }
    }
    thread.join().unwrap();
}

#[test]
fn a_driver_may_be_made_on_another_thread() {
    let Some(mut server) = uring(&UringOptions::default()) else { return };
    let addr = listen(&mut server);
    let waker = server.waker();
    let client = std::net::TcpStream::connect(addr).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut accepted, mut woken) = (false, false);
        while !(accepted && woken) {
            server.wait(Some(PATIENCE)).unwrap();
            while let Some(event) = server.next_event() {
                match event {
                    Event::Accepted { .. } => accepted = true,
                    Event::Woken => woken = true,
                    other => panic!("{other:?}"),
                }
            }
        }
    });
    waker.wake();
    thread.join().unwrap();
    drop(client);
}

#[test]
fn dropping_a_driver_releases_everything_at_once() {
    let Some(server) = uring(&batching()) else { return };
    let mut net = Net::new(server);
    let near = net.connect(20);
    near.iter().for_each(|near| net.client.pause(*near));
    let options = ListenOptions { reuse_port: false, ..ListenOptions::default() };
    let addr = net.server.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let meter = Meter::default();
    // Below a memfd's size, so many times that it stalls; and some that have not even been submitted.
    let frame = Frame::shared(&[&[7; 10_000]], &meter);
    for (nth, far) in net.server_ends().into_iter().enumerate() {
        net.server.send(far, &mut vec![frame.clone(); 2000]);
        if nth == 15 {
            net.turn();
        }
    }
    drop(frame);
    assert_eq!(meter.bytes(), 10_000);
    let Net { server, mut client, .. } = net;
    drop(server);
    assert_eq!(meter.bytes(), 0);
    client.listen(addr, &options).unwrap();
    near.iter().for_each(|near| client.resume(*near));
    let begun = Instant::now();
    while client.connections() > 0 {
        assert!(begun.elapsed() < PATIENCE);
        client.wait(Some(PATIENCE)).unwrap();
        while let Some(event) = client.next_event() {
            match event {
                Event::PeerFinished(conn) => client.close(conn),
                Event::Received { data, .. } => client.recycle(data),
                _ => {}
            }
        }
    }
}

#[test]
fn a_connection_can_be_detached_before_it_is_submitted() {
    let (Some(mut first), Some(mut second)) = (uring(&batching()), uring(&batching())) else { return };
    let addr = listen(&mut first);
    let mut client = std::net::TcpStream::connect(addr).unwrap();
    std::io::Write::write_all(&mut client, b"hello").unwrap();
    let begun = Instant::now();
    let mut moved = None;
    while moved.is_none() {
        assert!(begun.elapsed() < PATIENCE);
        first.wait(Some(Duration::from_millis(10))).unwrap();
        while let Some(event) = first.next_event() {
            match event {
                Event::Accepted { conn, .. } => {
                    moved = Some(second.attach(first.detach(conn).unwrap()).unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let mut got = None;
    while got.is_none() {
        assert!(begun.elapsed() < PATIENCE);
        assert!(first.next_event().is_none());
        first.wait(Some(Duration::ZERO)).unwrap();
        second.wait(Some(Duration::from_millis(10))).unwrap();
        while let Some(event) = second.next_event() {
            match event {
                Event::Received { conn, data, .. } => got = Some((Some(conn), data.to_vec())),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(got, Some((moved, b"hello".to_vec())));
}

/// Makes io_uring_setup fail with EPERM on the calling thread, for ever, as container runtimes do.
#[allow(unsafe_code)]
fn forbid_io_uring() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let setup = libc::SYS_io_uring_setup as u32;
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0), // the call's number
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, setup) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program and its length belong together, and outlive the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn the_probe_reports_that_io_uring_is_forbidden() {
    std::thread::spawn(|| {
        forbid_io_uring();
        let found = probe();
        assert_eq!(found.kind, Kind::Epoll);
        let reason = found.fallback_reason.unwrap();
        assert!(reason.starts_with("io_uring_setup: ") && reason.contains("seccomp"), "{reason}");
        assert!(UringDriver::new(&Options::default()).is_err());
    })
    .join()
    .unwrap();
}
