//! docs/close-codes.md, generated from the tables of close codes.

use std::fmt::Write;
use stentor_edge::{Closing, closings};
use stentor_hub::Disconnect;
use stentor_wire::ws;

const HEAD: &str = "\
# Close codes

<!-- Generated from the tables in crates/hub, crates/wire and the data plane, and crates/stentor/src/reference/close_codes.rs; a test compares.
     To generate it again: cargo run -p stentor -- reference close-codes > docs/close-codes.md -->

When the server ends a session, it sends a close code and a reason. The code says whether the client should reconnect:

- **44xx:** The client should not reconnect; the server would refuse it again.
- **45xx:** The client should reconnect, after a random delay.

`stentor_disconnects_total` counts these sessions by name. Only the server sends these codes.

[Codes of Stentor](#codes-of-stentor) · [By protocol](#by-protocol) · [Codes of the WebSocket protocol](#codes-of-the-websocket-protocol)

## Codes of Stentor

| code | name | reconnect | reason | cause |
|---|---|---|---|---|
";

const PROTOCOLS: &str = "
## By protocol

| client | should reconnect (45xx) | should not reconnect (44xx) |
|---|---|---|
| WebSocket | close frame with code and reason | close frame with code and reason |
";

const OTHER_PROTOCOLS: &str = "\
| Socket.IO, Engine.IO over WebSocket | the connection ends without a close frame | close frame with code and reason |
| Socket.IO, Engine.IO over polling | the poll is answered with 503 and `Retry-After` | the poll is answered with a close packet |
| Server-Sent Events | the response ends without its last chunk | the response ends; `retry` is one minute |

[socketio.md](socketio.md#how-connections-end) and [fallbacks.md](fallbacks.md#server-sent-events) describe what client libraries
report.

## Codes of the WebSocket protocol

RFC 6455 defines these codes. After 1002, 1007 or 1009, correct the client before it reconnects: it broke the protocol or exceeded a
limit. `stentor_protocol_errors_total` counts these connections.

| code | sent by | meaning | cause |
|---|---|---|---|
| 1000 | both | normal closure | the client ended its session. The server repeats the code and the reason |
| 1001 | client | going away | the page was closed. The server repeats the code and the reason |
";

/// Returns the reason for which the server ends a session.
fn cause(disconnect: Disconnect) -> &'static str {
    match disconnect {
        Disconnect::NotAccepted => {
            "The client sent a message on `/ws/KEY`, or on a feed's path of another protocol, which only send."
        }
        Disconnect::BadRequest => {
            "In raw mode, the client sent an invalid message, or reached `limits.subscriptions_max`."
        }
        Disconnect::NotConnected => {
            "A Socket.IO client joined no namespace within `socketio.connect_timeout`."
        }
        Disconnect::ClosedByApplication => {
            "Your backend disconnected the session, by the admin API or by a hook's answer."
        }
        Disconnect::NotFound => "In raw mode, the feed doesn't exist.",
        Disconnect::NotAllowed => {
            "A `connect` hook refused the client, or its handshake names a feed that it may not subscribe to."
        }
        Disconnect::TokenRevoked => "The client's token, or every token of its user, was revoked.",
        Disconnect::TokenRefused => {
            "The client presented no token where one is needed, or one that is invalid."
        }
        Disconnect::TokenExpired => "The client's token has expired, and the client presented no newer one.",
        Disconnect::TooManyRequests => {
            "The client exceeded `[session_limits]` with the policy `close`, presented 100 refused tokens, or signed in as a \
             user with `user_limits.sessions_max` sessions."
        }
        Disconnect::ProtocolError => "The client sent an invalid or unexpected packet of its protocol.",
        Disconnect::Shutdown => "The server received SIGTERM or SIGINT, and the session's slot has come.",
        Disconnect::SlowConsumer => "More than `limits.send_buffer_bytes_max` is queued for the client.",
        Disconnect::Overloaded => {
            "`limits.memory_bytes_max` is reached. In raw mode, also `limits.topics_max` or `limits.cold_keys_max`."
        }
        Disconnect::HeartbeatTimeout => "The client didn't answer a ping within `heartbeat.timeout`.",
        Disconnect::MessageTimeout => "A message didn't arrive completely within `limits.message_timeout`.",
    }
}

pub(super) fn markdown() -> String {
    let mut page = String::from(HEAD);
    // Writing to a string can't fail.
    _ = write(&mut page);
    page
}

fn write(page: &mut String) -> std::fmt::Result {
    let mut all = Disconnect::ALL;
    all.sort_by_key(|disconnect| disconnect.code());
    for disconnect in all {
        let (code, name, reason) = (disconnect.code(), disconnect.name(), disconnect.reason());
        writeln!(
            page,
            "| {code} | `{name}` | {} | {reason} | {} |",
            yes_or_no(disconnect.reconnect()),
            cause(disconnect)
        )?;
    }
    page.push_str(PROTOCOLS);
    let closings = closings();
    for Closing { protocol, reconnect, refused, .. } in &closings {
        writeln!(page, "| {protocol} | {reconnect} | {refused} |")?;
    }
    page.push_str(OTHER_PROTOCOLS);
    for (code, meaning) in [(1002, "protocol error"), (1007, "invalid data"), (1009, "message too large")] {
        // A server receives no frames from servers, so this error can't occur.
        let errors = ws::Error::ALL.iter().filter(|error| **error != ws::Error::Masked);
        let errors = errors.filter(|error| error.close_code() == code);
        let mut causes: Vec<_> = errors.map(ToString::to_string).collect();
        if code == 1002 {
            causes.push("an Engine.IO packet is invalid".into());
        }
        writeln!(page, "| {code} | server | {meaning} | {} |", causes.join("; "))?;
    }
    for Closing { protocol, codes, .. } in closings.iter().filter(|closing| !closing.codes.is_empty()) {
        write!(page, "\n## Codes of {protocol}\n\n{protocol} clients also receive these codes.\n")?;
        write!(page, "\n| code | reason | reconnect | cause |\n|---|---|---|---|\n")?;
        for (code, reason, reconnect, cause) in codes {
            writeln!(page, "| {code} | {reason} | {} | {cause} |", yes_or_no(*reconnect))?;
        }
    }
    Ok(())
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_websocket_error_is_listed() {
        let page = markdown();
        for error in ws::Error::ALL.iter().filter(|error| **error != ws::Error::Masked) {
            assert!(page.contains(&error.to_string()), "{error}");
        }
    }
}
