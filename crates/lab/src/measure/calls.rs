//! System calls of a process, counted by strace(1).
//!
//! Each call then takes several times as long, so counting is a run of its own, at a rate low enough that nothing
//! gathers: how many calls a delivery needs doesn't depend on how long they take, as long as the server is done with one
//! publication before the next is due. `/proc/PID/io` won't do: it leaves out what goes through `send` and `recv`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

/// Counts the calls of one process and its threads, from [`CallCounter::attach`] to [`CallCounter::stop`].
#[derive(Debug)]
pub struct CallCounter {
    strace: Child,
    summary: PathBuf,
}

impl CallCounter {
    /// Begins to count. An error where strace isn't installed, or may not trace.
    pub fn attach(pid: u32) -> io::Result<Self> {
        let summary = std::env::temp_dir().join(format!("stentor-lab-calls-{}-{pid}", std::process::id()));
        let mut strace = Command::new("strace")
            .args(["-f", "-c", "-o"])
            .arg(&summary)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = strace.stderr.take();
        let counter = Self { strace, summary };
        let mut lines = BufReader::new(stderr.ok_or(io::ErrorKind::BrokenPipe)?);
        let mut line = String::new();
        // "strace: Process 4711 attached"
        lines.read_line(&mut line)?;
        if !line.contains("attached") {
            return Err(io::Error::other(line.trim().to_owned()));
        }
        // Read to the end, so that strace never blocks on a full pipe.
        thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Ok(counter)
    }

    /// The calls so far, by name.
    pub fn stop(mut self) -> io::Result<BTreeMap<String, u64>> {
        self.end(Signal::INT)?;
        Ok(parse(&fs::read_to_string(&self.summary)?))
    }

    fn end(&mut self, signal: Signal) -> io::Result<()> {
        if let Some(pid) = i32::try_from(self.strace.id()).ok().and_then(Pid::from_raw)
            && self.strace.try_wait()?.is_none()
        {
            kill_process(pid, signal)?;
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
mod tests {
    use super::*;

    #[test]
    fn reads_a_summary() {
        let summary = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 99.15    0.023300           4      5000           sendto
  0.85    0.000200          20        10         2 epoll_wait
  0.00    0.000000           0         1           exit_group
------ ----------- ----------- --------- --------- ----------------
100.00    0.023500           4      5011         2 total
";
        let expect = [("epoll_wait", 10), ("exit_group", 1), ("sendto", 5000)];
        assert_eq!(parse(summary), BTreeMap::from(expect.map(|(name, calls)| (name.to_owned(), calls))));
    }

    #[test]
    fn counts_what_a_process_does() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let counted = CallCounter::attach(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        match counted.and_then(CallCounter::stop) {
            Ok(calls) => assert!(calls.contains_key("close"), "{calls:?}"),
            Err(error) => eprintln!("skipped: no strace here ({error})"),
        }
    }
}
