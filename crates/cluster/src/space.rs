//! Waiting for the data plane to have room.

use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Delay after which the data plane is tried again if it hasn't reported room.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Reports that the data plane has room again.
#[derive(Default)]
pub(crate) struct Space(Notify);

impl Space {
    /// Wakes the tasks that wait for the data plane to have room.
    pub(crate) fn notify(&self) {
        // Several tasks may wait.
        self.0.notify_waiters();
    }

    /// Waits until the data plane may have room.
    pub(crate) async fn wait(&self) {
        // An inbox that drains may send no signal.
        let _ = timeout(RETRY_DELAY, self.0.notified()).await;
    }
}
