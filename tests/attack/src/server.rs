//! The server under attack: the real binary as a process, with a configuration and a watched log.

use crate::script::Addresses;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum number of log lines that are kept: the newest ones.
const LOG_LINES_MAX: usize = 200;
/// Logged text after a thread has panicked (`crates/stentor/src/logging.rs`).
const PANIC_MARK: &str = "panic: this is a bug";

/// Logged texts after a successful and a failed reload (`crates/stentor/src/reload.rs`).
const RELOADED: &str = "the configuration was reloaded";
const NOT_RELOADED: &str = "the configuration was not reloaded";

/// Maximum time of a drain: longer than the process's own limits, for busy machines.
const END_TIME_MAX: Duration = Duration::from_secs(30);
/// Interval between two checks whether the process has ended.
const END_LOOK: Duration = Duration::from_millis(10);

/// The options for starting a server.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    /// `epoll` or `io_uring`.
    pub(crate) driver: String,
    /// TOML. `{folder}` is replaced by the path of the folder with the files, `{reload}` by the number of the
    /// reload.
    pub(crate) configuration: String,
    /// The names and contents of files that the configuration refers to.
    pub(crate) files: Vec<(&'static str, String)>,
    /// The addresses at which the server listens according to `configuration`. `None`: free ports.
    pub(crate) addresses: Option<Addresses>,
    /// The server's limit of file descriptors. `None` keeps this process's limit.
    pub(crate) descriptors_max: Option<u64>,
}

/// A running server. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// The previous process, which drains.
    former: Option<Child>,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) addresses: Addresses,
    log: Arc<Mutex<Log>>,
    /// The configuration file, which a reload reads again.
    folder: TempDir,
    launch: Launch,
}

#[derive(Debug, Default)]
struct Log {
    lines: std::collections::VecDeque<String>,
    /// Log lines of panics and failed reloads.
    faults: Vec<String>,
    /// Number of successful reloads.
    reloads: u64,
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in [Some(&mut self.child), self.former.as_mut()].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Server {
    /// Starts the binary on free ports and returns when it listens.
    pub(crate) fn start(launch: &Launch) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        write(&folder, &launch.configuration, 0)?;
        for (name, content) in &launch.files {
            std::fs::write(folder.path().join(name), content)?;
        }
        let log = Arc::<Mutex<Log>>::default();
        let (child, (listen, admin)) = spawn(launch, &folder, &log)?;
        let addresses = launch.addresses.unwrap_or(Addresses::plain(listen, admin));
        Ok(Self {
            child,
            former: None,
            listen: addresses.public,
            admin: addresses.admin,
            addresses,
            log,
            folder,
            launch: launch.clone(),
        })
    }

    /// Starts a new process that takes over. Returns when the new process listens. The old one drains.
    pub(crate) fn take_over(&mut self) -> anyhow::Result<()> {
        let (child, _) = spawn(&self.launch, &self.folder, &self.log)?;
        self.former = Some(std::mem::replace(&mut self.child, child));
        Ok(())
    }

    /// Drains the process, and starts a new one after the end of the old one.
    pub(crate) fn drain_and_start(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        if let Some(fault) = end_fault(&mut self.child) {
            bail!(fault);
        }
        self.child = spawn(&self.launch, &self.folder, &self.log)?.0;
        Ok(())
    }

    /// Waits for the end of the previous process, if there is one. Returns its fault, if any.
    pub(crate) fn former_fault(&mut self) -> Option<String> {
        end_fault(&mut self.former.take()?)
    }

    /// Changes the configuration and lets the server read it again.
    pub(crate) fn reload(&self, number: u64) -> anyhow::Result<()> {
        write(&self.folder, &self.launch.configuration, number)?;
        self.signal(Signal::HUP)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Returns the number of successful reloads so far.
    pub(crate) fn reloads(&self) -> u64 {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).reloads
    }

    /// Returns `true` if one of the last log lines contains `text`.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.lines.iter().any(|line| line.contains(text))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the fault of the process, if any: the process has ended, a thread has panicked, or a valid
    /// configuration was refused.
    pub(crate) fn fault(&mut self) -> Option<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = log.faults.first() {
            return Some(line.clone());
        }
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let last = log.lines.iter().rev().take(5).rev().cloned().collect::<Vec<_>>().join("\n  ");
        Some(format!("the process has ended ({status}); its log ends with\n  {last}"))
    }
}

