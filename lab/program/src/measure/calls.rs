//! System calls of processes, counted by strace(1).
//!
//! Each call then takes several times as long, so counting is a run of its own, at a rate low enough that the server is done
//! with one publication before the next is due. `/proc/PID/io` leaves out what goes through `send` and `recv`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

/// Counts the calls of processes with their threads and what they start meanwhile, from [`CallCounter::attach`] to
/// [`CallCounter::stop`].
#[derive(Debug)]
pub struct CallCounter {
    strace: Child,
    summary: PathBuf,
    processes: usize,
}

/// Counted system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How often each was called, by all of them.
    pub by_name: BTreeMap<String, u64>,
    /// In how many processes that were there from the beginning.
    pub processes: usize,
}

impl CallCounter {
    /// Begins to count in all of `pids`. An error where strace isn't installed, or may not trace one of them. One may be over, but
    /// not the first.
    pub fn attach(pids: &[u32]) -> io::Result<Self> {
        let first = *pids.first().ok_or(io::ErrorKind::InvalidInput)?;
        let summary = std::env::temp_dir().join(format!("stentor-lab-calls-{}-{first}", std::process::id()));
        let mut strace = Command::new("strace")
            .args(["-f", "-c", "-o"])
            .arg(&summary)
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
        // Read to the end, so that strace never blocks on a full pipe.
        thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Ok(counter)
    }

    /// The calls so far, by name.
    pub fn stop(mut self) -> io::Result<Calls> {
        self.end(Signal::INT)?;
        Ok(Calls { by_name: parse(&fs::read_to_string(&self.summary)?), processes: self.processes })
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
        let _ = fs::remove_file(&self.summary);
    }
}

/// The one of `pids` that a line of strace's is about: "strace: Process 4711 attached", "strace: attach: ptrace(PTRACE_SEIZE,
/// 4711): No such process".
fn named(line: &str, pids: &[u32]) -> Option<u32> {
    let digits = |word: &str| word.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    line.split_whitespace().filter_map(digits).find(|pid| pids.contains(pid))
}

/// Reads `strace -c`: lines of share, seconds, microseconds a call, calls, perhaps errors, and the name.
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
