//! Signals from the data plane to the control plane, and waiting for space in the data plane's mailboxes.

use std::sync::Arc;
use std::time::Duration;
use stentor_ports::{Busy, CommandError, ControlPlane, Done};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, timeout_at};

/// Delay after which a full mailbox is tried again without a signal, because a mailbox may drain without a
/// signal.
const SPACE_RETRY: Duration = Duration::from_millis(100);

/// The data plane's interface to the control plane. It is made before both planes, so that either can be
/// started first. Signals that are sent before the control plane runs aren't lost.
#[derive(Default)]
pub struct Signals {
    wanted: Notify,
    space: Notify,
}

impl Signals {
    /// Makes the interface, without pending signals.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits for a call of [`ControlPlane::interest_changed`]. Returns at once if there was such a call since
    /// this function last returned.
    pub(crate) async fn when_wanted(&self) {
        self.wanted.notified().await;
    }

    /// Calls `attempt` until it isn't refused as busy: at once, then whenever the mailbox has space again,
    /// until `deadline`.
    pub(crate) async fn when_space<T>(
        &self,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> Result<T, Busy>,
    ) -> Result<T, Busy> {
        loop {
            // Registers before the attempt, so that a signal between the attempt and the wait isn't missed.
            let space = self.space.notified();
            if let Ok(done) = attempt() {
                return Ok(done);
            }
            let now = Instant::now();
            let retry = now + SPACE_RETRY;
            match deadline {
                Some(deadline) if deadline <= now => return Err(Busy),
                Some(deadline) => _ = timeout_at(retry.min(deadline), space).await,
                None => _ = timeout_at(retry, space).await,
            }
        }
    }
}

impl ControlPlane for Signals {
    fn interest_changed(&self) {
        self.wanted.notify_one();
    }

    fn space(&self) {
        self.space.notify_waiters();
    }
}

/// Waits until `true` is sent or the sender is dropped.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Sends a command to the data plane and waits for the answer. While an inbox is full, repeats the command
/// for `busy_timeout`. Calls `on_wait` before the first repetition.
pub(crate) async fn command<T: Send + 'static>(
    signals: &Signals,
    busy_timeout: Duration,
    give: impl Fn(Done<T>),
    on_wait: impl FnOnce(),
) -> Result<T, CommandError> {
    let mut on_wait = Some(on_wait);
    let deadline = Instant::now() + busy_timeout;
    loop {
        // Registers before the attempt, so that a signal between the attempt and the wait isn't missed.
        let space = signals.space.notified();
        let (answer, answered) = oneshot::channel();
        // Sending the answer fails only if the request's client has disconnected.
        give(Done::new(move |result| _ = answer.send(result)));
        match answered.await.unwrap_or(Err(CommandError::Stopped)) {
            Err(CommandError::Busy) if Instant::now() < deadline => {
                on_wait.take().into_iter().for_each(|on_wait| on_wait());
                let _ = timeout_at(deadline.min(Instant::now() + SPACE_RETRY), space).await;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn space_made_during_the_attempt_is_noticed() {
        let signals = Signals::new();
        let attempts = Cell::new(0);
        let begun = Instant::now();
        let attempt = || {
            attempts.set(attempts.get() + 1);
            signals.space();
            if attempts.get() < 5 { Err(Busy) } else { Ok(()) }
        };
        assert_eq!(signals.when_space(None, attempt).await, Ok(()));
        assert_eq!((attempts.get(), begun.elapsed()), (5, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_signal_it_retries_until_the_deadline() {
        let signals = Signals::new();
        let attempts = Cell::new(0);
        let attempt = || -> Result<(), Busy> {
            attempts.set(attempts.get() + 1);
            Err(Busy)
        };
        let begun = Instant::now();
        assert_eq!(signals.when_space(Some(begun + Duration::from_millis(250)), attempt).await, Err(Busy));
        assert_eq!(attempts.get(), 4);
    }

    #[tokio::test]
    async fn a_signal_sent_early_is_not_lost() {
        let signals = Signals::new();
        signals.interest_changed();
        signals.interest_changed();
        signals.when_wanted().await;
    }
}
