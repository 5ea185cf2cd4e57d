//! What one session is owed: references in order, with holes where something was taken back.
//!
//! The first reference lies in the outbox itself, so that a session that keeps up never allocates: it is
//! owed one thing at a time. Each slot has a ticket, by which the newest version of a document replaces
//! an older one in place, in constant time.

use std::collections::VecDeque;

/// Names a slot of an outbox for as long as it hasn't been taken. Wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// A queue whose first slot needs no allocation. Holes are `None`.
pub(crate) struct Outbox<T> {
    first: Option<T>,
    // Slots after the first; `None` where they were never needed. Boxed: 8 bytes for an idle session
    // instead of 32.
    #[expect(clippy::box_collection, reason = "8 bytes instead of 32 in every idle session")]
    rest: Option<Box<VecDeque<Option<T>>>>,
    // Slots, the holes included: `first` counts while `slots > 0`.
    slots: u32,
    // The ticket of `first`.
    front: u32,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self { first: None, rest: None, slots: 0, front: 0 }
    }
}

impl<T> Outbox<T> {
    /// Whether there is no slot; an outbox of nothing but holes has some until they are popped.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots == 0
    }

    pub(crate) fn push(&mut self, item: T) -> Ticket {
        let ticket = Ticket(self.front.wrapping_add(self.slots));
        if self.slots == 0 {
            self.first = Some(item);
        } else {
            self.rest.get_or_insert_default().push_back(Some(item));
        }
        self.slots += 1;
        ticket
    }

    /// The slot of a ticket, if it hasn't been popped.
    pub(crate) fn slot(&mut self, ticket: Ticket) -> Option<&mut Option<T>> {
        match ticket.0.wrapping_sub(self.front) {
            n if n >= self.slots => None,
            0 => Some(&mut self.first),
            n => self.rest.as_mut()?.get_mut(n as usize - 1),
        }
    }

    pub(crate) fn peek(&mut self) -> Option<&T> {
        self.skip_holes();
        self.first.as_ref()
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.skip_holes();
        let item = self.first.take();
        if item.is_some() {
            self.advance();
        }
        item
    }

    /// All that is in it, oldest first, with tickets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> {
        let rest = self.rest.iter().flat_map(|r| r.iter());
        let slots = std::iter::once(&self.first).chain(rest).take(self.slots as usize);
        slots.enumerate().filter_map(|(n, slot)| {
            slot.as_ref().map(|item| (Ticket(self.front.wrapping_add(n as u32)), item))
        })
    }

    fn skip_holes(&mut self) {
        while self.slots > 0 && self.first.is_none() {
            self.advance();
        }
    }

    fn advance(&mut self) {
        self.slots -= 1;
        self.front = self.front.wrapping_add(1);
        self.first = self.rest.as_mut().and_then(|rest| rest.pop_front()).flatten();
        if self.slots <= 1 {
            // Kept up again: give the memory back, an idle session owns none.
            self.rest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_with_holes_and_replacement() {
        let mut outbox = Outbox::default();
        let tickets: Vec<Ticket> = (0..5).map(|n| outbox.push(n)).collect();
        *outbox.slot(tickets[0]).unwrap() = None;
        *outbox.slot(tickets[2]).unwrap() = Some(20);
        *outbox.slot(tickets[3]).unwrap() = None;
        assert_eq!(outbox.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 20, 4]);
        assert_eq!(outbox.peek(), Some(&1));
        assert_eq!(outbox.pop(), Some(1));
        assert!(outbox.slot(tickets[1]).is_none());
        assert_eq!(outbox.pop(), Some(20));
        assert_eq!(outbox.pop(), Some(4));
        assert_eq!(outbox.pop(), None);
        assert!(outbox.is_empty() && outbox.rest.is_none());
    }

    #[test]
    fn tickets_wrap_around() {
        let mut outbox = Outbox { front: u32::MAX, ..Outbox::default() };
        let a = outbox.push('a');
        let b = outbox.push('b');
        assert_eq!(outbox.slot(a), Some(&mut Some('a')));
        assert_eq!(outbox.slot(b), Some(&mut Some('b')));
        outbox.pop();
        assert_eq!(outbox.slot(a), None);
        assert_eq!(outbox.slot(b), Some(&mut Some('b')));
    }

    #[test]
    fn only_holes_is_popped_as_nothing() {
        let mut outbox = Outbox::default();
        let tickets: Vec<Ticket> = (0..3).map(|n| outbox.push(n)).collect();
        for ticket in tickets {
            *outbox.slot(ticket).unwrap() = None;
        }
        assert_eq!(outbox.pop(), None);
        assert!(outbox.is_empty());
    }
}
