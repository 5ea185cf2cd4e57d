//! Log lines, to standard error. Standard output is for what was asked: the `ready` line, a summary.
//!
//! A separate thread writes them, so that a core never waits for the reader of the log. If the log isn't read, up to
//! [`LINES_MAX`] lines are queued; further ones are dropped and counted.

use crate::config::schema::{LogFormat, LogLevel};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::thread;
use stentor_control::ProcessCounter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, registry, reload};

/// Maximum number of queued log lines.
const LINES_MAX: usize = 1024;

/// The log. When it is dropped, queued lines are written, unless that takes longer than a second.
#[must_use]
pub(crate) struct Log {
    dropped: ErrorCounter,
    level: LevelHandle,
    _writer: WorkerGuard,
}

impl Log {
    /// Changes the level.
    pub(crate) fn level(&self) -> LevelHandle {
        self.level.clone()
    }

    /// Counts the lines that were dropped, for `/metrics`.
    pub(crate) fn dropped_lines(&self) -> ProcessCounter {
        let dropped = self.dropped.clone();
        dropped_lines(move || dropped.dropped_lines() as u64)
    }
}

/// Changes the level of the log.
#[derive(Clone)]
pub(crate) struct LevelHandle(reload::Handle<LevelFilter, Registry>);

impl LevelHandle {
    pub(crate) fn set(&self, level: LogLevel) {
        // It fails only if the log is gone.
        let _ = self.0.reload(filter(level));
    }

    /// Of no log.
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

/// The counter of dropped lines, with its value.
pub(crate) fn dropped_lines(value: impl Fn() -> u64 + Send + Sync + 'static) -> ProcessCounter {
    ProcessCounter {
        name: "log_lines_dropped",
        help: "Log lines dropped because standard error wasn't read",
        value: Arc::new(value),
    }
}

/// Begins to write log lines, panics among them. Called once.
pub(crate) fn start(format: LogFormat, level: LogLevel) -> anyhow::Result<Log> {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("log")
        .finish(std::io::stderr());
    let (filter, handle) = reload::Layer::new(filter(level));
    let log = Log { dropped: writer.error_counter(), level: LevelHandle(handle), _writer: guard };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        // The log's reader may be gone. `eprintln!` would panic then.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false);
    let started = match format {
        LogFormat::Text => registry().with(filter).with(lines.compact()).try_init(),
        LogFormat::Json => registry().with(filter).with(lines.json().flatten_event(true)).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("can't start logging: {error}"))?;
    std::panic::set_hook(Box::new(panicked));
    Ok(log)
}

/// Logs a panic like any other event, so that it isn't lost between lines of JSON. The caller of the failed part
/// decides whether the process ends: a panic of the main thread, a core or a permanent task of the control plane ends
/// it, a panic of a fetch or a request doesn't.
fn panicked(info: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let panic = info.payload_as_str().unwrap_or("no text");
    // Where RUST_BACKTRACE asks for one.
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(thread, location, panic, %backtrace, "panic: this is a bug in Stentor");
    } else {
        tracing::error!(thread, location, panic, "panic: this is a bug in Stentor");
    }
}
