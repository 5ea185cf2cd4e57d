//! What an operation was for: the word that the kernel hands back with its completion.
//!
//! Four bits tell the kind, 28 the generation, 32 the index. The generation of a connection loses its upper
//! four bits here: a stale completion would be taken for another connection's if exactly 2²⁸ others had used
//! its slot before the kernel lets go of the operation.

use crate::ConnId;
use crate::slab::{Key, Slab};

const KIND_SHIFT: u32 = 60;
const GENERATION_MAX: u32 = (1 << (KIND_SHIFT - 32)) - 1;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Nobody listens.
    Ignored,
    /// Edges of a connection: readable, ended, broken.
    Poll(Name),
    /// A connection has become writable, or is established.
    Room(Name),
    /// A send, by its place in the flights. It has no generation: the place is kept until the completion.
    Send(u32),
    /// A receive, likewise.
    Receive(u32),
    /// Edges of a listener: its number, and how many listeners there have been before.
    Listener(Name),
    /// The waker's eventfd.
    Waker,
    /// The alarm's timerfd.
    Alarm,
    /// A slot has been closed: its number, and its ring's.
    Freed(Name),
    /// A descriptor has been installed: the number of the request.
    Installed(u32),
}

/// A connection, by what fits into a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Name {
    pub(super) fn new(index: u32, generation: u32) -> Self {
        Self { index, generation: generation & GENERATION_MAX }
    }

    /// The connection, if it is alive.
    pub(super) fn find<T>(self, connections: &Slab<T>) -> Option<ConnId> {
        let Key { index, generation } = connections.key_at(self.index);
        (generation & GENERATION_MAX == self.generation).then_some(ConnId { index, generation })
    }
}

impl From<ConnId> for Name {
    fn from(ConnId { index, generation }: ConnId) -> Self {
        Self::new(index, generation)
    }
}

impl Token {
    pub(super) fn to_bits(self) -> u64 {
        let (kind, Name { index, generation }) = match self {
            Self::Ignored => (0, Name::new(0, 0)),
            Self::Poll(name) => (1, name),
            Self::Room(name) => (2, name),
            Self::Send(flight) => (3, Name::new(flight, 0)),
            Self::Listener(name) => (4, name),
            Self::Waker => (5, Name::new(0, 0)),
            Self::Receive(receive) => (6, Name::new(receive, 0)),
            Self::Freed(name) => (7, name),
            Self::Installed(nth) => (8, Name::new(nth, 0)),
            Self::Alarm => (9, Name::new(0, 0)),
        };
        kind << KIND_SHIFT | u64::from(generation) << 32 | u64::from(index)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        let name = Name::new(bits as u32, (bits >> 32) as u32);
        match bits >> KIND_SHIFT {
            1 => Self::Poll(name),
            2 => Self::Room(name),
            3 => Self::Send(name.index),
            4 => Self::Listener(name),
            5 => Self::Waker,
            6 => Self::Receive(name.index),
            7 => Self::Freed(name),
            8 => Self::Installed(name.index),
            9 => Self::Alarm,
            _ => Self::Ignored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_round_trips_through_its_bits() {
        let name = Name::new(u32::MAX - 20, u32::MAX);
        for token in [
            Token::Ignored,
            Token::Poll(name),
            Token::Room(Name::new(0, 1)),
            Token::Send(u32::MAX - 20),
            Token::Listener(name),
            Token::Waker,
            Token::Receive(9),
            Token::Freed(name),
            Token::Installed(77),
            Token::Alarm,
        ] {
            assert_eq!(Token::from_bits(token.to_bits()), token);
        }
    }

    #[test]
    fn a_name_finds_only_its_own_connection() {
        let mut slab = Slab::new();
        let first = ConnId::from(slab.insert(()));
        let name = Name::from(first);
        assert_eq!(name.find(&slab), Some(first));
        slab.remove(first.into());
        let second = ConnId::from(slab.insert(()));
        assert_eq!(second.index, first.index);
        assert_eq!((name.find(&slab), Name::from(second).find(&slab)), (None, Some(second)));
    }
}
