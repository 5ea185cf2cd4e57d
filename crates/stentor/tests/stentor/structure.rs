//! Tests of the code's structure: which modules may use each other, and the sizes of files and structs.
//! `documents` checks which crates a crate may use, by the table in ARCHITECTURE.md.

mod javascript;
mod protocols;

use crate::pages::files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum length of a file in lines, without its tests.
const LINES_MAX: usize = 600;

/// The crates whose modules are checked for cycles and lengths.
const CRATES: [&str; 18] = [
    "json",
    "auth",
    "delta",
    "wire",
    "hub",
    "frame",
    "link",
    "workers",
    "driver",
    "ports",
    "session",
    "edge",
    "control",
    "cluster-settings",
    "cluster",
    "demo",
    "stentor",
    "lab",
];

/// Maximum number of fields of a struct, except `…Options` and `…Limits`. A struct with more gives its
/// methods access to too much. Split it into structs for its parts, or make it an enum.
const FIELDS_MAX: usize = 15;

/// Loops of Rust tests that poll, because no event marks the change: the file, and the reason. There are at
/// most [`RETRIES_MAX`], since a test that depends on time fails on a busy machine.
const RETRIES: [(&str, &str); 3] = [
    ("cluster/tests/contract/harness.rs", "engines end interest, entries and histories without a word"),
    ("edge/tests/harness/mod.rs", "cores publish metrics at the end of a turn, without a word"),
    ("stentor/tests/process/mod.rs", "the metrics of a process are only there to be scraped"),
];
const RETRIES_MAX: usize = 3;

/// Other places where Rust tests let time pass: the file, and the slow party.
const SLOW: [(&str, &str); 10] = [
    ("cluster/tests/contract/messages.rs", "a node that doesn't read its events"),
    ("cluster/tests/contract/nats_server.rs", "a nats-server that starts"),
    ("cluster/tests/contract/proxy.rs", "a slow network"),
    ("cluster/tests/contract/redis_server.rs", "a redis-server that starts"),
    ("control/tests/control/feeds.rs", "an upstream that sends byte by byte"),
    ("edge/tests/idle.rs", "a server that rests, whose processor time is measured"),
    ("lab/tests/server/mod.rs", "a server that stalls, which the lab has to notice"),
    ("stentor/tests/slow/fair_fetches.rs", "an API"),
    ("stentor/tests/stentor/serve.rs", "a process that releases the address late"),
    ("workers/tests/workers/recovery.rs", "a worker that doesn't come back, on a virtual clock"),
];

/// Integration test programs other than the one with the crate's name, each with the reason why it is
/// separate.
const PROGRAMS: [(&str, &str); 17] = [
    ("cluster/churn_memory", "measures its process's memory"),
    ("cluster/contract", "real servers of Redis and NATS"),
    ("cluster/frames", "measures its process's memory"),
    ("cluster/interest_memory", "measures its process's memory"),
    ("driver/descriptors", "lowers its process's limit of file descriptors"),
    ("edge/fallback_memory", "measures its process's memory"),
    ("edge/feed_memory", "measures its process's memory"),
    ("edge/idle", "measures its process's processor time"),
    ("edge/idle_feed_memory", "measures its process's memory"),
    ("edge/memory", "measures its process's memory"),
    ("edge/presence_memory", "measures its process's memory"),
    ("edge/tls_memory", "measures its process's memory"),
    ("hub/presence_memory", "measures its process's memory"),
    ("hub/room_memory", "measures its process's memory"),
    ("lab/budget", "measures its process's processor time"),
    ("lab/sizing", "an optimized server"),
    ("stentor/slow", "seconds of real time, and other programs"),
];

/// Returns the folders of all crates and of the lab, by name.
fn folders() -> BTreeMap<String, PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let mut found: BTreeMap<_, _> = fs::read_dir(&crates)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|folder| (folder.file_name().unwrap().to_str().unwrap().to_owned(), folder))
        .collect();
    found.insert("lab".to_owned(), crates.join("../lab/program").canonicalize().unwrap());
    found
}

fn source(krate: &str) -> PathBuf {
    folders()[krate].join("src")
}

