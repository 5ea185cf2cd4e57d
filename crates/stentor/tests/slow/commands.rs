//! Runs the commands of every page in order, as a reader would paste them, and checks the configurations of
//! every page.
//!
//! Each page gets a folder that looks like a checkout, the command `stentor`, and its own ports. The command
//! lines of `stentor lab` and `stentor-attack` are tested in their crates. `tests/package/first-hour.mjs`
//! pastes the pages of a reader's first hour as they stand, into an installation from the packages.

use crate::pages::{blocks, pages, root};
use crate::redis_server;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Maximum time for a page.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands that aren't run here: their start, and the reason.
const NOT_RUN: [(&str, &str); 39] = [
    (
        "make ",
        "`make test-all` runs this test; tests/stentor/make.rs covers `make run`, all/run-cluster.test.mjs `make run-cluster`; the others take minutes",
    ),
    ("cargo ", "the build of this test is a build; the others take minutes or need a nightly compiler"),
    ("scripts/run-tests ", "runs this test"),
    ("scripts/run-suites.mjs", "downloads suites, and takes minutes"),
    ("scripts/check-dependencies", "tests/stentor/dependencies.rs runs it"),
    ("lab/build", "a build with optimization takes minutes; `make test-all` builds the lab without it"),
    ("lab/bench", "lab/program/src/cli.rs checks the arguments; a run takes minutes"),
    ("lab/overload", "the same"),
    ("lab/results", "the same"),
    ("cd lab/program && cargo test ", "`make test-all` runs the lab's tests"),
    ("stentor lab ", "the same"),
    ("stentor-lab ", "the same"),
    ("target/release/stentor-attack ", "tests/attack checks the arguments; a run takes minutes"),
    ("node lab/peers/", "needs an installed server of the lab"),
    ("npm install --prefix examples/from-node", "tests/clients/all/bridge-example.test.mjs runs the example"),
    ("redis-server ", "the same"),
    ("node examples/from-node/", "the same"),
    ("haproxy -f examples/from-node/", "the same"),
    ("STENTOR_CONFIG=examples/from-node/", "the same"),
    (
        "stentor serve --config examples/chat/socketio/",
        "tests/clients/all/link-deploys.test.mjs runs the chat with its workers",
    ),
    ("cd examples/chat/socketio", "the same"),
    ("npm install --global ./target/package/", "tests/package/first-hour.mjs pastes it"),
    ("npm install --prefix examples/hooks/node", "tests/clients/all/hook-examples.test.mjs runs the example"),
    ("node examples/hooks/node/", "the same"),
    ("stentor check stentor.toml --connect", "tests/package/first-hour.mjs pastes it beside this example"),
    ("npm install", "scripts/setup-tests installs the packages; the same test starts PM2 and the chat"),
    ("npm start", "the same"),
    ("pm2 ", "the same"),
    ("python3 -m venv ", "tests/clients/all/link-python.test.mjs runs the chat"),
    (".venv/bin/python ", "the same"),
    ("docker ", "needs a container runtime; tests/clients/all/deploy.test.mjs covers the environment"),
    (
        "kubectl ",
        "needs a cluster; tests/package/kubernetes.test.mjs compares it with the manifests, and runs their pods",
    ),
    ("helm ", "needs a cluster; the same test renders the chart with these values"),
    ("npx ", "tests/package/server-packages.test.mjs runs the packages of the server"),
    ("pipx ", "it needs a newer pip from PyPI first; the same test installs the package by pip"),
    ("ssh-keygen -Y verify ", "the same test verifies a release"),
    ("sha256sum --check ", "the same"),
    (
        "systemctl ",
        "needs systemd; tests/clients/all/deploy.test.mjs covers the units, link-deploys.test.mjs the workers' commands",
    ),
    ("sudo ", "changes the machine"),
];

/// Commands that keep running: their start, and their output when they are ready.
const SERVERS: [(&str, &str); 5] = [
    ("stentor serve", "ready http"),
    ("npx ", "ready http"),
    ("MATCH_API_TOKEN=let-me-in stentor serve", "ready http://"),
    ("python3 examples/live/api.py", "http://127.0.0.1:"),
    ("python3 -m http.server", "Serving HTTP on"),
];

