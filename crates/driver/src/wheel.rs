//! A hierarchical timing wheel (Varghese and Lauck 1987, scheme 7): O(1) to set and to cancel.
//!
//! Time runs in ticks of 8 ms. There are six levels of 64 slots: a timer is on the level of the highest 6-bit
//! digit in which its tick differs from the current one, and moves down (at most five times) as that digit is
//! reached. A timer's tick is its instant rounded up, so it never fires early, and fires less than one tick
//! late if [`Wheel::advance`] is called at [`Wheel::next_wake`].
//!
//! Deliberately absent: order of timers within one tick, and waits longer than 2³⁶ ticks (17 years) from its
//! origin; a later instant is treated as that one.
//!
//! Invariants: a timer in a slot has `tick > elapsed`, one on the due list `tick <= elapsed`; all timers of a
//! level have the same digits as `elapsed` above that level's, and a larger one there; a level's bit is set
//! exactly if its slot isn't empty.

use crate::TimerId;
use crate::slab::Slab;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Length of a tick. [`crate::Driver::timer_set`] guarantees 10 ms; this leaves the 1 ms to which a wait is
/// rounded up, and a margin.
pub(crate) const TICK: Duration = Duration::from_millis(8);

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 6;
const TICK_MAX: u64 = (1 << (DIGIT_BITS * LEVELS as u32)) - 1;
const NONE: u32 = u32::MAX;

struct Entry<T> {
    /// Never 0, because `elapsed` begins there, so that `Option<Entry>` needs no further word.
    tick: NonZeroU64,
    token: T,
    prev: u32,
    next: u32,
}

struct Level {
    occupied: u64,
    heads: [u32; SLOTS],
}

/// Timers with tokens of type `T`.
pub(crate) struct Wheel<T> {
    origin: Instant,
    elapsed: u64,
    entries: Slab<Entry<T>>,
    levels: [Level; LEVELS],
    due_head: u32,
    due_tail: u32,
    /// Start of the earliest occupied slot, so that a turn before it only compares two instants: the
    /// arithmetic took 11 % of the instructions of a turn that echoes one message.
    wake: Option<Instant>,
    /// The tick of `wake`.
    wake_tick: u64,
}

impl<T> Wheel<T> {
    pub(crate) fn new(origin: Instant) -> Self {
        Self {
            origin,
            elapsed: 0,
            entries: Slab::new(),
            levels: std::array::from_fn(|_| Level { occupied: 0, heads: [NONE; SLOTS] }),
            due_head: NONE,
            due_tail: NONE,
            wake: None,
            wake_tick: u64::MAX,
        }
    }

    /// Sets a timer. It becomes due in a later [`Wheel::advance`], never at once: a timer in the past becomes
    /// due with the next tick, so that a handler that sets timers doesn't prolong its own turn.
    pub(crate) fn set(&mut self, at: Instant, token: T) -> TimerId {
        let tick = ticks_up(at.saturating_duration_since(self.origin)).max(self.elapsed + 1).min(TICK_MAX);
        let tick = NonZeroU64::new(tick).unwrap_or(NonZeroU64::MIN);
        let key = self.entries.insert(Entry { tick, token, prev: NONE, next: NONE });
        self.place(key.index);
        let (level, _) = self.slot_of(tick.get());
        let shift = DIGIT_BITS * level as u32;
        let begins = tick.get() >> shift << shift;
        if begins < self.wake_tick {
            self.wake_tick = begins;
            self.wake = Some(self.instant(begins));
        }
        TimerId(key)
    }

    /// Cancels a timer, even one that is due and has not been popped.
    pub(crate) fn cancel(&mut self, id: TimerId) {
        if self.entries.get(id.0).is_some() {
            self.unlink(id.0.index);
            self.entries.remove(id.0);
        }
    }

