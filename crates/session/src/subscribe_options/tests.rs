//! Subscribe options.

use super::*;

#[test]
fn options_of_feeds_and_rooms() {
    fn check(
        policy: Option<&str>,
        rate: Option<f64>,
        feed: Result<(Policy, u64), &str>,
        room: Option<Policy>,
    ) {
        let asked = RequestedOptions { policy, delta: None, rate };
        let got = asked.of_feed(true).map(|options| (options.policy, options.interval.as_millis() as u64));
        assert_eq!(got.map_err(|error| error.code()), feed, "{policy:?} {rate:?}");
        assert_eq!(asked.of_room().ok().map(|options| options.policy), room, "{policy:?} {rate:?}");
    }
    check(None, None, Ok((Policy::Latest, 0)), Some(Policy::Queue));
    check(Some("latest"), Some(4.0), Ok((Policy::Latest, 250)), None);
    check(Some("queue"), None, Ok((Policy::Queue, 0)), Some(Policy::Queue));
    check(Some("drop_oldest"), None, Ok((Policy::DropOldest, 0)), Some(Policy::DropOldest));
    check(Some("queue"), Some(4.0), Err("bad_rate"), None);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.0009, 1000.1] {
        check(None, Some(rate), Err("bad_rate"), None);
    }
    check(Some("Latest"), None, Err("bad_policy"), None);
}

#[test]
fn deltas_are_the_protocols_choice_unless_the_client_says() {
    for default in [false, true] {
        for (delta, expect) in [(None, default), (Some(true), true), (Some(false), false)] {
            assert_eq!(
                RequestedOptions { delta, ..RequestedOptions::default() }.of_feed(default).unwrap().deltas,
                expect
            );
        }
    }
}
