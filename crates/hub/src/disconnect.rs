//! The table of reasons for which the server ends a session, each with its reconnect advice.
//!
//! Clients must not reconnect unchanged after codes 44xx: the server would refuse them again. They may
//! reconnect after codes 45xx, after a delay if the server states one. Lower codes are those of RFC 6455.

/// Reason for which the server ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disconnect {
    /// The server drains (deployment, shutdown).
    Shutdown,
    /// The session's send buffer is full.
    SlowConsumer,
    /// The process is at its memory budget, and this session holds much of it.
    Overloaded,
    /// The client has not answered a heartbeat.
    HeartbeatTimeout,
    /// A message was not complete in time.
    MessageTimeout,
    /// The client sent a message that this endpoint doesn't accept.
    NotAccepted,
    /// The feed does not exist.
    NotFound,
    /// The request for a subscription was malformed.
    BadRequest,
    /// The client opened a Socket.IO connection and connected to no namespace in time.
    NotConnected,
    /// The application ends the session.
    ClosedByApplication,
    /// The client violated the protocol of its connection.
    ProtocolError,
    /// The client lacks permission for its request.
    NotAllowed,
    /// The client's token was revoked.
    TokenRevoked,
    /// The client presented no token, or an invalid one.
    TokenRefused,
    /// The client's token has expired.
    TokenExpired,
    /// The client exceeds its rate limits.
    TooManyRequests,
}

impl Disconnect {
    /// All reasons, for documents and tests.
    pub const ALL: [Self; 16] = [
        Self::Shutdown,
        Self::SlowConsumer,
        Self::Overloaded,
        Self::HeartbeatTimeout,
        Self::MessageTimeout,
        Self::NotAccepted,
        Self::NotFound,
        Self::BadRequest,
        Self::NotConnected,
        Self::ClosedByApplication,
        Self::ProtocolError,
        Self::NotAllowed,
        Self::TokenRevoked,
        Self::TokenRefused,
        Self::TokenExpired,
        Self::TooManyRequests,
    ];

    /// Returns the WebSocket close code.
    pub fn code(self) -> u16 {
        match self {
            Self::NotAccepted => 4400,
            Self::BadRequest => 4401,
            Self::NotConnected => 4402,
            Self::ClosedByApplication => 4403,
            Self::NotFound => 4404,
            Self::ProtocolError => 4405,
            Self::NotAllowed => 4406,
            Self::TokenRevoked => 4407,
            Self::TokenRefused => 4408,
            Self::Shutdown => 4500,
            Self::SlowConsumer => 4501,
            Self::Overloaded => 4502,
            Self::HeartbeatTimeout => 4503,
            Self::MessageTimeout => 4504,
            Self::TokenExpired => 4505,
            Self::TooManyRequests => 4506,
        }
    }

    /// Returns the reason in words, at most 123 bytes.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Shutdown => "the server is shutting down",
            Self::SlowConsumer => "the client reads too slowly: its send buffer is full",
            Self::Overloaded => "the server is at its memory limit and this session holds much of it",
            Self::HeartbeatTimeout => "the heartbeat was not answered",
            Self::MessageTimeout => "the message was not complete in time",
            Self::NotAccepted => "this connection accepts no messages",
            Self::NotFound => "there is no such feed",
            Self::BadRequest => "the request was malformed",
            Self::NotConnected => "no namespace was connected in time",
            Self::ClosedByApplication => "the application ended the session",
            Self::ProtocolError => "the client broke the protocol",
            Self::NotAllowed => "the client may not subscribe to this",
            Self::TokenRevoked => "the token was revoked",
            Self::TokenRefused => "no valid token was presented",
            Self::TokenExpired => "the token has expired; reconnect with a new one",
            Self::TooManyRequests => "the client sent too many requests",
        }
    }

    /// Returns `true` if the client should reconnect.
    pub fn reconnect(self) -> bool {
        self.code() >= 4500
    }

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::SlowConsumer => "slow_consumer",
            Self::Overloaded => "overloaded",
            Self::HeartbeatTimeout => "heartbeat_timeout",
            Self::MessageTimeout => "message_timeout",
            Self::NotAccepted => "not_accepted",
            Self::NotFound => "not_found",
            Self::BadRequest => "bad_request",
            Self::NotConnected => "not_connected",
            Self::ClosedByApplication => "closed_by_application",
            Self::ProtocolError => "protocol_error",
            Self::NotAllowed => "not_allowed",
            Self::TokenRevoked => "token_revoked",
            Self::TokenRefused => "token_refused",
            Self::TokenExpired => "token_expired",
            Self::TooManyRequests => "too_many_requests",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_reasons_fit_a_close_frame() {
        let mut codes: Vec<u16> = Disconnect::ALL.iter().map(|d| d.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Disconnect::ALL.len());
        for d in Disconnect::ALL {
            assert!(d.reason().len() <= 123, "{d:?}");
            assert!((4400..4600).contains(&d.code()), "{d:?}");
        }
    }
}
