//! Instructions for the cores, until their inboxes take them.

use std::collections::VecDeque;
use stentor_ports::{LinkEntry, LinkInbox};

/// Instructions for the cores, in order.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The instructions of one link after the other.
    groups: VecDeque<(u32, Vec<LinkEntry>)>,
    /// `true` if the inbox of a core was full.
    pub(crate) is_blocked: bool,
}

impl Outbox {
    pub(crate) fn push(&mut self, link: u32, entry: LinkEntry) {
        match self.groups.back_mut() {
            Some((last, entries)) if *last == link => entries.push(entry),
            _ => self.groups.push_back((link, vec![entry])),
        }
    }

    pub(crate) fn flush(&mut self, inbox: &dyn LinkInbox) {
        while let Some((link, entries)) = self.groups.front_mut() {
            self.is_blocked = inbox.carry_out(*link, entries).is_err();
            if self.is_blocked {
                return;
            }
            self.groups.pop_front();
        }
    }

    /// Bytes of the instructions that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.iter().flat_map(|(_, entries)| entries).map(LinkEntry::bytes).sum()
    }
}
