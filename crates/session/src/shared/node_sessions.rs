//! Lists sessions of all cores of this node, of all protocols and namespaces.

use super::fullest::FullestSessions;
use super::gather::Gather;
use super::tasks::{NodeSessionsTask, Task};
use super::{ControlCommand, Shared};
use crate::ports::{Done, SESSIONS_LISTED_MAX, SessionList, SessionsQuery};
use std::sync::Arc;

impl Shared {
    pub(super) fn submit_sessions(&self, mut query: SessionsQuery, done: Done<SessionList>) {
        query.limit = query.limit.min(SESSIONS_LISTED_MAX);
        let query = Arc::new(query);
        let gather = Gather::new(self.cores, done);
        let tasks = (0..self.cores).map(|core| {
            let (query, gather) = (query.clone(), gather.clone());
            let found = FullestSessions::new(query.limit);
            let task = NodeSessionsTask { query, next: 0, found, gather };
            (core, ControlCommand::Task(Box::new(Task::NodeSessions(task))))
        });
        self.put_all(tasks.collect(), &gather);
    }
}
