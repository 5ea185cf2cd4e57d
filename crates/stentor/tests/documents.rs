//! The documents are true: every path that they name exists.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = 0;
    let mut missing = Vec::new();
    for document in [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "README.md",
        "docs/benchmarks.md",
        "docs/deploy/README.md",
        "docs/feeds.md",
        "docs/lab.md",
        "docs/live-in-five-minutes.md",
        "docs/protocol.md",
    ] {
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

/// What the page shows is what the example has, and what `check` takes.
#[test]
fn the_example_of_five_minutes_is_the_one_in_its_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let reference = fs::read_to_string(root.join("docs/configuration.md")).unwrap();
    let exists = |section: &str, key: &str| {
        let table = reference.split("\n## ").find(|table| table.starts_with(&format!("`[{section}]`")));
        table.is_some_and(|table| table.contains(&format!("\n| `{key}` |")))
    };
    let (mut named, mut missing) = (0, Vec::new());
    let mut folders = vec![root.join("crates/control/src"), root.join("crates/edge/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for (section, key) in settings(&text) {
                named += 1;
                if !exists(section, key) {
                    missing.push(format!("{}: {section}.{key}", path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(named > 10, "only {named} settings were found: the messages are not read right");
}
