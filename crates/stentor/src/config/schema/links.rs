//! Keys of `[[links]]`.

use super::{HOUR, ms, s};
use crate::config::section::section;
use crate::config::setting::choice;
use crate::config::value::{Bytes, SecretText};
use std::time::Duration;

choice! {
    /// The fate of messages that a crashed worker hasn't acknowledged.
    OnCrash => stentor_link::OnCrash {
        /// The sessions that have sent them are closed, as when a server crashes.
        Disconnect = "disconnect",
        /// Another worker receives them: each is handled at least once.
        Redeliver = "redeliver",
        /// They are dropped: each is handled at most once.
        Drop = "drop",
    }
}

section! {
    /// An application whose own Socket.IO server code runs in workers, which connect to the admin port: `clients/socketio-server/README.md`.
    /// Write one `[[links]]` per application.
    [links] Link => (link) {
        /// Name by which workers choose the application: 1 to 64 of `a-z 0-9 - _`.
        app: String, [restart];
        /// Path of the application's clients, whatever path its workers have. It begins and ends with `/`. The longest matching path
        /// applies, before those of `[socketio]`. Empty: the option `path` of the workers' `Server`, which is `/socket.io/` by default.
        path: String, [restart];
        /// Token that workers send, at least 16 bytes. They may send `server.admin_token` instead. `${NAME}` is replaced by the environment
        /// variable of that name, `${file:/path}` by the content of a file. Empty: `server.admin_token` only, if there is one.
        token: SecretText, [restart];
        /// Time that a session or a client's request waits for a worker. The session is then closed, the request refused with 503
        /// (`stentor_link_sessions_lost_total`, `stentor_link_requests_refused_total`).
        grace: Duration => link.application.grace, in s(0)..=HOUR, [restart];
        /// Time that a worker may take to restore a broken connection. After it, the worker's sessions go to other workers.
        rejoin: Duration => link.application.link.rejoin, in ms(0)..=s(60), [restart];
        /// Time without a sign of life after which a worker has crashed. New sessions go to other workers after 250 ms already. A session that
        /// moves is taken from a worker that doesn't give it back in this time, and so are all sessions of a worker that leaves
        /// (`stentor_link_ends_total{end="overdue"}`).
        worker_timeout: Duration => link.application.link.worker_timeout, in ms(100)..=HOUR, [restart];
        /// Connected workers. Further ones are refused with `too_many_workers` (`stentor_link_workers_refused_total`).
        workers_max: usize => link.application.workers_max, in 1..=1_000, [restart];
        /// Clients' requests that wait for a worker or its answer (`stentor_link_requests`). Further ones are refused with 503.
        requests_max: usize => link.application.requests_max, in 1..=1_000_000, [restart];
        /// Size of a client's messages that wait for its worker (`stentor_link_queued_bytes`). The server then stops reading from the client.
        queue_bytes_max: Bytes, in Bytes(0)..=Bytes::mib(1024), [restart];
        /// Size of all clients' messages that wait for the application's workers. Above it, the server stops reading from each client that
        /// has any waiting.
        total_queue_bytes_max: Bytes => link.application.total_queue_bytes, in Bytes(0)..=Bytes::mib(65_536), [restart];
        /// Bytes that a worker may leave unacknowledged before clients' messages wait (`stentor_link_unacknowledged_bytes`).
        window_bytes: Bytes => link.application.link.window_bytes, in Bytes::kib(1)..=Bytes::mib(4), [restart];
        /// Whether requests for paths that aren't the server's go to the HTTP servers of the workers, so that an application has one address.
        /// At most one `[[links]]` may have it.
        http: bool, [restart];
        /// Connections whose request is passed on to a worker's HTTP server (`stentor_link_http_connections`). Further requests are answered
        /// with 503 (`stentor_link_http_connections_refused_total`). A client address has at most a quarter of them.
        http_connections_max: usize, in 1..=1_000_000, [restart];
        /// Memory for broadcasts and sockets of disconnected clients, with the option `connectionStateRecovery` of the application
        /// (`stentor_link_recovery_bytes`). When exceeded, the oldest are evicted (`stentor_link_recovery_evicted_total`); clients that need
        /// them start a new session. A client that missed more than half of `limits.send_buffer_bytes_max` does so as well.
        recovery_bytes_max: Bytes => link.recovery.bytes_max, in Bytes(0)..=Bytes::mib(65_536), [restart];
        /// The fate of messages that a crashed worker hasn't acknowledged, if the worker chooses none itself.
        on_crash: OnCrash => link.application.on_crash, [restart];
    }
}
