use super::*;

#[test]
fn faults_of_the_same_message_count_once() {
    let check = |gaps, wrong_length, corrupt, expect| {
        let audit = Audit { gaps, wrong_length, corrupt, ..Audit::default() };
        assert_eq!(audit.accounted(), expect, "{audit:?}");
    };
    check(5, 0, 0, 5);
    check(32, 0, 200, 200);
    check(5, 2, 1, 5);
    check(0, 2, 3, 5);
}

fn valid() -> Outcome {
    let mut outcome = Outcome {
        connections: 10,
        messages: 1000,
        idle: Span { wall: Duration::from_secs(1), server_cpu: Duration::from_millis(1), ..Span::default() },
        load: Span {
            wall: Duration::from_secs(4),
            server_cpu: Duration::from_millis(14),
            started_cpu: Duration::from_millis(3),
            own_cpu: Duration::from_secs(1),
            steal_share: 0.0,
        },
        ..Outcome::default()
    };
    outcome.audit.expected = 1000;
    outcome.audit.delivered = 1000;
    outcome.latency.record_ns(1_000_000);
    outcome.lag.record_ns(50_000);
    outcome
}

#[test]
fn takes_the_idle_cost_off() {
    assert_eq!(valid().server_cpu_per_message(), Some(Duration::from_micros(10)));
    assert_eq!(valid().cpu_per_message(|span| span.started_cpu), Some(Duration::from_micros(3)));
    assert_eq!(Outcome::default().server_cpu_per_message(), None);
}

#[test]
fn the_last_of_all_processes_is_the_last() {
    let of = |each: [u64; 2]| Outcome { last_of_each_ns: each.to_vec(), ..Outcome::default() };
    let mut whole = of([1000, 900]);
    whole.merge(&of([10, 20]));
    whole.merge(&of([500, 950]));
    assert_eq!(whole.last_of_each_ns, [1000, 950]);
}

#[test]
fn connections_of_processes_stand_on_each_other() {
    let point = |connections, cpu_ms, server_bytes| Progress {
        connections,
        messages: 0,
        server_cpu: Duration::from_millis(cpu_ms),
        server_bytes,
        kernel_bytes: 0,
    };
    let of = |progress: &[Progress]| Outcome { progress: progress.to_vec(), ..Outcome::default() };
    let mut whole = of(&[point(0, 0, 30), point(5, 50, 40)]);
    whole.merge(&of(&[point(0, 0, 20), point(7, 70, 30)]));
    whole.merge(&of(&[point(0, 0, 10), point(9, 90, 20)]));
    let expect: [(u64, u64, u64); 6] =
        [(0, 0, 10), (9, 90, 20), (9, 90, 20), (16, 160, 30), (16, 160, 30), (21, 210, 40)];
    assert_eq!(whole.progress, expect.map(|(connections, cpu, bytes)| point(connections, cpu, bytes)));
}

#[test]
fn a_lag_within_the_resolution_is_let_pass() {
    let check = |lag_us, measured_us, spoiled: bool| {
        let (lag, measured) = (Duration::from_micros(lag_us), Duration::from_micros(measured_us));
        assert_eq!(is_spoiled(lag, measured), spoiled, "{lag:?} {measured:?}");
    };
    check(0, 0, false);
    check(99, 1000, false);
    check(101, 1000, true);
    // A fast server, and a generator without a delay of its own.
    check(33, 160, false);
    check(50, 100, false);
    check(51, 100, true);
    // The generator's delay is larger than the server's.
    check(33, 60, true);
    check(1, 0, true);
}

#[test]
fn doubts_what_the_generator_spoiled() {
    let check = |change: fn(&mut Outcome), expect: &[&str]| {
        let mut outcome = valid();
        change(&mut outcome);
        let doubts = outcome.doubts();
        assert_eq!(doubts.len(), expect.len(), "{doubts:?}");
        for (doubt, expect) in doubts.iter().zip(expect) {
            assert!(doubt.what.contains(expect), "{doubt:?} / {expect}");
        }
    };
    check(|_| {}, &[]);
    check(|o| o.load.own_cpu = Duration::from_millis(3300), &["82 % of its core"]);
    check(|o| o.lag.record_ns(150_000), &["lagged"]);
    check(|o| o.audit.delivered = 990, &["10 messages not delivered"]);
    check(
        |o| {
            o.audit.delivered = 990;
            o.audit.gaps = 10;
        },
        &["10 messages missing"],
    );
    check(|o| o.audit.lost_connections = 1, &["1 connections lost"]);
    check(|o| o.overlapping = 2, &["2 publications"]);
}
