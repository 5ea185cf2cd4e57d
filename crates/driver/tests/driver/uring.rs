//! Features of the io_uring driver only: batches, a ring that the kernel holds, a probe.

use crate::suite::pair::{Pair, Seen};
use crate::suite::{epoll, no_uring, uring};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use stentor_driver::{
    Driver, Event, Frame, Kind, ListenOptions, Meter, Options, Sending, UringDriver, UringOptions, probe,
};

/// Time after which a test that waits for the kernel has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes options that send everything through the ring, whose queues are too small for a turn's sends.
fn batching() -> UringOptions {
    UringOptions { submission_entries: 8, lone_sends_per_turn: 0, ..UringOptions::default() }
}

/// Makes a server on io_uring and a client on epoll; the other driver is like the server. `None` if there is
/// no io_uring.
fn pair(uring_options: &UringOptions) -> Option<Pair> {
    let uring = || uring(&Options::default(), uring_options);
    (!no_uring()).then(|| Pair::new([uring(), epoll(&Options::default()), uring()], 0))
}

fn direct() -> UringOptions {
    UringOptions { direct_from: Some(0), ..UringOptions::default() }
}

fn driver(uring_options: &UringOptions) -> Option<UringDriver> {
    (!no_uring()).then(|| UringDriver::with(&Options::default(), uring_options).unwrap())
}

#[test]
fn a_broadcast_larger_than_the_queue_arrives_in_order() {
    let Some(mut pair) = pair(&batching()) else { return };
    let (far, near) = pair.connect_many(300);
    let meter = Meter::default();
    let frames: Vec<Frame> =
        (0..5_u8).map(|nth| Frame::shared(&[&[nth; 50][..usize::from(nth) * 10]], &meter)).collect();
    let whole: Vec<u8> = frames.iter().flat_map(|frame| frame.bytes().into_owned()).collect();
    for round in 1..=3 {
        let mut in_flight = 0;
        for far in &far {
            // One frame in the first round, several in the others.
            let frames = if round == 1 { vec![frames[4].clone()] } else { frames.clone() };
            assert_eq!(pair.server.send(*far, frames), Sending::InFlight);
            // Bytes count as in flight until the kernel has accepted them. `Sent` is reported later.
            in_flight += pair.server.driver.in_flight_bytes(*far);
        }
        assert!(in_flight > 0, "{round}");
        pair.until(|pair| far.iter().all(|far| pair.server.count(&Seen::Sent(*far)) == round));
        assert!(far.iter().all(|far| pair.server.driver.in_flight_bytes(*far) == 0));
    }
    let expected = [&[4; 40][..], &whole, &whole].concat();
    pair.until(|pair| near.iter().all(|near| pair.client.bytes(*near).len() >= 240));
    assert!(near.iter().all(|near| pair.client.bytes(*near) == expected));
    drop(frames);
    assert_eq!(meter.bytes(), 0);
}

#[test]
fn a_close_in_the_same_turn_does_not_truncate_a_send() {
    let Some(mut pair) = pair(&batching()) else { return };
    let (far, near) = pair.connect_many(50);
    for far in far {
        assert_eq!(pair.server.send(far, [Frame::from_static(b"farewell")]), Sending::InFlight);
        pair.server.close(far);
    }
    assert_eq!(pair.server.driver.connections(), 0);
    pair.until(|pair| near.iter().all(|near| pair.client.saw(&Seen::PeerFinished(*near))));
    assert!(near.iter().all(|near| pair.client.bytes(*near) == b"farewell"));
    assert!(near.iter().all(|near| pair.client.closed(*near).is_none()));
}

#[test]
fn a_large_frame_shows_its_progress() {
    let Some(mut pair) = pair(&batching()) else { return };
    let (far, near) = pair.connected();
    pair.client.driver.pause(near);
    let bytes = vec![1; 20 << 20];
    pair.server.send(far, [Frame::owned(bytes.clone())]);
    pair.until(|pair| pair.server.driver.in_flight_bytes(far) < bytes.len());
    pair.client.driver.resume(near);
    pair.until(|pair| pair.client.bytes(near).len() == bytes.len());
    assert!(pair.client.bytes(near) == bytes);
}

#[test]
fn many_direct_connections_can_finish_at_once() {
    if no_uring() {
        return;
    }
    let mut pair = Pair::new([(); 3].map(|()| uring(&Options::default(), &direct())), 0);
    // More connections than the maximum number of receives in progress.
    let (far, near) = pair.connect_many(300);
    for far in &far {
        pair.server.finish(*far, PATIENCE);
    }
    for near in near {
        pair.until(|pair| pair.client.saw(&Seen::PeerFinished(near)));
        pair.client.close(near);
    }
    pair.until(|pair| far.iter().all(|far| pair.server.closed(*far) == Some(None)));
}

