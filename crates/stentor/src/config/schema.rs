//! Every key of the configuration, once: its name, type, default, range and meaning.
//!
//! `docs/configuration.md` is generated from this file and checked against it by a test; what the keys
//! do is in `wiring`, which maps them to the options of the planes. Defaults come from DESIGN.md's
//! budgets; where a number has another source, it is said beside it.

use super::section::section;
use super::value::{Bytes, Headers, Origin, Switch, Token, choice};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

const HOUR: Duration = s(3600);

choice! {
    /// How a core talks to the kernel.
    Driver {
        /// io_uring where the kernel allows it, else epoll.
        Auto = "auto",
        /// io_uring, or refuse to start.
        IoUring = "io_uring",
        /// epoll.
        Epoll = "epoll",
    }
}

choice! {
    /// What the server does with clients' messages.
    App {
        /// Feeds and rooms, in the `stentor.v1` messages of docs/protocol.md.
        Rooms = "rooms",
        /// The same bytes back to the sender.
        Echo = "echo",
        /// To everybody connected, the sender included.
        Chat = "chat",
    }
}

choice! {
    /// How log lines look.
    LogFormat {
        /// One line for people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

choice! {
    /// Which log lines are written.
    LogLevel {
        /// What failed.
        Error = "error",
        /// Also what is likely to fail.
        Warn = "warn",
        /// Also what an operator wants to know.
        Info = "info",
        /// Also what a developer wants to know.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

section! {
    /// Where and how the server runs.
    [server] Server {
        /// Where clients connect. Port 0 picks a free one.
        listen: SocketAddr = loopback(8000);
        /// Where the admin API, `/metrics` and the status page are served. Beyond loopback it needs
        /// `admin_token`.
        admin: Switch<SocketAddr> = Switch(Some(loopback(8001)));
        /// What a request to the admin port must carry as `Authorization: Bearer …`. Better set in the
        /// environment than in the file.
        admin_token: Token = Token::default();
        /// Threads of the data plane. 0: one for each core of the machine.
        cores: usize = 0, in 0..=256;
        /// How a core talks to the kernel.
        driver: Driver = Driver::Auto;
        /// What the server does with clients' messages.
        app: App = App::Rooms;
        /// How log lines look. They go to standard error.
        log: LogFormat = LogFormat::Text;
        /// Which log lines are written.
        log_level: LogLevel = LogLevel::Info;
        /// How long SIGINT and SIGTERM leave for ending connections in order.
        drain_time_max: Duration = s(10), in s(0)..=HOUR;
    }
}

section! {
    /// Which pages may connect, on every protocol.
    [origins] Origins {
        /// Origins of pages beside the server's own: `https://example.com`, `https://*.example.com` for
        /// every subdomain, `*` for any. Requests without an Origin header, as programs that are no
        /// browser send them, are accepted.
        allow: Vec<Origin> = Vec::new();
    }
}

section! {
    /// What a client, a session or the whole process may use. Going over one ends the request or the
    /// session with an error that says so, and counts in the metric of the same name.
    [limits] Limits {
        /// Size of one message from a client, both before and after inflating.
        message_bytes_max: Bytes = Bytes::mb(1), in Bytes(1)..=Bytes::mib(1024);
        /// Frames that one message may come in. Conformance suites send 65,536.
        fragments_max: usize = 65_536, in 1..=1_048_576;
        /// Time from the first to the last frame of a message.
        message_time_max: Duration = s(60), in ms(100)..=HOUR;
        /// Size of a request's head: request line and headers.
        head_bytes_max: Bytes = Bytes::kib(16), in Bytes::kib(1)..=Bytes::mib(1);
        /// Number of headers of a request.
        headers_max: usize = 100, in 8..=1000;
        /// Time from a connection's first byte to the end of a request's head.
        head_time_max: Duration = s(10), in ms(100)..=HOUR;
        /// Size of a request's body.
        body_bytes_max: Bytes = Bytes::mb(1), in Bytes(1)..=Bytes::mib(1024);
        /// Time for a request's body.
        body_time_max: Duration = s(30), in ms(100)..=HOUR;
        /// How long a connection may stay open between two requests.
        keep_alive_time_max: Duration = s(75), in ms(100)..=HOUR;
        /// How long a new WebSocket session may be silent before its first message. `off`, because a client
        /// that names its feed in the URL has nothing to say.
        first_message_time_max: Switch<Duration> = Switch(None), in Switch(Some(ms(100)))..=Switch(Some(HOUR));
        /// How long a connection that is being closed waits for the other side to close.
        close_time_max: Duration = s(5), in ms(100)..=s(60);
        /// What a session may be owed: encoded bytes that the kernel hasn't taken.
        outbox_bytes_max: Bytes = Bytes::mib(1), in Bytes::kib(1)..=Bytes::mib(1024);
        /// Connections at the same time, in all.
        connections_max: usize = 1_000_000, in 1..=100_000_000;
        /// Rooms and feeds that a session may be subscribed to.
        subscriptions_per_session_max: usize = 1000, in 1..=1_000_000;
        /// Rooms and feeds that one core may know of.
        topics_max: usize = 1_000_000, in 1..=100_000_000;
        /// Memory for what is to be sent or kept: frames, history, documents and buffers, each counted
        /// once. New connections and publications are refused beyond it.
        memory_bytes_max: Bytes = Bytes::mib(1024), in Bytes::mib(1)..=Bytes(1 << 42);
        /// Messages waiting in the mailbox between two threads.
        mailbox_messages_max: usize = 16_384, in 64..=1_048_576;
        /// Depth of a JSON value from a client or an upstream.
        json_depth_max: usize = 128, in 8..=128;
    }
}

section! {
    /// How dead clients are found. Received bytes and progress in sending count as life.
    [heartbeat] Heartbeat {
        /// Time between two pings.
        interval: Duration = s(25), in ms(100)..=HOUR;
        /// How long a session may take to answer, from when the ping has left.
        timeout: Duration = s(20), in ms(100)..=HOUR;
    }
}

section! {
    /// Rooms: messages for those who are in.
    [rooms] Rooms {
        /// Whether clients may publish. The admin API always may.
        publish: bool = false;
        /// Messages kept per room, for clients that return. 0: none.
        history_length: usize = 0, in 0..=1_000_000;
        /// Memory for one room's history.
        history_bytes_max: Bytes = Bytes::mib(1), in Bytes(0)..=Bytes::mib(1024);
        /// How long a message stays in the history.
        history_time_max: Duration = s(300), in s(1)..=s(7 * 24 * 3600);
    }
}

section! {
    /// Compression on WebSocket (permessage-deflate, never with context takeover, so that a frame is
    /// deflated once for everybody).
    [deflate] Deflate {
        /// Whether to accept a client's offer.
        enabled: bool = true;
        /// Effort: 1 is fast, 9 is small.
        level: usize = 3, in 1..=9;
        /// Messages below this size are sent as they are.
        bytes_min: Bytes = Bytes(512), in Bytes(0)..=Bytes::mib(1024);
    }
}

section! {
    /// An HTTP API whose documents are feeds. Write `[[feeds]]` once for each; a key belongs to the one with
    /// the longest prefix that it has.
    [feeds] Feed {
        /// What it is called in logs and metrics: 1 to 64 of `a-z 0-9 - _`.
        name: String = String::new();
        /// The first segments of this API's keys, e.g. `scores/live`. Empty: every key.
        prefix: String = String::new();
        /// Where the documents are: `http://` or `https://`. What the key has beyond `prefix` is appended
        /// after a slash.
        url: String = String::new();
        /// Time from one fetch of a key to the next, unless the answer's `Cache-Control: max-age` says it.
        interval: Duration = s(1), in ms(10)..=s(24 * 3600);
        /// Time for one fetch, from connecting to the last byte.
        timeout: Duration = s(10), in ms(10)..=HOUR;
        /// Size of one document, after decompression.
        document_bytes_max: Bytes = Bytes::mib(8), in Bytes(1)..=Bytes::mib(1024);
        /// Fetches at the same time. There is never more than one per key.
        concurrency_max: usize = 32, in 1..=10_000;
        /// Headers to send with every fetch.
        headers: Headers = Headers::default();
    }
}

section! {
    /// What all feeds together may use.
    [feeds_limits] FeedsLimits {
        /// Keys at the same time.
        keys_max: usize = 10_000, in 1..=10_000_000;
        /// Size of all documents kept.
        documents_bytes_max: Bytes = Bytes::mib(512), in Bytes::kib(64)..=Bytes(1 << 42);
        /// How long a key that nobody wants any more is still fetched.
        linger: Duration = s(30), in s(0)..=s(24 * 3600);
        /// Longest wait before a failing upstream is asked again; it begins with the feed's interval and
        /// doubles, with jitter.
        backoff_time_max: Duration = s(60), in ms(100)..=s(24 * 3600);
    }
}

/// Keys without which a feed means nothing.
pub(crate) const FEED_REQUIRED: [&str; 2] = ["name", "url"];
/// Most feeds that a file may declare.
pub(crate) const FEEDS_MAX: usize = 1000;
