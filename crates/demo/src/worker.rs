//! The worker: a Node process that runs the handlers of the page's second chat, as Socket.IO server code on Stentor.
//!
//! The process is started again whenever it ends, so the page may restart it. It ends when its standard input does, so it never outlives
//! the demo, however the demo ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program of the worker. The page shows it.
pub const PROGRAM: &str = include_str!("worker.mjs");
/// The application of the worker.
pub const APP: &str = "demo";
/// The path of its clients.
pub const PATH: &str = "/demo/worker/";
/// Files of the packages that the program and the page need, in a folder of npm packages.
const PACKAGES: [&str; 3] =
    ["socket.io/package.json", "@stentor/socket.io/package.json", "socket.io-client/dist/socket.io.min.js"];
/// The first version of Node that runs the program.
const NODE_MIN: u32 = 18;
/// A process that fails within this time has failed to start.
const START_TIME: Duration = Duration::from_secs(5);
/// Number of failed starts in a row after which the demo starts no further process.
const FAILURES_MAX: u32 = 3;

/// Node, with the packages that the worker needs.
#[derive(Debug)]
pub struct Worker {
    packages: PathBuf,
}

impl Worker {
    /// Looks for Node and the packages. `packages` is a folder of npm packages. Returns `None` if one of them isn't there.
    #[must_use]
    pub fn find(packages: Option<&Path>) -> Option<Self> {
        let packages = packages?.canonicalize().ok()?;
        if !PACKAGES.iter().all(|file| packages.join(file).exists()) {
            return None;
        }
        let output = Command::new("node").arg("--version").stdin(Stdio::null()).output().ok()?;
        let major = std::str::from_utf8(&output.stdout).ok()?.strip_prefix('v')?.split('.').next()?;
        (major.parse::<u32>().ok()? >= NODE_MIN).then_some(Self { packages })
    }

    /// Keeps a process running, connected to the admin port at `url` with the admin token. `can_restart`: whether the page may restart it.
    /// Blocks, and returns the reason why no process can be started.
    #[must_use]
    pub fn run(&self, url: &str, token: Option<&str>, can_restart: bool) -> String {
        let mut failures = 0;
        loop {
            let begin = Instant::now();
            let status = match self.start(url, token, can_restart).and_then(|mut child| {
                // `wait` would close the input of a child that has it.
                let _input = child.stdin.take();
                child.wait()
            }) {
                Ok(status) => status,
                Err(error) => return format!("Node can't be started: {error}"),
            };
            let has_failed = !status.success() && begin.elapsed() < START_TIME;
            failures = if has_failed { failures + 1 } else { 0 };
            if failures == FAILURES_MAX {
                return format!("its process fails: {status}");
            }
        }
    }

    fn start(&self, url: &str, token: Option<&str>, can_restart: bool) -> std::io::Result<Child> {
        let mut command = Command::new("node");
        // Node looks for packages from the folder in which it is started.
        command.args(["--input-type=module", "--eval", PROGRAM]).current_dir(&self.packages);
        command.env("STENTOR", url).env_remove("STENTOR_TOKEN").env_remove("CAN_RESTART");
        if let Some(token) = token {
            command.env("STENTOR_TOKEN", token);
        }
        if can_restart {
            command.env("CAN_RESTART", "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_needs_its_packages() {
        assert!(Worker::find(None).is_none());
        let dir = tempfile::tempdir().unwrap();
        assert!(Worker::find(Some(dir.path())).is_none());
        assert!(Worker::find(Some(Path::new("/nonexistent"))).is_none());
    }
}
