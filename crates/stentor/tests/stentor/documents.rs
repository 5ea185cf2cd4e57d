//! Tests of the documents: each named path and link target exists, and each reader finds the answers.

use crate::pages::{blocks, files, pages, root};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::io::Read;

/// Iterates over words in backticks that begin with one of the workspace's folders.
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
    for document in pages() {
        let text = fs::read_to_string(root.join(&document)).unwrap();
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

/// A page whose commands begin with `stentor` says before the first of them where the command comes from.
#[test]
fn an_install_line_precedes_the_first_command() {
    let root = root();
    for document in pages() {
        let text = fs::read_to_string(root.join(&document)).unwrap();
        let is_command = |line: &str| line.trim_start().starts_with("stentor ");
        let all = blocks(&text, "sh");
        let Some(first) = all.iter().flat_map(|block| block.lines()).find(|line| is_command(line)) else {
            continue;
        };
        let before = &text[..text.find(first).unwrap()];
        let is_installed = ["#install)", "lab/build", "## Install", "npm install --global"]
            .iter()
            .any(|line| before.contains(line));
        assert!(is_installed || document.ends_with("cli.md"), "{document}: {first}");
    }
}

/// Returns the workspace's crates in a manifest's `[dependencies]`.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let section =
        manifest.split("\n[").find_map(|section| section.strip_prefix("dependencies]\n")).unwrap_or_default();
    section.lines().filter_map(|line| line.strip_prefix("stentor-")?.split(['.', ' ', '=']).next()).collect()
}

