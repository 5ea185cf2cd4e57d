//! From the configuration to the options of the planes, and from these to a running server.
//!
//! The only module that knows both sides. The structs here are what this side expects of the planes; they
//! are replaced by the planes' own `Options` as these arrive, field by field, and nothing else changes.

#![expect(dead_code, reason = "the planes read these fields as soon as they are joined in `launch`")]

use crate::config::Config;
use crate::config::schema::{App, Driver, Feed};
use bytes::Bytes;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::DataPlane;

/// A route of the public port that always answers the same.
#[derive(Clone, Debug)]
pub(crate) struct StaticRoute {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

/// What the data plane needs to know.
#[derive(Clone, Debug)]
pub(crate) struct EdgeOptions {
    pub(crate) listen: SocketAddr,
    /// At least 1.
    pub(crate) cores: usize,
    pub(crate) driver: Driver,
    pub(crate) app: App,
    /// Lower case, without a path.
    pub(crate) origins_allowed: Vec<String>,
    pub(crate) limits: EdgeLimits,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) heartbeat_timeout: Duration,
    pub(crate) clients_publish: bool,
    pub(crate) room_history: Option<HistoryOptions>,
    pub(crate) deflate: Option<DeflateOptions>,
    pub(crate) routes: Vec<StaticRoute>,
}

/// What a client, a session or the whole data plane may use.
#[derive(Clone, Debug)]
pub(crate) struct EdgeLimits {
    pub(crate) message_bytes_max: usize,
    pub(crate) fragments_max: usize,
    pub(crate) message_time_max: Duration,
    pub(crate) head_bytes_max: usize,
    pub(crate) headers_max: usize,
    pub(crate) head_time_max: Duration,
    pub(crate) body_bytes_max: usize,
    pub(crate) idle_time_max: Duration,
    pub(crate) close_time_max: Duration,
    pub(crate) outbox_bytes_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) subscriptions_max: usize,
    pub(crate) topics_max: usize,
    pub(crate) memory_bytes_max: usize,
    pub(crate) mailbox_messages_max: usize,
}

/// What every room keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryOptions {
    pub(crate) publications_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) age_max: Duration,
}

/// How messages are compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeflateOptions {
    /// 1 to 9.
    pub(crate) level: u32,
    pub(crate) bytes_min: usize,
}

/// What the control plane needs to know.
#[derive(Clone, Debug)]
pub(crate) struct ControlOptions {
    pub(crate) admin: SocketAddr,
    pub(crate) admin_token: Option<String>,
    pub(crate) message_bytes_max: usize,
    pub(crate) feeds: Vec<FeedOptions>,
    pub(crate) keys_max: usize,
    pub(crate) documents_bytes_max: usize,
    pub(crate) linger: Duration,
    pub(crate) backoff_max: Duration,
}

/// One upstream.
#[derive(Clone, Debug)]
pub(crate) struct FeedOptions {
    pub(crate) name: String,
    /// The longest one that a key begins with wins.
    pub(crate) prefix: String,
    /// The whole key is appended to its path.
    pub(crate) url: String,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) document_bytes_max: usize,
    pub(crate) concurrency_max: usize,
    pub(crate) headers: Vec<(String, String)>,
}

/// The data plane's options.
pub(crate) fn edge_options(config: &Config, routes: Vec<StaticRoute>) -> EdgeOptions {
    let Config { server, origins, limits, heartbeat, rooms, deflate, .. } = config;
    EdgeOptions {
        listen: server.listen,
        cores: cores(server.cores),
        driver: server.driver,
        app: server.app,
        origins_allowed: origins.allow.iter().map(|origin| origin.as_str().into()).collect(),
        limits: EdgeLimits {
            message_bytes_max: limits.message_bytes_max.0,
            fragments_max: limits.fragments_max,
            message_time_max: limits.message_time_max,
            head_bytes_max: limits.head_bytes_max.0,
            headers_max: limits.headers_max,
            head_time_max: limits.head_time_max,
            body_bytes_max: limits.body_bytes_max.0,
            idle_time_max: limits.idle_time_max,
            close_time_max: limits.close_time_max,
            outbox_bytes_max: limits.outbox_bytes_max.0,
            connections_max: limits.connections_max,
            subscriptions_max: limits.subscriptions_max,
            topics_max: limits.topics_max,
            memory_bytes_max: limits.memory_bytes_max.0,
            mailbox_messages_max: limits.mailbox_messages_max,
        },
        heartbeat_interval: heartbeat.interval,
        heartbeat_timeout: heartbeat.timeout,
        clients_publish: rooms.publish,
        room_history: (rooms.history_length > 0).then_some(HistoryOptions {
            publications_max: rooms.history_length,
            bytes_max: rooms.history_bytes_max.0,
            age_max: rooms.history_time_max,
        }),
        deflate: deflate.enabled.then(|| DeflateOptions {
            level: u32::try_from(deflate.level).unwrap_or(9),
            bytes_min: deflate.bytes_min.0,
        }),
        routes,
    }
}

