//! Several nodes, and servers of Socket.IO.

use super::{HOUR, s};
use crate::config::section::section;
use crate::config::setting::choice;
use crate::config::value::{EngineUrl, Token};
use std::net::SocketAddr;
use std::time::Duration;

section! {
    /// A cluster: several nodes that share rooms and sessions, over an engine that carries messages between
    /// them: docs/cluster.md.
    [cluster] Cluster => (cluster) {
        /// URL of the engine: `redis://[user:password@]host:port[/database]`, or
        /// `redis+sentinel://[user:password@]host:port,host:port/name` or `redis+cluster://[user:password@]host:port,host:port`; `rediss`
        /// for TLS. Or `nats://[user:password@]host:port,host:port`; `tls://` for TLS. Empty: this node is alone. Set it in the environment
        /// if it has a password.
        engine: EngineUrl, [restart];
        /// The node's name in the logs and answers of all nodes. Empty: the host name.
        node: String, [restart];
        /// A secret of at least 16 bytes that all nodes share. Messages without a valid signature are
        /// refused, so that other users of the engine can't impersonate a node. Set it in the environment,
        /// not in the file.
        secret: Token, [restart];
        /// Address of the internal listener. Other nodes relay to it the requests of polling clients whose
        /// sessions are on this node. Port 0 picks a free port. An address that other machines can reach
        /// requires `secret`. Clients must not be able to reach it.
        listen: SocketAddr, [restart];
        /// Address at which other nodes reach `listen`: `host:port`. Empty: the address of `listen`.
        advertise: String, [restart];
        /// File with PEM certificates to trust for `rediss://` and `tls://`. Empty: the system's certificates.
        ca_file: String, [restart];
        /// File with this node's PEM certificate for `rediss://` and `tls://`, if the engine asks for one, and `key_file` with its key.
        certificate_file: String, [restart];
        /// File with the PEM key of `certificate_file`.
        key_file: String, [restart];
        /// File with a NATS user's credentials (`.creds`), in place of a user and password in the URL.
        credentials_file: String, [restart];
        /// Prefix of the names of channels and keys in the engine. Clusters on the same engine need different
        /// prefixes.
        prefix: String, [restart];
        /// Whether the server waits at its start until the engine can be reached. If not, it ends with an error.
        wait: bool, [restart];
        /// Time without the engine after which `/readyz` answers 503: if another node has its engine, or no other node can be reached.
        /// 0: it never does.
        unready_after: Duration, in s(0)..=HOUR, [restart];
        /// Rooms with history in the engine because clients of this node published to them, and without subscribers on this node. An
        /// address takes at most half. Messages to further rooms are refused with `too_many_topics`.
        vacant_rooms_max: usize, in 1..=10_000_000, [restart];
    }
}

choice! {
    /// The adapter with which Socket.IO's servers communicate.
    Adapter => stentor_cluster_settings::Adapter {
        /// `createAdapter` of `@socket.io/redis-adapter`, and `@socket.io/redis-emitter`.
        Classic = "classic",
        /// `createShardedAdapter` of `@socket.io/redis-adapter`, with Redis 7.
        Sharded = "sharded",
        /// `RedisManager` of `python-socketio`, from 5.14 on.
        Python = "python",
    }
}

choice! {
    /// The option `subscriptionMode` of `createShardedAdapter`.
    SubscriptionMode => stentor_cluster_settings::SubscriptionMode {
        /// One channel per namespace.
        Static = "static",
        /// One channel per namespace and per room.
        Dynamic = "dynamic",
        /// One channel per namespace, per room and per client.
        DynamicPrivate = "dynamic-private",
    }
}

choice! {
    /// The option `parser` of `createAdapter` and of emitters.
    ClassicParser => stentor_cluster_settings::ClassicParser {
        /// The packages' default.
        MessagePack = "msgpack",
        /// `JSON.stringify` and `JSON.parse`.
        Json = "json",
    }
}

section! {
    /// Namespaces that this node shares with Socket.IO's own servers and emitters, over the Redis that they use:
    /// docs/cluster.md, "Sharing rooms with Socket.IO's own servers". Write one `[[cluster.socketio]]` per Redis and adapter. Messages
    /// to these namespaces reach other nodes of Stentor by this Redis as well, not by the engine.
    [cluster.socketio] Bridge => (bridge) {
        /// URL of that Redis, in a form that `engine` in `[cluster]` has for Redis. Empty: that engine.
        url: EngineUrl, [restart];
        /// Prefix of the channels' names: the option `key` of `createAdapter`, `channelPrefix` of
        /// `createShardedAdapter`, or `channel` of `RedisManager`. Empty: the packages' default, `socket.io`
        /// or, for Python, `socketio`.
        prefix: String, [restart];
        /// The namespaces that are shared, of those that this node has (`socketio.namespaces`). A namespace can be shared twice if one
        /// adapter is `python`.
        namespaces: Vec<String>, [restart];
        /// The adapter of the other servers.
        adapter: Adapter, [restart];
        /// With `sharded`: which rooms have channels of their own, the option `subscriptionMode` of `createShardedAdapter`. Set what the
        /// other servers have.
        subscription_mode: SubscriptionMode => bridge.mode, [restart];
        /// With `classic`: the encoding of messages, the option `parser` of `createAdapter`. `json` has no
        /// binary data. Messages of both encodings are read.
        parser: ClassicParser, [restart];
    }
}
