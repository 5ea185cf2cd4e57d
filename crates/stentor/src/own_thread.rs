//! Threads that exchange messages with the engine of a cluster, and with the workers of applications.
//!
//! The control plane's threads aren't used for this: each sent or received message would wake two of them,
//! because a worker of tokio that finds work wakes another one to look for more. A message would also wait
//! behind computations of the admin port and feeds.

use anyhow::Context;
use std::future::Future;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Runs tasks on a thread until this value is dropped.
pub(crate) struct OwnThread {
    runtime: Handle,
    _end: oneshot::Sender<()>,
}

impl OwnThread {
    pub(crate) fn start(name: &str) -> anyhow::Result<Self> {
        let failed = || format!("can't start the thread `{name}`");
        let runtime = Builder::new_current_thread().enable_all().build().with_context(failed)?;
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
