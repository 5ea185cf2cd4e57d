//! The table of reasons for which the server ends a session, each with its reconnect advice.
//!
//! Clients must not reconnect unchanged after codes 44xx: the server would refuse them again. They may
//! reconnect after codes 45xx, after a delay if the server states one. Lower codes are those of RFC 6455.

/// Declares the reasons, each with its close code, its name in metrics and the reason in words.
macro_rules! disconnects {
    ($($(#[$doc:meta])+ $why:ident = $code:literal, $name:literal, $reason:literal;)+) => {
        /// Reason for which the server ends a session.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Disconnect { $($(#[$doc])+ $why,)+ }

        impl Disconnect {
            /// All reasons, for documents and tests.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$why),+];

            /// Returns the WebSocket close code.
            pub fn code(self) -> u16 {
                match self { $(Self::$why => $code,)+ }
            }

            /// Returns the name in metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$why => $name,)+ }
            }

            /// Returns the reason in words, at most 123 bytes.
            pub fn reason(self) -> &'static str {
                match self { $(Self::$why => $reason,)+ }
            }
        }
    };
}

disconnects! {
    /// The server drains (deployment, shutdown).
    Shutdown = 4500, "shutdown", "the server is shutting down";
    /// The session's send buffer is full.
    SlowConsumer = 4501, "slow_consumer", "the client reads too slowly: its send buffer is full";
    /// The process is at its memory budget, and this session holds much of it.
    Overloaded = 4502, "overloaded", "the server is at its memory limit and this session holds much of it";
    /// The client has not answered a heartbeat.
    HeartbeatTimeout = 4503, "heartbeat_timeout", "the heartbeat was not answered";
    /// A message was not complete in time.
    MessageTimeout = 4504, "message_timeout", "the message was not complete in time";
    /// The client sent a message that this endpoint doesn't accept.
    NotAccepted = 4400, "not_accepted", "this connection accepts no messages";
    /// The feed does not exist.
    NotFound = 4404, "not_found", "there is no such feed";
    /// The request for a subscription was malformed.
    BadRequest = 4401, "bad_request", "the request was malformed";
    /// The client opened a Socket.IO connection and connected to no namespace in time.
    NotConnected = 4402, "not_connected", "no namespace was connected in time";
    /// The application ends the session.
    ClosedByApplication = 4403, "closed_by_application", "the application ended the session";
    /// The client violated the protocol of its connection.
    ProtocolError = 4405, "protocol_error", "the client broke the protocol";
    /// The client lacks permission for its request.
    NotAllowed = 4406, "not_allowed", "the client may not subscribe to this";
    /// The client's token was revoked.
    TokenRevoked = 4407, "token_revoked", "the token was revoked";
    /// The client presented no token, or an invalid one.
    TokenRefused = 4408, "token_refused", "no valid token was presented";
    /// The client's token has expired.
    TokenExpired = 4505, "token_expired", "the token has expired; reconnect with a new one";
    /// The client exceeds its rate limits.
    TooManyRequests = 4506, "too_many_requests", "the client sent too many requests";
}

impl Disconnect {
    /// Returns `true` if the client should reconnect.
    pub fn reconnect(self) -> bool {
        self.code() >= 4500
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
