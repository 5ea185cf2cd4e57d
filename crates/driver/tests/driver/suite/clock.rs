//! Timers and wakers.

use super::pair::{Pair, Seen};
use std::time::Duration;

pub(crate) fn timers_fire_in_order_and_never_early(mut pair: Pair) {
    let now = pair.server.driver.now();
    let mut at = Vec::new();
    for (token, after_ms) in [(0, 90), (1, 30), (2, 60), (3, 0), (4, 120)] {
        at.push(now + Duration::from_millis(after_ms));
        pair.server.driver.timer_set(at[token], token as u64);
    }
    pair.until(|pair| {
        for seen in &pair.server.log {
            if let Seen::Timer(token) = seen {
                assert!(pair.server.driver.now() >= at[*token as usize], "timer {token} is early");
            }
        }
        pair.server.log.len() == 5
    });
    assert_eq!(pair.server.log, [3, 1, 2, 0, 4].map(Seen::Timer));
}

pub(crate) fn a_cancelled_timer_does_not_fire(mut pair: Pair) {
    let now = pair.server.driver.now();
    let timers: Vec<_> = (0..50)
        .map(|token| pair.server.driver.timer_set(now + Duration::from_millis(20 + token % 7), token))
        .collect();
    for (token, timer) in timers.iter().enumerate() {
        if token % 3 != 0 {
            pair.server.driver.timer_cancel(*timer);
        }
    }
    let last = pair.server.driver.timer_set(now + Duration::from_millis(60), 1000);
    pair.until(|pair| pair.server.saw(&Seen::Timer(1000)));
    assert_eq!(pair.server.log.len(), 17 + 1);
    // Cancelling a timer that has fired has no effect, even if another timer uses its slot.
    let other = pair.server.driver.timer_set(pair.server.driver.now(), 1001);
    assert_ne!(other, last);
    pair.server.driver.timer_cancel(last);
    timers.into_iter().for_each(|timer| pair.server.driver.timer_cancel(timer));
    pair.until(|pair| pair.server.saw(&Seen::Timer(1001)));
}

pub(crate) fn a_timer_due_can_be_cancelled_in_its_turn(mut pair: Pair) {
    let at = pair.server.driver.now() + Duration::from_millis(10);
    let [first, second, _] = [0, 1, 2].map(|nth| pair.server.driver.timer_set(at, nth));
    pair.pass(Duration::from_millis(50));
    let driver = &mut pair.server.driver;
    driver.wait(Some(Duration::ZERO)).unwrap(); // they are due now
    driver.timer_cancel(first);
    driver.timer_cancel(second);
    pair.until(|pair| pair.server.saw(&Seen::Timer(2)));
    assert_eq!(pair.server.log, [Seen::Timer(2)]);
}

pub(crate) fn a_timer_does_not_prolong_its_turn(mut pair: Pair) {
    pair.server.on_timer = |driver, token| {
        driver.timer_set(driver.now(), token + 1);
    };
    pair.server.driver.timer_set(pair.server.driver.now(), 0);
    for token in 0..5 {
        pair.until(|pair| pair.server.log.len() > token);
        assert_eq!(pair.server.log.len(), token + 1, "two of a chain in one turn");
    }
}

pub(crate) fn a_wake_is_reported_once(mut pair: Pair) {
    let waker = pair.server.driver.waker();
    let zero = Some(Duration::ZERO);
    pair.server.turn(zero);
    assert!(!pair.server.saw(&Seen::Woken));
    waker.wake();
    waker.wake();
    // If the wake were lost, the driver would sleep for 20 s.
    pair.server.turn(Some(Duration::from_secs(20)));
    assert_eq!(pair.server.log, [Seen::Woken]);
    pair.server.turn(zero);
    assert_eq!(pair.server.log, [Seen::Woken]);
}

pub(crate) fn another_thread_wakes(mut pair: Pair) {
    for round in 1..=100 {
        let waker = pair.server.driver.waker();
        let thread = std::thread::spawn(move || waker.wake());
        let begun = std::time::Instant::now();
        while pair.server.count(&Seen::Woken) < round {
            // The simulated driver doesn't sleep, so it needs several turns.
            pair.server.turn(Some(Duration::from_secs(20)));
            assert!(begun.elapsed() < Duration::from_secs(10), "a wake is lost");
            std::thread::yield_now();
        }
        thread.join().unwrap();
    }
    assert_eq!(pair.server.log.len(), 100);
}

pub(crate) fn a_wait_ends_with_its_time(mut pair: Pair) {
    // The simulated driver returns at once, because the test moves its clock.
    assert_eq!(pair.server.turn(Some(Duration::from_millis(3))), 0);
    pair.server.driver.timer_set(pair.server.driver.now() + Duration::from_secs(3600), 0);
    assert_eq!(pair.server.turn(Some(Duration::from_millis(3))), 0);
}
