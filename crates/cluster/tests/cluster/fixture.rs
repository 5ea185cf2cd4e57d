//! Settings, time and answers for nodes under test.

use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_cluster::Options;
use stentor_cluster::engine::{Answer, Channel, Engine, EngineError, Request};
use stentor_ports::{CommandError, Done, FeedSource, Ledger};
use tokio::sync::oneshot;

/// Long enough for all tasks to run once the clock is stopped.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

/// A node without relays, history and revocations, and with plenty of memory.
pub(crate) fn options() -> Options {
    Options {
        name: "node".into(),
        advertise: None,
        relays: None,
        unready_after: None,
        secret: None,
        version: "1".into(),
        history: Vec::new(),
        vacant_rooms_max: 10_000,
        decision_timeout: Duration::from_secs(5),
        feed_source: Arc::new(|_| FeedSource::Fetched),
        feed_idle_ttl: Duration::ZERO,
        feed_keys_max: 10_000,
        revocations: None,
        document_bytes_max: 1_000,
        ledger: Arc::new(Ledger::new(1 << 30)),
    }
}

/// Lets all tasks run, and advances the paused clock by `time`.
pub(crate) async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Makes a call, and returns its answer.
pub(crate) async fn answer_to<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Result<T, CommandError> {
    let (sender, answer) = oneshot::channel();
    call(Done::new(|result| drop(sender.send(result))));
    answer.await.unwrap()
}

/// An engine whose requests pass through a function.
pub(crate) struct Intercepted<E, F> {
    pub(crate) engine: E,
    pub(crate) request: F,
    /// Maximum time that messages are on their way, as the engine reports it.
    pub(crate) delay_max: Arc<Mutex<Duration>>,
}

impl<E: Engine, F: Fn(&E, Request) -> Answer + Send + Sync> Engine for Intercepted<E, F> {
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError> {
        self.engine.publish(channel, payload)
    }

    fn delay_max(&self) -> Duration {
        *self.delay_max.lock().unwrap()
    }

    fn set_interest(&self, channel: Channel, is_interested: bool) {
        self.engine.set_interest(channel, is_interested);
    }

    fn request(&self, request: Request) -> Answer {
        (self.request)(&self.engine, request)
    }
}
