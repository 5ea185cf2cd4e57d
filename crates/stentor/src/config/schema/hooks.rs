//! Keys of `[[hooks]]`.

use super::{HOUR, ms, s};
use crate::config::section::section;
use crate::config::setting::{choice, fields};
use crate::config::value::{Bytes, SecretText};
use std::time::Duration;

choice! {
    /// A kind of question or notice.
    HookOn => stentor_control::HookKind {
        /// Clients that want to connect.
        Connect = "connect",
        /// Clients that want to subscribe to a room or feed.
        Subscribe = "subscribe",
        /// Clients that want to publish to a room.
        Publish = "publish",
        /// Events of clients.
        Event = "event",
        /// Sessions that have begun.
        Connected = "connected",
        /// Sessions that have ended.
        Disconnected = "disconnected",
        /// Sessions that have subscribed to a room or feed.
        Subscribed = "subscribed",
        /// Rooms and feeds that have their first subscriber on this node.
        Occupied = "occupied",
        /// Rooms and feeds that have lost their last subscriber on this node.
        Vacated = "vacated",
        /// Nodes that have left the cluster or died.
        NodeLost = "node_lost",
        /// After dropped notices: all rooms and feeds that have subscribers on this node.
        Resync = "resync",
    }
}

choice! {
    /// The decision without an answer.
    WhenUnavailable => stentor_control::WhenUnavailable {
        /// Refuse the client with `unavailable`. It may try again.
        Refuse = "refuse",
        /// As if there were no hook. Events are refused all the same.
        Allow = "allow",
    }
}

fields! {
    Vec<HookOn> => Vec<stentor_control::HookKind>: kinds -> kinds.iter().map(|kind| {
        let mut own = stentor_control::HookKind::Event;
        own.store(kind);
        own
    }).collect();
}

section! {
    /// A URL of your backend to which Stentor sends questions and notices: docs/hooks.md. Write one
    /// `[[hooks]]` per URL. A question goes to the first hook that matches. With `--app rooms`.
    [hooks] Hook => (hook) {
        /// Name in logs and metrics: 1 to 64 of `a-z 0-9 - _`.
        name: String, [restart];
        /// Where requests are sent: `http://` or `https://`. Redirects aren't followed.
        url: String, [restart];
        /// Questions and notices that the hook receives.
        on: Vec<HookOn> = Vec::new() => hook.on, [restart];
        /// Socket.IO namespaces of the hook. `*` matches any text. Empty: all. Clients of other protocols are
        /// in `/`.
        namespaces: Vec<String>, [restart];
        /// Names of the hook's rooms and feeds, for `subscribe`, `publish` and notices. `*` matches any text.
        /// Empty: all.
        topics: Vec<String>, [restart];
        /// Names of the events that the hook handles. `*` stands for any text. Empty: all. Rules come first (`[[rules]]`). An event
        /// that Stentor handles itself, `subscribe` and `unsubscribe`, goes to the hook only if it is named here.
        events: Vec<String>, [restart];
        /// Names of the session's rooms in the questions `subscribe`, `publish` and `event`, and in the notice `disconnected`, at
        /// most this many and 16 KiB. 0: none, because a session may be in many rooms, and each question would name them.
        rooms_max: usize, in 0..=1_000, [restart];
        /// Key for signing requests, at least 16 bytes. `${NAME}` is replaced by the environment variable of
        /// that name, `${file:/path}` by the content of a file. Empty: requests aren't signed.
        secret: SecretText, [restart];
        /// Time that a question may wait to be sent, and time for a request, from its newest question to the
        /// end of the response. Must be shorter than `limits.decision_timeout`.
        timeout: Duration, in ms(10)..=HOUR, [restart];
        /// Decision for a question without an answer.
        when_unavailable: WhenUnavailable, [restart];
        /// Questions of one request.
        batch_max: usize, in 1..=1_000, [restart];
        /// Time for which questions are collected for the next request while another one is in flight. If no
        /// request is in flight, they are sent at once.
        batch_delay: Duration, in ms(0)..=s(1), [restart];
        /// Requests in flight.
        concurrency_max: usize, in 1..=1_000, [restart];
        /// Questions that wait for a request, and the same number of notices. Above it, the last question of
        /// the client with the most counts as unanswered, and further notices are dropped.
        waiting_max: usize, in 1..=1_000_000, [restart];
        /// Size of these questions, and of these notices.
        waiting_bytes_max: Bytes, in Bytes::kib(64)..=Bytes::mib(1024), [restart];
        /// Size of a response.
        response_bytes_max: Bytes, in Bytes::kib(1)..=Bytes::mib(1024), [restart];
        /// Answers that are kept because they have a `ttl`. Above it, the oldest are evicted.
        cached_answers_max: usize, in 0..=1_000_000, [restart];
        /// File with PEM certificates to trust for `https://`. Empty: the system's certificates.
        ca_file: String, [restart];
    }
}