/// Threads of the data plane: as configured, or one for each core that this process may use.
pub(crate) fn cores(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(256),
        n => n,
    }
}

/// The control plane's options.
pub(crate) fn control_options(config: &Config) -> ControlOptions {
    let Config { server, limits, feeds, feeds_limits, .. } = config;
    ControlOptions {
        admin: server.admin,
        admin_token: server.admin_token.0.as_ref().map(|token| token.reveal().into()),
        message_bytes_max: limits.message_bytes_max.0,
        feeds: feeds.iter().map(feed_options).collect(),
        keys_max: feeds_limits.keys_max,
        documents_bytes_max: feeds_limits.documents_bytes_max.0,
        linger: feeds_limits.linger,
        backoff_max: feeds_limits.backoff_max,
    }
}

fn feed_options(feed: &Feed) -> FeedOptions {
    FeedOptions {
        name: feed.name.clone(),
        prefix: feed.prefix.clone(),
        url: feed.url.clone(),
        interval: feed.interval,
        timeout: feed.timeout,
        document_bytes_max: feed.document_bytes_max.0,
        concurrency_max: feed.concurrency_max,
        headers: feed.headers.0.iter().map(|(name, value)| (name.clone(), value.reveal().into())).collect(),
    }
}

/// A server that listens.
pub(crate) struct Launched {
    /// Where clients connect.
    pub(crate) listen: SocketAddr,
    /// Where the admin API is.
    pub(crate) admin: SocketAddr,
    /// The driver that runs, and why it isn't a better one.
    pub(crate) driver: String,
    pub(crate) plane: Arc<dyn DataPlane>,
    /// Completes when the data plane has ended.
    pub(crate) ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Why a server doesn't start.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The kernel doesn't let it listen there.
    Listen { flag: &'static str, addr: SocketAddr, error: io::Error },
    /// This build has no data plane.
    NoDataPlane,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Listen { flag, addr, error } = self else {
            return f.write_str("this build has no data plane yet");
        };
        write!(f, "{flag} {addr}: ")?;
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                write!(f, "address in use; choose another with {flag} or stop the other process")
            }
            io::ErrorKind::PermissionDenied => write!(
                f,
                "permission denied; ports below 1024 need CAP_NET_BIND_SERVICE, or choose another with {flag}"
            ),
            io::ErrorKind::AddrNotAvailable => {
                write!(f, "this machine has no such address; choose another with {flag}")
            }
            _ => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LaunchError {}

/// Starts both planes; returns when they listen.
pub(crate) async fn launch(_edge: EdgeOptions, _control: ControlOptions) -> Result<Launched, LaunchError> {
    Err(LaunchError::NoDataPlane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_flag() {
        fn check(flag: &'static str, addr: &str, kind: io::ErrorKind, expect: &str) {
            let error = LaunchError::Listen { flag, addr: addr.parse().unwrap(), error: kind.into() };
            assert_eq!(error.to_string(), expect);
        }
        check(
            "--listen",
            "127.0.0.1:8000",
            io::ErrorKind::AddrInUse,
            "--listen 127.0.0.1:8000: address in use; choose another with --listen or stop the other process",
        );
        check(
            "--admin",
            "[::1]:80",
            io::ErrorKind::PermissionDenied,
            "--admin [::1]:80: permission denied; ports below 1024 need CAP_NET_BIND_SERVICE, or choose another \
             with --admin",
        );
        check(
            "--listen",
            "10.9.8.7:80",
            io::ErrorKind::AddrNotAvailable,
            "--listen 10.9.8.7:80: this machine has no such address; choose another with --listen",
        );
    }

    #[test]
    fn the_configuration_reaches_the_options() {
        let mut config = Config::default();
        assert!(edge_options(&config, Vec::new()).cores >= 1);
        assert!(edge_options(&config, Vec::new()).room_history.is_none());
        assert_eq!(edge_options(&config, Vec::new()).deflate.map(|d| d.bytes_min), Some(512));
        config.server.cores = 3;
        config.rooms.history_length = 10;
        config.deflate.enabled = false;
        config.feeds.push(Feed { url: "http://a/b/".into(), ..Feed::default() });
        let edge = edge_options(&config, Vec::new());
        assert_eq!(edge.cores, 3);
        assert_eq!(edge.room_history.map(|h| h.publications_max), Some(10));
        assert!(edge.deflate.is_none());
        assert_eq!(control_options(&config).feeds[0].url, "http://a/b/");
    }
}