/// Returns the code of a file without comments and tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the code of a crate's modules, by path (`core::send`). The path of the crate itself is empty.
fn modules(krate: &str) -> BTreeMap<String, String> {
    let root = source(krate);
    let mut found = files(&root, "rs");
    let is_test = |path: &PathBuf| path.strip_prefix(&root).unwrap().iter().any(|part| part == "tests");
    found.retain(|path| !is_test(path) && !path.ends_with("tests.rs"));
    let named = found.iter().map(|path| {
        let relative = path.strip_prefix(&root).unwrap().with_extension("");
        let mut parts: Vec<_> = relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            parts.pop();
        }
        (parts.join("::"), code(path))
    });
    named.collect()
}

/// Returns the longest prefix of `path` that is a module.
fn module_of(path: &[&str], all: &BTreeMap<String, String>) -> Option<String> {
    (1..=path.len()).rev().map(|len| path[..len].join("::")).find(|name| all.contains_key(name))
}

/// Returns the absolute path that starts with `crate`, `self` or `super` in `module`.
fn absolute<'a>(module: &'a str, path: &[&'a str]) -> Option<Vec<&'a str>> {
    let mut base: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest = path;
    match *rest.first()? {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            while rest.get(1) == Some(&"super") {
                base.pop();
                rest = &rest[1..];
            }
            base.pop();
        }
        _ => return None,
    }
    base.extend(&rest[1..]);
    Some(base)
}

/// Returns the modules that a module uses, by `use` or by path.
fn uses(module: &str, code: &str, all: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(is_name) {
                continue;
            }
            let rest = &code[at..];
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let path = rest[..end].trim_end_matches(':');
            let mut paths = vec![path.to_owned()];
            // Adds the names of a group in braces.
            if let Some(group) = rest[end..].strip_prefix('{').and_then(|group| group.split(';').next()) {
                let names = group.split([',', '{', '}']).map(str::trim).filter(|name| !name.is_empty());
                paths.extend(names.map(|name| format!("{path}::{name}")));
            }
            for path in &paths {
                let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
                let target = absolute(module, &parts).and_then(|path| module_of(&path, all));
                found.extend(target.filter(|target| target != module));
            }
        }
    }
    found
}

/// Returns a cycle in the graph, if there is one.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    for start in graph.keys() {
        let (mut path, mut seen) = (vec![start.clone()], BTreeSet::new());
        if visit(graph, start, &mut path, &mut seen) {
            return Some(path);
        }
    }
    None
}

/// Extends `path` until it returns to `start`. Returns `true` if that succeeds.
fn visit(
    graph: &BTreeMap<String, BTreeSet<String>>,
    start: &String,
    path: &mut Vec<String>,
    seen: &mut BTreeSet<String>,
) -> bool {
    let last = path.last().cloned().unwrap_or_default();
    for next in graph.get(&last).into_iter().flatten() {
        if next == start {
            path.push(next.clone());
            return true;
        }
        if seen.insert(next.clone()) {
            path.push(next.clone());
            if visit(graph, start, path, seen) {
                return true;
            }
            path.pop();
        }
    }
    false
}

#[test]
fn modules_with_the_same_parent_use_each_other_in_one_direction() {
    for krate in CRATES {
        let all = modules(krate);
        let edges: BTreeMap<&String, BTreeSet<String>> =
            all.iter().map(|(module, code)| (module, uses(module, code, &all))).collect();
        let parent = |module: &str| module.rsplit_once("::").map_or("", |(parent, _)| parent).to_owned();
        let parents: BTreeSet<String> = all.keys().map(|module| parent(module)).collect();
        for above in parents {
            let children: Vec<&String> =
                all.keys().filter(|module| !module.is_empty() && parent(module) == above).collect();
            let child_of = |module: &str| {
                children.iter().find(|child| module == **child || module.starts_with(&format!("{child}::")))
            };
            let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for (module, targets) in &edges {
                let Some(from) = child_of(module) else { continue };
                let others = targets.iter().filter_map(|target| child_of(target)).filter(|to| *to != from);
                graph.entry((*from).clone()).or_default().extend(others.map(|to| (*to).clone()));
            }
            let found = cycle(&graph);
            assert_eq!(found, None, "crates/{krate}: modules under {above:?} use each other in a cycle");
        }
    }
}

#[test]
fn protocols_do_not_name_the_hub() {
    let protocols = modules("session").into_iter().filter(|(module, _)| module.starts_with("protocols"));
    for (module, code) in protocols {
        for name in ["stentor_driver", "stentor_hub", "Hub<"] {
            assert!(!code.contains(name), "crates/session: {module} names {name}");
        }
    }
}

