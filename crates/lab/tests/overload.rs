//! The overload against the real server: that it runs from its clients to its picture. What is measured here is worth nothing
//! (an unoptimised server on a busy machine), so no figure is judged, but that nobody is lost and all that comes is right.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may fail loudly, and says what it skips"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use stentor_lab::measure::cores;
use stentor_lab::overload::{Options, plot, run};

#[test]
fn a_small_overload_runs_to_its_picture() {
    let stentor = Path::new(env!("CARGO_BIN_EXE_stentor-lab")).with_file_name("stentor");
    if !stentor.exists() {
        eprintln!("skipped: no stentor was built; `cargo build -p stentor` does it");
        return;
    }
    let options = Options {
        stentor,
        serve: Vec::new(),
        clients: 50,
        bytes: 50_000,
        phase: Duration::from_millis(600),
        every: Duration::from_millis(100),
        capacity_hz: Some(20.0),
        cores: (0, usize::from(cores() > 1)),
    };
    let report = run(&options, &mut Vec::new()).unwrap();
    assert_eq!((report.lost, report.first_loss.as_deref()), (0, None));
    assert_eq!(report.wrong, Vec::<String>::new());
    assert_eq!(report.phases.len(), 5);
    assert!(report.samples.iter().all(|sample| sample.open == 50), "{:?}", report.samples);
    // Ten times 20 versions a second for 0.6 s, of which some arrive, skipped or not.
    assert!(report.compared > 10, "{report}");
    assert!(report.samples.iter().all(|sample| sample.server_bytes > 1_000_000), "{:?}", report.samples);
    assert!(plot(&report).contains("nobody was disconnected"));
}

#[test]
fn what_is_kept_is_drawn_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let picture = std::env::temp_dir().join(format!("stentor-lab-overload-{}.svg", std::process::id()));
    let draw = |kept: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stentor-lab"));
        let output =
            command.args(["overload", "--again"]).arg(kept).arg("--svg").arg(&picture).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (success, said) = draw(&root.join("docs/overload.json"));
    assert!(success, "{said}");
    let drawn = fs::read_to_string(&picture).unwrap();
    fs::remove_file(&picture).unwrap();
    // The phases are those that docs/benchmarks.md has in its table.
    for label in ["0.5 ×", "2 ×", "5 ×", "10 ×", "1.9/s", "7.4/s", "18.5/s", "37.0/s"] {
        assert!(drawn.contains(&format!("{label}\n")), "{label}: {drawn}");
    }
    assert!(drawn.contains("10000 clients, a document of 165 kB; nobody was disconnected"));
    let (success, said) = draw(&root.join("Cargo.toml"));
    assert!(!success && said.contains("no result of an overload"), "{said}");
}
