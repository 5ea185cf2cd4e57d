//! Figures of deltas on the versions of a document in a folder: `cargo run --release --example delta -- FOLDER`.
//! With a second folder, writes each version's patch there: `NNN.json`, nothing where the value is the same.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

use std::path::Path;
use std::time::Instant;
use stentor_hub::delta::{Delta, Differ, Options, Seed};

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("a folder of versions");
    let mut names: Vec<_> = std::fs::read_dir(Path::new(&folder))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    names.sort();
    let differ = Differ::new(Options::default(), Seed([1, 2]));
    let texts: Vec<_> =
        names.iter().map(|n| differ.parse(&std::fs::read(n).unwrap()).unwrap().minified().to_vec()).collect();
    let mut total = 0;
    let mut min = 0;
    let mut steps = 0;
    let t = Instant::now();
    for pair in texts.windows(2) {
        let (o, n) = (differ.parse(&pair[0]).unwrap(), differ.parse(&pair[1]).unwrap());
        let d = differ.diff(&o, &n);
        min += n.minified().len();
        steps += d.steps;
        match d.delta {
            Delta::Patch(p) => {
                total += p.len();
                if std::env::var("V").is_ok() {
                    println!("{} {}", p.len(), String::from_utf8(p).unwrap());
                }
            }
            Delta::Unchanged => println!("same"),
            Delta::Snapshot => {
                println!("snap");
                total += n.minified().len()
            }
        }
    }
    println!("{total} {min} {:.4} steps {steps} {:?}", total as f64 / min as f64 * 100.0, t.elapsed());
}