/// Crates without I/O: `link`, `session`, and the crates that `session` uses, except `frame`, which stores
/// large frames in memfds.
const WITHOUT_IO: [&str; 6] = ["session", "ports", "hub", "wire", "json", "link"];
/// The module of `ports` that may name a socket: that of a client whose session is on another node.
const OF_PORTS: &str = "relay";

/// Names in code of sockets, files, threads, clocks and random sources.
const OUTSIDE: [&str; 16] = [
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "std::os",
    "std::fs",
    "std::env",
    "std::process",
    "thread::",
    "Instant::now",
    "SystemTime::now",
    "elapsed()",
    "getrandom",
    "fastrand",
    "rustix",
    "tokio",
];

/// Dependencies with sockets, files, threads, clocks or random sources.
const OUTSIDE_CRATES: [&str; 9] =
    ["fastrand", "getrandom", "io-uring", "libc", "ring", "rustix", "socket2", "stentor-driver", "tokio"];

#[test]
fn sessions_have_no_clock_thread_socket_or_random_source_of_their_own() {
    for krate in WITHOUT_IO {
        for (module, code) in modules(krate) {
            let names = OUTSIDE.into_iter().filter(|_| (krate, &*module) != ("ports", OF_PORTS));
            let found: Vec<&str> = names.filter(|name| code.contains(name)).collect();
            assert!(found.is_empty(), "crates/{krate}: {module} names {found:?}");
            // The standard library's default hasher gets its keys from the system's random source.
            let is_seeded = |line: &&str| {
                (line.contains("HashMap<") || line.contains("HashSet<")) && !line.contains("BuildHasher")
                    || line.contains("HashMap::new")
                    || line.contains("HashSet::new")
                    || line.contains("RandomState")
            };
            let line = code.lines().find(is_seeded).filter(|_| krate == "session");
            assert_eq!(line, None, "crates/{krate}: {module} has a table with random keys");
        }
        let manifest = fs::read_to_string(folders()[krate].join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
        let dependencies = dependencies.split("\n[").next().unwrap();
        let names = dependencies.lines().map(|line| line.split(['.', ' ']).next().unwrap());
        let found: Vec<&str> = names.filter(|name| OUTSIDE_CRATES.contains(name)).collect();
        assert!(found.is_empty(), "crates/{krate} depends on {found:?}");
    }
}

#[test]
fn files_are_short() {
    for krate in CRATES {
        for (module, code) in modules(krate) {
            let lines = code.lines().count();
            assert!(lines <= LINES_MAX, "crates/{krate}: {module} has {lines} lines; it needs a boundary");
        }
    }
}

/// Returns the names of a module's structs, and their numbers of named fields.
fn structs(code: &str) -> Vec<(String, usize)> {
    let mut lines = code.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let item = line.trim_start();
        let indent = line.len() - item.len();
        let Some((_, name)) = item.split_once("struct ").filter(|_| item.ends_with('{')) else { continue };
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let fields = lines.by_ref().take_while(|line| *line != format!("{:indent$}}}", ""));
        let is_field = |line: &str| {
            let field = line.trim_start();
            line.len() - field.len() == indent + 4 && field.split(' ').any(|word| word.ends_with(':'))
        };
        let count = fields.filter(|line| is_field(line)).count();
        found.push((name.split(|c| !is_name(c)).next().unwrap().to_owned(), count));
    }
    found
}

#[test]
fn structs_have_few_fields() {
    // The lab isn't checked, because it is no part of a server.
    let all = CRATES.into_iter().filter(|krate| *krate != "lab").flat_map(|krate| {
        let structs = modules(krate).into_values().flat_map(|code| structs(&code)).collect::<Vec<_>>();
        structs.into_iter().map(move |(name, fields)| (format!("{krate}/{name}"), fields))
    });
    let mut large: Vec<(String, usize)> = all.filter(|(_, fields)| *fields > FIELDS_MAX).collect();
    large.retain(|(name, _)| !name.ends_with("Options") && !name.ends_with("Limits"));
    assert!(large.is_empty(), "more than {FIELDS_MAX} fields: {large:?}");
}

