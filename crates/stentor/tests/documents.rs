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
