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
    /// Wakes the tasks that wait for the data plane to have room.
    pub(crate) fn notify(&self) {
        // There may be several.
        self.0.notify_waiters();
    }

    /// Waits until the data plane may have room.
    pub(crate) async fn wait(&self) {
        // An inbox that drains may send no signal.
        let _ = timeout(RETRY_DELAY, self.0.notified()).await;
    }
}
