//! Requests of this node that wait for answers of other servers.

use crate::socketio::{Response, ResponseBody};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Maximum number of requests that wait for answers.
const REQUESTS_MAX: usize = 1_024;
/// Maximum number of unhandled answers to one request.
const ANSWERS_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Pending(Mutex<HashMap<Arc<str>, mpsc::Sender<ResponseBody>>>);

/// A request that waits for answers until this is dropped.
pub(super) struct Waiting<'a> {
    pending: &'a Pending,
    pub(super) id: Arc<str>,
    pub(super) answers: mpsc::Receiver<ResponseBody>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pending.0.lock().remove(&self.id);
    }
}

impl Pending {
    pub(super) fn is_waiting(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Begins to wait for answers to a new request. `None` if too many requests wait.
    pub(super) fn begin(&self) -> Option<Waiting<'_>> {
        let id: Arc<str> = format!("{:016x}", fastrand::u64(..)).into();
        let (sender, answers) = mpsc::channel(ANSWERS_MAX);
        let mut requests = self.0.lock();
        if requests.len() >= REQUESTS_MAX {
            return None;
        }
        requests.insert(id.clone(), sender);
        drop(requests);
        Some(Waiting { pending: self, id, answers })
    }

    /// Handles a server's answer.
    pub(super) fn handle(&self, response: Response) {
        if let Some(sender) = self.0.lock().get(&response.id) {
            // Without room for the answer, the server counts as one that didn't answer.
            let _ = sender.try_send(response.body);
        }
    }
}