/// Texts that the output of a page's commands contains, in this order, with the page's own ports.
const PRINTED: [(&str, &[&str]); 8] = [
    (
        "docs/permissions.md",
        &[
            "{\"changed\":true}",
            "{\"changed\":true}",
            "{\"headline\":\"Kick-off\"}",
            "no permission allows to subscribe to this",
            "This token is for development.",
            "{\"unread\":3}",
            "no permission allows to subscribe to this",
            "subscribe  allowed by [[permissions]] 1",
            "[[permissions]] 1: user/{sub} matches and allows subscribe, history",
            "subscribe  refused",
            "[[permissions]] 1: user/{sub} doesn't match: the claim sub is \"43\"",
            "{\"unread\":7}",
            "{\"sessions\":0}",
            "the token has been revoked",
            "\"subject\":\"42\"",
        ],
    ),
    ("docs/deploys.md", &["applied: origins.allow\nrestart needed: heartbeat.interval\n", "ready"]),
    ("README.md", &["{\"published\":1}"]),
    (
        "docs/live-in-five-minutes.md",
        &[
            "{\"error\":\"token required\"}",
            "\"match\": 8",
            "matches: matches/{id}/live from http://127.0.0.1:3000/match/{id}",
            "\"match\":8",
            "event: snapshot",
            "stentor_feed_fetches_total{upstream=\"matches\",outcome=\"changed\"}",
            "stentor_feed_subscribed_keys ",
            "404",
            "{\"changed\":true}",
            "{\"headline\":\"Kick-off\"}",
            "{\"changed\":true}",
            "{\"changed\":true}",
        ],
    ),
    ("docs/fallbacks.md", &["{\"type\":\"session\",\"sid\":\"", "{\"type\":\"welcome\","]),
    ("docs/from-socketio.md", &["stentor.toml is valid.", "Rules:", "broadcast = [\"{room}\"]"]),
    ("docs/operate.md", &["stentor.toml is valid", "ok", "\"uptime_seconds\":"]),
    (
        "docs/tls.md",
        &[
            "stentor.toml is valid",
            "ok",
            "Plain HTTP was sent to a port that uses TLS.",
            "ready",
            ", ready, up ",
            "No key has changed.",
        ],
    ),
];

/// Returns the commands of a block. A here-document belongs to its command.
fn commands(block: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut lines = block.lines();
    while let Some(line) = lines.next() {
        let mut command = line.to_owned();
        if let Some((_, end)) = line.split_once("<<'") {
            let end = end.split('\'').next().unwrap();
            for line in lines.by_ref() {
                _ = write!(command, "\n{line}");
                if line == end {
                    break;
                }
            }
        } else {
            while command.ends_with('\\') {
                _ = write!(command, "\n{}", lines.next().unwrap());
            }
            // Removes a comment after the command.
            command.truncate(command.find(" # ").unwrap_or(command.len()));
        }
        if !command.trim().is_empty() && !command.starts_with('#') {
            commands.push(command.trim_end().to_owned());
        }
    }
    commands
}

fn found<'a>(list: &'a [(&str, &str)], command: &str) -> Option<&'a str> {
    list.iter().find(|(begins, _)| command.starts_with(begins)).map(|(_, what)| *what)
}

/// Returns the shell script of a page. `None` if it has no command to run.
fn script(text: &str) -> Option<String> {
    let all = blocks(text, "sh").iter().flat_map(|block| commands(block)).collect::<Vec<_>>();
    let mut script = String::from("set -eu\n");
    let mut runs = false;
    for (number, command) in all.iter().enumerate() {
        if found(&NOT_RUN, command).is_some() {
            continue;
        }
        if let Some(ready) = found(&SERVERS, command) {
            let command = command.trim_end_matches(['&', ' ']);
            _ = writeln!(
                script,
                "{command} > log{number} 2>&1 &\nuntil grep -qF '{ready}' log{number}; do\n  kill -0 $! 2>/dev/null || {{ cat log{number}; exit 1; }}; sleep 0.05\ndone"
            );
        } else {
            runs = true;
            // curl ends with 28 at its maximum time.
            let timed = if command.contains("--max-time") { " || [ $? = 28 ]" } else { "" };
            _ = writeln!(script, "{command}{timed}\necho");
        }
    }
    runs.then_some(script)
}

/// Copies a text file, with its ports replaced.
fn copy(from: &Path, to: &Path, replace: &impl Fn(&str) -> String) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::write(to, replace(&fs::read_to_string(from).unwrap())).unwrap();
}

