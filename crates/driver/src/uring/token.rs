//! The purpose of an operation: the word that the kernel returns with its completion.
//!
//! Four bits hold the kind, 28 the generation, 32 the index. The generation of a connection loses its upper
//! four bits here: a stale completion would be attributed to another connection only if exactly 2²⁸ others
//! had used its slot before the kernel completes the operation.

use crate::ConnId;
use crate::slab::{Key, Slab};
use std::num::NonZeroU32;

const KIND_SHIFT: u32 = 60;
const GENERATION_MAX: u32 = (1 << (KIND_SHIFT - 32)) - 1;

/// The index of a send or receive that may be in progress. It has no generation: the slot is kept until the
/// completion. Never 0, so that an `Option` of the index takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperationId(NonZeroU32);

impl OperationId {
    pub(super) fn of(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    pub(super) fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// The purpose of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// The completion is ignored.
    Ignored,
    /// Edges of a connection: readable, ended, broken.
    Poll(Key),
    /// A connection has become writable, or is established.
    Room(Key),
    Send(OperationId),
    Receive(OperationId),
    /// Edges of a listener: its number among all listeners so far.
    Listener(u32),
    /// The waker's eventfd.
    Waker,
    /// The alarm's timerfd.
    Alarm,
    /// A slot has been closed.
    Freed {
        slot: u32,
        ring: u8,
    },
    /// A descriptor has been installed: the number of the request.
    Installed(u32),
}

impl Token {
    pub(super) fn to_bits(self) -> u64 {
        let (kind, generation, index) = match self {
            Self::Ignored => (0, 0, 0),
            Self::Poll(key) => (1, key.generation & GENERATION_MAX, key.index),
            Self::Room(key) => (2, key.generation & GENERATION_MAX, key.index),
            Self::Send(flight) => (3, 0, flight.index()),
            Self::Listener(nth) => (4, 0, nth),
            Self::Waker => (5, 0, 0),
            Self::Receive(receive) => (6, 0, receive.index()),
            Self::Freed { slot, ring } => (7, u32::from(ring), slot),
            Self::Installed(nth) => (8, 0, nth),
            Self::Alarm => (9, 0, 0),
        };
        kind << KIND_SHIFT | Key { index, generation }.to_bits()
    }

    /// The generation of a key is truncated: see [`find`].
    pub(super) fn from_bits(bits: u64) -> Self {
        let Key { index, generation } = Key::from_bits(bits);
        let generation = generation & GENERATION_MAX;
        match bits >> KIND_SHIFT {
            1 => Self::Poll(Key { index, generation }),
            2 => Self::Room(Key { index, generation }),
            3 => Self::Send(OperationId::of(index)),
            4 => Self::Listener(index),
            5 => Self::Waker,
            6 => Self::Receive(OperationId::of(index)),
            7 => Self::Freed { slot: index, ring: generation as u8 },
            8 => Self::Installed(index),
            9 => Self::Alarm,
            _ => Self::Ignored,
        }
    }
}

/// Returns the connection of a token, if it is alive.
#[inline]
pub(super) fn find<T>(truncated: Key, connections: &mut Slab<T>) -> Option<(ConnId, &mut T)> {
    let (key, connection) = connections.entry_at(truncated.index)?;
    (key.generation & GENERATION_MAX == truncated.generation).then_some((ConnId(key), connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_round_trips_through_its_bits() {
        let key = Key { index: u32::MAX - 20, generation: GENERATION_MAX };
        for token in [
            Token::Ignored,
            Token::Poll(key),
            Token::Room(Key { index: 0, generation: 1 }),
            Token::Send(OperationId::of(u32::MAX - 20)),
            Token::Listener(u32::MAX),
            Token::Waker,
            Token::Receive(OperationId::of(9)),
            Token::Freed { slot: 7, ring: 255 },
            Token::Installed(77),
            Token::Alarm,
        ] {
            assert_eq!(Token::from_bits(token.to_bits()), token);
        }
    }

    #[test]
    fn a_token_finds_only_its_own_connection() {
        let mut slab = Slab::new();
        let find_again = |key, slab: &mut Slab<()>| match Token::from_bits(Token::Poll(key).to_bits()) {
            Token::Poll(key) => find(key, slab).map(|(conn, ())| conn),
            other => panic!("{other:?}"),
        };
        let first = slab.insert(());
        assert_eq!(find_again(first, &mut slab), Some(ConnId(first)));
        slab.remove(first);
        let second = slab.insert(());
        assert_eq!(second.index, first.index);
        assert_eq!(find_again(first, &mut slab), None);
        assert_eq!(find_again(second, &mut slab), Some(ConnId(second)));
    }
}
