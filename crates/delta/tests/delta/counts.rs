//! An upper bound on instructions: the cost of an update with few changes, counted by valgrind's cachegrind.
//! Time isn't measured.
//!
//! This program runs itself with 12 and with 2 repetitions. A tenth of the difference is the cost of an
//! update. It counts unoptimized code, like `lab/program/tests/lab/counts.rs`, so the figures don't show the
//! speed of a release build, but do show an additional pass over the text.

use std::process::Command;
use stentor_delta::{Delta, Differ, Options, Seed};

/// Maximum number of instructions per update: the count of 2026-11-23, plus a tenth.
const SMALL_MAX: u64 = 1_710_000;
const LARGE_MAX: u64 = 53_000_000;
const SAME_MAX: u64 = 52_000_000;

/// Environment variable with the work of the counted process: bytes, changed values, repetitions.
const WORK: &str = "STENTOR_DELTA_WORK";

fn document(bytes: usize, changed: usize) -> String {
    let count = bytes / 145;
    let step = count / changed.max(1);
    let player = |id: usize| {
        let touches = if id % step == 1 && id / step < changed { 1_000 + id } else { id };
        format!(
            r#"{{"id":"player-{id:05}","name":"Given Family{id}","position":{{"x":{}.5,"y":{}}},"touches":{touches},"passes":{},"onPitch":true,"note":"came on for nobody"}}"#,
            id % 97,
            id % 89,
            id % 10
        )
    };
    format!("{{\"players\":[{}]}}", (0..count).map(player).collect::<Vec<_>>().join(","))
}

#[test]
fn counted_work() {
    let Ok(work) = std::env::var(WORK) else { return };
    let [bytes, changed, times] = work.split(' ').map(|n| n.parse().unwrap()).collect::<Vec<usize>>()[..]
    else {
        panic!("{work}")
    };
    let (old, new) = (document(bytes, 0), document(bytes, changed));
    let differ = Differ::new(Options::default(), Seed([1, 2]));
    for _ in 0..times {
        let update = differ.update(Some(old.as_bytes()), new.as_bytes()).unwrap();
        let operations = match update.diff.delta {
            Delta::Unchanged => 0,
            Delta::Patch(patch) => String::from_utf8(patch).unwrap().matches("\"replace\"").count(),
            Delta::Snapshot => panic!("a snapshot"),
        };
        assert_eq!(operations, changed);
    }
}

fn instructions(work: &str) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "counts::counted_work", "--test-threads=1"])
        .env(WORK, work)
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");
    let line = log.lines().find(|line| line.contains("I   refs:")).unwrap_or_else(|| panic!("{log}"));
    line.rsplit(' ').next().unwrap().replace(',', "").parse().unwrap()
}

#[test]
fn updates_cost_no_more_instructions() {
    if !cfg!(target_arch = "x86_64") || Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: this counts on x86-64, with valgrind");
        return;
    }
    for (bytes, changed, max) in [(5_000, 3, SMALL_MAX), (165_000, 20, LARGE_MAX), (165_000, 0, SAME_MAX)] {
        let (less, more) = (2, 12);
        let run = |times: u64| instructions(&format!("{bytes} {changed} {times}"));
        let count = (run(more) - run(less)) / (more - less);
        eprintln!("{bytes} bytes, {changed} values changed: {count} instructions, at most {max}");
        assert!(
            count <= max,
            "{bytes} bytes, {changed} values changed: {count} instructions, more than {max}"
        );
    }
}
