//! Log lines, to standard error. Standard output is for results: the `ready` line, a summary.
//!
//! A separate thread writes the lines, so that a core never waits for the reader of the log. If the log isn't
//! read, up to [`BYTES_MAX`] bytes are queued. Further lines are dropped and counted.

mod queue;

use crate::config::schema::{LogFormat, LogLevel};
use anyhow::Context;
use queue::{DroppedLines, LineQueue, QueueGuard};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::thread;
use stentor_control::ProcessCounter;
use stentor_edge::ACCESS_LOG;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, registry, reload};

/// Maximum size of the queued log lines in bytes.
const BYTES_MAX: usize = 256 << 10;
/// Maximum size of the access log's queue in bytes. The queue is separate, so that the access log never
/// displaces a warning.
const ACCESS_BYTES_MAX: usize = 4 << 20;

/// The log. Dropping it writes the queued lines, unless that takes longer than a second.
#[must_use]
pub(crate) struct Log {
    dropped: DroppedLines,
    access_dropped: Option<DroppedLines>,
    level: LevelHandle,
    _writers: Vec<QueueGuard>,
}

impl Log {
    /// Returns a handle to change the level.
    pub(crate) fn level(&self) -> LevelHandle {
        self.level.clone()
    }

    /// Returns counters of dropped lines, for `/metrics`.
    pub(crate) fn dropped_lines(&self) -> Vec<ProcessCounter> {
        let (dropped, access_dropped) = (self.dropped.clone(), self.access_dropped.clone());
        let access_lines = move || access_dropped.as_ref().map_or(0, DroppedLines::count);
        dropped_lines(move || dropped.count(), access_lines)
    }
}

/// Changes the level of the log.
#[derive(Clone)]
pub(crate) struct LevelHandle(reload::Handle<LevelFilter, Registry>);

impl LevelHandle {
    pub(crate) fn set(&self, level: LogLevel) {
        // Changing the level fails only if the log was dropped.
        let _ = self.0.reload(filter(level));
    }

    /// Makes a handle without a log.
    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self(reload::Layer::new(LevelFilter::INFO).1)
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Returns the counters of dropped lines, with their values.
pub(crate) fn dropped_lines(
    value: impl Fn() -> u64 + Send + Sync + 'static,
    access_value: impl Fn() -> u64 + Send + Sync + 'static,
) -> Vec<ProcessCounter> {
    vec![
        ProcessCounter {
            name: "log_lines_dropped",
            help: "Log lines dropped because standard error wasn't read",
            value: Arc::new(value),
        },
        ProcessCounter {
            name: "access_log_lines_dropped",
            help: "Lines of the access log dropped because standard error wasn't read fast enough",
            value: Arc::new(access_value),
        },
    ]
}

/// Makes the layer that writes lines.
fn lines<S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync>(
    writer: LineQueue,
    format: LogFormat,
) -> Box<dyn Layer<S> + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        // If the log's reader has closed it, internal errors would be printed with `eprintln!`, which would
        // panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false);
    match format {
        LogFormat::Text => lines.compact().boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}

fn is_access(metadata: &Metadata<'_>) -> bool {
    metadata.target() == ACCESS_LOG
}

/// Returns `true` if an event of a library contains host names, which may be secrets of the configuration.
fn names_hosts(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("hyper_util::client")
}

/// Starts writing log lines, including panics, and the access log if it is enabled. Must be called only once.
pub(crate) fn start(format: LogFormat, level: LogLevel, access_log: bool) -> anyhow::Result<Log> {
    let writer =
        |name, bytes_max| queue::start(name, bytes_max, std::io::stderr()).context("can't start logging");
    let (log, dropped, guard) = writer("log", BYTES_MAX)?;
    let (filter, handle) = reload::Layer::new(filter(level));
    let access = access_log.then(|| writer("access-log", ACCESS_BYTES_MAX)).transpose()?;
    let access_dropped = access.as_ref().map(|(_, dropped, _)| dropped.clone());
    let level = LevelHandle(handle);
    let others = filter_fn(|metadata| !is_access(metadata) && !names_hosts(metadata));
    // The access log doesn't depend on the configured level.
    let requests = filter_fn(is_access).with_max_level_hint(LevelFilter::INFO);
    let (access, access_guard) = access.map(|(access, _, guard)| (access, guard)).unzip();
    let access = access.map(|access| lines(access, format).with_filter(requests));
    let _writers = [Some(guard), access_guard].into_iter().flatten().collect();
    registry()
        .with(lines(log, format).with_filter(filter.and(others)))
        .with(access)
        .try_init()
        .map_err(|error| anyhow::anyhow!("can't start logging: {error}"))?;
    std::panic::set_hook(Box::new(panicked));
    Ok(Log { dropped, access_dropped, level, _writers })
}

/// Logs a panic as an event, so that it is a valid line in a JSON log. The caller of the part that panics
/// decides whether the process ends: a panic of the main thread, a core or a permanent task of the control
/// plane ends the process, and a panic of a fetch or a request doesn't.
fn panicked(info: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let panic = info.payload_as_str().unwrap_or("no text");
    // A backtrace is captured only if RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(thread, location, panic, %backtrace, "panic: this is a bug in Stentor");
    } else {
        tracing::error!(thread, location, panic, "panic: this is a bug in Stentor");
    }
}
