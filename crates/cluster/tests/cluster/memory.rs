//! The engine in memory.

use crate::{Fixture, contract};
use std::sync::Arc;
use stentor_cluster::NodeId;
use stentor_cluster::engine::memory::Memory;
use stentor_cluster::engine::{Engine, EventReceiver, Limits};

impl Fixture for Memory {
    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver) {
        let (engine, events) = Memory::connect(self, node, limits);
        (Arc::new(engine), events)
    }

    async fn forget(&self) {
        Memory::forget(self);
    }
}

contract!(
    #[tokio::test(start_paused = true)]
    Some(Memory::default())
);
