//! A bounded queue from one thread to another (one producer, one consumer), with a wake per batch.
//!
//! The sender never blocks: a full mailbox returns the item. [`Sender::flush`] wakes the receiving driver,
//! once for any number of items sent since. The ring is allocated once, and items cause no further
//! allocation.
//!
//! Invariants: `head` and `tail` count all items ever received and sent, wrapping; `0 <= tail - head <=
//! capacity`; exactly the slots `head..tail` hold an item. Only the sender writes `tail`, only the receiver
//! `head`.

#![allow(unsafe_code)] // A ring whose slots are handed from one thread to the other by an index.

use crate::Waker;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Aligned to separate cache lines (two, since they are fetched in pairs), so that the ends don't slow each
/// other down.
#[repr(align(128))]
struct Padded<T>(T);

struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    head: Padded<AtomicUsize>,
    tail: Padded<AtomicUsize>,
    receiver_gone: AtomicBool,
    sender_gone: AtomicBool,
}

// SAFETY: the ring moves values of `T` between threads and never shares a reference to one: the sender
// touches only slots outside `head..tail`, the receiver only those inside.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    fn slot(&self, position: usize) -> *mut MaybeUninit<T> {
        // The capacity is a power of two, so wrapped positions stay consecutive.
        self.slots[position & (self.slots.len() - 1)].get()
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let (mut head, tail) = (*self.head.0.get_mut(), *self.tail.0.get_mut());
        while head != tail {
            // SAFETY: `head..tail` hold an item, and no other handle to the ring is left.
            unsafe { (*self.slot(head)).assume_init_drop() };
            head = head.wrapping_add(1);
        }
    }
}

/// The sending end. Dropping it flushes; items in the mailbox can still be received.
pub struct Sender<T: Send> {
    ring: Arc<Ring<T>>,
    waker: Waker,
    tail: usize,
    /// The last known head: read again only when the ring seems full.
    head_seen: usize,
    unflushed: bool,
}

/// The receiving end. Dropping it drops the items in the mailbox.
pub struct Receiver<T: Send> {
    ring: Arc<Ring<T>>,
    head: usize,
    /// The last known tail: read again only when the ring seems empty.
    tail_seen: usize,
}

/// Makes a mailbox for `capacity` items (rounded up to a power of two, at least 1), whose receiver is on the
/// thread of the driver that `waker` wakes.
///
/// # Panics
/// If the capacity is beyond `isize::MAX` bytes.
pub fn channel<T: Send>(capacity: usize, waker: Waker) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let ring = Arc::new(Ring {
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        head: Padded(AtomicUsize::new(0)),
        tail: Padded(AtomicUsize::new(0)),
        receiver_gone: AtomicBool::new(false),
        sender_gone: AtomicBool::new(false),
    });
    let receiver = Receiver { ring: Arc::clone(&ring), head: 0, tail_seen: 0 };
    (Sender { ring, waker, tail: 0, head_seen: 0, unflushed: false }, receiver)
}

impl<T: Send> Sender<T> {
    /// Puts an item into the mailbox. The receiver finds it when it next checks; [`Sender::flush`] makes it
    /// check.
    ///
    /// # Errors
    /// The item, if the mailbox is full or its receiver was dropped.
    pub fn try_send(&mut self, item: T) -> Result<(), T> {
        if self.tail.wrapping_sub(self.head_seen) == self.ring.slots.len() {
            self.head_seen = self.ring.head.0.load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head_seen) == self.ring.slots.len() {
                return Err(item);
            }
        }
        if self.is_disconnected() {
            return Err(item);
        }
        // SAFETY: `tail` is outside `head..tail`, as the ring isn't full; the acquiring load of `head` above
        // (now or earlier) came after the receiver took the slot's previous item.
        unsafe { (*self.ring.slot(self.tail)).write(item) };
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.0.store(self.tail, Ordering::Release);
        self.unflushed = true;
        Ok(())
    }

    /// Wakes the receiver's driver if an item was sent since the last flush.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.unflushed) {
            self.waker.wake();
        }
    }

    /// Returns `true` if the receiver was dropped.
    pub fn is_disconnected(&self) -> bool {
        self.ring.receiver_gone.load(Ordering::Relaxed)
    }
}

impl<T: Send> Drop for Sender<T> {
    fn drop(&mut self) {
        self.ring.sender_gone.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl<T: Send> Receiver<T> {
    /// Takes the oldest item.
    pub fn try_recv(&mut self) -> Option<T> {
        if self.is_empty_as_seen() {
            self.tail_seen = self.ring.tail.0.load(Ordering::Acquire);
            if self.is_empty_as_seen() {
                return None;
            }
        }
        // SAFETY: `head` is inside `head..tail`: the acquiring load of `tail` came after the item was written.
        let item = unsafe { (*self.ring.slot(self.head)).assume_init_read() };
        self.head = self.head.wrapping_add(1);
        self.ring.head.0.store(self.head, Ordering::Release);
        Some(item)
    }

    /// Returns `true` if the mailbox is empty now.
    pub fn is_empty(&self) -> bool {
        self.is_empty_as_seen() && self.head == self.ring.tail.0.load(Ordering::Acquire)
    }

    /// Returns `true` if the sender was dropped and everything has been received.
    pub fn is_disconnected(&self) -> bool {
        self.ring.sender_gone.load(Ordering::Acquire) && self.is_empty()
    }

    fn is_empty_as_seen(&self) -> bool {
        self.head == self.tail_seen
    }
}

impl<T: Send> Drop for Receiver<T> {
    fn drop(&mut self) {
        // An item that is sent while this runs stays in the ring until the sender is dropped.
        self.ring.receiver_gone.store(true, Ordering::Relaxed);
        while self.try_recv().is_some() {}
    }
}

#[cfg(test)]
mod tests;
