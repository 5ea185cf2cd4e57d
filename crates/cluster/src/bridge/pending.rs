//! This node's own requests, until the other servers have answered.

use crate::socketio::{Response, ResponseBody};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Requests that wait for answers.
const REQUESTS_MAX: usize = 1_024;
/// Answers to one request that wait to be added up.
const ANSWERS_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Pending(Mutex<HashMap<Arc<str>, mpsc::Sender<ResponseBody>>>);

/// A request that waits for answers. It doesn't any more when it is dropped.
pub(super) struct Waiting<'a> {
    pending: &'a Pending,
    pub(super) id: Arc<str>,
    pub(super) answers: mpsc::Receiver<ResponseBody>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pending.requests().remove(&self.id);
    }
}

impl Pending {
    fn requests(&self) -> MutexGuard<'_, HashMap<Arc<str>, mpsc::Sender<ResponseBody>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.requests().is_empty()
    }

    /// Waits for answers to a new request. `None`: too many wait.
    pub(super) fn begin(&self) -> Option<Waiting<'_>> {
        let id: Arc<str> = format!("{:016x}", fastrand::u64(..)).into();
        let (sender, answers) = mpsc::channel(ANSWERS_MAX);
        let mut requests = self.requests();
        if requests.len() >= REQUESTS_MAX {
            return None;
        }
        requests.insert(id.clone(), sender);
        drop(requests);
        Some(Waiting { pending: self, id, answers })
    }

    /// A server has answered.
    pub(super) fn handle(&self, response: Response) {
        if let Some(sender) = self.requests().get(&response.id) {
            // Where there is no room, the server counts as one that didn't answer.
            let _ = sender.try_send(response.body);
        }
    }
}
