//! The process: addresses, logging, limits.

use super::{HOUR, ProxyProtocol, ms, s};
use crate::config::section::section;
use crate::config::setting::choice;
use crate::config::value::{Bytes, Origin, Token};
use std::net::SocketAddr;
use std::time::Duration;

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
        /// The address for clients. Port 0 picks a free port. It uses TLS if there is a `[[tls]]`.
        listen: SocketAddr, [restart];
        /// Whether each connection to `listen` begins with a header of the PROXY protocol, in which a proxy
        /// states the client's address: docs/limits.md.
        proxy_protocol: ProxyProtocol, [restart];
        /// File with at least 32 secret bytes, from which the keys of TLS session tickets follow. Nodes behind one load balancer need
        /// the same file, so that clients can resume their TLS sessions at any of them. Empty: a random secret, until the server ends.
        tls_ticket_secret_file: String => tls.ticket_secret_file;
        /// Accepted host names, such as `example.com`; with a port, only that port. A request for another host is
        /// answered with 421, which stops DNS rebinding. A trusted proxy may state the host (`proxies.header`). `/healthz` and `/readyz` are always answered. Empty: any
        /// name.
        hosts: Vec<String> = Vec::new() => edge.hosts;
        /// The prefix of all paths on the port for clients, such as `/rt`, for proxies that keep it: `/rt/ws`, `/rt/socket.io/`. Bytes are
        /// compared; other paths are answered with 404, but `/healthz` and `/readyz` also without the prefix. Cookies are limited to
        /// it. `/stentor.js` connects to the prefix in its own address. Empty: none.
        base_path: String => edge.base_path, [restart];
        /// The address of the admin API: publishing, pushing, `/metrics`, `/api/v1/status`. An address beyond loopback
        /// requires `admin_token`.
        admin: SocketAddr => control.admin.listen, [restart];
        /// The token that requests to the admin port must send as `Authorization: Bearer TOKEN`; at least 16 bytes. Set it
        /// in the environment, not in the file.
        admin_token: Token => control.admin.token;
        /// Further host names accepted in the `Host` header of the admin port. Loopback and the address itself are
        /// always accepted.
        admin_hosts: Vec<String> => control.admin.hosts;
        /// Path of a Unix socket through which a new process takes over the listening sockets of the running
        /// one, which then drains: docs/deploys.md, "Takeover". Only processes of the same user may connect.
        /// Empty: none.
        takeover_socket: String = String::new(), [restart];
        /// Threads of the data plane. 0: one per core of the machine.
        cores: usize, in 0..=256, [restart];
        /// The kernel interface of the data plane.
        driver: Driver => driver, [restart];
        /// The application that handles clients' messages.
        app: App, [restart];
        /// The format of log lines. They are written to standard error.
        log: LogFormat = LogFormat::Text, [restart];
        /// The least severe level that is logged.
        log_level: LogLevel = LogLevel::Info;
        /// Whether each request of a client is logged when it is answered: docs/operate.md, "Access log". A WebSocket, or an SSE
        /// stream, is logged when it ends.
        access_log: bool, [restart];
        /// Time after SIGTERM in which the server still accepts clients, while `/readyz` answers 503, so that load balancers
        /// stop choosing it.
        drain_delay: Duration = s(0), in s(0)..=HOUR;
        /// Time after `drain_delay` over which the server ends its sessions evenly, so that their clients don't reconnect all
        /// at once. New sessions are refused with 503. It ends early if no session is left. After SIGINT there is no delay and
        /// no window.
        drain_window: Duration = s(5), in s(0)..=HOUR;
        /// Time after `drain_window` for pending requests, and for responses to be sent. Remaining
        /// connections are then closed.
        shutdown_timeout: Duration = s(10), in s(0)..=HOUR;
    }
}

