//! The limits' options. Zero: no limit.

use crate::defaults::with_defaults;
use std::time::Duration;

/// What happens to a message above a session's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitPolicy {
    /// It is dropped, and nobody is told.
    Drop,
    /// It is dropped, and its client told: by an error, or the event's acknowledgement.
    #[default]
    Error,
    /// The session ends.
    Close,
}

with_defaults! {
    /// What one address may take: that of version 4, or the /64 of version 6.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AddressLimits {
        /// Open connections.
        pub connections_max: u32 = 0,
        /// New connections per second.
        pub connections_per_second: u32 = 0,
        /// Open sessions.
        pub sessions_max: u32 = 0,
        /// New sessions per second.
        pub sessions_per_second: u32 = 0,
        /// Addresses that are counted.
        pub addresses_max: usize = 65_536,
    }
}

with_defaults! {
    /// What one user may take: an issuer and a subject.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UserLimits {
        /// Open sessions.
        pub sessions_max: u32 = 0,
        /// Users that are counted.
        pub users_max: usize = 65_536,
    }
}

with_defaults! {
    /// What one session may send.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SessionLimits {
        /// Messages and events.
        pub messages_per_second: u32 = 0,
        /// Publications to rooms.
        pub publications_per_second: u32 = 0,
        /// Bytes of messages and events.
        pub bytes_per_second: usize = 0,
        /// So much of a rate may be sent at once.
        pub burst: Duration = Duration::from_secs(1),
        /// What happens to what is above.
        pub policy: LimitPolicy = LimitPolicy::default(),
    }
}

// Tables and buckets are there if one of their limits was on at the start. A reload changes such limits.
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

    /// Whether connections are counted by address. Only a restart changes that.
    pub fn counts_connections(&self) -> bool {
        self.connections_max > 0 || self.connections_per_second > 0
    }

    /// Whether sessions are counted by address. Only a restart changes that.
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

    /// Whether there is any. Only a restart changes that.
    pub fn is_on(&self) -> bool {
        self.messages_per_second > 0 || self.publications_per_second > 0 || self.bytes_per_second > 0
    }
}
