//! The thread that communicates with the engine.
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
pub(super) struct ClusterThread {
    runtime: Handle,
    _end: oneshot::Sender<()>,
}

impl ClusterThread {
    pub(super) fn start() -> anyhow::Result<Self> {
        let failed = "can't start the cluster's thread";
        let runtime = Builder::new_current_thread().enable_all().build().context(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let run = move || {
            let _ = runtime.block_on(ended);
            // Ends without waiting for blocking tasks, because resolving a host name may take long.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("cluster".into()).spawn(run).context(failed)?;
        Ok(Self { runtime: handle, _end: end })
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(task)
    }
}
