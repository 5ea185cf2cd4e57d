//! Deltas: for any two documents, the delta applied to the old one gives the new one.

use stentor_delta::{ApplyLimits, Delta, Diff, Differ, Ignored, Options, Parsed, Seed, apply};

/// Checks the delta of two texts, if both are JSON.
fn check(flags: u8, old: &[u8], new: &[u8]) {
    let options = Options {
        identity: if flags & 1 == 0 { Vec::new() } else { vec!["b".into()] },
        ignored: if flags & 8 == 0 { Ignored::default() } else { ignored() },
        patch_percent_max: if flags & 2 == 0 { 100 } else { 100_000 },
        steps_per_byte: if flags & 4 == 0 { 16 } else { 0 },
        ..Options::default()
    };
    let differ = Differ::new(options, Seed([u64::from(flags), 7]));
    let Ok(before) = differ.parse(old) else { return };
    let Ok(after) = differ.parse(new) else {
        assert!(differ.update(Some(before.minified()), new).is_err());
        return;
    };
    let update = differ.update(Some(before.minified()), new).expect("it was parsed");
    assert_eq!(update.text, after.minified());
    for diff in [differ.diff(&before, &after), update.diff] {
        check_diff(&differ, flags, old, [&before, &after], diff);
    }
}

fn ignored() -> Ignored {
    Ignored::parse(&["/a".into(), "/*/b".into(), "/*/*/0".into()]).expect("three pointers")
}

fn check_diff(differ: &Differ, flags: u8, old: &[u8], [before, after]: [&Parsed<'_>; 2], diff: Diff) {
    assert!(diff.steps <= 30_000 + 64 * (old.len() + after.minified().len()) as u64);
    match diff.delta {
        Delta::Unchanged => {
            let there = differ.diff(after, before);
            assert_eq!(there.delta, Delta::Unchanged);
        }
        Delta::Patch(patch) => {
            assert!(flags & 2 != 0 || patch.len() < after.minified().len());
            let made = apply(old, &patch, ApplyLimits::default()).expect("our own patch is sound");
            let made = differ.parse(&made).expect("our own text is sound");
            assert_eq!(differ.diff(&made, after).delta, Delta::Unchanged);
        }
        Delta::Snapshot => assert_eq!(flags & 2, 0),
    }
}

/// Checks texts. The input is flags, the old text, 0xff, and the new text. The new text is also applied as a
/// patch.
pub fn texts(data: &[u8]) {
    let Some((&flags, texts)) = data.split_first() else { return };
    let mut texts = texts.split(|&byte| byte == 0xff);
    let (Some(old), Some(new)) = (texts.next(), texts.next()) else { return };
    check(flags, old, new);
    let limits = ApplyLimits { values_max: 1000, bytes_max: 10_000 };
    if let Ok(made) = apply(old, new, limits) {
        assert!(apply(&made, b"[]", ApplyLimits::default()).is_ok());
    }
}

/// Checks values. The input is flags, and bytes from which two documents are built.
pub fn values(data: &[u8]) {
    let Some((&flags, mut bytes)) = data.split_first() else { return };
    let (mut old, mut new) = (Vec::new(), Vec::new());
    build(&mut bytes, 6, &mut old);
    build(&mut bytes, 6, &mut new);
    check(flags, &old, &new);
}

/// Writes the value that the bytes describe. Without further bytes, writes the shortest value.
fn build(bytes: &mut &[u8], depth: u32, out: &mut Vec<u8>) {
    const SCALARS: [&str; 16] = [
        "0",
        "-0",
        "1",
        "1.0",
        "2",
        "null",
        "true",
        "false",
        "\"\"",
        "\"a\"",
        "\"\\u0061\"",
        "\"\\ud800\"",
        "1e400",
        "12345678901234567890",
        "\"a long string, longer than a path\"",
        "\"~/\\\\\\\"\"",
    ];
    const NAMES: [&str; 8] = ["a", "b", "id", "", "\\u0061", "~/", "-", "__proto__"];
    let mut next = || {
        let (&first, rest) = bytes.split_first().unwrap_or((&0, &[]));
        *bytes = rest;
        first
    };
    let kind = next();
    let count = kind >> 4;
    match if depth == 0 { 0 } else { kind & 3 } {
        0 | 1 => out.extend(SCALARS[usize::from(count)].bytes()),
        2 => {
            out.push(b'[');
            for i in 0..count {
                if i > 0 {
                    out.push(b',');
                }
                build(bytes, depth - 1, out);
            }
            out.push(b']');
        }
        _ => {
            out.push(b'{');
            for i in 0..count.min(8) {
                if i > 0 {
                    out.push(b',');
                }
                let (&name, rest) = bytes.split_first().unwrap_or((&i, &[]));
                *bytes = rest;
                out.extend(format!("\"{}\":", NAMES[usize::from(name & 7)]).bytes());
                build(bytes, depth - 1, out);
            }
            out.push(b'}');
        }
    }
}
