//! Every key of the configuration, once: its name, type, range, meaning, and the field of the options that it sets,
//! whose default is the key's. [`section!`] has the syntax.
//!
//! `docs/configuration.md` is generated from this file and checked against it by a test.

use super::section::section;
use super::setting::{choice, fields};
use super::value::{Bytes, EngineUrl, Headers, Origin, Token};
use std::net::SocketAddr;
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

const HOUR: Duration = s(3600);

choice! {
    /// The kernel interface of the data plane.
    Driver => stentor_edge::DriverChoice {
        /// io_uring if it works, otherwise epoll. The log gives the reason.
        Auto = "auto",
        /// io_uring; the server refuses to start without it.
        IoUring = "io_uring",
        /// epoll.
        Epoll = "epoll",
    }
}

choice! {
    /// The application that handles clients' messages.
    App => stentor_edge::App {
        /// Feeds and rooms, with the `stentor.v1` messages of docs/protocol.md.
        Rooms = "rooms",
        /// Returns each message to its sender.
        Echo = "echo",
        /// Sends each message to every client, the sender included.
        Chat = "chat",
    }
}

choice! {
    /// The content of documents.
    Content => stentor_control::Content {
        /// JSON, whatever the Content-Type; anything else is an error.
        Json = "json",
        /// Anything. A document with a JSON Content-Type must be valid JSON.
        Any = "any",
    }
}

choice! {
    /// Response that ends a feed.
    EndSignal {
        /// `Cache-Control: max-age=0`.
        MaxAgeZero = "max-age=0",
    }
}

