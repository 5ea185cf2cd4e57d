//! Tests of the log lines about an upstream.

use super::*;

/// Returns the log lines for these numbers of keys that fail with 500 and with 401.
fn review(log: &mut FailureLog, now: Instant, server_error: usize, unauthorized: usize) -> String {
    let mut failing = [0; FAILURE_CLASSES];
    failing[FailureClass::ServerError as usize] = server_error;
    failing[FailureClass::Unauthorized as usize] = unauthorized;
    let text = |line| match line {
        Line::Fails { class, last } => {
            let (key, cause) = last.map_or_else(Default::default, |(key, cause)| (key.to_string(), cause));
            format!("{} {key} {cause}", class.name())
        }
        Line::Recovered { class } => format!("no {}", class.name()),
    };
    log.review(now, &failing).into_iter().map(text).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_kind_of_failure_is_logged_when_it_begins_and_when_it_ends() {
    let (mut log, now) = (FailureLog::default(), Instant::now());
    let key = Key::parse("a").unwrap();
    assert_eq!(review(&mut log, now, 0, 0), "");
    log.record(FailureClass::ServerError, "503", &key, "503");
    assert_eq!(review(&mut log, now, 1, 0), "server_error a 503");
    // The number of failing keys changes, which causes no line.
    assert_eq!(review(&mut log, now, 7, 0), "");
    assert_eq!(review(&mut log, now, 1, 0), "");
    log.record(FailureClass::Unauthorized, "401", &key, "401");
    assert_eq!(review(&mut log, now, 0, 1), "unauthorized a 401; no server_error");
    // The cause of the failure stays the same, changes, and changes back. Only the new cause is logged.
    log.record(FailureClass::Unauthorized, "401", &key, "401 again");
    assert_eq!(review(&mut log, now, 0, 1), "");
    log.record(FailureClass::Unauthorized, "403", &key, "403");
    assert_eq!(review(&mut log, now, 0, 2), "unauthorized a 403");
    log.record(FailureClass::Unauthorized, "401", &key, "401");
    assert_eq!(review(&mut log, now, 0, 2), "");
    assert_eq!(review(&mut log, now, 0, 0), "no unauthorized");
    log.record(FailureClass::Unauthorized, "403", &key, "403");
    assert_eq!(review(&mut log, now, 0, 1), "unauthorized a 403");
}

#[test]
fn missing_keys_are_logged_rarely() {
    let (mut log, now) = (FailureLog::default(), Instant::now());
    let lines = (0..1201).filter(|seconds| log.record_missing(now + Duration::from_secs(*seconds)));
    assert_eq!(lines.count(), 3);
}

#[test]
fn intermittent_failures_do_not_fill_the_log() {
    let (mut log, now) = (FailureLog::default(), Instant::now());
    let lines = (0..1000).filter(|n| !review(&mut log, now, n % 2, 0).is_empty()).count();
    assert_eq!(lines, CHANGES_MAX as usize);
    // The change that wasn't logged within the interval is logged after it.
    assert_eq!(review(&mut log, now, 1, 0), "");
    assert_eq!(review(&mut log, now + CHANGES_INTERVAL, 1, 0), "server_error  ");
    assert_eq!(review(&mut log, now + CHANGES_INTERVAL, 1, 0), "");
}

#[test]
fn only_lasting_changes_are_logged() {
    let (mut log, begin) = (IntervalLog::default(), Instant::now());
    let mut check = |at_ms: u64, effective_ms: u64, expect: Option<bool>| {
        let (at, effective) = (Duration::from_millis(at_ms), Duration::from_millis(effective_ms));
        assert_eq!(log.review(begin + at, Duration::from_secs(1), effective), expect, "{at_ms}");
    };
    check(0, 1_000, None);
    check(1_000, 3_000, None);
    check(5_900, 3_000, None);
    check(5_950, 1_050, None);
    check(6_000, 3_000, None);
    check(10_999, 1_101, None);
    check(11_000, 1_101, Some(true));
    check(20_000, 3_000, None);
    check(30_000, 1_100, None);
    check(35_000, 1_000, Some(false));
    check(45_000, 1_000, None);
}

#[test]
fn a_max_age_is_logged_when_it_first_applies() {
    let (mut max_age, begin) = (MaxAge::default(), Instant::now());
    let mut check = |at: u64, interval: Option<u64>, expect: bool| {
        let interval = interval.map(Duration::from_secs);
        let is_logged = max_age.record(begin + Duration::from_secs(at), Duration::from_secs(5), interval);
        assert_eq!((max_age.interval, is_logged), (interval, expect), "{at}");
    };
    check(0, None, false);
    check(5, Some(5), false);
    check(10, Some(60), true);
    check(70, None, false);
    check(75, Some(60), false);
    check(609, Some(60), false);
    check(610, Some(60), true);
}
