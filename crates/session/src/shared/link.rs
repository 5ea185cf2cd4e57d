//! The entries of the application link, on their way to the cores.
//!
//! A call's entries enter the inboxes together or not at all, and each core carries them out in the order of the calls. A node without a
//! link has no such command, so its messages take no further instruction.

use super::{ControlCommand, Inbox, Queue, Shared};
use crate::ports::{Busy, LinkEntry, LinkInbox};
use parking_lot::MutexGuard;
use std::collections::VecDeque;

/// Entries of a link for one core.
pub struct LinkBatch {
    /// The number of the link. 0 for entries that don't come from a worker.
    pub link: u32,
    /// The entries, in order.
    pub entries: VecDeque<LinkEntry>,
    /// The size of the entries.
    pub bytes: usize,
}

impl LinkInbox for Shared {
    fn carry_out(&self, link: u32, entries: &mut Vec<LinkEntry>) -> Result<(), Busy> {
        let mut bytes = vec![0; self.cores];
        for entry in &*entries {
            let size = entry.bytes();
            match entry.session() {
                // A session of no core is unknown, so its entries have no effect.
                Some(session) => bytes.get_mut(session.core()).into_iter().for_each(|bytes| *bytes += size),
                None => bytes.iter_mut().for_each(|bytes| *bytes += size),
            }
        }
        {
            // Inboxes are locked in the order of the cores, so that two callers never wait for each other.
            let mut queues: Vec<Option<MutexGuard<'_, Queue>>> = Vec::with_capacity(self.cores);
            for (inbox, bytes) in self.inboxes().zip(&bytes) {
                let queue = (*bytes > 0).then(|| inbox.queue.lock());
                if queue.as_ref().is_some_and(|queue| !inbox.has_room(queue, true, *bytes)) {
                    return Err(Busy);
                }
                queues.push(queue);
            }
            let mut batches = vec![VecDeque::new(); self.cores];
            for entry in entries.drain(..) {
                match entry.session().map(|session| batches.get_mut(session.core())) {
                    Some(Some(batch)) => batch.push_back(entry),
                    Some(None) => {}
                    None => batches.iter_mut().for_each(|batch| batch.push_back(entry.clone())),
                }
            }
            for (((inbox, queue), entries), bytes) in self.inboxes().zip(&mut queues).zip(batches).zip(bytes)
            {
                if let Some(queue) = queue {
                    inbox.push(
                        queue,
                        ControlCommand::Link(Box::new(LinkBatch { link, entries, bytes })),
                        bytes,
                    );
                }
            }
        }
        self.inboxes().filter(|inbox| !inbox.is_empty()).for_each(Inbox::wake);
        Ok(())
    }

    fn reports_have_space(&self) {
        self.inboxes().for_each(|inbox| inbox.put_always(ControlCommand::LinkSpace));
    }
}
