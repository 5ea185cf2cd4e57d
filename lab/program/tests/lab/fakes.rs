//! Servers with a fault, for the lab to compare: folders with `peer.toml` and a `run` that starts `fake-server`. Also
//! runs the lab's own program on them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::server::Fault;

/// Whether a text says that the machine was too busy for a run.
pub(crate) fn is_of_disturbance(said: &str) -> bool {
    ["its core", "of a core", "lagged", "weren't out", "in time"].iter().any(|told| said.contains(told))
}

/// A folder for peers and results. Dropping the value deletes it.
pub(crate) struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("stentor-lab-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("peers")).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Adds a peer whose `install` and `run` are these lines of shell.
    pub(crate) fn script(&self, name: &str, install: &str, run: &str) -> &Self {
        let folder = self.path("peers").join(name);
        fs::create_dir_all(&folder).unwrap();
        let manifest = format!(
            "about = \"a fake\"\nmodes = [\"echo\", \"chat\"]\n[versions]\n{name} = \"1\"\n[protocols]\nwebsocket = \"/\"\n"
        );
        fs::write(folder.join("peer.toml"), manifest).unwrap();
        for (file, text) in [("install", install), ("run", run)] {
            let path = folder.join(file);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        self
    }

    /// Adds a peer that serves, with a fault in every `every`th delivery.
    pub(crate) fn peer(&self, name: &str, fault: Fault, every: u64) -> &Self {
        self.script(name, "exit 0", &serve(fault, every))
    }

    /// The lab's command with these arguments, on these peers, with its results in this folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.tell(arguments);
        command.arg("--results").arg(self.path("results")).args(measuring());
        command
    }

    /// The same command without results, for commands that measure nothing.
    pub(crate) fn tell(&self, arguments: &[&str]) -> Command {
        let mut command = lab();
        command.args(arguments).arg("--peers-dir").arg(self.path("peers"));
        command
    }

    /// Runs the lab to its end. Returns the exit code and the output.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String) {
        said(self.command(arguments).output().unwrap())
    }

    /// Paths of the stored results, oldest first.
    pub(crate) fn results(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("results")) else { return Vec::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut json: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect();
        json.sort();
        json
    }
}

/// The lab's program.
pub(crate) fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_stentor-lab"))
}

/// Arguments for all commands that measure, valid on any machine.
pub(crate) fn measuring() -> [String; 4] {
    let core = usize::from(stentor_lab::measure::cores() > 1);
    ["--congestion".into(), "system".into(), "--generator-core".into(), core.to_string()]
}

/// Path of the server built beside this test. `None` if it isn't built, as for the lab's tests alone.
pub(crate) fn stentor() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_stentor-lab")).with_file_name("stentor");
    if !path.exists() {
        eprintln!("skipped: no stentor was built; `cargo build -p stentor` does it");
    }
    path.exists().then_some(path)
}

/// Checks `at_a_time` cases concurrently. For cases that wait most of the time.
pub(crate) fn side_by_side<T: Sync>(at_a_time: usize, cases: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(case);
                }
            });
        }
    });
}

/// The line of a `run` script that serves.
pub(crate) fn serve(fault: Fault, every: u64) -> String {
    format!("exec {} $2 {fault:?} {every}", env!("CARGO_BIN_EXE_fake-server"))
}

pub(crate) fn said(output: Output) -> (i32, String) {
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

pub(crate) fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}
