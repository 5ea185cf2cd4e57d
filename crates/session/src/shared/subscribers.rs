//! Counts the subscribers of feeds on all cores.

use super::gather::Gather;
use super::tasks::{SubscribersTask, Task};
use super::{ControlCommand, Shared};
use crate::ports::{Done, SubscriberCounts};
use std::sync::Arc;
use stentor_hub::{Key, Topic};

impl Shared {
    /// Counts the subscribers of these feeds on this node.
    pub(super) fn submit_subscribers(&self, keys: Vec<Key>, done: Done<SubscriberCounts>) {
        let feeds: Arc<[Topic]> = keys.into_iter().map(Topic::Feed).collect();
        let gather = Gather::new(self.cores, done);
        let tasks = (0..self.cores).map(|core| {
            let task = SubscribersTask { feeds: feeds.clone(), gather: gather.clone() };
            (core, ControlCommand::Task(Box::new(Task::Subscribers(task))))
        });
        self.put_all(tasks.collect(), &gather);
    }
}
