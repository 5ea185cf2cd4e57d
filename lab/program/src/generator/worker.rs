//! Generators in separate processes.
//!
//! A worker reads its [`Spec`] as one line of JSON, connects, reports that, waits for a line, runs the load (which may
//! wait for the other workers again), and reports its outcome. It holds its connections until its standard input ends,
//! so that the server can be sampled until then. It also ends if its standard input ends earlier.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::live::Report;
use super::run::run_and_hold;
use super::{CONNECTIONS_PER_PROCESS_MAX, FanoutPlan, Live, LoadSpec, Outcome, Publisher, Spec};
use crate::Error;
use crate::measure::ChildGuard;

/// The line on a worker's standard input that means "begin" and "continue".
const BEGIN: &str = "begin";

/// Niceness of a generator that gives priority to all other processes.
const LAST_IN_LINE: i32 = 19;

/// The running program, which starts itself again for its workers.
pub fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::io("the path of this program"))
}

/// Runs the worker's side, on its standard input and output.
pub fn serve_worker(input: &mut (dyn BufRead + Send), output: &mut (dyn Write + Send)) -> Result<(), Error> {
    let output = Mutex::new(output);
    let say = |report: &Report| -> Result<(), Error> {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let line = report.line().map_err(|error| Error::Generator(error.to_string()))?;
        output.write_all(&line).and_then(|()| output.flush()).map_err(Error::io("reporting"))
    };
    let input = Mutex::new(input);
    let read = |what| {
        let mut line = String::new();
        let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
        input.read_line(&mut line).map_err(Error::io(what))?;
        Ok::<String, Error>(line)
    };
    let task = read("reading the task")?;
    let spec: Spec =
        serde_json::from_str(&task).map_err(|error| Error::Usage(format!("the task: {error}")))?;
    if spec.stands_back {
        // Without this permission, the worker has the usual priority.
        let _ = rustix::process::nice(LAST_IN_LINE);
    }
    let connected = |_: &Outcome| {
        say(&Report::Connected)?;
        let word = read("waiting to begin")?;
        if word.trim_end() == BEGIN { Ok(()) } else { Err(Error::Generator("it was called off".into())) }
    };
    let done = |outcome| {
        say(&Report::Done(Box::new(outcome)))?;
        read("waiting to end").map(drop)
    };
    run_and_hold(&spec, connected, done).or_else(|error| {
        let why = match error {
            // The caller adds that the error is the generator's.
            Error::Generator(why) => why,
            other => other.to_string(),
        };
        say(&Report::Failed(why))
    })
}

/// One generator in as many processes as its connections need. Dropping it ends them.
pub struct Workers {
    workers: Vec<Worker>,
    /// Number of times that the workers wait for each other during the load.
    meetings: usize,
    /// Receiver of progress reports.
    watch: Watch,
}

/// Receiver of progress reports.
pub(crate) type Watch = Option<Box<dyn Fn(&Live)>>;

struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _guard: ChildGuard,
}

impl Workers {
    /// Starts the workers one after the other. Returns when all connections are open.
    pub fn connect(program: &Path, spec: &Spec) -> Result<Self, Error> {
        Self::connect_watched(program, spec, None)
    }

    /// Does the same. `watch` receives the progress once per second.
    pub(crate) fn connect_watched(program: &Path, spec: &Spec, watch: Watch) -> Result<Self, Error> {
        let mut started = Self { workers: Vec::new(), meetings: spec.load.meetings(), watch };
        let mut spec = spec.clone();
        spec.live = started.watch.is_some().then_some(1.0);
        for part in parts(&spec) {
            let mut worker = Worker::start(program, &part)?;
            worker.await_connected(&started.watch)?;
            started.workers.push(worker);
        }
        Ok(started)
    }

