//! Describes the effects of `[cluster]` for clients.

use crate::config::Config;
use crate::config::options::{BridgeOptions, ClusterOptions, Options};
use stentor_cluster_settings::{Adapter, Address, CONTENT_BYTES_MAX, Kind};

/// Maximum number of missed messages of a room with which a client can resume on NATS (docs/cluster.md,
/// "NATS").
const NATS_HISTORY_MAX: usize = 4_096;

/// Returns sentences about the effects. Empty for a single node.
pub(super) fn guarantees(config: &Config) -> Vec<String> {
    let Options { edge, cluster, .. } = config.options();
    let mut sentences =
        cluster.engine.as_ref().map_or(Vec::new(), |engine| engine_guarantees(engine, &edge, &cluster));
    for BridgeOptions { url, namespaces, adapter, .. } in &cluster.bridges {
        let Some(redis) = url.as_ref().or(cluster.engine.as_ref()) else { continue };
        sentences.push(format!(
            "{} shared over {redis}, with Socket.IO's servers and between nodes. Messages reach other servers at most once, and none while \
             this Redis is away. Whoever can write to it can send messages to clients.",
            match &namespaces[..] {
                [only] => format!("The namespace {only} is"),
                several => format!("The namespaces {} are", several.join(", ")),
            }
        ));
        if redis.is_redis_cluster() {
            sentences.push(match adapter {
                Adapter::Sharded => {
                    "Each of their channels belongs to one primary of the Redis Cluster. While that is away, messages of the channel don't \
                     reach other servers. Messages of several channels, such as rooms, may overtake each other."
                }
                Adapter::Classic | Adapter::Python => {
                    "The Redis Cluster forwards their messages to all of its nodes: more nodes don't carry more messages. Messages may be lost \
                     while one is away."
                }
            }
            .into());
        }
        if edge.engine.recovery.is_some() {
            sentences.push("Socket.IO clients recover their sessions in shared namespaces on the node that served them only.".into());
        }
    }
    sentences
}

fn engine_guarantees(
    engine: &Address,
    edge: &stentor_edge::Options,
    cluster: &ClusterOptions,
) -> Vec<String> {
    let mut sentences = vec![servers(engine)];
    if let Some(hosts) = unencrypted(engine) {
        sentences.push(format!(
            "The connection to {hosts} isn't encrypted. Use {} to encrypt it.",
            with_tls(engine)
        ));
    }
    sentences.push(match cluster.secret {
        Some(_) => "Messages and commands of nodes without the secret are refused.".into(),
        None => "The file has no secret. Unless STENTOR_CLUSTER_SECRET is set, whoever can write to the engine can send messages \
                 to clients, and commands to nodes."
            .into(),
    });
    sentences.push(match cluster.wait {
        true => "While the engine is away, the node doesn't listen at its start, but waits.".into(),
        false => "If the engine is away, the node doesn't start. Set wait to let it wait.".into(),
    });
    sentences.push(
        "While the engine is away later, clients of one node still receive each other's messages.".into(),
    );
    let kept = edge.rooms.history.iter().map(|(_, limits)| limits.publications_max).max().unwrap_or(0);
    sentences.extend(history(engine.kind(), kept));
    if edge.limits.message_bytes_max > CONTENT_BYTES_MAX {
        sentences.push(format!(
            "Messages of more than {} MiB reach clients of their own node only.",
            CONTENT_BYTES_MAX >> 20
        ));
    }
    sentences.push(match edge.engine.recovery {
        Some(_) => {
            "Socket.IO clients recover their sessions on any node, while the node that served them is alive."
                .into()
        }
        None => {
            "Socket.IO clients start a new session when they reconnect (recovery_ttl in [socketio] is 0)."
                .into()
        }
    });
    if cluster.listen.ip().is_loopback() && is_remote(engine) {
        sentences.push(format!(
            "Other machines can't pass requests of polling clients on to this node, because it listens for them at {}: set listen in \
             [cluster], or let the load balancer send a client's requests to one node.",
            cluster.listen
        ));
    }
    sentences
}

fn servers(engine: &Address) -> String {
    let what = match (engine.kind(), engine.scheme().split_once('+')) {
        (Kind::Redis, None) => "one Redis server",
        (Kind::Redis, Some((_, "sentinel"))) => "the Redis server that Sentinels name",
        (Kind::Redis, Some(_)) => "a Redis Cluster",
        (Kind::Nats, _) => "NATS",
    };
    format!("Nodes share rooms, feeds and sessions over {what}, {engine}.")
}

fn with_tls(engine: &Address) -> String {
    match engine.kind() {
        Kind::Redis => format!("{}://", engine.scheme().replacen("redis", "rediss", 1)),
        Kind::Nats => "tls://".into(),
    }
}

fn is_local(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name == "localhost" || name == "[::1]" || name.starts_with("127.")
}

/// Returns `true` if the engine is on another machine, so that other nodes may be on other machines too.
fn is_remote(engine: &Address) -> bool {
    engine.hosts().any(|host| !is_local(host))
}

/// Returns the engine's hosts on other machines to which the connection has no TLS.
fn unencrypted(engine: &Address) -> Option<String> {
    let is_encrypted = engine.scheme().starts_with("rediss") || engine.scheme() == "tls";
    let hosts: Vec<_> = engine.hosts().filter(|host| !is_local(host) && !is_encrypted).collect();
    (!hosts.is_empty()).then(|| hosts.join(" and "))
}

fn history(kind: Kind, kept: usize) -> Vec<String> {
    if kept == 0 {
        return vec![
            "Rooms keep no history: a client misses what is published while it, or its node, is disconnected.".into(),
        ];
    }
    let mut sentences = vec![
        format!("Rooms keep {kept} messages in the engine, in one order for all nodes. Publishing to them needs the engine."),
        match kind {
            Kind::Redis => {
                "`ok` means that the primary has a message. A restart without persistence, or a failover, may lose the newest ones. Each \
                 restart and failover begins a new epoch, and clients that resume receive `history_expired`."
            }
            Kind::Nats => {
                "`ok` means that a majority of the servers has a message, not that it is on their disks. Each restart of a single server \
                 begins a new epoch, and clients that resume receive `history_expired`."
            }
        }
        .into(),
    ];
    if kind == Kind::Nats && kept > NATS_HISTORY_MAX {
        sentences.push(format!("On NATS, clients resume over at most {NATS_HISTORY_MAX} of them."));
    }
    sentences
}
