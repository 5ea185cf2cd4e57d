use super::*;

#[test]
fn remaining_runs_are_printed_if_there_is_no_bar() {
    let check = |is_terminal: bool, expect: &[&str]| {
        let mut out = Vec::new();
        let mut progress = Progress::new(&mut out);
        progress.is_terminal = is_terminal;
        progress.expect(6, None);
        progress.skip(2);
        progress.say("begins");
        progress.made("one", Duration::from_secs(60));
        for _ in 0..3 {
            progress.made("more", Duration::from_secs(60));
        }
        drop(progress);
        let text = String::from_utf8(out).unwrap();
        for expect in expect {
            assert!(text.contains(expect), "{expect}: {text:?}");
        }
        assert_eq!(text.contains('\r'), is_terminal, "{text:?}");
    };
    check(false, &["00:00 begins\n", "one (3 runs left, about 3 min)\n", "00:00 more\n"]);
    let bar = "one\n\r\x1b[K\x1b[?7l██████░";
    check(true, &["0/4", bar, " 1/4, 3 runs left, about 3 min", "\x1b[?7h\r\x1b[K00:00 more\n"]);
}

/// A quick case ends early, so its first runs would announce much more time than it takes.
#[test]
fn no_more_time_is_announced_than_the_runs_may_take() {
    let mut out = Vec::new();
    let mut progress = Progress::new(&mut out);
    progress.is_terminal = false;
    progress.expect(18, Some(Duration::from_secs(120)));
    progress.made("first", Duration::from_secs(60));
    progress.made("second", Duration::from_secs(60));
    drop(progress);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("first (up to 17 runs left, about 1 min)"), "{text:?}");
    assert!(text.contains("second (up to 16 runs left, about 0 s)"), "{text:?}");
}

#[test]
fn live_figures_are_shown_beside_the_bar() {
    let mut out = Vec::new();
    let mut progress = Progress::new(&mut out);
    progress.expect(2, None);
    progress.is_terminal = false;
    assert!(progress.live().is_none());
    progress.is_terminal = true;
    progress.say("begins");
    let live = Live { delivered_hz: 100.0, latency: None, server_share: 0.5 };
    let line = progress.live().unwrap().line(Some(&live));
    assert!(line.contains("░ 0/2  100/s, server 50 %"), "{line:?}");
}