/// Starts a process. Returns it with its addresses when it listens. Its log is appended to `log`.
fn spawn(
    launch: &Launch,
    folder: &TempDir,
    log: &Arc<Mutex<Log>>,
) -> anyhow::Result<(Child, (SocketAddr, SocketAddr))> {
    let mut child = command(launch, &folder.path().join("stentor.toml"))
        .spawn()
        .with_context(|| format!("{} can't be started", launch.binary.display()))?;
    let stderr = child.stderr.take().context("no log")?;
    let mut lines = BufReader::new(stderr).lines();
    let mut begun = Vec::new();
    let addresses = loop {
        let Some(line) = lines.next() else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the server doesn't start: {}", begun.join("\n"));
        };
        let line = line?;
        if let Some(addresses) = addresses(&line) {
            break addresses;
        }
        begun.push(line);
    };
    watch(lines, log.clone());
    Ok((child, addresses))
}

/// Waits for the end of a draining process. Returns its fault, if any.
fn end_fault(child: &mut Child) -> Option<String> {
    let begun = Instant::now();
    while begun.elapsed() < END_TIME_MAX {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(END_LOOK),
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(status)) => return Some(format!("a process that drained has ended: {status}")),
            Err(error) => return Some(error.to_string()),
        }
    }
    Some(format!("a process that drains hasn't ended after {END_TIME_MAX:?}"))
}

/// Replaces the configuration file atomically, because a client may request a reload at any time.
fn write(folder: &TempDir, configuration: &str, reload: u64) -> anyhow::Result<()> {
    let path = folder.path().to_string_lossy();
    let text = configuration.replace("{folder}", &path).replace("{reload}", &reload.to_string());
    let next = folder.path().join("next.toml");
    std::fs::write(&next, text)?;
    Ok(std::fs::rename(next, folder.path().join("stentor.toml"))?)
}

fn command(launch: &Launch, configuration: &Path) -> Command {
    let mut command = match launch.descriptors_max {
        None => Command::new(&launch.binary),
        Some(limit) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("ulimit -n {limit} && exec \"$0\" \"$@\"")).arg(&launch.binary);
            shell
        }
    };
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let (listen, admin) = launch.addresses.map_or((free, free), |fixed| (fixed.tls, fixed.admin));
    command
        .args(["serve", "--listen", &listen.to_string(), "--admin", &admin.to_string(), "--cores", "2"])
        .args(["--driver", &launch.driver, "--config"])
        .arg(configuration)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Reads the listening addresses from a log line.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let field = |name: &str| line.split(name).nth(1)?.split_whitespace().next()?.parse().ok();
    if !line.contains(" listening ") {
        return None;
    }
    Some((field(" listen=")?, field(" admin=")?))
}

/// Reads the log until the process ends, so that it never fills the pipe.
fn watch(lines: std::io::Lines<BufReader<ChildStderr>>, log: Arc<Mutex<Log>>) {
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if line.contains(PANIC_MARK) || line.contains(NOT_RELOADED) {
                log.faults.push(line.clone());
            }
            log.reloads += u64::from(line.contains(RELOADED));
            if log.lines.len() == LOG_LINES_MAX {
                log.lines.pop_front();
            }
            log.lines.push_back(line);
        }
    });
}

/// Returns the configuration that all attacks share. Heartbeats and timeouts are short, so that an attack's
/// sessions end within seconds and memory returns. `rooms` are additional lines of `[rooms]`, `limits` of
/// `[limits]`.
pub(crate) fn configuration(
    budget_bytes: u64,
    upstream: SocketAddr,
    heartbeat_timeout: Duration,
    rooms: &str,
    limits: &str,
) -> String {
    let heartbeat_timeout_ms = heartbeat_timeout.as_millis();
    format!(
        r#"
[heartbeat]
interval = "5s"
timeout = "{heartbeat_timeout_ms}ms"

[rooms]
publish = true
{rooms}

[[rules]]
event = "join"
join = ["{{}}"]
ack = true

[[rules]]
event = "leave"
leave = ["{{}}"]

[[rules]]
event = "say"
broadcast = ["{{room}}"]

[[feeds]]
name = "canary"
prefix = "canary/"
push = true

[[feeds]]
name = "cold"
prefix = "cold/"
url = "http://{upstream}"

[limits]
memory_bytes_max = {budget_bytes}
{limits}
"#
    )
}

/// Time of a fetch from the attacks' own upstream.
pub(crate) const FETCH_TIME: Duration = Duration::from_millis(50);
