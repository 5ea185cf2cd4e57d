//! Requests about one name take turns: each takes effect before the next one begins.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// When there are so many names, those that aren't in use are forgotten.
const TOPICS_MAX: usize = 16_384;

/// What is known of a name.
pub(super) trait Topic: Default + Send + 'static {
    /// Whether it can't be forgotten.
    fn is_needed(&self) -> bool {
        false
    }
}

/// Names with what is known of each.
pub(super) struct Topics<T>(Mutex<HashMap<Box<str>, Arc<AsyncMutex<T>>>>);

/// The turn of one request.
pub(super) type Turn<T> = Pin<Box<dyn Future<Output = OwnedMutexGuard<T>> + Send>>;

impl<T: Topic> Topics<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Turns come in the order of these calls.
    pub(super) fn turn(&self, name: &str) -> Turn<T> {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if topics.len() >= TOPICS_MAX && !topics.contains_key(name) {
            topics.retain(|_, topic| topic.try_lock().map_or(true, |topic| topic.is_needed()));
        }
        let topic = topics.entry(name.into()).or_default().clone();
        drop(topics);
        let mut lock = Box::pin(topic.lock_owned());
        // Its first step puts it into the queue.
        match lock.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(guard) => Box::pin(std::future::ready(guard)),
            std::task::Poll::Pending => lock,
        }
    }
}
