//! Tests the places where JavaScript tests let time pass or read the clock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Calls that let time pass or measure it. `passed` is the name under which all tests import the awaitable
/// timer.
const TIMES: [&str; 8] = [
    "setTimeout(",
    "setInterval(",
    "passed(",
    "sleep(",
    "delay(",
    "waitForTimeout(",
    "Date.now()",
    "performance.now()",
];
const IMPORT: &str = "import { setTimeout as passed } from 'node:timers/promises';";

/// Files with such calls, each with the number of lines and the reason. The list only shrinks, and has at
/// most [`LISTED_MAX`] entries. The tests of `make test` (the files in `tests/clients` itself) have no such
/// calls. They use `until`, `within` and `clock` of the harness.
const LISTED: [(&str, usize, &str); 22] = [
    ("clients/admin.mjs", 1, "the time in tokens"),
    ("clients/all/bridge-suites.test.mjs", 1, "the sharded adapter doesn't tell when it has subscribed"),
    ("clients/all/bridge.test.mjs", 1, "the adapter doesn't tell when it has nothing more to send"),
    ("clients/all/client-browser.test.mjs", 1, "the pace of documents while connections are cut"),
    ("clients/all/client-recorded.test.mjs", 1, "the pace of recorded documents"),
    ("clients/all/day.test.mjs", 6, "clients that return after a while; the hours of a day"),
    ("clients/all/foreign.test.mjs", 3, "silence, through which heartbeats keep connections open"),
    ("clients/all/guides.test.mjs", 2, "the guide promises one request a second"),
    ("clients/all/observe.test.mjs", 3, "a slow client, whose delay is measured"),
    ("clients/all/recovery.test.mjs", 3, "clients that are away while messages are published"),
    ("clients/all/relay.test.mjs", 2, "clients that return after a while"),
    ("clients/all/rolling-deploy.test.mjs", 6, "the pace of messages; the time of a drain"),
    ("clients/all/sockjs-browser.test.mjs", 1, "a page that isn't allowed to connect says nothing"),
    ("clients/bridge.mjs", 1, "a message that should not come"),
    ("clients/chaos/clients.mjs", 19, "clients that return after a while; times for the checker"),
    ("clients/chaos/faults.mjs", 2, "faults that last"),
    ("clients/chaos/world.mjs", 14, "a run that lasts; the time until all agree again"),
    ("clients/harness.mjs", 6, "`until`, `within`, `clock`, and the limit of a server that hangs"),
    ("clients/members.mjs", 2, "clients that return after a while; when they did"),
    ("clients/redis.mjs", 1, "a replica that lags"),
    ("clients/transports.mjs", 3, "connections that are idle; the pace of messages"),
    ("package/roots.mjs", 1, "the grace period of a pod; the time to a reader's first message"),
];
const LISTED_MAX: usize = 80;

/// Collects the files of JavaScript tests, with their paths below `root`.
fn tests(folder: &Path, root: &Path, found: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && name != "node_modules" && name != "foreign" {
            tests(&path, root, found);
        } else if name.ends_with(".mjs") {
            found.push((path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), path));
        }
    }
}

#[test]
fn tests_in_javascript_wait_for_events_and_not_for_time() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").canonicalize().unwrap();
    let mut found = Vec::new();
    tests(&root, &root, &mut found);
    assert!(found.len() > 50, "only {} files in {}", found.len(), root.display());
    let mut counts = BTreeMap::new();
    for (name, path) in found {
        let text = fs::read_to_string(path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let count = code.clone().filter(|line| TIMES.iter().any(|time| line.contains(time))).count();
        let other = code.clone().find(|line| line.contains("timers/promises") && *line != IMPORT);
        assert_eq!(other, None, "{name}: {IMPORT}");
        if count > 0 {
            counts.insert(name, count);
        }
    }
    let listed = LISTED.iter().map(|(name, count, _)| ((*name).to_owned(), *count)).collect();
    assert_eq!(counts, listed, "wait for an event: CONTRIBUTING.md, Rules");
    assert!(LISTED.iter().map(|(_, count, _)| count).sum::<usize>() <= LISTED_MAX);
    let is_quick = |name: &&str| {
        name.ends_with(".test.mjs") && name.starts_with("clients/") && !name.starts_with("clients/all/")
    };
    assert_eq!(LISTED.iter().map(|(name, ..)| *name).find(is_quick), None);
}
