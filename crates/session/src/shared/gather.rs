//! The results of a command's tasks, until all are there.

use crate::ports::{CommandError, Concerned, Done};
use parking_lot::Mutex;
use std::mem;
use std::sync::Arc;
use stentor_hub::Tally;

/// Adds up the results of a command's tasks, and answers the command when all tasks are done.
pub struct Gather<T: Default>(Mutex<Gathered<T>>);

struct Gathered<T> {
    sum: T,
    /// Number of unfinished tasks.
    tasks: usize,
    done: Option<Done<T>>,
}

impl<T: Default> Gather<T> {
    pub(super) fn new(tasks: usize, done: Done<T>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Gathered { sum: T::default(), tasks, done: Some(done) })))
    }

    /// Calls `add` with the result so far. `finished` is the number of tasks that this finishes.
    fn add(&self, add: impl FnOnce(&mut T), finished: usize) {
        let mut gathered = self.0.lock();
        add(&mut gathered.sum);
        gathered.tasks -= finished;
    }

    /// Finishes a task: `add` adds its result. The command is answered when the last reference is dropped.
    pub fn finish(&self, add: impl FnOnce(&mut T)) {
        self.add(add, 1);
    }

    pub(super) fn fail(&self, error: CommandError) {
        let done = self.0.lock().done.take();
        if let Some(done) = done {
            done.answer(Err(error));
        }
    }
}

impl<T: Default> Drop for Gather<T> {
    fn drop(&mut self) {
        let gathered = self.0.get_mut();
        if gathered.tasks == 0
            && let Some(done) = gathered.done.take()
        {
            done.answer(Ok(mem::take(&mut gathered.sum)));
        }
    }
}

impl Tally for Gather<Concerned> {
    fn add(&self, sessions: usize) {
        self.add(|sum| sum.sessions += sessions, 0);
    }
}
