//! The life of a server after `ready`: it waits for a signal, drains, and exits.
//!
//! ```text
//!            signal              all connections ended, or the time is over
//!  serving ─────────▶ draining ─────────────────────────────────────────────▶ exit 0
//!     │                  │ second signal
//!     │                  └──────────────▶ exit 1, at once
//!     │ another process takes over
//!     └──────────────────▶ draining, until a signal as above
//!     └─ a core of the data plane has failed, or a part of the control plane has died ─▶ exit 1
//! ```
//!
//! A takeover doesn't count as the first signal. A script that starts the new process and then ends the old
//! one sends SIGTERM to a process that already drains, whose clients shouldn't be disconnected at once.
//!
//! SIGHUP reloads the configuration ([`crate::reload`]).
//!
//! Signals come through a channel, and the data plane is a trait object, so that tests need neither signals
//! nor a data plane.

use crate::reload::Reloader;
use crate::service_manager::{Notice, notify};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::CoreFailed;
use stentor_ports::{Drain, Lifecycle, NewConnections};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Time that the process waits for a drain beyond the drain's own timeout.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Name of the signal for a takeover: another process has the listening sockets now.
pub(crate) const TAKEOVER: &str = "takeover";

/// Delay of the drain after a takeover, in which connections that were accepted just before are still served.
const TAKEOVER_DELAY: Duration = Duration::from_secs(1);

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All sessions and connections were ended in order.
    Drained,
    /// The timeout of the drain has passed.
    TimedOut,
    /// A second signal arrived.
    Forced,
    /// A plane has ended unexpectedly. The process exits, so that a supervisor can restart it. Otherwise
    /// clients would hang without an error.
    Failed,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Drained | Outcome::TimedOut => Self::SUCCESS,
            Outcome::Forced | Outcome::Failed => Self::FAILURE,
        }
    }
}

/// Starts receiving signals. The returned receiver gets the names of SIGINT and SIGTERM. SIGHUP reloads.
///
/// The returned sender is for [`TAKEOVER`].
pub(crate) fn signals(
    reloader: &Arc<Reloader>,
) -> std::io::Result<(mpsc::Sender<&'static str>, mpsc::Receiver<&'static str>)> {
    let (sender, receiver) = mpsc::channel(2);
    let mut hangups = signal(SignalKind::hangup())?;
    let reloader = reloader.clone();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            notify(Notice::Reloading);
            // The reload has logged its result.
            let _ = reloader.run().await;
            notify(Notice::Ready);
        }
    });
    for (kind, name) in [(SignalKind::interrupt(), "SIGINT"), (SignalKind::terminate(), "SIGTERM")] {
        let mut stream = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender.send(name).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok((sender, receiver))
}

/// Waits for a signal, then drains as configured, or after SIGINT without a delay and a window. `ended`
/// completes when the data plane has ended, and `failed` when a part of the control plane has failed.
pub(crate) async fn run(
    plane: Arc<dyn Lifecycle>,
    ended: impl Future<Output = Result<(), CoreFailed>>,
    failed: impl Future<Output = ()>,
    mut signals: mpsc::Receiver<&'static str>,
    drain: impl FnOnce() -> Drain,
) -> Outcome {
    tokio::pin!(ended);
    let signal = tokio::select! {
        name = signals.recv() => name.unwrap_or("no signal can come any more"),
        result = &mut ended => return failed_by(result),
        () = failed => {
            tracing::error!("a part of the control plane has failed; the process ends");
            return Outcome::Failed;
        }
    };
    let drain = match signal {
        "SIGINT" => Drain::within(drain().timeout),
        TAKEOVER => Drain { delay: TAKEOVER_DELAY, new_connections: NewConnections::Elsewhere, ..drain() },
        _ => drain(),
    };
    let Drain { delay, window, timeout, .. } = drain;
    tracing::info!(
        signal,
        drain_delay = ?delay,
        drain_window = ?window,
        shutdown_timeout = ?timeout,
        "shutting down; a second signal ends the process at once"
    );
    plane.drain(drain);
    let time = delay.saturating_add(window).saturating_add(timeout);
    let deadline = Instant::now() + time.saturating_add(DRAIN_GRACE);
    let mut is_signalled = signal != TAKEOVER;
    let outcome = loop {
        tokio::select! {
            biased;
            result = &mut ended => match result {
                Ok(()) => break Outcome::Drained,
                failed => return failed_by(failed),
            },
            Some(signal) = signals.recv() => {
                if signal == TAKEOVER {
                    // A takeover during the drain: the other process accepts new connections now, and the
                    // drain continues with the remaining time.
                    let left = deadline.saturating_duration_since(Instant::now());
                    let window = left.saturating_sub(DRAIN_GRACE.saturating_add(timeout));
                    let new_connections = NewConnections::Elsewhere;
                    plane.drain(Drain { delay: Duration::ZERO, window, timeout, new_connections });
                    continue;
                }
                if std::mem::replace(&mut is_signalled, true) {
                    break Outcome::Forced;
                }
                if signal == "SIGINT" {
                    plane.drain(Drain::within(timeout));
                }
                tracing::info!(signal, "already shutting down; another signal ends the process at once");
            }
            () = tokio::time::sleep_until(deadline) => break Outcome::TimedOut,
        }
    };
    match outcome {
        Outcome::Drained => tracing::info!("all connections have ended"),
        Outcome::TimedOut => {
            tracing::warn!("the time for a graceful shutdown is over; remaining connections are cut")
        }
        Outcome::Forced => tracing::warn!("second signal; the process ends at once"),
        Outcome::Failed => {}
    }
    outcome
}

/// Logs that the data plane, or a part of it, has ended unexpectedly.
fn failed_by(result: Result<(), CoreFailed>) -> Outcome {
    match result {
        Ok(()) => tracing::error!("the data plane has failed; the process ends"),
        Err(error) => tracing::error!(%error, "the data plane has failed; the process ends"),
    }
    Outcome::Failed
}

#[cfg(test)]
mod tests;
