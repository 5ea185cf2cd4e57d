//! Keys of `[[hooks]]`.

use super::{HOUR, ms, s};
use crate::config::section::section;
use crate::config::setting::{choice, fields};
use crate::config::value::{Bytes, SecretText};
use std::time::Duration;

choice! {
    /// What a hook is asked about, or notified of.
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
        /// Rooms and feeds that have lost the last one.
        Vacated = "vacated",
        /// Nodes of the cluster that have gone.
        NodeLost = "node_lost",
        /// After dropped notices: all rooms and feeds that have subscribers on this node.
        Resync = "resync",
    }
}

choice! {
    /// What happens without an answer.
    WhenUnavailable => stentor_control::WhenUnavailable {
        /// The client is refused with `unavailable`, and may try again.
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
    /// A URL of your backend that Stentor asks: docs/hooks.md. Write one `[[hooks]]` per URL. The first hook that matches a question is
    /// asked. With `--app rooms`.
    [hooks] Hook => (hook) {
        /// Name in logs and metrics: 1 to 64 of `a-z 0-9 - _`.
        name: String, [restart];
        /// Where requests are sent: `http://` or `https://`. Redirects aren't followed.
        url: String, [restart];
        /// What the hook is asked about, and the notices that it gets.
        on: Vec<HookOn> = Vec::new() => hook.on, [restart];
        /// Socket.IO namespaces that the hook is for. `*` stands for any text. Empty: all. Other clients are in `/`.
        namespaces: Vec<String>, [restart];
        /// Names of the rooms and feeds that the hook is asked about, for `subscribe`, `publish` and notices. `*` stands for any text. Empty: all.
        topics: Vec<String>, [restart];
        /// Names of the events that the hook handles. `*` stands for any text. Empty: all. Rules come first (`[[rules]]`). An event
        /// that Stentor handles itself, `subscribe` and `unsubscribe`, goes to the hook only if it is named here.
        events: Vec<String>, [restart];
        /// The key that requests are signed with, at least 16 bytes. `${NAME}` is replaced by the environment variable of that
        /// name, `${file:/path}` by the content of a file. Empty: requests aren't signed.
        secret: SecretText, [restart];
        /// Time that a question waits to be sent, and time for a request, from when its newest question was asked to the end of the response. It has to be shorter than `limits.decision_timeout`.
        timeout: Duration, in ms(10)..=HOUR, [restart];
        /// What happens to a question without an answer.
        when_unavailable: WhenUnavailable, [restart];
        /// Questions of one request.
        batch_max: usize, in 1..=1_000, [restart];
        /// How long questions are gathered for the next request while another one is in flight. Without one, they are sent at once.
        batch_delay: Duration, in ms(0)..=s(1), [restart];
        /// Requests in flight.
        concurrency_max: usize, in 1..=1_000, [restart];
        /// Questions that wait for a request, and as many notices. Beyond it, the last question of the client with the most counts as unanswered, and further notices are dropped.
        waiting_max: usize, in 1..=1_000_000, [restart];
        /// Size of these questions, and of these notices.
        waiting_bytes_max: Bytes, in Bytes::kib(64)..=Bytes::mib(1024), [restart];
        /// Size of a response.
        response_bytes_max: Bytes, in Bytes::kib(1)..=Bytes::mib(1024), [restart];
        /// Answers that are kept because they carry a `ttl`. Beyond it, the oldest are forgotten.
        cached_answers_max: usize, in 0..=1_000_000, [restart];
        /// File with PEM certificates to trust for `https://`. Empty: the system's certificates.
        ca_file: String, [restart];
    }
}
