//! The documents are true: every path that they name exists, every link leads somewhere.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

/// All that there is to read, but the results' page of figures and what is the peers' own.
const DOCUMENTS: [&str; 29] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "clients/js/README.md",
    "docs/attacks.md",
    "docs/benchmarks.md",
    "docs/cli.md",
    "docs/configuration.md",
    "docs/conformance.md",
    "docs/deploy/README.md",
    "docs/fallbacks.md",
    "docs/feeds.md",
    "docs/from-socketio.md",
    "docs/lab.md",
    "docs/live-in-five-minutes.md",
    "docs/metrics.md",
    "docs/operate.md",
    "docs/protocol.md",
    "docs/results/README.md",
    "docs/results/chat-rtt.md",
    "docs/results/cpu-budget.md",
    "docs/results/echo-25k.md",
    "docs/results/feed-capacity.md",
    "docs/results/room-broadcast.md",
    "docs/security.md",
    "docs/socketio.md",
    "fuzz/README.md",
    "lab/peers/README.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Words in backticks that begin with one of the workspace's folders.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let folders = ["crates/", "lab/", "docs/", "tests/", "fuzz/", "scripts/", "clients/", "examples/"];
    text.split('`').skip(1).step_by(2).filter(move |word| {
        folders.iter().any(|folder| word.starts_with(folder))
            && !word.contains([' ', '*', '{', '…', '<'])
            && !word.contains("NAME")
    })
}

#[test]
fn documents_name_paths_that_exist() {
    let root = root();
    let mut named = 0;
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).unwrap();
        for path in paths(&text) {
            named += 1;
            if !root.join(path).exists() {
                missing.push(format!("{document}: {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(named > 20, "only {named} paths were found: the documents are not read right");
}

/// What follows the `#` of a link to a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_matches(['#', ' ']).chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn links_lead_somewhere() {
    let (mut found, mut broken) = (0, Vec::new());
    for document in DOCUMENTS {
        let here = root().join(document);
        let text = fs::read_to_string(&here).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            found += 1;
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let there = if path.is_empty() { here.clone() } else { here.parent().unwrap().join(path) };
            let leads = there.exists()
                && (place.is_empty()
                    || fs::read_to_string(there)
                        .unwrap()
                        .lines()
                        .any(|line| line.starts_with('#') && anchor(line) == place));
            if !leads {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(found > 80, "only {found} links were found: the documents are not read right");
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Comments name the documents that there are.
#[test]
fn comments_name_documents_that_exist() {
    let (mut named, mut missing) = (0, Vec::new());
    let sources =
        files(&root().join("crates")).into_iter().filter(|path| path.extension() == Some("rs".as_ref()));
    for source in sources {
        let text = fs::read_to_string(&source).unwrap();
        for line in text.lines().filter(|line| line.trim_start().starts_with("//")) {
            let words = line.split(|c: char| !(c.is_alphanumeric() || "./_-".contains(c)));
            for word in words.map(|word| word.trim_end_matches('.')).filter(|word| word.ends_with(".md")) {
                named += 1;
                let beside = source.ancestors().any(|folder| folder.join(word).exists());
                if !beside {
                    missing.push(format!("{}: {word}", source.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(named > 10, "only {named} documents were named: the comments are not read right");
}

/// What the page shows is what the example has, and what `check` takes.
#[test]
fn the_example_of_five_minutes_is_the_one_in_its_page() {
    let root = root();
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let (page, file) = (read("docs/live-in-five-minutes.md"), read("examples/live/stentor.toml"));
    let shown = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(file.ends_with(&format!("\n\n{shown}")), "{shown}");
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_stentor"))
        .args(["check", "examples/live/stentor.toml"])
        .current_dir(&root)
        .output()
        .unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{said}");
    assert!(said.contains("matches: matches/{id}/live from http://127.0.0.1:3000/match/{id}\n"), "{said}");
    assert!(said.contains("headers = { authorization = (secret with ${MATCH_API_TOKEN}) }"), "{said}");
}

/// Settings in brackets after a word of what is said to people, as in `too long (limits.body_bytes_max)`.
fn settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let named = text.split(" (").skip(1).filter_map(|rest| rest.split(')').next()?.split_once('.'));
    named.filter(|(section, key)| {
        let is_name =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        is_name(section) && is_name(key) && key.ends_with("_max")
    })
}

/// Who is told that a limit was reached looks for it in the configuration.
#[test]
fn messages_name_settings_that_exist() {
    let reference = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let exists = |section: &str, key: &str| {
        let table = reference.split("\n## ").find(|table| table.starts_with(&format!("`[{section}]`")));
        table.is_some_and(|table| table.contains(&format!("\n| `{key}` |")))
    };
    let (mut named, mut missing) = (0, Vec::new());
    for path in
        ["crates/control/src", "crates/edge/src"].iter().flat_map(|folder| files(&root().join(folder)))
    {
        let text = fs::read_to_string(&path).unwrap();
        for (section, key) in settings(&text) {
            named += 1;
            if !exists(section, key) {
                missing.push(format!("{}: {section}.{key}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(named > 10, "only {named} settings were found: the messages are not read right");
}
