//! Purposes of a core's timers, encoded in the number that the driver keeps with each timer.

use stentor_session::identity::ClientId;

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Checks limits that no event triggers.
    Tick,
    /// The next step of a drain.
    Drain,
    /// Sends messages to sessions with a rate of their own.
    Rates,
    /// Ends questions for decisions that weren't answered in time.
    Decisions,
    /// Handles tokens that expire.
    Identities,
    /// Sends notices of joins and leaves, and other messages of presence.
    Presence,
    /// Ends a wait, so that the turn can free memory in the next round.
    Relief,
    /// Ends TLS handshakes that take too long. The TLS layer handles this timer.
    Tls,
    /// A timer of the application, by its slot.
    App(usize),
    Client(ClientId),
    /// A connection, by its index (31 bits) and serial number.
    Connection {
        index: usize,
        serial: u32,
    },
}

const APP: u64 = 1 << 61;
/// A bit above the 61 bits of a client's number.
const CLIENT: u64 = 1 << 62;
const CONNECTION: u64 = 1 << 63;
const INDEX_BITS: u32 = 31;

impl Timer {
    pub(super) fn token(self) -> u64 {
        match self {
            Self::Tick => 0,
            Self::Drain => 1,
            Self::Rates => 2,
            Self::Relief => 3,
            Self::Decisions => 4,
            Self::Identities => 5,
            Self::Tls => 6,
            Self::Presence => 7,
            Self::App(slot) => APP | slot as u64,
            Self::Client(id) => CLIENT | id.to_bits(),
            Self::Connection { index, serial } => CONNECTION | u64::from(serial) << INDEX_BITS | index as u64,
        }
    }

    /// The timer with this token, which [`Self::token`] has made.
    pub(super) fn of(token: u64) -> Self {
        match token {
            0 => Self::Tick,
            1 => Self::Drain,
            2 => Self::Rates,
            3 => Self::Relief,
            4 => Self::Decisions,
            5 => Self::Identities,
            6 => Self::Tls,
            7 => Self::Presence,
            _ if token & CONNECTION != 0 => Self::Connection {
                index: (token & ((1 << INDEX_BITS) - 1)) as usize,
                serial: (token >> INDEX_BITS) as u32,
            },
            _ if token & CLIENT != 0 => Self::Client(ClientId::of_bits(token ^ CLIENT)),
            _ => Self::App((token ^ APP) as usize),
        }
    }
}

/// Earliest time for which one of the core's timers is set. A timer for a later time still fires, without an effect.
pub(super) struct Earliest<T>(Option<T>);

impl<T> Default for Earliest<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Ord + Copy> Earliest<T> {
    /// Moves the time to `at` if that is earlier. Returns `true` in this case, in which the caller must set a timer.
    #[must_use]
    pub(super) fn set(&mut self, at: T) -> bool {
        let is_earlier = self.0.is_none_or(|due| at < due);
        if is_earlier {
            self.0 = Some(at);
        }
        is_earlier
    }

    /// Notes that the timer has fired.
    pub(super) fn fired(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_session::identity::ClientKind;

    #[test]
    fn a_timer_is_set_to_the_earliest_time() {
        let mut earliest = Earliest::default();
        assert_eq!([5, 7, 5, 3, 4].map(|at| earliest.set(at)), [true, false, false, true, false]);
        earliest.fired();
        assert!(earliest.set(9), "no timer is set after the last one has fired");
    }

    #[test]
    fn a_timer_is_found_by_its_token() {
        let client = |index, serial| Timer::Client(ClientId::new(ClientKind::SockJs, index, serial));
        let connection = |index, serial| Timer::Connection { index, serial };
        let timers = [
            Timer::Tick,
            Timer::Drain,
            Timer::Rates,
            Timer::Relief,
            Timer::Decisions,
            Timer::Identities,
            Timer::Tls,
            Timer::Presence,
            Timer::App(0),
            Timer::App(u32::MAX as usize),
            client(0, 0),
            client(u32::MAX as usize, u32::MAX),
            connection(0, 0),
            connection(0x7fff_ffff, u32::MAX),
        ];
        for timer in timers {
            assert_eq!(Timer::of(timer.token()), timer);
        }
    }
}
