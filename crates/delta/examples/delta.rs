//! Computes deltas between the versions of a document: the files of a folder in the order of their names.
//!
//! `cargo run --release --example delta -- figures FOLDER` prints the sizes of the patches and their cost.
//!
//! `cargo run --example delta -- cases [FOLDER]` prints patches for other implementations to apply, one case
//! per line, `{"name","old","new","patch"}`: of random documents, of the folder's versions one by one, and of
//! all its steps joined.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example for people")]

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use stentor_delta::{Delta, Differ, Options, Seed, join};

#[path = "../tests/delta/generate.rs"]
mod generate;

const RANDOM_CASES: u64 = 2000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["figures", folder] => figures(Path::new(folder)),
        ["cases"] => cases(None),
        ["cases", folder] => cases(Some(Path::new(folder))),
        _ => println!("delta figures FOLDER | delta cases [FOLDER]"),
    }
}

/// Reads the versions and removes their whitespace.
fn versions(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().map(|file| minified(&std::fs::read(file).unwrap())).collect()
}

fn minified(text: &[u8]) -> Vec<u8> {
    differ(100).parse(text).unwrap().minified().to_vec()
}

fn differ(patch_percent_max: u32) -> Differ {
    Differ::new(Options { patch_percent_max, ..Options::default() }, Seed([1, 2]))
}

fn figures(folder: &Path) {
    const ROUNDS: u32 = 20;
    let (differ, versions) = (differ(100), versions(folder));
    let [mut bytes, mut new_bytes, mut patches, mut steps, mut tapes] = [0; 5];
    let (mut parsing, mut diffing) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        [bytes, new_bytes, patches, steps, tapes] = [0; 5];
        for pair in versions.windows(2) {
            let start = Instant::now();
            let (old, new) = (differ.parse(&pair[0]).unwrap(), differ.parse(&pair[1]).unwrap());
            let parsed = Instant::now();
            let diff = differ.diff(&old, &new);
            diffing += parsed.elapsed();
            parsing += parsed - start;
            bytes += pair[0].len() + pair[1].len();
            new_bytes += pair[1].len();
            tapes += old.owned_bytes() + new.owned_bytes();
            steps += diff.steps as usize;
            patches += match diff.delta {
                Delta::Unchanged => 0,
                Delta::Patch(patch) => patch.len(),
                Delta::Snapshot => pair[1].len(),
            };
        }
    }
    let mb_per_s = |time: Duration| bytes as f64 / (time / ROUNDS).as_secs_f64() / 1e6;
    println!("{} versions, {ROUNDS} rounds; bytes are those of the old and the new text", versions.len());
    println!(
        "patches        {patches:>10} bytes, {:.3} % of the new texts",
        patches as f64 * 100.0 / new_bytes as f64
    );
    println!("parse          {:>10.0} MB/s", mb_per_s(parsing));
    println!(
        "diff           {:>10.0} MB/s, {:.3} steps per byte",
        mb_per_s(diffing),
        steps as f64 / bytes as f64
    );
    println!("parse and diff {:>10.0} MB/s", mb_per_s(parsing + diffing));
    println!("tapes          {:>10.2} times the texts", tapes as f64 / bytes as f64);
}

fn cases(folder: Option<&Path>) {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut case = |name: String, old: &[u8], new: &[u8], patch: &[u8]| {
        write!(out, "{{\"name\":\"{name}\",\"old\":").unwrap();
        for part in [old, b",\"new\":", new, b",\"patch\":", patch, b"}\n"] {
            out.write_all(part).unwrap();
        }
    };
    let patch = |differ: &Differ, old: &[u8], new: &[u8]| match differ
        .diff(&differ.parse(old).unwrap(), &differ.parse(new).unwrap())
        .delta
    {
        Delta::Unchanged => b"[]".to_vec(),
        Delta::Patch(patch) => patch,
        Delta::Snapshot => panic!("a snapshot"),
    };
    // Makes patches even if a snapshot would be shorter.
    let willing = differ(100_000);
    for seed in 0..RANDOM_CASES {
        let (old, new) = generate::pair(seed);
        let (old, new) = (minified(old.as_bytes()), minified(new.as_bytes()));
        case(format!("random {seed}"), &old, &new, &patch(&willing, &old, &new));
    }
    let versions = folder.map(versions).unwrap_or_default();
    let patches: Vec<_> = versions.windows(2).map(|pair| patch(&differ(100), &pair[0], &pair[1])).collect();
    for (i, (pair, patch)) in versions.windows(2).zip(&patches).enumerate() {
        case(format!("version {}", i + 2), &pair[0], &pair[1], patch);
    }
    if let [first, .., last] = &versions[..] {
        case("all versions".into(), first, last, &join(patches.iter().map(Vec::as_slice)).expect("patches"));
    }
}