section! {
    /// Origins of web pages that may connect, over every protocol.
    [origins] Origins => (edge) {
        /// Allowed origins besides the server's own: `https://example.com`, `https://*.example.com` for every
        /// subdomain, `app://`, `capacitor://localhost` or `file://` for pages of applications, `null` for pages without an
        /// origin (any sandboxed frame of any site has this one), `*` for any. Requests without an `Origin` header, which
        /// do not come from browsers, are accepted.
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
        /// Size of one message from a client, before and after decompression, of one published message, and of the body of
        /// `POST /sse`.
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
        /// Time from the start of a connection to the end of its TLS handshake. The connection is then closed
        /// (`stentor_tls_handshake_failures_total`, reason `timeout`). `header_timeout` follows.
        tls_handshake_timeout: Duration, in ms(100)..=HOUR, [restart];
        /// Unfinished TLS handshakes per core. At the limit, the oldest one is closed for a new one (reason `evicted`).
        tls_handshakes_max: usize, in 1..=1_000_000, [restart];
        /// Size of a request body on routes that need none. It is read and ignored.
        body_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024);
        /// Time between two requests on an HTTP connection. The connection is then closed.
        idle_timeout: Duration, in ms(100)..=HOUR;
        /// Time that a request waits for a document or an application's answer. It is then answered with 504.
        request_timeout: Duration, in ms(100)..=HOUR;
        /// Time that a message waits for the confirmation of the cluster's other nodes, or a client for a
        /// decision about its request. It is then refused with `unavailable`.
        decision_timeout: Duration, in ms(100)..=HOUR;
        /// Pending decisions per core (`decision_timeout`). Above this number, the last one of the address
        /// with the most is refused with `unavailable`.
        decisions_max: usize, in 1..=1_000_000;
        /// Clients' publications with an idempotency key within five minutes. Above this number, publications with a key
        /// are refused with `overloaded`. So are those of a user, or of an anonymous client's address, that has as many keys as
        /// there are free: at most half of them.
        idempotency_keys_max: usize, in 1..=100_000_000;
        /// Time to close a connection. It is then reset.
        close_timeout: Duration, in ms(100)..=s(60);
        /// Encoded bytes queued for a session, for the policies `queue` and `drop_oldest`. Above it, `queue`
        /// ends the session and `drop_oldest` drops messages.
        send_buffer_bytes_max: Bytes, in Bytes::kib(1)..=Bytes::mib(1024);
        /// Answers queued for a client that doesn't read them. Above it, the server stops reading from the
        /// client.
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
        /// `too_many_cold_keys` (429 over HTTP). 0: no limit beside `subscriptions_max`; they wait for their turn.
        cold_keys_max: usize => control.feeds.cold_keys_max, in 0..=1_000_000;
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
        /// New connections of the process per second, and at once. Further ones are answered with 429. 0: any number; switching
        /// the limit on or off needs a restart.
        connections_per_second: usize, in 0..=10_000_000;
        /// Connections that are passed through to other nodes of a cluster. Further requests that belong there are answered with
        /// 503. Each takes two file descriptors: there are at most one sixteenth as many as file descriptors.
        relayed_connections_max: usize, in 1..=100_000_000;
        /// Memory held for clients: unfinished input, answers, messages, history, documents, rooms, sessions
        /// and connections (`stentor_memory_bytes`, by class). Above 95 %, the server refuses new
        /// connections, new topics and inputs larger than 16 KiB, evicts history, and ends the disconnected
        /// Socket.IO sockets that hold the most. Above 100 %, or after 2 s above 95 %, it ends the sessions
        /// that hold the most, until at most 90 % are in use.
        memory_bytes_max: Bytes, in Bytes::mib(1)..=Bytes(1 << 42);
        /// Messages from the control plane queued for a core (`stentor_inbox_messages`).
        inbox_messages_max: usize, in 64..=1_048_576, [restart];
        /// Size of the messages from the control plane queued for a core (`stentor_inbox_bytes`).
        inbox_bytes_max: Bytes, in Bytes::mib(1)..=Bytes(1 << 42), [restart];
        /// Messages queued from one core to another. Further messages stay with the sender.
        mailbox_messages_max: usize, in 64..=1_048_576, [restart];
        /// Size of the messages queued from one core to another. Further messages stay with the sender, and connections
        /// that cause more are not read until there is room.
        mailbox_bytes_max: Bytes, in Bytes::kib(64)..=Bytes(1 << 42);
    }
}

section! {
    /// Limits of the admin port.
    [admin_limits] AdminLimits => (control.admin) {
        /// Open connections.
        connections_max: usize, in 1..=65_536, [restart];
        /// Time for the headers of a request.
        header_timeout: Duration, in ms(100)..=HOUR;
        /// Time for a message or document to arrive, and time without progress while a client reads the response.
        body_timeout: Duration, in ms(100)..=HOUR;
        /// Time that a publication waits for a full mailbox. It is then refused with 503.
        busy_timeout: Duration, in s(0)..=HOUR, [restart];
        /// Acknowledgements that one `POST /api/v1/emit` with `ack` gathers. Others count as missing.
        acknowledgements_max: usize, in 1..=1_000_000;
        /// Size of these acknowledgements. Others count as missing.
        acknowledgements_bytes_max: Bytes, in Bytes::kib(1)..=Bytes::mib(1024);
    }
}

section! {
    /// Detection of dead clients. Received bytes and progress in sending count as signs of life.
    [heartbeat] Heartbeat => (edge.heartbeat) {
        /// Interval between two pings.
        interval: Duration, in ms(100)..=HOUR, [restart];
        /// Time for the answer to a ping. The session then ends.
        timeout: Duration, in ms(100)..=HOUR, [restart];
    }
}

section! {
    /// WebSocket compression (permessage-deflate). The server never takes its context over, so a frame is compressed once for
    /// all clients.
    [deflate] Deflate => (edge.deflate) {
        /// Whether compression is used with clients that offer it.
        enabled: bool, [restart];
        /// Compression level: 1 is fastest, 9 is smallest.
        level: usize, in 1..=9, [restart];
        /// Messages below this size are not compressed.
        bytes_min: Bytes, in Bytes(0)..=Bytes::mib(1024), [restart];
    }
}
