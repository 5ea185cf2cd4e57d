use super::*;

#[test]
fn remaining_runs_are_printed_if_there_is_no_bar() {
    let check = |is_terminal: bool, expect: &[&str]| {
        let mut out = Vec::new();
        let mut progress = Progress::new(&mut out);
        progress.is_terminal = false;
        progress.expect(6, None);
        progress.is_terminal = is_terminal;
        progress.skip(2);
        progress.say("begins");
        progress.made("one\nsaid", Duration::from_secs(60));
        assert_eq!(progress.bar.prefix(), ", 3 runs left, about 3 min");
        for _ in 0..3 {
            progress.made("more", Duration::from_secs(60));
        }
        assert_eq!((progress.bar.prefix().as_str(), progress.live().is_some()), ("", is_terminal));
        drop(progress);
        let text = String::from_utf8(out).unwrap();
        for expect in expect {
            assert!(text.contains(expect), "{expect}: {text:?}");
        }
    };
    check(false, &["00:00 begins\n", "one (3 runs left, about 3 min)\nsaid\n", "00:00 more\n"]);
    check(true, &["00:00 begins\n", "00:00 one\nsaid\n", "00:00 more\n"]);
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
fn the_template_of_the_bar_is_valid() {
    assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
}
