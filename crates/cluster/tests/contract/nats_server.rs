//! A nats-server with JetStream on a free port.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The program. Set `STENTOR_NATS_SERVER` to test another version.
fn program() -> String {
    std::env::var("STENTOR_NATS_SERVER").unwrap_or_else(|_| "nats-server".into())
}

/// The server's version, or `None` with a message if there is no server.
pub(crate) fn version() -> Option<String> {
    let Ok(output) = Command::new(program()).arg("--version").output() else {
        eprintln!("skipped: nats-server isn't installed");
        return None;
    };
    Some(String::from_utf8(output.stdout).unwrap().trim().trim_start_matches("nats-server: v").into())
}

pub(crate) struct NatsServer {
    pub(crate) port: u16,
    folder: tempfile::TempDir,
    child: Mutex<Option<Child>>,
}

impl NatsServer {
    /// Starts a server with these lines of configuration. Returns `None`, with a message, if nats-server isn't
    /// installed.
    pub(crate) fn start(configuration: &str) -> Option<Self> {
        version()?;
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let jetstream = format!("jetstream {{ store_dir: {store:?} }}\n");
        Some(Self::with(folder, &format!("{jetstream}{configuration}")))
    }

    /// Starts a server without JetStream.
    pub(crate) fn start_without_jetstream() -> Option<Self> {
        Self::start("").map(|server| {
            server.stop();
            Self::with(tempfile::tempdir().unwrap(), "")
        })
    }

    /// Starts a cluster of three servers. Returns `None`, with a message, if nats-server isn't installed.
    pub(crate) fn start_cluster() -> Option<[Self; 3]> {
        let ports = [(); 3].map(|()| crate::redis_server::free_port());
        let routes = ports.map(|port| format!("nats://127.0.0.1:{port}")).join(", ");
        let [a, b, c] = ports.map(|port| {
            Self::start(&format!(
                "server_name: n{port}\ncluster {{ name: test, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}"
            ))
        });
        Some([a?, b?, c?])
    }

    fn with(folder: tempfile::TempDir, configuration: &str) -> Self {
        let port = crate::redis_server::free_port();
        let mut file = std::fs::File::create(folder.path().join("conf")).unwrap();
        write!(file, "listen: \"127.0.0.1:{port}\"\n{configuration}\n").unwrap();
        let server = Self { port, folder, child: Mutex::new(None) };
        server.run();
        server
    }

    /// Starts the server again after [`Self::stop`], with its data.
    pub(crate) fn run(&self) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let child = Command::new(program())
            .arg("-c")
            .arg(self.folder.path().join("conf"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        *self.child.lock().unwrap() = Some(child);
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(started.elapsed() < Duration::from_secs(60), "nats-server doesn't start: {}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the server.
    pub(crate) fn stop(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Deletes the data of the server, which must be stopped.
    pub(crate) fn wipe(&self) {
        let _ = std::fs::remove_dir_all(self.folder.path().join("store"));
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}
