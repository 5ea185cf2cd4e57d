//! Drivers that run out of file descriptors, in a separate process whose limit can be lowered.

#![allow(clippy::unwrap_used)] // A test may panic; clippy knows only functions marked as such.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use stentor_driver::{
    Driver, EpollDriver, Event, FILE_FRAME_BYTES_MIN, Frame, ListenOptions, Meter, Options, UringDriver,
};

/// Runs turns until `count` events have come or `limit` has passed.
fn events<D: Driver>(driver: &mut D, count: usize, limit: Duration) -> Vec<Event> {
    let until = Instant::now() + limit;
    let mut events = Vec::new();
    while events.len() < count && Instant::now() < until {
        driver.wait(Some(until.saturating_duration_since(Instant::now()))).unwrap();
        events.extend(std::iter::from_fn(|| driver.next_event()));
    }
    events
}

/// Returns a limit below which this many file descriptors are free, wherever the inherited ones are.
fn limit_with_room_for(count: usize) -> u64 {
    let listed: Vec<u64> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    // The listing contains its own file descriptor, which is closed now.
    let is_open = |fd: &u64| listed.contains(fd) && std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok();
    (0..).filter(|fd| !is_open(fd)).nth(count).unwrap()
}

fn recovers<D: Driver>(mut driver: D) {
    let addr = driver.listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit_with_room_for(3)), maximum: before.maximum })
        .unwrap();
    let clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect();

    // Frames work without a memfd.
    let frame = Frame::shared(&[&[7; FILE_FRAME_BYTES_MIN]], &Meter::default());
    assert!(!frame.is_file() && frame.len() == FILE_FRAME_BYTES_MIN);

    // The driver reports each failed accept and tries again, but at most ten times per second.
    let begun = Instant::now();
    let mut failed = Vec::new();
    while failed.len() < 2 || begun.elapsed() < Duration::from_millis(350) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it isn't tried again");
        failed.extend(events(&mut driver, 1, Duration::from_millis(100)));
    }
    assert!(failed.len() as u128 <= begun.elapsed().as_millis() / 100 + 2, "{failed:?}");
    for event in failed {
        assert!(matches!(event, Event::AcceptFailed(error) if error.raw_os_error() == Some(24)));
    }

    // With free file descriptors the driver accepts again without further calls. No connection was lost.
    setrlimit(Resource::Nofile, before).unwrap();
    let mut accepted = Vec::new();
    while accepted.len() < 3 {
        accepted.extend(events(&mut driver, 1, Duration::from_secs(10)).into_iter().filter_map(|event| {
            match event {
                Event::Accepted { peer, .. } => Some(peer),
                Event::AcceptFailed(_) => None,
                other => panic!("{other:?}"),
            }
        }));
    }
    assert!(clients.iter().all(|client| accepted.contains(&client.local_addr().unwrap())));
}

/// Opens more connections between a server and a client than the process may have file descriptors.
fn goes_beyond(mut server: UringDriver, mut client: UringDriver, count: usize) {
    let addr = server.listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let (mut connected, mut received) = (0, 0);
    for _ in 0..count {
        client.connect(addr, None).unwrap();
    }
    let until = Instant::now() + Duration::from_secs(20);
    while received < count {
        assert!(Instant::now() < until, "{connected} connected, {received} received");
        for event in events(&mut client, 1, Duration::from_millis(1)) {
            match event {
                Event::Connected(conn) => {
                    connected += 1;
                    client.send_bytes(conn, b"!");
                }
                Event::Sent(_) => {}
                other => panic!("{other:?}"),
            }
        }
        for event in events(&mut server, 1, Duration::from_millis(1)) {
            match event {
                Event::Accepted { peer, .. } => assert!(peer.port() > 0),
                Event::Received { data, .. } => {
                    received += data.len();
                    server.recycle(data);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((server.connections(), client.connections()), (count, count));
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(descriptors < 100, "{descriptors}");
}

/// One test only, because the limit applies to the process.
#[test]
fn drivers_work_with_few_descriptors() {
    recovers(EpollDriver::new(&Options::default()).unwrap());
    if stentor_driver::probe().fallback_reason.is_none() {
        recovers(UringDriver::new(&Options::default()).unwrap());
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum: before.maximum }).unwrap();
        let [server, client] = [(), ()].map(|()| UringDriver::new(&Options::default()).unwrap());
        goes_beyond(server, client, 400);
        setrlimit(Resource::Nofile, before).unwrap();
    }
}
