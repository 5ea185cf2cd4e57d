//! Features of the simulation only: a clock to move, injected faults, and reproducible runs.

use std::time::Duration;
use stentor_driver::sim::{Options, SimDriver, World};
use stentor_driver::{ConnId, Driver, Event, Frame, ListenOptions};

/// Runs one turn and logs its events; received bytes are sent back.
fn turn(driver: &mut SimDriver, log: &mut Vec<String>) -> bool {
    driver.wait(None).unwrap();
    let before = log.len();
    while let Some(event) = driver.next_event() {
        let at = driver.now();
        match event {
            Event::Received { conn, data, .. } => {
                log.push(format!("{} bytes", data.len()));
                if driver.in_flight_bytes(conn) == 0 {
                    driver.send_bytes(conn, &data);
                }
                driver.recycle(data);
            }
            Event::Accepted { conn, .. } => log.push(format!("accepted {conn:?} {:?}", driver.connections())),
            other => log.push(format!("{other:?}")),
        }
        assert!(driver.now() == at);
    }
    log.len() > before
}

struct Two {
    world: World,
    server: SimDriver,
    client: SimDriver,
    log: Vec<String>,
}

impl Two {
    fn new(seed: u64, options: Options) -> Self {
        let world = World::new(seed, options);
        let (server, client) = (world.driver(), world.driver());
        Self { world, server, client, log: Vec::new() }
    }

    fn run(&mut self, duration: Option<Duration>) {
        let Self { world, server, client, log } = self;
        let both = || turn(server, log) | turn(client, log);
        match duration {
            Some(duration) => world.run_for(duration, both),
            None => world.run_until_idle(both),
        }
    }

    fn connect(&mut self, count: usize) -> Vec<ConnId> {
        let addr = "10.0.0.1:80".parse().unwrap();
        self.server.listen(addr, &ListenOptions::default()).unwrap();
        (0..count).map(|_| self.client.connect(addr, None).unwrap()).collect()
    }

    fn saw(&self, words: &str) -> usize {
        self.log.iter().filter(|line| line.contains(words)).count()
    }
}

/// Runs bouncing traffic for 50 ms, with faults. Returns its log.
fn traffic(seed: u64) -> Vec<String> {
    let options =
        Options { resets_per_million: 3000, accept_failures_per_million: 50_000, ..Options::default() };
    let mut two = Two::new(seed, options);
    let conns = two.connect(20);
    two.run(Some(Duration::from_millis(1)));
    for (nth, conn) in conns.into_iter().enumerate() {
        two.client.send(conn, &mut vec![Frame::owned(vec![7; 3000 * nth])]);
    }
    two.run(Some(Duration::from_millis(50)));
    two.log
}

#[test]
fn a_seed_repeats_a_run_and_another_seed_differs() {
    let first = traffic(1);
    assert!(first.len() > 100, "{}", first.len());
    assert_eq!(first, traffic(1));
    assert_ne!(first, traffic(2));
}

#[test]
fn faults_occur_at_the_configured_rate() {
    let (mut resets, mut failures) = (0, 0);
    for seed in 0..20 {
        let log = traffic(seed);
        resets += log.iter().filter(|line| line.contains("Closed")).count();
        failures += log.iter().filter(|line| line.contains("AcceptFailed")).count();
    }
    assert!(resets > 10 && failures > 3, "{resets} {failures}");
}

#[test]
fn the_clock_stops_at_the_requested_time() {
    let mut two = Two::new(3, Options::default());
    let begun = two.world.now();
    two.server.timer_set(begun + Duration::from_secs(86_400), 9);
    two.run(Some(Duration::from_secs(86_399)));
    assert_eq!(two.world.now() - begun, Duration::from_secs(86_399));
    assert_eq!(two.saw("Timer"), 0);
    two.run(Some(Duration::from_secs(2)));
    assert_eq!((two.saw("Timer(9)"), two.world.now() - begun), (1, Duration::from_secs(86_401)));
    assert!(!two.world.step());
}

#[test]
fn a_requested_reset_reaches_both_ends() {
    let mut two = Two::new(4, Options::default());
    let conns = two.connect(3);
    two.run(None);
    two.world.reset(&two.client, conns[1]);
    two.run(None);
    assert_eq!(two.saw("Closed"), 2);
    assert_eq!((two.server.connections(), two.client.connections()), (2, 2));
    two.world.reset(&two.client, conns[1]);
    two.run(None);
    assert_eq!(two.saw("Closed"), 2);
}

#[test]
fn failed_accepts_pause_for_100_ms() {
    let mut two = Two::new(5, Options::default());
    two.connect(2);
    two.world.fail_accepts(&two.server, 3);
    let begun = two.world.now();
    two.run(Some(Duration::from_millis(290)));
    assert_eq!((two.saw("AcceptFailed"), two.saw("accepted")), (3, 0));
    two.run(None);
    assert_eq!((two.saw("AcceptFailed"), two.saw("accepted")), (3, 2));
    assert!(two.world.now() - begun >= Duration::from_millis(300));
}

#[test]
fn a_full_accept_queue_makes_clients_wait() {
    let mut two = Two::new(6, Options::default());
    let addr = "[fd00::1]:80".parse().unwrap();
    two.server.listen(addr, &ListenOptions { backlog: 2, ..ListenOptions::default() }).unwrap();
    for _ in 0..10 {
        two.client.connect(addr, None).unwrap();
    }
    let Two { world, client, log, .. } = &mut two;
    world.run_for(Duration::from_millis(900), || turn(client, log)); // no connection is accepted
    assert_eq!(two.saw("Connected"), 2);
    two.run(None);
    assert_eq!((two.saw("Connected"), two.saw("accepted")), (10, 10));
}

#[test]
fn a_driver_that_is_dropped_closes_its_connections() {
    let mut two = Two::new(7, Options::default());
    two.connect(3);
    two.run(None);
    two.client = two.world.driver();
    two.run(None);
    assert_eq!(two.saw("PeerFinished"), 3);
}

#[test]
fn a_detached_connection_stays_in_its_world() {
    let mut two = Two::new(8, Options::default());
    let conns = two.connect(1);
    two.run(None);
    let detached = two.client.detach(conns[0]).unwrap();
    assert!(World::new(8, Options::default()).driver().attach(detached).is_err());
    two.run(None);
    assert_eq!(two.saw("PeerFinished"), 1);
}
