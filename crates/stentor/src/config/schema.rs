//! Every key of the configuration, once: its name, type, default, range and meaning.
//!
//! `docs/configuration.md` is generated from this file and checked against it by a test; what the keys
//! do is in `wiring`, which maps them to the options of the planes. Where a default has a source, it is said beside it.

use super::section::section;
use super::value::{Bytes, Headers, Origin, Token, choice};
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
        /// io_uring where it works, else epoll; the log says why.
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
    /// What an API serves.
    Content {
        /// JSON, whatever its Content-Type says; anything else is an error.
        Json = "json",
        /// Anything; what calls itself JSON must be valid.
        Any = "any",
    }
}

choice! {
    /// What in an answer ends a feed.
    EndSignal {
        /// `Cache-Control: max-age=0`.
        MaxAgeZero = "max-age=0",
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
        /// Host names that clients may use, such as `example.com`, with a port where only that one is allowed. A request
        /// whose `Host` is another is answered 421, which stops DNS rebinding; `/healthz` is always answered. Empty: any
        /// name.
        hosts: Vec<String> = Vec::new();
        /// Where the admin API is served: publishing, pushing, `/metrics`, `/api/v1/status`. Beyond loopback it needs
        /// `admin_token`.
        admin: SocketAddr = loopback(8001);
        /// What a request to the admin port must carry as `Authorization: Bearer …`. Better set in the
        /// environment than in the file.
        admin_token: Token = Token::default();
        /// Names that requests to the admin port may call this machine by, beside its address and loopback's.
        admin_hosts: Vec<String> = Vec::new();
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
    /// What a client, a session or the whole process may use. docs/protocol.md says under "Limits" what happens beyond.
    /// It is counted: refused requests in `stentor_http_request_errors_total`, connections in
    /// `stentor_connections_refused_total`, what breaks a protocol or is too large in `stentor_protocol_errors_total`, and
    /// sessions that the server ends in `stentor_disconnects_total`, by reason. What waits or is kept under a limit is a
    /// gauge, such as `stentor_connections`.
    [limits] Limits {
        /// Size of one message from a client, both before and after inflating, and of one that is published.
        message_bytes_max: Bytes = Bytes::mb(1), in Bytes(1)..=Bytes::mib(1024);
        /// Frames that one message may come in. Conformance suites send 65,536.
        fragments_max: usize = 131_072, in 1..=1_048_576;
        /// Time from the first to the last byte of a message.
        message_time_max: Duration = s(30), in ms(100)..=HOUR;
        /// Size of a request's head: request line and headers.
        head_bytes_max: Bytes = Bytes::kib(16), in Bytes::kib(1)..=Bytes::mib(1);
        /// Number of headers of a request.
        headers_max: usize = 64, in 8..=128;
        /// Time from a connection's start, or a request's first byte, to the end of the head.
        head_time_max: Duration = s(10), in ms(100)..=HOUR;
        /// Size of a request's body that is read and thrown away on routes that take none.
        body_bytes_max: Bytes = Bytes::kib(64), in Bytes(1)..=Bytes::mib(1024);
        /// Silence of an HTTP connection between two requests.
        idle_time_max: Duration = s(75), in ms(100)..=HOUR;
        /// Time from a request to what it waits for: a document, or an application's answer.
        wait_time_max: Duration = s(10), in ms(100)..=HOUR;
        /// Time from the decision to close a connection to its end.
        close_time_max: Duration = s(5), in ms(100)..=s(60);
        /// What a session may be owed, in encoded bytes that the kernel hasn't taken, where its policy isn't to
        /// get the latest only.
        outbox_bytes_max: Bytes = Bytes::mib(1), in Bytes::kib(1)..=Bytes::mib(1024);
        /// Size of answers that a client doesn't read, before its messages are no longer read.
        replies_bytes_max: Bytes = Bytes::kib(64), in Bytes(1)..=Bytes::mib(1024);
        /// Size of what a core receives, inflates and handles for one connection in a turn. Each message counts 128 bytes
        /// more, each HTTP request 1 KiB. The rest waits until other connections have had their turn
        /// (`stentor_turns_shared`).
        turn_bytes_max: Bytes = Bytes::kib(128), in Bytes::kib(4)..=Bytes::mib(1024);
        /// How deep arrays and objects may be nested in JSON that a client publishes.
        json_depth_max: usize = 128, in 1..=1000;
        /// Rooms and feeds that a session may be subscribed to.
        subscriptions_max: usize = 1000, in 1..=1_000_000;
        /// Rooms and feeds that a core may know of.
        topics_max: usize = 1_000_000, in 1..=100_000_000;
        /// Patches kept of a feed, for clients that are several versions behind. They get the whole document where
        /// that is shorter, or where what they have is older.
        feed_patches_max: usize = 100, in 0..=10_000;
        /// Memory of one core for patches. Beyond it those of the feed go whose were used the longest ago.
        feed_patches_bytes_max: Bytes = Bytes::mib(16), in Bytes(0)..=Bytes::mib(65_536);
        /// Least time between two versions of a feed to a client that gets the latest only, whatever rate it asks for.
        feed_interval_min: Duration = s(0), in s(0)..=HOUR;
        /// Connections at the same time, in all. At this limit, or when no file descriptors are left for clients, a new
        /// connection closes the one that has gone longest without a complete request, which
        /// `stentor_connections_evicted_total` counts. If all have one, the new connection is refused.
        connections_max: usize = 1_000_000, in 1..=100_000_000;
        /// Memory held for clients, in all: unfinished input, answers, messages, history, documents, rooms, sessions and
        /// connections (`stentor_memory_bytes`, by class). Above 95 % the server refuses new connections, new topics and
        /// inputs larger than 16 KiB, and evicts history. Above 100 %, or after 2 s above 95 %, it ends the sessions that
        /// hold the most, until 90 % are left.
        memory_bytes_max: Bytes = Bytes::mib(1024), in Bytes::mib(1)..=Bytes(1 << 42);
        /// Messages of the control plane that wait for a core (`stentor_inbox_messages`).
        inbox_messages_max: usize = 16_384, in 64..=1_048_576;
        /// Size of the messages of the control plane that wait for a core (`stentor_inbox_bytes`).
        inbox_bytes_max: Bytes = Bytes::mib(64), in Bytes::mib(1)..=Bytes(1 << 42);
        /// Messages from one core that wait for another one. What is beyond stays with the sender.
        mailbox_messages_max: usize = 4096, in 64..=1_048_576;
        /// Size of the messages from one core that wait for another one. What is beyond stays with the sender, and the
        /// connections that cause more aren't read from until there is room.
        mailbox_bytes_max: Bytes = Bytes::mib(16), in Bytes::kib(64)..=Bytes(1 << 42);
    }
}

section! {
    /// What clients of the admin port may use.
    [admin_limits] AdminLimits {
        /// Connections at the same time.
        connections_max: usize = 256, in 1..=65_536;
        /// Time for a request's head.
        head_time_max: Duration = s(10), in ms(100)..=HOUR;
        /// Silence within a request's body, and of a client that doesn't take its answer.
        body_time_max: Duration = s(30), in ms(100)..=HOUR;
        /// How long a publication waits for room in a full mailbox before it is refused with 503.
        busy_time_max: Duration = s(10), in s(0)..=HOUR;
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
        /// Memory for one room's history (all rooms' together: `stentor_room_history_bytes`).
        history_bytes_max: Bytes = Bytes::mib(1), in Bytes(0)..=Bytes::mib(1024);
        /// How long a message stays in the history.
        history_time_max: Duration = s(300), in s(1)..=s(7 * 24 * 3600);
    }
}

section! {
    /// Engine.IO at `/engine.io/`, and Socket.IO at `/socket.io/`. Heartbeats are those of `[heartbeat]`; a message or a
    /// polling client's body may have `limits.message_bytes_max`.
    [socketio] SocketIo {
        /// Namespaces that there are beside `/`, for `--app rooms`.
        namespaces: Vec<String> = Vec::new();
        /// Whether clients of Socket.IO 1 and 2 (Engine.IO 3) are let in.
        allow_version_3: bool = true;
        /// A cookie of this name holds the session's id, for balancers that go by it. Empty: none. A node needs none.
        cookie: String = String::new();
        /// Whether browsers send that cookie over HTTPS only (`Secure`).
        cookie_secure: bool = false;
        /// From which sites browsers send that cookie (`SameSite`).
        cookie_same_site: CookieSameSite = CookieSameSite::Lax;
        /// Packets in one body of a polling client.
        packets_max: usize = 100_000, in 1..=10_000_000;
        /// Attachments of one packet: Socket.IO's own server takes 10.
        attachments_max: usize = 10, in 0..=1000;
        /// Namespaces that a client may be connected to at once.
        namespaces_max: usize = 16, in 1..=1000;
        /// Time from a WebSocket's handshake to the end of a client's move to it.
        upgrade_time_max: Duration = s(10), in ms(100)..=HOUR;
        /// Time from a connection's start to the first namespace.
        connect_time_max: Duration = s(45), in ms(100)..=HOUR;
        /// How long a client may be away and still get what it missed (connection state recovery). 0: not at all.
        recovery_time_max: Duration = s(0), in s(0)..=HOUR;
        /// Memory of one core for what is kept for clients that are away (`stentor_socketio_recovery_bytes`). Beyond it the
        /// oldest goes (`stentor_socketio_recovery_evicted_total`), and who comes back for that starts afresh.
        recovery_bytes_max: Bytes = Bytes::mib(16), in Bytes(0)..=Bytes::mib(65_536);
        /// Sockets of clients that are away, of one core (`stentor_socketio_suspended`).
        recovery_sockets_max: usize = 100_000, in 0..=100_000_000;
        /// The event by which clients get what their feeds say.
        feed_event: String = "feed".to_owned();
        /// Whether they get a document as one string, for clients that expect that, instead of an object with its
        /// position.
        feed_as_string: bool = false;
    }
}

section! {
    /// What an event of a Socket.IO client does, with `--app rooms`. Write `[[rules]]` once for each; the first that is
    /// for an event counts. A rule joins, leaves, broadcasts, echoes and acknowledges, in this order. A room's name is
    /// text with `{}` for the event's first argument, `{1}` for the second, `{name}` for a member of the first; of a list
    /// the first that has a value counts.
    [rules] Rule {
        /// The event's name.
        event: String = String::new();
        /// The namespace that it is for. Empty: every one.
        namespace: String = String::new();
        /// The room that the client joins.
        join: Vec<String> = Vec::new();
        /// The room that it leaves.
        leave: Vec<String> = Vec::new();
        /// The room to whose members the event goes; `*` is everybody in the namespace.
        broadcast: Vec<String> = Vec::new();
        /// The name that it is sent with. Empty: the same.
        broadcast_as: String = String::new();
        /// Whether the sender doesn't get what it sends.
        except_sender: bool = false;
        /// Whether the client gets the event back.
        echo: bool = false;
        /// Whether the event is acknowledged, with `{"ok":true}` or why it wasn't done.
        ack: bool = false;
    }
}

choice! {
    /// From which sites browsers send a cookie.
    CookieSameSite {
        /// From its own, and with navigation from others.
        Lax = "lax",
        /// From its own only.
        Strict = "strict",
        /// From any. Browsers demand `cookie_secure` for this.
        None = "none",
    }
}

choice! {
    /// Which application a prefix runs.
    PrefixApp {
        /// The one of `server.app`.
        Same = "same",
        /// Feeds and rooms, in the `stentor.v1` messages of docs/protocol.md.
        Rooms = "rooms",
        /// The same bytes back to the sender.
        Echo = "echo",
        /// To everybody connected, the sender included.
        Chat = "chat",
    }
}

section! {
    /// A prefix that SockJS is served at. Write `[[sockjs]]` once for each; without any there is one, at `/sockjs`. Of
    /// several that fit the longest wins.
    [sockjs] SockJs {
        /// The path: begins with `/` and doesn't end with it.
        prefix: String = String::new();
        /// Which application runs here.
        app: PrefixApp = PrefixApp::Same;
        /// Whether there are WebSockets.
        websocket: bool = true;
        /// Whether answers set the cookie `JSESSIONID`, for balancers that go by it. A node needs none.
        jsessionid: bool = false;
        /// Where the page for frames of other origins finds the client library: a path of the own origin, which a web
        /// server in front answers, or a URL. See docs/fallbacks.md.
        client_url: String = "/sockjs.min.js".to_owned();
        /// Size of a streaming response, after which the client asks for another. Browsers keep all of it.
        response_bytes_max: Bytes = Bytes::kib(128), in Bytes(1)..=Bytes::mib(1024);
        /// How long a waiting request is left without a sign of life.
        heartbeat: Duration = s(25), in ms(100)..=HOUR;
        /// How long a session lives without a request that waits.
        disconnect_delay: Duration = s(5), in ms(100)..=HOUR;
        /// Messages in one body.
        messages_max: usize = 100_000, in 1..=10_000_000;
    }
}

section! {
    /// Compression on WebSocket (permessage-deflate, never with context takeover, so that a frame is
    /// deflated once for everybody).
    [deflate] Deflate {
        /// Whether to accept a client's offer.
        enabled: bool = true;
        /// Effort: 1 is fast, 9 is small.
        level: usize = 5, in 1..=9;
        /// Messages below this size are sent as they are.
        bytes_min: Bytes = Bytes(512), in Bytes(0)..=Bytes::mib(1024);
    }
}

section! {
    /// An HTTP API whose documents are feeds. Write `[[feeds]]` once for each. It gets the keys that begin with `prefix`, or
    /// those that fit the template `key`. Of several that fit a key the most specific wins: the one with the longest text
    /// before its first placeholder (a prefix is nothing but that); of those a template before one with `{rest*}` before
    /// a prefix; of those the one with the most text; of those the first.
    [feeds] Feed {
        /// What it is called in logs and metrics: 1 to 64 of `a-z 0-9 - _`.
        name: String = String::new();
        /// What this API's keys begin with, e.g. `scores/`. The whole key is appended to the URL's path. Empty, and no
        /// `key`: every key.
        prefix: String = String::new();
        /// What this API's keys look like, instead of a prefix, e.g. `matchesfeed/{id}/matchcentre`. A placeholder stands
        /// for a segment or a part of one, at least one character; `{rest*}` as the last segment for all that follow.
        key: String = String::new();
        /// Whether backends push its documents (`PUT /api/v1/feeds/KEY`) instead of being asked for them. Then it has no `url`, and
        /// of the other keys but `name`, `prefix` and `key` none means anything. Who asks for such a key before its first
        /// document waits for it; any other key that nobody fetches can be pushed as well, but is `lost` until then.
        push: bool = false;
        /// Where the documents are: `http://` or `https://`, perhaps with a path and a query. With a `key`, each of its
        /// placeholders must be in the path or in the query, where what it stands for is escaped: `http://api/match/{id}?full=1`.
        url: String = String::new();
        /// Time from one fetch of a key to the next, unless the answer's `Cache-Control: max-age` says it.
        interval: Duration = s(1), in ms(1)..=s(24 * 3600);
        /// Time for one fetch, from its begin to the last byte.
        timeout: Duration = s(10), in ms(1)..=HOUR;
        /// Longest silence while connecting, before the answer's head and within its body.
        read_timeout: Duration = s(5), in ms(1)..=HOUR;
        /// Size of one document, both as received and after decompression.
        document_bytes_max: Bytes = Bytes::mib(4), in Bytes(1)..=Bytes::mib(1024);
        /// Fetches at the same time. There is never more than one per key.
        concurrency_max: usize = 8, in 1..=10_000;
        /// Fetches that begin in a second, evenly spread: no more than those of a tenth of a second at once.
        requests_per_second_max: usize = 1000, in 1..=1_000_000;
        /// Headers to send with every fetch. `${NAME}` in a value stands for the environment's variable of that name, as
        /// in `{ Authorization = "Bearer ${API_TOKEN}" }`. Values are never shown or logged.
        headers: Headers = Headers::default();
        /// What its documents are.
        content: Content = Content::Json;
        /// Whether `Cache-Control` in answers is ignored. If it isn't, `max-age=N` with N above 0 sets the time of the next
        /// fetch.
        ignore_cache_control: bool = false;
        /// What ends a feed besides the status 410. With `"max-age=0"`, an answer with `Cache-Control: max-age=0` is the
        /// last version: the feed's state becomes `ended` and it is not fetched again.
        end_on: Vec<EndSignal> = Vec::new();
        /// Names of members that tell the objects of a list apart, tried in this order before `id` and its like, so that
        /// a change in one of them is sent as that.
        identity: Vec<String> = Vec::new();
    }
}

section! {
    /// What all feeds together may use, and how patient they are.
    [feeds_limits] FeedsLimits {
        /// Keys at the same time.
        keys_max: usize = 10_000, in 1..=10_000_000;
        /// Size of all documents kept.
        documents_bytes_max: Bytes = Bytes::mib(256), in Bytes::kib(64)..=Bytes(1 << 42);
        /// Fetches at the same time, of all feeds.
        fetches_max: usize = 32, in 1..=10_000;
        /// How long a key that nobody wants any more is still kept and fetched.
        linger: Duration = s(30), in s(0)..=s(24 * 3600);
        /// Time until a wanted key whose API said 404 is looked at again.
        lost_interval: Duration = s(60), in ms(1)..=s(24 * 3600);
        /// Longest wait before a failed fetch is tried again the first time; it doubles with each further error.
        backoff_first: Duration = s(1), in ms(1)..=s(24 * 3600);
        /// Longest wait before a failing API is asked again, whatever its `Retry-After` says.
        backoff_max: Duration = s(60), in ms(1)..=s(24 * 3600);
        /// Longest time that an API may ask for by `Cache-Control: max-age`.
        max_age_max: Duration = s(24 * 3600), in s(1)..=s(365 * 24 * 3600);
        /// Keys that documents are pushed to (`PUT /api/v1/feeds/KEY`) at the same time.
        pushed_keys_max: usize = 10_000, in 1..=10_000_000;
        /// Size of all documents that were pushed. For a new one those go that nobody is subscribed to, the least
        /// recently used first; where that isn't enough it is refused.
        pushed_documents_bytes_max: Bytes = Bytes::mib(64), in Bytes(0)..=Bytes(1 << 42);
        /// Size of one document that is pushed, both as received and after decompression.
        pushed_document_bytes_max: Bytes = Bytes::mib(4), in Bytes(1)..=Bytes::mib(1024);
        /// A file of PEM certificates to trust for `https://`. Empty: those of the system.
        ca_file: String = String::new();
    }
}

/// Keys without which a section that may be there several times means nothing.
pub(crate) fn required(section: &str) -> &'static [&'static str] {
    match section {
        "feeds" => &["name", "url"],
        "rules" => &["event"],
        "sockjs" => &["prefix"],
        _ => &[],
    }
}

/// Most sections of one name that a file may have.
pub(crate) const REPEATED_MAX: usize = 1000;
