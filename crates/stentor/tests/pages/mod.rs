//! Reads the project's pages, for tests of documents.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns every page of the project, except those of installed packages and of single servers of the lab.
pub(crate) fn pages() -> Vec<String> {
    let root = root();
    let mut pages = files(&root.join("docs"), "md");
    let others = ["", "fuzz", "lab/peers", "tests/clients/foreign"];
    let clients = ["clients/js", "clients/backend", "clients/python-socketio", "clients/socketio-server"];
    let examples = ["examples/chat/python", "examples/chat/socketio", "scripts/packaging/server-npm"];
    for folder in others.into_iter().chain(clients).chain(examples) {
        let entries = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension() == Some("md".as_ref())));
    }
    let mut names: Vec<_> =
        pages.iter().map(|page| page.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Returns every file below a folder with this extension.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { files(&path, extension) } else { vec![path] });
    found.filter(|path| path.extension() == Some(extension.as_ref())).collect()
}

/// Returns the code blocks of one language, without their indentation.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((indent, opened)) = line.split_once("```").filter(|(indent, _)| indent.trim().is_empty())
        else {
            continue;
        };
        let body = lines.by_ref().take_while(|line| line.trim() != "```");
        let body: Vec<_> = body.map(|line| line.strip_prefix(indent).unwrap_or(line)).collect();
        if opened == language {
            blocks.push(body.join("\n"));
        }
    }
    blocks
}
