//! Waiting for the data plane to have room.

use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// A data plane without room is tried again after this time, if not before.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Reports that the data plane has room again.
#[derive(Default)]
pub(crate) struct Space(Notify);

impl Space {
    /// The data plane has room.
    pub(crate) fn notify(&self) {
        // Several tasks may wait.
        self.0.notify_waiters();
    }

    /// Until the data plane may have room.
    pub(crate) async fn wait(&self) {
        // An inbox that drains may send no signal.
        let _ = timeout(RETRY_DELAY, self.0.notified()).await;
    }
}