#[test]
fn a_direct_connection_is_read_before_timers() {
    let Some(mut pair) = pair(&direct()) else { return };
    let (_, near) = pair.connect_many(100);
    let server = &mut pair.server.driver;
    let due = server.now() + Duration::from_millis(30);
    server.timer_set(due, 0);
    for near in near {
        assert_eq!(pair.client.driver.send_bytes(near, b"in time"), Sending::Done);
    }
    while Instant::now() < due + Duration::from_millis(20) {
        std::thread::yield_now();
    }
    server.wait(Some(Duration::ZERO)).unwrap();
    for _ in 0..100 {
        assert!(matches!(server.next_event(), Some(Event::Received { .. })));
    }
    assert!(matches!(server.next_event(), Some(Event::Timer(0))));
}

/// Makes drivers with a completion queue so small that its overflow ends polls: one pair whose connections
/// have file descriptors, and one without.
fn overflowing() -> impl Iterator<Item = Pair> {
    [None, Some(0)].into_iter().filter_map(|direct_from| {
        pair(&UringOptions { submission_entries: 1, direct_from, ..UringOptions::default() })
    })
}

#[test]
fn polls_that_end_by_themselves_are_replaced() {
    for mut pair in overflowing() {
        let (far, near) = pair.connect_many(100);
        let received = |pair: &Pair| far.iter().map(|far| pair.server.bytes(*far).len()).sum::<usize>();
        for round in 1..=3 {
            far.iter().for_each(|far| pair.server.driver.pause(*far));
            for near in &near {
                assert_eq!(pair.client.driver.send_bytes(*near, b"x"), Sending::Done);
            }
            pair.barrier();
            assert_eq!(received(&pair), (round - 1) * 200);
            far.iter().for_each(|far| pair.server.driver.resume(*far));
            pair.until(|pair| received(pair) == round * 200 - 100);
            // Without a pause, all bytes arrive as well.
            for near in &near {
                assert_eq!(pair.client.driver.send_bytes(*near, b"y"), Sending::Done);
            }
            pair.until(|pair| received(pair) == round * 200);
        }
    }
}

#[test]
fn a_driver_sleeps_after_its_connections_end() {
    for mut pair in overflowing() {
        let (far, near) = pair.connect_many(100);
        // The peers of these connections stay half open.
        near.into_iter().for_each(|near| pair.client.finish(near, PATIENCE));
        pair.until(|pair| far.iter().all(|far| pair.server.saw(&Seen::PeerFinished(*far))));
        // The driver replaces the ended polls, one per turn.
        for _ in 0..300 {
            pair.turn();
        }
        let until = Instant::now() + Duration::from_millis(100);
        let mut turns = 0;
        while Instant::now() < until {
            assert_eq!(pair.server.turn(Some(until.saturating_duration_since(Instant::now()))), 0);
            turns += 1;
        }
        assert!(turns < 50, "{turns} turns for nothing");
    }
}

#[test]
fn a_direct_connection_ends_the_sleep() {
    let Some(mut server) = driver(&direct()) else { return };
    let addr = server.listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let thread = std::thread::spawn(move || {
        let mut client = TcpStream::connect(addr).unwrap();
        let mut buffer = [0];
        for _ in 0..100 {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut buffer).unwrap();
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
    let Some(mut server) = driver(&UringOptions::default()) else { return };
    let addr = server.listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let waker = server.waker();
    let client = TcpStream::connect(addr).unwrap();
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
    let Some(mut pair) = pair(&batching()) else { return };
    let (far, near) = pair.connect_many(20);
    near.iter().for_each(|near| pair.client.driver.pause(*near));
    let options = ListenOptions { reuse_port: false, ..ListenOptions::default() };
    let addr = pair.server.driver.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let meter = Meter::default();
    // The frame is smaller than a memfd's minimum. It is sent so often that connections stall. The last sends
    // haven't been submitted when the driver is dropped.
    let frame = Frame::shared(&[&[7; 10_000]], &meter);
    for (nth, far) in far.into_iter().enumerate() {
        pair.server.send(far, vec![frame.clone(); 2000]);
        if nth == 15 {
            pair.turn();
        }
    }
    drop(frame);
    assert_eq!(meter.bytes(), 10_000);
    pair.server.driver = epoll(&Options::default());
    assert_eq!(meter.bytes(), 0);
    pair.client.driver.listen(addr, &options).unwrap();
    near.iter().for_each(|near| pair.client.driver.resume(*near));
    pair.until(|pair| near.iter().all(|near| pair.client.saw(&Seen::PeerFinished(*near))));
}

#[test]
fn a_connection_can_be_detached_before_it_is_submitted() {
    let Some(mut pair) = pair(&batching()) else { return };
    let addr = pair.server.listen("127.0.0.1:0");
    let mut client = TcpStream::connect(addr).unwrap();
    client.write_all(b"hello").unwrap();
    pair.until(|pair| !pair.server.accepted().is_empty());
    let detached = pair.server.driver.detach(pair.server.accepted()[0].0).unwrap();
    let moved = pair.other.attach(detached);
    pair.until(|pair| pair.other.bytes(moved) == b"hello");
    assert_eq!(pair.server.log.len(), 1);
}

/// Makes io_uring_setup fail with EPERM on the calling thread, permanently, as container runtimes do.
#[allow(unsafe_code)]
fn forbid_io_uring() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let setup = libc::SYS_io_uring_setup as u32;
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0), // load the number of the system call
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
