//! Tests of the binary's `/metrics` on the admin port.

use crate::process::{Subscriber, answer, ask, metrics, start, sum, until_metrics};
use std::collections::BTreeSet;
use std::path::Path;

/// The recovery log keeps as many publications as fit into its limit, and the metrics report its size.
#[test]
fn memory_kept_for_recovery_is_reported() {
    let server = start("[socketio]\nrecovery_ttl = \"1h\"\nrecovery_bytes_max = 1000\n");
    let mut client = Subscriber::open(&server.addr, "/socket.io/?EIO=4&transport=websocket");
    assert!(client.receive().starts_with('0'));
    client.send_text("40");
    assert!(client.receive().starts_with("40"));
    let nothing = metrics(&server.admin);
    for name in ["publications", "bytes", "evicted_total"] {
        assert_eq!(sum(&nothing, &format!("stentor_socketio_recovery_{name}")), 0);
    }
    for n in 0..5 {
        let message = format!("{{\"namespace\":\"/\",\"event\":\"news\",\"data\":{n}}}");
        let (status, text) = answer(ask(&server.admin, "POST", "/api/v1/publish", &message));
        assert_eq!(status, 200, "{text}");
        assert!(client.receive().starts_with("42[\"news\","));
    }
    // The recovery log's metrics are updated core by core, once per second.
    let told = until_metrics(&server.admin, |told| {
        let figures = ["socketio_recovery_evicted_total", "socketio_recovery_publications", "inbox_messages"];
        figures.map(|name| sum(told, &format!("stentor_{name}"))) == [2, 3, 0]
    });
    // Each message counts 320 bytes in addition to its body.
    let bytes = sum(&told, "stentor_socketio_recovery_bytes");
    assert!((961..=1000).contains(&bytes), "{bytes}");
    assert_eq!(sum(&told, "stentor_inbox_bytes"), 0);
}

/// A query that joins on the version finds one series, whose driver is the one that the log names.
#[test]
fn the_build_is_a_metric() {
    let server = start("");
    let told = metrics(&server.admin);
    let builds: Vec<_> = told.lines().filter(|line| line.starts_with("stentor_build_info{")).collect();
    let [build] = builds[..] else { panic!("{builds:?}") };
    assert!(build.contains(concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"")), "{build}");
    assert!(build.contains("commit=\"") && build.contains("driver=\"") && build.ends_with(" 1"), "{build}");
}

/// Each metric that a document names exists, and docs/metrics.md has the type and help text of each metric of a
/// running server.
#[test]
fn documents_name_metrics_that_exist() {
    let parts = ["[[feeds]]\nname = \"api\"", "[[hooks]]\nname = \"backend\"\non = [\"event\"]"];
    let parts = parts.map(|part| format!("{part}\nurl = \"http://127.0.0.1:9\"\n")).concat();
    let server = start(&format!("{parts}[[links]]\napp = \"chat\"\n"));
    // Metrics by outcome or reason appear with their first event.
    let _asked = ask(&server.addr, "GET", "/feed/k", "");
    let (status, _) = answer(ask(&server.admin, "POST", "/api/v1/publish", "{"));
    assert_eq!(status, 400);
    let metrics = until_metrics(&server.admin, |metrics| metrics.contains("# TYPE stentor_feed_fetches "));
    let read = |document| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
        std::fs::read_to_string(path).unwrap()
    };
    let reference = read("docs/metrics.md");
    let listed: BTreeSet<&str> =
        reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    // The help text of a metric precedes its type.
    let mut help = "";
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# ")) {
        match line.splitn(3, ' ').collect::<Vec<_>>()[..] {
            ["HELP", _, text] => help = text.trim_end_matches('.'),
            ["TYPE", name, kind] => {
                let name = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
                let row = reference.lines().find(|row| row.starts_with(&format!("| `{name}` | {kind} | ")));
                let row = row.unwrap_or_else(|| panic!("{name} isn't in docs/metrics.md"));
                assert!(row.ends_with(&format!(" | {help}. |")), "the server's help text is {help:?}: {row}");
            }
            _ => {}
        }
    }
    let (mut named, mut missing) = (0, Vec::new());
    for document in ["docs/configuration.md", "docs/feeds.md", "docs/operate.md", "docs/security.md"] {
        let text = read(document);
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        for word in words.filter(|word| word.starts_with("stentor_")) {
            named += 1;
            if !listed.contains(word) {
                missing.push(format!("{document}: {word}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}\n{listed:?}", missing.join("\n"));
    assert!(named > 15, "only {named} metrics were named: the documents are not read right");
}
