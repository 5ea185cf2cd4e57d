//! Log lines, to standard error. Standard output is for what was asked: the `ready` line, a summary.

use crate::config::schema::{LogFormat, LogLevel};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::thread;
use tracing::Level;

/// Begins to write log lines, panics among them. Called once.
pub(crate) fn start(format: LogFormat, level: LogLevel) -> anyhow::Result<()> {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        // Who reads the log may go away. It would be told of that by `eprintln!`, which panics then.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false);
    let started = match format {
        LogFormat::Text => subscriber.compact().try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("log lines can't be written: {error}"))?;
    std::panic::set_hook(Box::new(panicked));
    Ok(())
}

/// Tells of a panic as of anything else, so that it isn't lost between lines of JSON. Whether the process ends is the
/// matter of whoever panics: main thread, cores and the control plane's lasting tasks end it, a fetch or a request doesn't.
fn panicked(info: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let panic = info.payload_as_str().unwrap_or("no text");
    // Where RUST_BACKTRACE asks for one.
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(thread, location, panic, %backtrace, "a panic, which is a bug of Stentor");
    } else {
        tracing::error!(thread, location, panic, "a panic, which is a bug of Stentor");
    }
}