/// Each crate uses only the crates that the table in ARCHITECTURE.md allows.
#[test]
fn crates_only_use_crates_that_the_table_allows() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows: Vec<Vec<&str>> = architecture
        .lines()
        .filter(|line| line.starts_with("| `crates/") || line.starts_with("| `lab/program`"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let crates: BTreeSet<&str> = rows
        .iter()
        .map(|row| row[1].trim_matches('`').trim_start_matches("crates/"))
        .map(|name| name.trim_end_matches("/program"))
        .collect();
    let folders = fs::read_dir(root().join("crates")).unwrap();
    let mut folders: BTreeSet<String> =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.insert("lab".to_owned());
    assert!(crates.iter().eq(folders.iter()), "the table has {crates:?}, there are {folders:?}");
    for row in &rows {
        let name = row[1].trim_matches('`');
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        let used = dependencies(&manifest);
        let (all, cell) = row[3].strip_prefix("all but ").map_or((false, row[3]), |rest| (true, rest));
        let words = cell.split(|character: char| !(character.is_ascii_lowercase() || character == '-'));
        let named: BTreeSet<&str> = words.filter(|word| crates.contains(word)).collect();
        if all {
            assert!(used.is_disjoint(&named), "{name} uses {used:?}");
        } else {
            assert!(used.is_subset(&named), "{name} uses {used:?}, but may use only {named:?}");
        }
    }
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_matches(['#', ' ']).chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Iterates over the lines of a page outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// Returns the links of a page to files of the project, each as the path from the root and the anchor, which
/// may be empty.
fn links(document: &str) -> Vec<(String, String)> {
    let root = root();
    let here = root.join(document);
    let text = fs::read_to_string(&here).unwrap();
    let mut links = Vec::new();
    for link in
        prose(&text).flat_map(|line| line.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
    {
        if link.starts_with("http") {
            continue;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let there = if path.is_empty() { here.clone() } else { here.parent().unwrap().join(path) };
        // A path that doesn't exist is kept as it is.
        let there = there.canonicalize().unwrap_or(there);
        let there = there.strip_prefix(&root).unwrap_or(&there);
        links.push((there.to_str().unwrap().to_owned(), anchor.to_owned()));
    }
    links
}

fn has_anchor(document: &str, wanted: &str) -> bool {
    let text = fs::read_to_string(root().join(document)).unwrap();
    prose(&text).any(|line| line.starts_with('#') && anchor(line) == wanted)
}

#[test]
fn links_have_targets() {
    let (mut found, mut broken) = (0, Vec::new());
    for document in pages() {
        for (path, anchor) in links(&document) {
            found += 1;
            if !root().join(&path).exists() || !(anchor.is_empty() || has_anchor(&path, &anchor)) {
                broken.push(format!("{document}: {path}#{anchor}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(found > 80, "only {found} links were found: the documents are not read right");
}

/// Kinds of readers, each with the sections that answer its questions.
const READERS: [(&str, &[&str]); 6] = [
    (
        "a frontend developer with Socket.IO clients",
        &[
            "docs/from-socketio.md#what-moves-as-it-is",
            "docs/from-socketio.md#what-does-not-move",
            "docs/from-socketio.md#run-both-side-by-side",
            "docs/socketio.md#differences-from-socketios-own-server",
            "docs/socketio.md#connection-state-recovery",
            "clients/js/README.md#transports",
            "docs/close-codes.md#by-protocol",
        ],
    ),
    (
        "a team with a Socket.IO server",
        &[
            "README.md#your-socketio-server-code-on-stentor",
            "docs/from-socketio.md#keep-your-server-code",
            "clients/socketio-server/README.md#restarts",
            "clients/socketio-server/README.md#not-yet",
            "docs/deploys.md#pm2",
            "docs/deploys.md#systemd",
            "docs/deploys.md#kubernetes",
        ],
    ),
    (
        "a backend developer with a JSON API",
        &[
            "docs/live-in-five-minutes.md",
            "docs/feeds.md#from-key-to-url",
            "docs/feeds.md#responses-of-your-api",
            "docs/feeds.md#deploys-of-your-api",
            "docs/feeds.md#how-many-keys-an-api-carries",
            "docs/your-api.md#what-to-check-first",
            "docs/feeds.md#pushing-documents",
            "docs/admin-api.md#post-apiv1publish",
            "docs/openapi.json",
            "docs/security.md#permissions",
            "docs/permissions.md#revoke-a-token",
        ],
    ),
    (
        "an operator",
        &[
            "docs/operate.md#start-and-stop",
            "docs/operate.md#limits",
            "docs/operate.md#capacity",
            "docs/sizing.md#calculate",
            "docs/metrics.md#alerts",
            "docs/deploy/README.md#behind-nginx",
            "docs/deploy/README.md#containers",
            "docs/security.md#checklist-before-you-expose-a-server",
            "docs/configuration.md",
        ],
    ),
    (
        "a reader of benchmarks",
        &[
            "docs/benchmarks.md#run-it",
            "docs/benchmarks.md#fairness",
            "docs/lab.md#how-differences-are-determined",
            "docs/results/README.md#repeat-it",
            "lab/peers/README.md",
        ],
    ),
    (
        "a contributor",
        &[
            "ARCHITECTURE.md#code-map",
            "CONTRIBUTING.md#rules",
            "CONTRIBUTING.md#recipes",
            "CONTRIBUTING.md#to-add-a-metric-or-a-flag",
            "docs/attacks.md#fuzzing-the-live-server",
            "docs/conformance.md#how-the-suites-are-run",
        ],
    ),
];

/// Maximum number of links that a reader follows from the README to an answer.
const CLICKS_MAX: usize = 3;

#[test]
fn every_reader_finds_the_answers_within_three_clicks() {
    // Number of links that lead from the README to each page or section.
    let mut clicks = HashMap::from([("README.md".to_owned(), 0)]);
    let mut pages = VecDeque::from(["README.md".to_owned()]);
    while let Some(page) = pages.pop_front() {
        let next = clicks[&page] + 1;
        for (path, anchor) in links(&page) {
            if !anchor.is_empty() {
                clicks.entry(format!("{path}#{anchor}")).or_insert(next);
            }
            if !clicks.contains_key(&path) {
                clicks.insert(path.clone(), next);
                if path.ends_with(".md") {
                    pages.push_back(path);
                }
            }
        }
    }
    let mut far = Vec::new();
    for (reader, answers) in READERS {
        for answer in answers {
            match clicks.get(*answer) {
                Some(clicks) if *clicks <= CLICKS_MAX => {}
                Some(clicks) => far.push(format!("{reader} needs {clicks} links to reach {answer}")),
                None => far.push(format!("no link leads {reader} to {answer}")),
            }
        }
    }
    assert!(far.is_empty(), "{}", far.join("\n"));
}

/// The README has a maximum length, so that it can be read at one sitting.
#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
}

/// Each document that a comment names exists.
#[test]
fn comments_name_documents_that_exist() {
    let (mut named, mut missing) = (0, Vec::new());
    for source in files(&root().join("crates"), "rs") {
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

/// The page contains the example's file, and `check` accepts it.
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

/// Iterates over settings in brackets after a word of a message, such as `too long (limits.body_bytes_max)`.
fn settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let named = text.split(" (").skip(1).filter_map(|rest| rest.split(')').next()?.split_once('.'));
    named.filter(|(section, key)| {
        let is_name =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        is_name(section) && is_name(key) && key.ends_with("_max")
    })
}

/// Settings that messages name must be in the configuration reference, where a reader looks for them.
#[test]
fn messages_name_settings_that_exist() {
    let reference = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let exists = |section: &str, key: &str| {
        let table = reference.split("\n## ").find(|table| table.starts_with(&format!("`[{section}]`")));
        table.is_some_and(|table| table.contains(&format!("\n| `{key}` |")))
    };
    let (mut named, mut missing) = (0, Vec::new());
    for path in ["crates/control/src", "crates/session/src", "crates/edge/src"]
        .map(|folder| files(&root().join(folder), "rs"))
        .concat()
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

/// Checks that the files that `npm run build` in clients/js makes belong together.
#[test]
fn the_client_library_is_the_same_in_all_codings_and_has_its_hash() {
    let file = |suffix: &str| fs::read(root().join(format!("clients/js/dist/stentor.js{suffix}"))).unwrap();
    let (library, gzip, brotli) = (file(""), file(".gz"), file(".br"));
    let decoders: [(&str, Box<dyn Read + '_>); 2] = [
        ("gz", Box::new(flate2::read::GzDecoder::new(&gzip[..]))),
        ("br", Box::new(brotli_decompressor::Decompressor::new(&brotli[..], 4096))),
    ];
    for (suffix, mut decoder) in decoders {
        let mut decoded = Vec::new();
        decoder.read_to_end(&mut decoded).unwrap();
        assert!(decoded == library, "stentor.js.{suffix} is of another build");
    }
    let hash = ring::digest::digest(&ring::digest::SHA384, &library);
    let expect = format!("sha384-{}\n", BASE64_STANDARD.encode(hash));
    assert_eq!(String::from_utf8(file(".integrity")).unwrap(), expect);
}
