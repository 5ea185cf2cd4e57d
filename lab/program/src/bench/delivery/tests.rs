use super::*;

const MS: Duration = Duration::from_millis(1);

/// Publications of 10 slices of 100 ms, with the CPU time (ms) of each slice, and the time (ms) of the last receiver.
fn outcome(used_ms: &[[u32; 10]], last_ms: u64) -> Outcome {
    let span = |used: &u32| Span { wall: 100 * MS, server_cpu: *used * MS, ..Span::default() };
    Outcome {
        messages: 1000 * used_ms.len() as u64,
        slices: used_ms.iter().flatten().map(span).collect(),
        last_of_each_ns: vec![last_ms * 1_000_000; used_ms.len()],
        ..Outcome::default()
    }
}

#[test]
fn known_costs_are_found_or_an_error_says_why_not() {
    let check = |used_ms: &[[u32; 10]], last_ms, expect: Result<f64, &str>| match (
        cost(&outcome(used_ms, last_ms), |span| span.server_cpu),
        expect,
    ) {
        (Ok(cost), Ok(micros)) => {
            assert!((cost.as_secs_f64() * 1e6 - micros).abs() < 0.01, "{cost:?}, not {micros}: {used_ms:?}");
        }
        (Err(why), Err(says)) => assert!(why.contains(says), "{why}"),
        (found, expect) => panic!("{found:?}, not {expect:?}: {used_ms:?}"),
    };
    // Deliveries without heartbeats: 8 ms for 1,000.
    check(&[[6, 2, 0, 0, 0, 0, 0, 0, 0, 0]; 2], 90, Ok(8.0));
    // Deliveries on top of 3 ms that each slice takes.
    check(&[[9, 5, 3, 3, 3, 3, 3, 3, 3, 3]; 2], 90, Ok(8.0));
    // CPU in the slice after the last receiver belongs to the delivery, later CPU doesn't.
    check(&[[4, 2, 2, 0, 0, 0, 0, 0, 0, 0]; 2], 101, Ok(8.0));
    // Heartbeats of 1 ms in some slices. Idle windows have as many on average, and a window may have had 1 ms.
    check(&[[8, 0, 1, 0, 0, 0, 1, 0, 0, 0]; 2], 90, Ok(7.5));
    // A burst twice as large may be all that was measured.
    check(
        &[[8, 0, 8, 0, 0, 0, 0, 0, 0, 0]; 2],
        90,
        Err("heartbeats scatter by 6.00 µs a delivery, which took 8.00"),
    );
    // One burst, during deliveries or beside them: the cause is unknown.
    check(&[[0, 0, 0, 0, 0, 9, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0, 0, 0]], 90, Err("scatter"));
    // The deliveries take less than idle slices.
    check(&[[0, 0, 3, 3, 3, 3, 3, 3, 3, 3]; 2], 90, Err("wasn't measured"));
    check(&[[0; 10]; 2], 90, Err("wasn't measured"));
    // Two idle windows, and none.
    check(&[[8, 8, 8, 8, 0, 0, 0, 0, 0, 0]; 2], 390, Err("a message took 390.0ms of the 1.0s"));
    check(&[[8; 10]; 4], 990, Err("never seen alone"));
    check(&[[8; 10]; 4], 5000, Err("never seen alone"));
    check(&[], 0, Err("nobody looked"));
}

#[test]
fn a_cost_is_unknown_if_clients_are_pinged_only_long_after_a_message() {
    // Each publication delays the next heartbeats by 25 s.
    for (slice_ms, is_known) in [(2500, true), (2501, false), (8000, false)] {
        let mut found = outcome(&[[8, 0, 0, 0, 0, 0, 0, 0, 0, 0]; 2], 90);
        found.slices.iter_mut().for_each(|slice| slice.wall = slice_ms * MS);
        assert_eq!(cost(&found, |span| span.server_cpu).is_ok(), is_known, "{slice_ms} ms");
    }
}

#[test]
fn a_slice_that_was_read_late_does_not_count_twice() {
    let mut late = outcome(&[[8, 0, 1, 1, 1, 1, 1, 1, 1, 1]; 2], 90);
    // The last three slices of the third and fourth idle window were read at once.
    late.slices[5].wall = 300 * MS;
    late.slices[5].server_cpu = 3 * MS;
    for slice in &mut late.slices[6..8] {
        (slice.wall, slice.server_cpu) = (Duration::ZERO, Duration::ZERO);
    }
    let found = cost(&late, |span| span.server_cpu).unwrap();
    assert!((found.as_secs_f64() * 1e6 - 6.0).abs() < 0.01, "{found:?}");
}
