//! Log lines, to standard error. Standard output is for what was asked: the `ready` line, a summary.

use crate::config::schema::{LogFormat, LogLevel};
use std::io::IsTerminal;
use tracing::Level;

/// Begins to write log lines. Called once.
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
    started.map_err(|error| anyhow::anyhow!("log lines can't be written: {error}"))
}
