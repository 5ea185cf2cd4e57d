//! Options of the limits. Zero means no limit.

use crate::ports::with_defaults;
use std::time::Duration;

/// The action on a message above a session's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitPolicy {
    /// The message is dropped without a notice.
    Drop,
    /// The message is dropped, and its client receives an error, or a negative acknowledgement of the event.
    #[default]
    Error,
    /// The session ends.
    Close,
}

with_defaults! {
    /// Limits per client address (IPv4 address or IPv6 /64 prefix).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AddressLimits {
        /// Maximum number of open connections.
        pub connections_max: u32 = 0,
        /// Maximum number of new connections per second.
        pub connections_per_second: u32 = 0,
        /// Maximum number of open sessions.
        pub sessions_max: u32 = 0,
        /// Maximum number of new sessions per second.
        pub sessions_per_second: u32 = 0,
        /// Maximum number of addresses that are counted.
        pub addresses_max: usize = 65_536,
    }
}

with_defaults! {
    /// Limits per user, which is an issuer and a subject.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UserLimits {
        /// Maximum number of open sessions.
        pub sessions_max: u32 = 0,
        /// Maximum number of users that are counted.
        pub users_max: usize = 65_536,
    }
}

with_defaults! {
    /// Limits for the messages of one session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SessionLimits {
        /// Maximum number of messages and events per second.
        pub messages_per_second: u32 = 0,
        /// Maximum number of publications to rooms per second.
        pub publications_per_second: u32 = 0,
        /// Maximum size of messages and events per second, in bytes.
        pub bytes_per_second: usize = 0,
        /// The part of a rate that may be sent at once, as a time.
        pub burst: Duration = Duration::from_secs(1),
        /// The action on messages above a limit.
        pub policy: LimitPolicy = LimitPolicy::default(),
    }
}

// The tables exist only if one of their limits was on at the start. A reload can change a limit only if its table exists.
impl AddressLimits {
    pub(crate) fn reloaded(self, next: Self) -> Self {
        let mut limits = self;
        if self.counts_connections() == next.counts_connections() {
            limits.connections_max = next.connections_max;
            limits.connections_per_second = next.connections_per_second;
        }
        if self.counts_sessions() == next.counts_sessions() {
            limits.sessions_max = next.sessions_max;
            limits.sessions_per_second = next.sessions_per_second;
        }
        limits
    }

    /// Returns `true` if connections are counted by address. Only a restart changes that.
    pub fn counts_connections(&self) -> bool {
        self.connections_max > 0 || self.connections_per_second > 0
    }

    /// Returns `true` if sessions are counted by address. Only a restart changes that.
    pub fn counts_sessions(&self) -> bool {
        self.sessions_max > 0 || self.sessions_per_second > 0
    }
}

impl UserLimits {
    pub(crate) fn reloaded(self, next: Self) -> Self {
        let takes = (self.sessions_max > 0) == (next.sessions_max > 0);
        Self { sessions_max: if takes { next.sessions_max } else { self.sessions_max }, ..self }
    }
}

impl SessionLimits {
    pub(crate) fn reloaded(self, next: Self) -> Self {
        if self.is_on() == next.is_on() { next } else { self }
    }

    /// Returns `true` if any limit is on. Only a restart changes this.
    pub fn is_on(&self) -> bool {
        self.messages_per_second > 0 || self.publications_per_second > 0 || self.bytes_per_second > 0
    }
}
