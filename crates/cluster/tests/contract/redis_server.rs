//! A Redis server of its own for each test.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[path = "ports.rs"]
mod ports;

pub(crate) use ports::free_port;

/// Waits until another process has reached a state.
pub(crate) fn until(what: &str, is_done: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_done() {
        assert!(started.elapsed() < Duration::from_secs(60), "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `redis-server`, or the program in `REDIS_SERVER`: `REDIS_SERVER=valkey-server cargo test -p stentor-cluster`.
pub(crate) fn program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// Runs `redis-server` on a free port. Dropping the value stops it.
pub(crate) struct RedisServer {
    pub(crate) port: u16,
    folder: TempDir,
    arguments: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl RedisServer {
    /// Starts a server. Returns `None`, with a message, if Redis isn't installed. `{port}` in an argument is the
    /// server's port.
    pub(crate) fn start(arguments: &[&str]) -> Option<Self> {
        let is_there = Command::new(program()).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !is_there {
            eprintln!("skipped: {} isn't installed", program());
            return None;
        }
        let server = Self {
            port: free_port(),
            folder: tempfile::tempdir().unwrap(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            child: Mutex::new(None),
        };
        server.run();
        Some(server)
    }

    /// Starts the server again after [`Self::stop`], with its stored data, if any.
    pub(crate) fn run(&self) {
        let child = Command::new(program())
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .arg("--dir")
            .arg(self.folder.path())
            .args(self.arguments.iter().map(|argument| argument.replace("{port}", &self.port.to_string())))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        *self.child.lock().unwrap() = Some(child);
        until("redis-server starts", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Kills the server.
    pub(crate) fn stop(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs a command, and returns the reply as redis-cli shows it.
    pub(crate) fn command(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(arguments).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}
