//! System calls of processes, counted by strace(1).
//!
//! Each traced call takes several times as long, so counting is a separate run, at a rate low enough that the server finishes one
//! publication before the next is due. `/proc/PID/io` doesn't count `send` and `recv`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

/// Counts the calls of processes, their threads and their new children, from [`CallCounter::attach`] to [`CallCounter::stop`].
#[derive(Debug)]
pub struct CallCounter {
    strace: Child,
    summary: NamedTempFile,
    processes: usize,
}

/// Counted system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls by name, of all processes.
    pub by_name: BTreeMap<String, u64>,
    /// Number of processes traced from the start.
    pub processes: usize,
}

impl CallCounter {
    /// Starts counting in all of `pids`. Returns an error if strace isn't installed or may not trace one of them. All
    /// processes but the first may have ended.
    pub fn attach(pids: &[u32]) -> io::Result<Self> {
        let first = *pids.first().ok_or(io::ErrorKind::InvalidInput)?;
        let summary = NamedTempFile::new()?;
        let mut strace = Command::new("strace")
            .args(["-f", "-c", "-o"])
            .arg(summary.path())
            .args(pids.iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = strace.stderr.take();
        let mut counter = Self { strace, summary, processes: 0 };
        let mut lines = BufReader::new(stderr.ok_or(io::ErrorKind::BrokenPipe)?);
        let mut left = pids.to_vec();
        while !left.is_empty() {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                return Err(io::Error::other("strace ended"));
            }
            let Some(pid) = named(&line, &left) else { continue };
            left.retain(|other| *other != pid);
            if line.contains(" attached") {
                counter.processes += 1;
            } else if pid == first || !line.contains("No such process") {
                return Err(io::Error::other(line.trim().to_owned()));
            }
        }
        // The output is read to its end, so that strace never blocks on a full pipe.
        thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Ok(counter)
    }

    /// Ends counting. Returns the calls by name.
    pub fn stop(mut self) -> io::Result<Calls> {
        self.end(Signal::INT)?;
        Ok(Calls { by_name: parse(&fs::read_to_string(self.summary.path())?), processes: self.processes })
    }

    fn end(&mut self, signal: Signal) -> io::Result<()> {
        if self.strace.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.strace), signal)?;
            self.strace.wait()?;
        }
        Ok(())
    }
}

impl Drop for CallCounter {
    fn drop(&mut self) {
        let _ = self.end(Signal::TERM);
    }
}

/// The member of `pids` in a line of strace, such as "strace: Process 4711 attached" or "strace: attach: ptrace(PTRACE_SEIZE, 4711):
/// No such process".
fn named(line: &str, pids: &[u32]) -> Option<u32> {
    let digits = |word: &str| word.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    line.split_whitespace().filter_map(digits).find(|pid| pids.contains(pid))
}

/// Parses `strace -c`: lines of share, seconds, microseconds per call, calls, optional errors, and the name.
fn parse(summary: &str) -> BTreeMap<String, u64> {
    let calls = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = *words.last()?;
        let count = words.get(3)?.parse().ok()?;
        (matches!(words.len(), 5 | 6) && name != "total").then(|| (name.to_owned(), count))
    };
    summary.lines().filter_map(calls).collect()
}

#[cfg(test)]
mod tests;
