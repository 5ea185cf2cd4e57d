//! Connection slots. If all slots are in use, a new connection replaces the oldest one that hasn't sent a
//! complete, authorized request.

use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use tokio::task::{AbortHandle, JoinSet};

/// Progress of a connection's first authorized request.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

impl Progress {
    const HEAD: u8 = 1;
    const COMPLETE: u8 = 2;

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Records that the headers of an authorized request have arrived. The returned body records when the
    /// request is complete.
    pub(super) fn watch(&self, body: Incoming) -> WatchedBody {
        let reached = if body.is_end_stream() { Self::COMPLETE } else { Self::HEAD };
        self.0.fetch_max(reached, Ordering::Relaxed);
        WatchedBody { body, progress: self.clone() }
    }
}

/// The body of an authorized request. Its end is recorded in `progress`.
pub(super) struct WatchedBody {
    body: Incoming,
    progress: Progress,
}

impl Body for WatchedBody {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if self.body.is_end_stream() || matches!(polled, Poll::Ready(None)) {
            self.progress.0.fetch_max(Progress::COMPLETE, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The open connections, oldest first.
#[derive(Default)]
pub(super) struct Places {
    tasks: JoinSet<()>,
    open: Vec<(AbortHandle, Progress)>,
}

impl Places {
    /// Spawns the task of a connection.
    pub(super) fn spawn(&mut self, progress: Progress, task: impl Future<Output = ()> + Send + 'static) {
        self.open.push((self.tasks.spawn(task), progress));
    }

    /// Waits until a connection has ended. Waits forever if there is no connection.
    pub(super) async fn ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending().await
        }
    }

    /// Makes room for another connection, at most `count_max` in all. Returns `true` if a connection was
    /// closed for it.
    ///
    /// # Errors
    /// Returns an error if all connections have sent a complete, authorized request.
    pub(super) async fn make_room(&mut self, count_max: usize) -> Result<bool, ()> {
        while self.tasks.try_join_next().is_some() {}
        if self.open.len() >= count_max {
            self.open.retain(|(task, _)| !task.is_finished());
        }
        if self.tasks.len() < count_max {
            return Ok(false);
        }
        let waiting = self.open.iter().filter(|(_, progress)| progress.get() < Progress::COMPLETE);
        // `min_by_key` returns the first of equal elements, which is the oldest connection.
        let (task, _) = waiting.min_by_key(|(_, progress)| progress.get()).ok_or(())?;
        task.abort();
        self.tasks.join_next().await;
        Ok(true)
    }

    /// Waits until all connections have ended.
    pub(super) async fn all_ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