    /// Moves the clock to `now`; due timers can then be popped.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant) {
        if self.wake.is_some_and(|wake| wake <= now) {
            self.advance_from_wake(now);
        }
    }

    fn advance_from_wake(&mut self, now: Instant) {
        let now = ticks_down(now.saturating_duration_since(self.origin));
        while let Some((level, slot, tick)) = self.next_slot()
            && tick <= now
        {
            self.elapsed = tick;
            let mut index = std::mem::replace(&mut self.levels[level].heads[slot], NONE);
            self.levels[level].occupied &= !(1 << slot);
            while index != NONE {
                let entry = self.entries.at_mut(index);
                let next = entry.next;
                entry.prev = NONE;
                entry.next = NONE;
                self.place(index);
                index = next;
            }
        }
        self.elapsed = self.elapsed.max(now);
        self.find_wake();
    }

    /// Pops the next due timer and returns its token. Its id is dead from now on.
    #[inline]
    pub(crate) fn pop_due(&mut self) -> Option<T> {
        if self.has_due() { self.pop_head() } else { None }
    }

    fn pop_head(&mut self) -> Option<T> {
        let index = self.due_head;
        self.unlink(index);
        self.entries.remove(self.entries.key_at(index)).map(|entry| entry.token)
    }

    /// Returns `true` if [`Wheel::pop_due`] has a timer.
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        self.due_head != NONE
    }

    /// Returns the time at which [`Wheel::advance`] next has work; at or before the earliest timer.
    #[inline]
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        if self.has_due() {
            return Some(self.origin);
        }
        self.wake
    }

    fn find_wake(&mut self) {
        let next = self.next_slot().map(|(_, _, tick)| tick);
        self.wake_tick = next.unwrap_or(u64::MAX);
        self.wake = next.map(|tick| self.instant(tick));
    }

    fn instant(&self, tick: u64) -> Instant {
        self.origin + Duration::from_millis(tick * TICK.as_millis() as u64)
    }

    /// Returns the earliest occupied slot: its level, its number and the tick at which it begins. All timers
    /// on a lower level are earlier than all timers on a higher one.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        let slot = self.levels[level].occupied.trailing_zeros();
        let shift = DIGIT_BITS * level as u32;
        let above = self.elapsed >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
        Some((level, slot as usize, above | u64::from(slot) << shift))
    }

    fn slot_of(&self, tick: u64) -> (usize, usize) {
        let level = (tick ^ self.elapsed).ilog2() / DIGIT_BITS;
        (level as usize, (tick >> (DIGIT_BITS * level)) as usize % SLOTS)
    }

    fn place(&mut self, index: u32) {
        let tick = self.entries.at(index).tick.get();
        if tick <= self.elapsed {
            let last = std::mem::replace(&mut self.due_tail, index);
            self.entries.at_mut(index).prev = last;
            if last == NONE {
                self.due_head = index;
            } else {
                self.entries.at_mut(last).next = index;
            }
            return;
        }
        let (level, slot) = self.slot_of(tick);
        self.levels[level].occupied |= 1 << slot;
        let next = std::mem::replace(&mut self.levels[level].heads[slot], index);
        self.entries.at_mut(index).next = next;
        if next != NONE {
            self.entries.at_mut(next).prev = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let &Entry { tick, prev, next, .. } = self.entries.at(index);
        if next != NONE {
            self.entries.at_mut(next).prev = prev;
        }
        if prev != NONE {
            self.entries.at_mut(prev).next = next;
        }
        if tick.get() <= self.elapsed {
            if prev == NONE {
                self.due_head = next;
            }
            if next == NONE {
                self.due_tail = prev;
            }
        } else if prev == NONE {
            let (level, slot) = self.slot_of(tick.get());
            self.levels[level].heads[slot] = next;
            if next == NONE {
                self.levels[level].occupied &= !(1 << slot);
                self.find_wake();
            }
        }
    }
}

fn ticks_down(elapsed: Duration) -> u64 {
    // 125 ticks of 8 ms per second.
    elapsed.as_secs() * 125 + u64::from(elapsed.subsec_nanos()) / 8_000_000
}

fn ticks_up(elapsed: Duration) -> u64 {
    elapsed
        .as_secs()
        .saturating_mul(125)
        .saturating_add(u64::from(elapsed.subsec_nanos()).div_ceil(8_000_000))
}

#[cfg(test)]
mod tests;
