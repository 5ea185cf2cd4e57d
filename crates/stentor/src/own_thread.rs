//! Threads that exchange messages with the engine of a cluster, with the workers of applications, and with the
//! upstreams of feeds.
//!
//! The control plane's threads aren't used for this: each sent or received message would wake two of them,
//! because a worker of tokio that finds work wakes another one to look for more. A message would also wait
//! behind computations of the admin port.

use anyhow::Context;
use std::cell::Cell;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Minimum time between two calls of [`release_unused_memory`] that release memory, for each thread.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

/// Returns unused memory of the calling thread to the system, at most once per [`RELEASE_INTERVAL`]. If one
/// thread reads a body and another thread drops it, the allocator keeps the memory for the first thread.
pub(crate) fn release_unused_memory() {
    thread_local! {
        static RELEASED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = Instant::now();
    if RELEASED_AT.get().is_none_or(|at| now - at >= RELEASE_INTERVAL) {
        RELEASED_AT.set(Some(now));
        stentor_driver::release_unused_memory();
    }
}

/// Runs tasks on a thread until this value is dropped.
pub(crate) struct OwnThread {
    runtime: Handle,
    _end: oneshot::Sender<()>,
}

impl OwnThread {
    pub(crate) fn start(name: &str) -> anyhow::Result<Self> {
        Self::build(name, &mut Builder::new_current_thread())
    }

    /// Like [`Self::start`], for tasks whose large buffers other threads drop.
    pub(crate) fn start_with_buffers(name: &str) -> anyhow::Result<Self> {
        Self::build(name, Builder::new_current_thread().on_thread_park(release_unused_memory))
    }

    fn build(name: &str, builder: &mut Builder) -> anyhow::Result<Self> {
        let failed = || format!("can't start the thread `{name}`");
        let runtime = builder.enable_all().build().with_context(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let run = move || {
            let _ = runtime.block_on(ended);
            // Ends without waiting for blocking tasks, because resolving a host name may take long.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name(name.into()).spawn(run).with_context(failed)?;
        Ok(Self { runtime: handle, _end: end })
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// The runtime of the thread.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}