    /// Ids of the processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.child.id()).collect()
    }

    /// Runs the load. The connections are held until this is dropped.
    pub fn run(&mut self) -> Result<Outcome, Error> {
        self.begin()?;
        self.finish()
    }

    /// Begins the load.
    pub fn begin(&mut self) -> Result<(), Error> {
        // The last worker publishes, and the others must be receiving by then.
        for worker in &mut self.workers {
            writeln!(worker.input, "{BEGIN}").map_err(Error::io("beginning"))?;
        }
        Ok(())
    }

    /// Waits for the end of the running load.
    pub fn finish(&mut self) -> Result<Outcome, Error> {
        for _ in 0..self.meetings {
            for worker in &mut self.workers {
                worker.await_connected(&self.watch)?;
            }
            self.begin()?;
        }
        let mut whole: Option<Outcome> = None;
        for worker in self.workers.iter_mut().rev() {
            match (worker.receive(&self.watch)?, &mut whole) {
                (Report::Done(outcome), None) => whole = Some(*outcome),
                (Report::Done(outcome), Some(whole)) => whole.merge(&outcome),
                (Report::Failed(why), _) => return Err(Error::Generator(why)),
                (Report::Connected | Report::Live(_), _) => {
                    return Err(Error::Generator("a worker connected twice".into()));
                }
            }
        }
        whole.ok_or_else(|| Error::Generator("there was no worker".into()))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

impl Worker {
    fn start(program: &Path, spec: &Spec) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        let (mut child, guard) =
            ChildGuard::spawn(&mut command).map_err(Error::io("starting a generator"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Generator("a worker without pipes".into()));
        };
        let mut worker = Self { child, input, output: BufReader::new(output), _guard: guard };
        let task = serde_json::to_string(spec).map_err(|error| Error::Generator(error.to_string()))?;
        writeln!(worker.input, "{task}").map_err(Error::io("giving a generator its task"))?;
        Ok(worker)
    }

    /// Waits for a worker's report that it has connected.
    fn await_connected(&mut self, watch: &Watch) -> Result<(), Error> {
        match self.receive(watch)? {
            Report::Connected => Ok(()),
            Report::Failed(why) => Err(Error::Generator(why)),
            _ => Err(Error::Generator("a worker was done too early".into())),
        }
    }

    /// Returns the next report other than progress, which goes to `watch`.
    fn receive(&mut self, watch: &Watch) -> Result<Report, Error> {
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).map_err(Error::io("hearing from a generator"))?;
            let report = serde_json::from_str(&line)
                .map_err(|_| Error::Generator(format!("a worker ended, saying `{}`", line.trim())))?;
            match (report, watch) {
                (Report::Live(live), Some(watch)) => watch(&live),
                (report, _) => return Ok(report),
            }
        }
    }
}

/// Divides `spec` into parts that one process can hold, each for one process of the server. The last part publishes.
fn parts(spec: &Spec) -> Vec<Spec> {
    let targets = &spec.targets;
    let each = spec.connections.div_ceil(targets.len()).div_ceil(CONNECTIONS_PER_PROCESS_MAX).max(1);
    let count = (targets.len() * each).min(spec.connections.max(1));
    let mut first_source = spec.first_source;
    (0..count)
        .map(|nth| {
            let mut part = spec.clone();
            part.targets = vec![targets[nth % targets.len()]];
            part.entry = spec.entry.filter(|_| nth + 1 == count);
            part.connections = spec.connections * (nth + 1) / count - spec.connections * nth / count;
            part.first_source = first_source;
            first_source = first_source.wrapping_add(part.sources() as u8);
            let share = part.connections as f64 / spec.connections.max(1) as f64;
            // Only the last process reports. Its output is read first in the end, while another one's would wait until
            // then.
            part.live = spec.live.filter(|_| nth + 1 == count).map(|_| 1.0 / share.max(1e-9));
            match &mut part.load {
                LoadSpec::EchoOpen { rate_hz, .. } => *rate_hz *= share,
                LoadSpec::Fanout(FanoutPlan { publisher, .. }) | LoadSpec::Reconnect { publisher, .. }
                    if nth + 1 < count =>
                {
                    *publisher = Publisher::Elsewhere;
                }
                // The rates of these loads are per connection.
                _ => {}
            }
            part
        })
        .collect()
}

#[cfg(test)]
mod tests;
