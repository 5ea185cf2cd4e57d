//! The overload against the real server: that it runs from its clients to its picture. What is measured here is worth nothing
//! (an unoptimised server on a busy machine), so no figure is judged, but that nobody is lost and all that comes is right.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may fail loudly, and says what it skips"
)]

use std::path::Path;
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