choice! {
    /// The format of log lines.
    LogFormat {
        /// Human-readable lines.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

choice! {
    /// The least severe level that is logged.
    LogLevel {
        /// Failures.
        Error = "error",
        /// Also warnings.
        Warn = "warn",
        /// Also start, configuration and shutdown.
        Info = "info",
        /// Also details for developers.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

section! {
    /// Addresses, threads and logging.
    [server] Server => (edge) {
        /// The address for clients. Port 0 picks a free port.
        listen: SocketAddr;
        /// Accepted host names, such as `example.com`; with a port, only that port. A request with another `Host` is
        /// answered with 421, which stops DNS rebinding. `/healthz` is always answered. Empty: any name.
        hosts: Vec<String> = Vec::new() => edge.hosts;
        /// The address of the admin API: publishing, pushing, `/metrics`, `/api/v1/status`. An address beyond loopback
        /// requires `admin_token`.
        admin: SocketAddr => control.admin.listen;
        /// The token that requests to the admin port must send as `Authorization: Bearer TOKEN`; at least 16 bytes. Set it
        /// in the environment, not in the file.
        admin_token: Token => control.admin.token;
        /// Further host names accepted in the `Host` header of the admin port. Loopback and the address itself are
        /// always accepted.
        admin_hosts: Vec<String> => control.admin.hosts;
        /// Threads of the data plane. 0: one per core of the machine.
        cores: usize, in 0..=256;
        /// The kernel interface of the data plane.
        driver: Driver => driver;
        /// The application that handles clients' messages.
        app: App;
        /// The format of log lines. They are written to standard error.
        log: LogFormat = LogFormat::Text;
        /// The least severe level that is logged.
        log_level: LogLevel = LogLevel::Info;
        /// Time for a graceful shutdown after SIGINT or SIGTERM. Remaining connections are then cut.
        shutdown_timeout: Duration = s(10), in s(0)..=HOUR;
    }
}

section! {
    /// Web pages that may connect, over every protocol.
    [origins] Origins => (edge) {
        /// Allowed origins besides the server's own: `https://example.com`, `https://*.example.com` for every
        /// subdomain, `*` for any. Requests without an `Origin` header, which do not come from browsers, are accepted.
        allow: Vec<Origin> = Vec::new() => edge.origins;
    }
}

section! {
    /// Limits of a client, a session or the whole process. docs/protocol.md, "Limits", describes what happens at each.
    /// Metrics count refused requests (`stentor_http_request_errors_total`), refused connections
    /// (`stentor_connections_refused_total`), broken protocols and oversized messages (`stentor_protocol_errors_total`),
    /// and sessions that the server ends, by reason (`stentor_disconnects_total`). Current amounts are gauges, such as
    /// `stentor_connections`.
    [limits] Limits => (edge.limits) {
        /// Size of one message from a client, before and after decompression, and of one published message.
        message_bytes_max: Bytes => edge.limits.message_bytes_max => control.admin.message_bytes_max,
            in Bytes(1)..=Bytes::mib(1024);
        /// Frames of one message. Conformance suites send 65,536.
        fragments_max: usize, in 1..=1_048_576;
        /// Time from the first to the last byte of a message.
        message_timeout: Duration, in ms(100)..=HOUR;
        /// Size of a request line with its headers.
        header_bytes_max: Bytes, in Bytes::kib(1)..=Bytes::mib(1);
        /// Number of headers of a request.
        headers_max: usize, in 8..=128;
        /// Time from the start of a connection, or the first byte of a request, to the end of its headers.
        header_timeout: Duration, in ms(100)..=HOUR;
        /// Size of a request body on routes that need none. It is read and ignored.
        body_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024);
        /// Time between two requests on an HTTP connection. The connection is then closed.
        idle_timeout: Duration, in ms(100)..=HOUR;
        /// Time that a request waits for a document or an application's answer. It is then answered with 504.
        request_timeout: Duration, in ms(100)..=HOUR;
        /// Time that a message waits for the answer whether the cluster's other nodes get it, or a client for the answer
        /// whether it may do something. It is then refused with `unavailable`.
        decision_timeout: Duration, in ms(100)..=HOUR;
        /// Such answers that a core waits for. Further ones are refused with `unavailable`.
        decisions_max: usize, in 1..=1_000_000;
        /// Time to close a connection. It is then reset.
        close_timeout: Duration, in ms(100)..=s(60);
        /// Encoded bytes queued for a session, for the policies `queue` and `drop_oldest`. Beyond it, `queue` ends the
        /// session and `drop_oldest` drops messages.
        send_buffer_bytes_max: Bytes, in Bytes::kib(1)..=Bytes::mib(1024);
        /// Answers queued for a client that doesn't read them. Beyond it, the server stops reading from the client.
        replies_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024);
        /// Bytes that a core receives, decompresses and handles for one connection per turn. Each message counts 128 bytes
        /// extra, each HTTP request 1 KiB. The rest waits until other connections have had their turn
        /// (`stentor_turn_yields_total`).
        turn_bytes_max: Bytes, in Bytes::kib(4)..=Bytes::mib(1024);
        /// Nesting depth of JSON that a client publishes.
        json_depth_max: usize, in 1..=1000;
        /// Rooms and feeds that a session is subscribed to.
        subscriptions_max: usize, in 1..=1_000_000;
        /// Rooms and feeds per core.
        topics_max: usize, in 1..=100_000_000;
        /// Feeds that were never fetched and that a session waits for. Further subscriptions are refused with
        /// `too_many_cold_keys` (429 over HTTP).
        cold_keys_max: usize => control.feeds.cold_keys_max, in 1..=1_000_000;
        /// Patches kept per feed for clients that are several versions behind. Clients further behind get the whole
        /// document.
        feed_patches_max: usize, in 0..=10_000;
        /// Memory for patches, per core. When exceeded, patches of the least recently used feed are evicted.
        feed_patches_bytes_max: Bytes, in Bytes(0)..=Bytes::mib(65_536);
        /// Minimum time between two versions of a feed for a client with the policy `latest`, whatever its `rate`.
        feed_interval_min: Duration, in s(0)..=HOUR;
        /// Open connections of the process. At this limit, or without free file descriptors, a new connection closes the
        /// connection that has waited longest without a complete request (`stentor_connections_evicted_total`). If there
        /// is none, the new connection is refused.
        connections_max: usize, in 1..=100_000_000;
        /// Connections that are passed through to other nodes of a cluster. Further requests that belong there are answered with
        /// 503. Each takes two file descriptors: there are at most one sixteenth as many as file descriptors.
        relayed_connections_max: usize, in 1..=100_000_000;
        /// Memory held for clients, in all: unfinished input, answers, messages, history, documents, rooms, sessions and
        /// connections (`stentor_memory_bytes`, by class). Above 95 % the server refuses new connections, new topics and
        /// inputs larger than 16 KiB, and evicts history. Above 100 %, or after 2 s above 95 %, it ends the sessions that
        /// hold the most, until at most 90 % are in use.
        memory_bytes_max: Bytes, in Bytes::mib(1)..=Bytes(1 << 42);
        /// Messages from the control plane queued for a core (`stentor_inbox_messages`).
        inbox_messages_max: usize, in 64..=1_048_576;
        /// Size of the messages from the control plane queued for a core (`stentor_inbox_bytes`).
        inbox_bytes_max: Bytes, in Bytes::mib(1)..=Bytes(1 << 42);
        /// Messages queued from one core to another. Further messages stay with the sender.
        mailbox_messages_max: usize, in 64..=1_048_576;
        /// Size of the messages queued from one core to another. Further messages stay with the sender, and connections
        /// that cause more are not read until there is room.
        mailbox_bytes_max: Bytes, in Bytes::kib(64)..=Bytes(1 << 42);
    }
}

section! {
    /// Limits of the admin port.
    [admin_limits] AdminLimits => (control.admin) {
        /// Open connections.
        connections_max: usize, in 1..=65_536;
        /// Time for the headers of a request.
        header_timeout: Duration, in ms(100)..=HOUR;
        /// Time for a message or document to arrive, and time without progress while a client reads the response.
        body_timeout: Duration, in ms(100)..=HOUR;
        /// Time that a publication waits for a full mailbox. It is then refused with 503.
        busy_timeout: Duration, in s(0)..=HOUR;
    }
}

section! {
    /// Detection of dead clients. Received bytes and progress in sending count as signs of life.
    [heartbeat] Heartbeat => (edge.heartbeat) {
        /// Interval between two pings.
        interval: Duration, in ms(100)..=HOUR;
        /// Time for the answer to a ping. The session then ends.
        timeout: Duration, in ms(100)..=HOUR;
    }
}

section! {
    /// Rooms: publish/subscribe channels.
    [rooms] Rooms => (edge.rooms) {
        /// Whether clients may publish with `stentor.v1`. The admin API always may.
        publish: bool;
        /// Messages kept per room for clients that reconnect. 0: none.
        history_length: usize => history.publications_max, in 0..=1_000_000;
        /// Memory for the history of one room. `stentor_room_history_bytes` has the sum of all rooms.
        history_bytes_max: Bytes => history.bytes_max, in Bytes(0)..=Bytes::mib(1024);
        /// Time that a message stays in the history.
        history_ttl: Duration => history.age_max, in s(1)..=s(7 * 24 * 3600);
    }
}

section! {
    /// Engine.IO at `/engine.io/` and Socket.IO at `/socket.io/`. Heartbeats are those of `[heartbeat]`. A message, and a
    /// polling body, is limited by `limits.message_bytes_max`.
    [socketio] SocketIo => (edge.engine) {
        /// Namespaces besides `/`, for `--app rooms`.
        namespaces: Vec<String> => edge.rooms.namespaces;
        /// Whether clients of Socket.IO 1 and 2 (Engine.IO 3) are accepted.
        allow_version_3: bool;
        /// Name of a cookie with the session id, for load balancers that need one. Empty: no cookie.
        cookie: String;
        /// Whether browsers send the session cookie over HTTPS only (`Secure`).
        cookie_secure: bool;
        /// Sites from which browsers send the session cookie (`SameSite`).
        cookie_same_site: CookieSameSite;
        /// Packets in one polling body.
        packets_max: usize, in 1..=10_000_000;
        /// Binary attachments of one packet. Socket.IO's own limit is 10.
        attachments_max: usize, in 0..=1000;
        /// Namespaces that one client is connected to.
        namespaces_max: usize, in 1..=1000;
        /// Time for the upgrade from polling to WebSocket, from the handshake on.
        upgrade_timeout: Duration, in ms(100)..=HOUR;
        /// Time from the start of a connection to the first CONNECT packet.
        connect_timeout: Duration, in ms(100)..=HOUR;
        /// Maximum disconnection time for connection state recovery. 0: recovery is off.
        recovery_ttl: Duration => recovery.age_max, in s(0)..=HOUR;
        /// Memory for messages kept for disconnected clients, per core (`stentor_socketio_recovery_bytes`). When exceeded,
        /// the oldest are evicted (`stentor_socketio_recovery_evicted_total`); clients that missed them start a new session.
        recovery_bytes_max: Bytes => recovery.bytes_max, in Bytes(0)..=Bytes::mib(65_536);
        /// Sockets of disconnected clients kept for recovery, per core (`stentor_socketio_recovery_sockets`).
        recovery_sockets_max: usize => recovery.sessions_max, in 0..=100_000_000;
        /// Name of the event that carries feed messages.
        feed_event: String;
        /// Whether the event's argument is the document as a string, instead of an object with the document and its
        /// position.
        feed_as_string: bool;
    }
}

section! {
    /// Actions for an event of Socket.IO clients, with `--app rooms`. Write one `[[rules]]` per event; the first rule that
    /// matches applies. A rule joins, leaves, broadcasts, echoes and acknowledges, in this order. A room name is a template:
    /// `{}` is the event's first argument, `{1}` the second, `{name}` a member of the first. In a list of templates, the
    /// first that has a value applies.
    [rules] Rule => (rule) {
        /// Name of the event.
        event: String;
        /// Namespace of the event. Empty: every namespace.
        namespace: String;
        /// Room that the client joins.
        join: Vec<String> = Vec::new() => rule.join;
        /// Room that the client leaves.
        leave: Vec<String> = Vec::new() => rule.leave;
        /// Room that receives the event. `*`: every client in the namespace.
        broadcast: Vec<String> = Vec::new() => rule.broadcast;
        /// Event name of the broadcast. Empty: the same name.
        broadcast_as: String;
        /// Whether the broadcast leaves out the sender.
        except_sender: bool;
        /// Whether the sender receives the event back.
        echo: bool;
        /// Whether the event is acknowledged, with `{"ok":true}` or the error.
        ack: bool;
    }
}

choice! {
    /// Sites from which browsers send a cookie.
    CookieSameSite => stentor_edge::SameSite {
        /// From its own, and with navigation from others.
        Lax = "lax",
        /// From its own only.
        Strict = "strict",
        /// From any. Browsers demand `cookie_secure` for this.
        None = "none",
    }
}

choice! {
    /// The application of a prefix.
    PrefixApp {
        /// The application of `server.app`.
        Same = "same",
        /// Feeds and rooms, with the `stentor.v1` messages of docs/protocol.md.
        Rooms = "rooms",
        /// Returns each message to its sender.
        Echo = "echo",
        /// Sends each message to every client, the sender included.
        Chat = "chat",
    }
}

section! {
    /// A path prefix for SockJS. Write one `[[sockjs]]` per prefix. Without any, SockJS is served at `/sockjs`. The longest
    /// matching prefix applies.
    [sockjs] SockJs => (sockjs) {
        /// The path. It begins with `/` and doesn't end with `/`.
        prefix: String;
        /// The application of this prefix.
        app: PrefixApp;
        /// Whether WebSocket transports are offered.
        websocket: bool;
        /// Whether responses set the cookie `JSESSIONID`, for load balancers that need one.
        jsessionid: bool;
        /// Address of the SockJS client library for the iframe page: a path that the web server in front serves, or a URL.
        /// See docs/fallbacks.md.
        client_url: String;
        /// Size of a streaming response. The client then requests a new one. Browsers hold the whole response in memory.
        response_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024);
        /// Interval between heartbeats on a waiting request.
        heartbeat: Duration, in ms(100)..=HOUR;
        /// Time that a session lives without a receiving request.
        disconnect_delay: Duration, in ms(100)..=HOUR;
        /// Messages in one request body.
        messages_max: usize, in 1..=10_000_000;
    }
}

section! {
    /// Several nodes that share rooms and sessions, over an engine that carries messages between them: docs/cluster.md.
    [cluster] Cluster => (cluster) {
        /// URL of the engine: `redis://[user:password@]host:port[/database]`, or
        /// `redis+sentinel://[user:password@]host:port,host:port/name` or `redis+cluster://[user:password@]host:port,host:port`; `rediss`
        /// for TLS. Or `nats://[user:password@]host:port,host:port`; `tls://` for TLS. Empty: this node is alone. Set it in the environment
        /// if it has a password.
        engine: EngineUrl;
        /// The node's name in the logs and answers of all nodes. Empty: the host name.
        node: String;
        /// A text of at least 16 bytes that all nodes share. Messages that don't prove it are refused, so that whoever else
        /// may write to the engine can't speak for a node. Set it in the environment, not in the file.
        secret: Token;
        /// Address of the internal listener. Other nodes pass requests of polling clients through to it whose sessions are on this
        /// node. Port 0 picks a free port. An address that other machines reach needs `secret`; let no client reach it.
        listen: SocketAddr;
        /// Where other nodes reach `listen`: `host:port`. Empty: the address of `listen`.
        advertise: String;
        /// File with PEM certificates to trust for `rediss://` and `tls://`. Empty: the system's certificates.
        ca_file: String;
        /// File with this node's PEM certificate for `rediss://` and `tls://`, if the engine asks for one, and `key_file` with its key.
        certificate_file: String;
        /// File with the PEM key of `certificate_file`.
        key_file: String;
        /// File with a NATS user's credentials (`.creds`), in place of a user and password in the URL.
        credentials_file: String;
        /// How the names of channels and keys in the engine begin. Clusters on the same engine need different prefixes.
        prefix: String;
        /// Whether the server waits at its start until the engine can be reached. If not, it ends with an error.
        wait: bool;
    }
}

choice! {
    /// How Socket.IO's servers speak to each other.
    Adapter => stentor_cluster::bridge::Adapter {
        /// `createAdapter` of `@socket.io/redis-adapter`, and `@socket.io/redis-emitter`.
        Classic = "classic",
        /// `createShardedAdapter` of `@socket.io/redis-adapter`, with the subscription mode `dynamic`, on one server with Redis 7.
        Sharded = "sharded",
        /// `RedisManager` of `python-socketio`, from 5.14 on.
        Python = "python",
    }
}

section! {
    /// Namespaces that this node shares with Socket.IO's own servers and emitters, over the Redis that they use:
    /// docs/cluster.md, "Sharing rooms with Socket.IO's own servers". Write one `[[cluster.socketio]]` per Redis and adapter. Messages
    /// to these namespaces reach other nodes of Stentor by this Redis as well, not by the engine.
    [cluster.socketio] Bridge => (bridge) {
        /// URL of that Redis: `redis://[user:password@]host:port[/database]`, or `rediss://` for TLS. Empty: the engine in
        /// `[cluster]`.
        url: EngineUrl;
        /// How the names of the channels begin: the option `key` of `createAdapter`, `channelPrefix` of `createShardedAdapter`, or
        /// `channel` of `RedisManager`. Empty: what the packages have by default, `socket.io` or, for Python, `socketio`.
        prefix: String;
        /// The namespaces that are shared, of those that this node has (`socketio.namespaces`). A namespace can be shared twice if one
        /// adapter is `python`.
        namespaces: Vec<String>;
        /// The adapter of the other servers.
        adapter: Adapter;
    }
}

section! {
    /// WebSocket compression (permessage-deflate). It never uses context takeover, so a frame is compressed once for all
    /// clients.
    [deflate] Deflate => (edge.deflate) {
        /// Whether compression is used with clients that offer it.
        enabled: bool;
        /// Compression level: 1 is fastest, 9 is smallest.
        level: usize, in 1..=9;
        /// Messages below this size are not compressed.
        bytes_min: Bytes, in Bytes(0)..=Bytes::mib(1024);
    }
}

section! {
    /// An HTTP API whose documents are feeds. Write one `[[feeds]]` per API. It serves the keys that begin with `prefix`, or
    /// that match the template `key`. docs/feeds.md, "From key to URL", has the order of precedence if several match a
    /// key.
    [feeds] Feed => (upstream) {
        /// Name in logs and metrics: 1 to 64 of `a-z 0-9 - _`.
        name: String;
        /// Prefix of the keys, e.g. `scores/`. The whole key is appended to the path of `url`. If `prefix` and `key` are
        /// empty, the API serves every key.
        prefix: String;
        /// Template of the keys, instead of a prefix, e.g. `matchesfeed/{id}/matchcentre`. A placeholder matches a segment or
        /// a part of one, at least one character. `{rest*}` as the last segment matches all remaining segments.
        key: String;
        /// Whether backends push the documents (`PUT /api/v1/feeds/KEY`). Then only `name`, `prefix` and `key` apply, and there
        /// is no `url`. A client that subscribes before the first document waits for it. Keys without any `[[feeds]]` can be
        /// pushed too, but are `not_found` until then.
        push: bool = false;
        /// URL of the documents: `http://` or `https://`, with an optional path and query. Each placeholder of `key` must
        /// occur in the path or the query, where its value is escaped: `http://api/match/{id}?full=1`.
        url: String;
        /// Time between two fetches of a key. `Cache-Control: max-age` of the response overrides it.
        poll_interval: Duration, in ms(1)..=s(24 * 3600);
        /// Time for one fetch, from its start to the last byte.
        timeout: Duration, in ms(1)..=HOUR;
        /// Time without progress while connecting, before the response headers and within the body.
        read_timeout: Duration, in ms(1)..=HOUR;
        /// Size of one document, as received and after decompression.
        document_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024);
        /// Concurrent fetches. There is never more than one per key.
        concurrency_max: usize, in 1..=10_000;
        /// Fetches started per second, evenly distributed: at most a tenth of them start at once.
        requests_per_second_max: usize, in 1..=1_000_000;
        /// Headers sent with every fetch. `${NAME}` in a value is replaced by the environment variable of that name, as in
        /// `{ Authorization = "Bearer ${API_TOKEN}" }`. Values are never shown or logged.
        headers: Headers;
        /// The content of the documents.
        content: Content;
        /// Whether `Cache-Control` of responses is ignored. If not, `max-age=N` with N above 0 sets the time of the next
        /// fetch.
        ignore_cache_control: bool;
        /// Responses that end a feed, besides status 410. With `"max-age=0"`, a response with `Cache-Control: max-age=0` is
        /// the last version: the feed becomes `complete` and is not fetched again.
        complete_on: Vec<EndSignal> => upstream.complete_on_max_age_zero;
        /// Members that identify the objects of an array, tried in this order before `id` and similar names. They keep
        /// patches small when objects change or move.
        identity: Vec<String>;
    }
}

