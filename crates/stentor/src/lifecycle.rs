//! From `ready` to the end: waits for a signal, drains, exits.
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
//! A takeover isn't counted as a signal: scripts that start the new process and then end the old one send
//! SIGTERM to a process that is already draining, and its clients shouldn't be disconnected.
//!
//! SIGHUP reloads the configuration ([`crate::reload`]).
//!
//! Signals come through a channel and the data plane is a trait object, so that this is tested without
//! either.

use crate::reload::Reloader;
use crate::service_manager::{Notice, notify};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::CoreFailed;
use stentor_ports::{Drain, Lifecycle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Time beyond its own timeout after which a drain is no longer waited for.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Name of the signal that another process has taken over the listening sockets.
pub(crate) const TAKEOVER: &str = "takeover";

/// Time after a takeover in which connections that were accepted just before are served.
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
    /// A plane ended unexpectedly. The process exits, so that a supervisor can restart it; otherwise clients
    /// would hang without an error.
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

/// Receives SIGINT and SIGTERM, by name, from now on. SIGHUP reloads.
///
/// The sender is for [`TAKEOVER`].
pub(crate) fn signals(
    reloader: &Arc<Reloader>,
) -> std::io::Result<(mpsc::Sender<&'static str>, mpsc::Receiver<&'static str>)> {
    let (sender, receiver) = mpsc::channel(2);
    let mut hangups = signal(SignalKind::hangup())?;
    let reloader = reloader.clone();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            notify(Notice::Reloading);
            // The result is already logged.
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

/// Waits for a signal, then drains as configured; after SIGINT, without a delay and a window. `ended`
/// completes when the data plane has ended, `failed` when a part of the control plane has died.
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
        TAKEOVER => Drain { delay: TAKEOVER_DELAY, listens: false, ..drain() },
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
                    // The other process accepts new connections. The drain continues with the remaining time.
                    let left = deadline.saturating_duration_since(Instant::now());
                    let window = left.saturating_sub(DRAIN_GRACE.saturating_add(timeout));
                    plane.drain(Drain { delay: Duration::ZERO, window, timeout, listens: false });
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