/// Returns the public part of a module's code: items, fields, variants and signatures.
fn public(code: &str) -> String {
    let (mut found, mut lines) = (String::new(), code.lines());
    while let Some(line) = lines.next() {
        let item = line.trim_start();
        if !item.starts_with("pub ") || item.starts_with("pub use") {
            continue;
        }
        // Initial values and private fields aren't part of the type.
        let visible = item.split(" = ").next().unwrap().split("(pub(crate)").next();
        found.push_str(visible.unwrap());
        found.push('\n');
        let is_open = |kind: &str| item.starts_with(kind) && line.ends_with('{');
        let indent = line.len() - item.len();
        let mut rest = lines.clone().take_while(|line| !line.starts_with(&format!("{:indent$}}}", "")));
        if is_open("pub enum") || is_open("pub trait") {
            found.extend(rest.map(|line| format!("{line}\n")));
        } else if item.contains("fn ") && !line.ends_with(['{', ';', '}', ',']) {
            let end = rest.position(|line| line.ends_with(['{', ';'])).map_or(0, |at| at + 1);
            found.extend(lines.clone().take(end).map(|line| format!("{line}\n")));
        }
    }
    found
}

#[test]
fn public_items_name_only_documented_types_of_other_crates() {
    for krate in ["session", "edge"] {
        check_documented_types(krate);
    }
}

/// Compares the table in a crate's documentation of types from other crates with the types that its public
/// items name.
fn check_documented_types(of: &str) {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let names = |text: &str| -> BTreeSet<String> {
        let names = text.split(|c| !is_name(c)).filter(|name| name.starts_with(char::is_uppercase));
        names.map(str::to_owned).collect()
    };
    let mut found = BTreeSet::new();
    for code in modules(of).values() {
        let public = public(code);
        for krate in ["hub", "wire", "frame", "driver"] {
            let path = format!("stentor_{krate}::");
            for import in code.split(&format!("\nuse {path}")).skip(1) {
                let imported = names(import.split(';').next().unwrap());
                let used = names(&public).into_iter().filter(|name| imported.contains(name));
                found.extend(used.map(|name| format!("{krate} {name}")));
            }
            let named = public.split(&path).skip(1).filter_map(|rest| rest.split(|c| !is_name(c)).next());
            found.extend(named.map(|name| format!("{krate} {name}")));
        }
    }
    let text = fs::read_to_string(source(of).join("lib.rs")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let documented = rows.flat_map(|row| {
        let (krate, types) = row.split_once("` | ").unwrap();
        let types = types.split(" | ").next().unwrap().split('`').skip(1).step_by(2);
        types.map(|name| format!("{krate} {name}")).collect::<Vec<_>>()
    });
    assert_eq!(found, documented.collect(), "the table in crates/{of}/src/lib.rs is out of date");
}

/// A second program in a crate must be listed in [`PROGRAMS`], because each program links all crates again.
#[test]
fn a_crate_has_one_program_of_integration_tests() {
    let mut found = Vec::new();
    for (name, krate) in folders() {
        for path in fs::read_dir(krate.join("tests")).into_iter().flatten().map(|entry| entry.unwrap().path())
        {
            let is_program = path.join("main.rs").exists() || path.extension() == Some("rs".as_ref());
            let program = path.file_stem().unwrap().to_str().unwrap();
            if is_program && program != name {
                found.push(format!("{name}/{program}"));
            }
        }
    }
    found.sort();
    assert_eq!(found, PROGRAMS.map(|(program, _)| program), "add a module to the crate's program instead");
}

#[test]
fn tests_wait_for_events_and_not_for_time() {
    let mut sleeps = Vec::new();
    let in_crate = |(name, folder): (String, PathBuf)| {
        let names = files(&folder, "rs").into_iter().map(move |path| {
            (format!("{name}/{}", path.strip_prefix(&folder).unwrap().to_str().unwrap()), path)
        });
        names.collect::<Vec<_>>()
    };
    for (name, path) in folders().into_iter().flat_map(in_crate) {
        let text = fs::read_to_string(&path).unwrap();
        let tests = match name.split_once("/src/") {
            Some((_, inside)) if !inside.contains("tests") => {
                text.split_once("\nmod tests {").map(|(_, tests)| tests)
            }
            _ if name.contains("/examples/") || name.ends_with("structure.rs") => None,
            _ => Some(&*text),
        };
        let lines = tests.unwrap_or_default().lines().map(|line| line.split("//").next().unwrap());
        let count = lines.filter(|line| line.contains("::sleep(") || line.contains(" sleep(")).count();
        sleeps.extend(vec![name.clone(); count]);
    }
    let mut listed: Vec<_> = RETRIES.iter().chain(&SLOW).map(|(file, _)| (*file).to_owned()).collect();
    sleeps.sort();
    listed.sort();
    assert_eq!(sleeps, listed, "wait for an event: CONTRIBUTING.md, Rules");
    assert!(RETRIES.len() <= RETRIES_MAX);
}