/// A process group that is killed when the value is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Runs the commands of a page. The error describes what failed.
fn run(page: &str, script: &str, config: &str) -> Result<(), String> {
    let (root, dir) = (root(), tempfile::tempdir().unwrap());
    let dir = dir.path();
    let ports = [(); 4].map(|()| redis_server::free_port().to_string());
    let folder = format!("{}/", dir.display());
    let replace = |text: &str| {
        // Replaces the ports by markers first, because a new port may contain the digits of an old one.
        let marked =
            [("8000", "\u{1}"), ("8001", "\u{2}"), ("3000", "\u{3}"), ("3001", "\u{4}"), ("/tmp/", "\u{5}")];
        let text = marked.iter().fold(text.to_owned(), |text, (from, mark)| text.replace(from, mark));
        let values = ports.iter().chain([&folder]);
        marked.iter().zip(values).fold(text, |text, ((_, mark), to)| text.replace(mark, to))
    };
    for file in ["live/api.py", "live/page.html", "live/stentor.toml", "from-node/stentor.toml"] {
        copy(&root.join("examples").join(file), &dir.join("examples").join(file), &replace);
    }
    fs::write(dir.join("stentor.toml"), replace(config)).unwrap();
    fs::create_dir_all(dir.join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_stentor"), dir.join("bin/stentor")).unwrap();

    let out = fs::File::create(dir.join("out")).unwrap();
    let child = Command::new("timeout")
        .args([&PATIENCE.as_secs().to_string(), "bash", "-c", &replace(script)])
        .current_dir(dir)
        .env("PATH", format!("{}/bin:{}", dir.display(), std::env::var("PATH").unwrap()))
        .env("PYTHONUNBUFFERED", "1")
        .env("STENTOR_SERVER_LISTEN", format!("127.0.0.1:{}", ports[0]))
        .env("STENTOR_SERVER_ADMIN", format!("127.0.0.1:{}", ports[1]))
        .env("STENTOR_SERVER_CORES", "1")
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .process_group(0)
        .spawn()
        .unwrap();
    let mut group = Group(child);
    let status = group.0.wait().unwrap();
    let printed = fs::read_to_string(dir.join("out")).unwrap();
    if !status.success() {
        return Err(format!("{page}: {status:?}\n{printed}"));
    }
    let expected = PRINTED.iter().find(|(name, _)| *name == page).map_or(&[][..], |(_, texts)| *texts);
    let mut rest = &*printed;
    for text in expected {
        let Some(at) = rest.find(&replace(text)) else {
            return Err(format!("{page}: {text:?} is missing or at another place in:\n{printed}"));
        };
        rest = &rest[at + replace(text).len()..];
    }
    Ok(())
}

#[test]
fn the_commands_of_every_page_run() {
    let pages: Vec<(String, String)> = pages()
        .into_iter()
        .map(|page| {
            let text = fs::read_to_string(root().join(&page)).unwrap();
            (page, text)
        })
        .collect();
    let runs: Vec<_> = pages
        .iter()
        .filter_map(|(page, text)| {
            let config = blocks(text, "toml").into_iter().next().unwrap_or_default();
            Some((page, script(text)?, config))
        })
        .collect();
    for (page, _) in PRINTED {
        assert!(runs.iter().any(|(name, ..)| *name == page), "{page} has no commands");
    }
    let failed: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            runs.iter().map(|(page, script, config)| scope.spawn(|| run(page, script, config))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap().err()).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn the_configurations_of_every_page_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for name in ["fullchain.pem", "internal-ca.pem", "client.pem"] {
        fs::write(dir.path().join(name), certificate.cert.pem()).unwrap();
    }
    for name in ["privkey.pem", "client.key"] {
        fs::write(dir.path().join(name), certificate.signing_key.serialize_pem()).unwrap();
    }
    let here = format!("\"{}/", dir.path().display());
    let (mut checked, mut failed) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for block in blocks(&text, "toml") {
            checked += 1;
            let file = dir.path().join("stentor.toml");
            // Replaces the folder of an installation by that of the test.
            fs::write(&file, block.replace("\"/etc/stentor/", &here)).unwrap();
            let mut check = Command::new(env!("CARGO_BIN_EXE_stentor"));
            let output = check.arg("check").arg(&file).current_dir(dir.path()).output().unwrap();
            if !output.status.success() {
                failed.push(format!("{page}:\n{block}\n{}", String::from_utf8_lossy(&output.stderr)));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(checked > 6, "only {checked} configurations were found: the pages are not read right");
}

/// A block that is pasted ends: a command that keeps running is the last of its block. In the background, only another such command follows, because
/// one that uses the server would come before the server is ready.
#[test]
fn nothing_follows_a_command_that_keeps_running() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for block in blocks(&text, "sh") {
            let all = commands(&block);
            let keeps_running = |command: &String| found(&SERVERS, command).is_some();
            let is_followed = |pair: &&[String]| {
                keeps_running(&pair[0]) && !(pair[0].ends_with('&') && keeps_running(&pair[1]))
            };
            wrong.extend(all.windows(2).filter(is_followed).map(|pair| format!("{page}: {}", pair[0])));
        }
    }
    assert!(wrong.is_empty(), "split these blocks: {}", wrong.join("\n"));
}

#[test]
fn commands_are_read() {
    let text = "```sh\na   # comment\nb <<'X' && c\n# no comment\nX\n\nd \\\n  e\n```\n   ```sh\n   f\n     g\n   ```\n```js\nno\n```";
    let all: Vec<_> = blocks(text, "sh").iter().flat_map(|block| commands(block)).collect();
    assert_eq!(all, ["a", "b <<'X' && c\n# no comment\nX", "d \\\n  e", "f", "  g"]);
}