section! {
    /// Limits and timing of all feeds together.
    [feeds_limits] FeedsLimits => (control.feeds) {
        /// Keys kept.
        keys_max: usize, in 1..=10_000_000;
        /// Size of all kept documents.
        documents_bytes_max: Bytes, in Bytes::kib(64)..=Bytes(1 << 42);
        /// Concurrent fetches of all feeds.
        fetches_max: usize, in 1..=10_000;
        /// Time that a key without subscribers is still fetched and kept.
        idle_ttl: Duration, in s(0)..=s(24 * 3600);
        /// Time until a key with subscribers is fetched again after a 404.
        not_found_retry_interval: Duration, in ms(1)..=s(24 * 3600);
        /// Maximum delay before the first retry of a failed fetch. It doubles with each further failure.
        backoff_initial: Duration, in ms(1)..=s(24 * 3600);
        /// Maximum delay before a retry, whatever `Retry-After` says.
        backoff_max: Duration, in ms(1)..=s(24 * 3600);
        /// Maximum value taken from `Cache-Control: max-age`.
        max_age_max: Duration, in s(1)..=s(365 * 24 * 3600);
        /// Keys with pushed documents (`PUT /api/v1/feeds/KEY`).
        pushed_keys_max: usize, in 1..=10_000_000;
        /// Size of all pushed documents. For a new document, documents without subscribers are evicted, the least recently
        /// used first. If that isn't enough, the new document is refused.
        pushed_documents_bytes_max: Bytes, in Bytes(0)..=Bytes(1 << 42);
        /// Size of one pushed document, as received and after decompression.
        pushed_document_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024);
        /// File with PEM certificates to trust for `https://`. Empty: the system's certificates.
        ca_file: String;
    }
}

fields! {
    PrefixApp => Option<stentor_edge::App>:
        app -> match app {
            PrefixApp::Same => None,
            PrefixApp::Rooms => Some(stentor_edge::App::Rooms),
            PrefixApp::Echo => Some(stentor_edge::App::Echo),
            PrefixApp::Chat => Some(stentor_edge::App::Chat),
        },
        app -> match app {
            None => PrefixApp::Same,
            Some(stentor_edge::App::Rooms) => PrefixApp::Rooms,
            Some(stentor_edge::App::Echo) => PrefixApp::Echo,
            Some(stentor_edge::App::Chat) => PrefixApp::Chat,
        };
    Vec<EndSignal> => bool: signals -> signals.contains(&EndSignal::MaxAgeZero),
        ends -> ends.then_some(EndSignal::MaxAgeZero).into_iter().collect();
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
