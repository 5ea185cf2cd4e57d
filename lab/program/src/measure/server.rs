//! A server under test: started pinned, watched until it is ready, and ended by SIGTERM.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{ChildGuard, pin_current};
use crate::Error;

/// Time for a server to print `ready`. Under valgrind, on a machine that also compiled, 30 s weren't enough.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Time for a server to end after SIGTERM, before SIGKILL.
const END_WITHIN: Duration = Duration::from_secs(15);
/// Time to read the last lines of an ended server. It takes less unless a child still holds standard error.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(5);
/// Time to detect that a running server is ending: its connections may end before the process does.
const ENDING_WITHIN: Duration = Duration::from_millis(250);
/// Interval between checks for the end of a process or its output.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Number of lines of standard error kept for the error message.
const LINES_KEPT: usize = 20;

/// Command line of a server.
#[derive(Clone, Debug)]
pub struct ServerCommand {
    /// Name for messages and tables.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The core for all its threads.
    pub core: Option<usize>,
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    name: String,
    child: Child,
    address: SocketAddr,
    said: Said,
    _guard: ChildGuard,
}

impl Server {
    /// Starts `command` and waits for its line `ready http://ADDR`, or `https`.
    pub fn start(command: &ServerCommand) -> Result<Self, Error> {
        let failed = |what: String| Error::Server { name: command.name.clone(), what };
        let pinned =
            command.core.map(pin_current).transpose().map_err(|error| failed(format!("pinning: {error}")))?;
        let mut program = dying_with_us(command);
        program.args(&command.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, guard) = ChildGuard::spawn(&mut program)
            .map_err(|error| failed(format!("{} can't be run: {error}", command.program.display())))?;
        drop(pinned);

        let said = Said::keep(child.stderr.take());
        let (tell, told) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                // The output is read to its end, so that the server never blocks on a full pipe.
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let _ = tell.send(line);
                }
            });
        }
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { name: command.name.clone(), child, address, said, _guard: guard };
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let address = line.strip_prefix("ready http").map(|rest| rest.trim_start_matches('s'));
                    if let Some(address) = address.and_then(|rest| rest.strip_prefix("://")) {
                        server.address = address
                            .trim()
                            .trim_end_matches('/')
                            .parse()
                            .map_err(|_| failed(format!("`{line}` names no address")))?;
                        return Ok(server);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(server.error(&format!("it isn't ready after {} s", READY_WITHIN.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // The server's last output may contain the reason.
                    server.said.is_all_within(LAST_WORDS_WITHIN);
                    return Err(server.error("it ended before it was ready"));
                }
            }
        }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ids of the processes that the server started and that are in its group, such as a store. Some may end before
    /// this returns.
    pub fn started(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| *pid != self.pid() && group_of(*pid) == Some(self.pid())).collect()
    }

    /// Returns an error with `what`, the server's name and its last lines on standard error. Waits up to 250 ms for these lines,
    /// and up to 5 s more if the server has ended.
    pub fn error(&self, what: &str) -> Error {
        if !self.said.is_all_within(ENDING_WITHIN) && group_of(self.pid()).is_none() {
            self.said.is_all_within(LAST_WORDS_WITHIN);
        }
        let last_lines = self.said.last_lines();
        let what =
            if last_lines.is_empty() { what.to_owned() } else { format!("{what}; it said:\n{last_lines}") };
        Error::Server { name: self.name.clone(), what }
    }

    /// Ends the server by SIGTERM, or by SIGKILL if SIGTERM has no effect. Returns an error if the server had ended by
    /// itself.
    pub fn stop(mut self) -> Result<(), Error> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(self.error(&format!("it ended by itself ({status})")));
        }
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        if !self.runs() {
            return;
        }
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + END_WITHIN;
        while self.runs() && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
        if self.runs() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The process group of `pid`, the fifth field of proc_pid_stat(5). `None` if there is no such process or it has ended.
/// The process's name may contain blanks and parentheses.
pub(super) fn group_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let (state, _parent) = (fields.next()?, fields.next()?);
    fields.next().filter(|_| state != "Z")?.parse().ok()
}

/// The command, wrapped so that the kernel ends the server if this process ends abnormally (setpriv(1) of util-linux;
/// not wrapped if that isn't installed). The server keeps the process id.
fn dying_with_us(command: &ServerCommand) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let there = *SETPRIV.get_or_init(|| {
        let trial = Command::new("setpriv").args(["--pdeathsig", "TERM", "--", "true"]).output();
        trial.is_ok_and(|output| output.status.success())
    });
    if !there {
        return Command::new(&command.program);
    }
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "TERM", "--"]).arg(&command.program);
    wrapped
}

/// Standard error of a server: the last [`LINES_KEPT`] lines.
#[derive(Debug)]
struct Said {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Ends when the server has closed standard error, and all its output is in `lines`.
    reader: JoinHandle<()>,
}

impl Said {
    /// Stores the output of `from` until its end.
    fn keep(from: Option<impl Read + Send + 'static>) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let shared = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in from.into_iter().flat_map(|from| BufReader::new(from).lines().map_while(Result::ok)) {
                let mut lines = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.len() == LINES_KEPT {
                    lines.pop_front();
                }
                lines.push_back(line);
            }
        });
        Self { lines, reader }
    }

    /// Waits until the output has ended, at most for `within`. Returns `true` if it has ended.
    fn is_all_within(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
        self.reader.is_finished()
    }

    fn last_lines(&self) -> String {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.make_contiguous().join("\n")
    }
}

#[cfg(test)]
mod tests;
