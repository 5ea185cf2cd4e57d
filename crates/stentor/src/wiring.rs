//! From the configuration to the options of the planes, and from these to a running server.
//!
//! The only module that knows both sides. Both planes begin here: the data plane first, because the control
//! plane holds its handle; the [`Signals`] before either, because both know them.

use crate::config::Config;
use crate::config::schema::{
    App, Content, CookieSameSite, Driver, EndSignal, Feed, Heartbeat, PrefixApp, Rule, SockJs, SocketIo,
};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stentor_control::{
    AdminOptions, Control, FeedsOptions, ProcessCounter, PushedKeys, Signals, UpstreamOptions,
};
use stentor_edge::{
    CoreFailed, DataPlane, DriverChoice, Hosts, Node, Origins, PatternError, StartError, Started,
    StaticRoute, Template,
};
use stentor_hub::HistoryLimits;

/// Time for requests to the admin port that are under way when the data plane has ended.
const ADMIN_SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// The data plane's options.
///
/// # Errors
/// If an origin isn't one; a configuration that was loaded has none of these.
pub(crate) fn edge_options(
    config: &Config,
    routes: Vec<StaticRoute>,
) -> Result<stentor_edge::Options, PatternError> {
    let Config { server, origins, limits, heartbeat, rooms, deflate, .. } = config;
    let origins: Vec<_> = origins.allow.iter().map(|origin| origin.as_str()).collect();
    let history = HistoryLimits {
        publications_max: rooms.history_length,
        bytes_max: rooms.history_bytes_max.0,
        age_max: rooms.history_ttl,
    };
    Ok(stentor_edge::Options {
        engine: engine_options(&config.socketio),
        sockjs: sockjs_options(&config.sockjs),
        sse: stentor_edge::Sse::default(),
        primus: primus_options(heartbeat),
        listen: server.listen,
        cores: server.cores,
        app: match server.app {
            App::Rooms => stentor_edge::App::Rooms,
            App::Echo => stentor_edge::App::Echo,
            App::Chat => stentor_edge::App::Chat,
        },
        // Checked when the configuration was loaded.
        hosts: Hosts::parse(&server.hosts).unwrap_or_default(),
        origins: Origins::parse(&origins)?,
        limits: stentor_edge::Limits {
            message_bytes_max: limits.message_bytes_max.0,
            fragments_max: u32::try_from(limits.fragments_max).unwrap_or(u32::MAX),
            message_timeout: limits.message_timeout,
            header_bytes_max: limits.header_bytes_max.0,
            headers_max: limits.headers_max,
            header_timeout: limits.header_timeout,
            body_bytes_max: limits.body_bytes_max.0,
            idle_timeout: limits.idle_timeout,
            request_timeout: limits.request_timeout,
            close_timeout: limits.close_timeout,
            send_buffer_bytes_max: limits.send_buffer_bytes_max.0,
            replies_bytes_max: limits.replies_bytes_max.0,
            turn_bytes_max: limits.turn_bytes_max.0,
            json_depth_max: limits.json_depth_max,
            subscriptions_max: limits.subscriptions_max,
            topics_max: limits.topics_max,
            feed_patches_max: limits.feed_patches_max,
            feed_patches_bytes_max: limits.feed_patches_bytes_max.0,
            feed_interval_min: limits.feed_interval_min,
            connections_max: limits.connections_max,
            memory_bytes_max: limits.memory_bytes_max.0,
            inbox_messages_max: limits.inbox_messages_max,
            inbox_bytes_max: limits.inbox_bytes_max.0,
            mailbox_messages_max: limits.mailbox_messages_max,
            mailbox_bytes_max: limits.mailbox_bytes_max.0,
        },
        heartbeat: stentor_edge::Heartbeat { interval: heartbeat.interval, timeout: heartbeat.timeout },
        deflate: stentor_edge::Deflate {
            enabled: deflate.enabled,
            level: u8::try_from(deflate.level).unwrap_or(9),
            bytes_min: deflate.bytes_min.0,
        },
        rooms: stentor_edge::Rooms {
            publish: rooms.publish,
            // The empty prefix: every room.
            history: if rooms.history_length > 0 { vec![(String::new(), history)] } else { Vec::new() },
            namespaces: config.socketio.namespaces.clone(),
            rules: config.rules.iter().map(rule).collect(),
        },
        routes,
        authorizer: None,
    })
}

fn engine_options(socketio: &SocketIo) -> stentor_edge::EngineIo {
    stentor_edge::EngineIo {
        allow_version_3: socketio.allow_version_3,
        cookie: some(&socketio.cookie),
        cookie_secure: socketio.cookie_secure,
        cookie_same_site: match socketio.cookie_same_site {
            CookieSameSite::Lax => stentor_edge::SameSite::Lax,
            CookieSameSite::Strict => stentor_edge::SameSite::Strict,
            CookieSameSite::None => stentor_edge::SameSite::None,
        },
        packets_max: socketio.packets_max,
        upgrade_timeout: socketio.upgrade_timeout,
        connect_timeout: socketio.connect_timeout,
        attachments_max: socketio.attachments_max,
        namespaces_max: socketio.namespaces_max,
        recovery: (!socketio.recovery_ttl.is_zero()).then_some(stentor_edge::Recovery {
            age_max: socketio.recovery_ttl,
            bytes_max: socketio.recovery_bytes_max.0,
            sessions_max: socketio.recovery_sockets_max,
        }),
        feed_event: socketio.feed_event.clone(),
        feed_as_string: socketio.feed_as_string,
        ..stentor_edge::EngineIo::default()
    }
}

/// Primus's clients give up 45 s after a ping, so they aren't left alone for longer than by default.
fn primus_options(heartbeat: &Heartbeat) -> stentor_edge::Primus {
    let longest = stentor_edge::Primus::default().ping_interval;
    stentor_edge::Primus { ping_interval: heartbeat.interval.min(longest) }
}

/// The prefixes that SockJS is served at; without any in the configuration the default one.
pub(crate) fn sockjs_options(prefixes: &[SockJs]) -> Vec<stentor_edge::SockJs> {
    if prefixes.is_empty() {
        return stentor_edge::Options::default().sockjs;
    }
    let options = |one: &SockJs| {
        let defaults = stentor_edge::SockJs::at(&one.prefix);
        stentor_edge::SockJs {
            app: match one.app {
                PrefixApp::Same => None,
                PrefixApp::Rooms => Some(stentor_edge::App::Rooms),
                PrefixApp::Echo => Some(stentor_edge::App::Echo),
                PrefixApp::Chat => Some(stentor_edge::App::Chat),
            },
            websocket: one.websocket,
            jsessionid: one.jsessionid,
            client_url: one.client_url.clone(),
            response_bytes_max: one.response_bytes_max.0,
            heartbeat: one.heartbeat,
            disconnect_delay: one.disconnect_delay,
            messages_max: one.messages_max,
            prefix: defaults.prefix,
        }
    };
    prefixes.iter().map(options).collect()
}

/// A text where an empty one means that there is none.
fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn rule(rule: &Rule) -> stentor_edge::Rule {
    // Checked when the configuration was loaded.
    let templates = |texts: &[String]| texts.iter().filter_map(|text| Template::parse(text).ok()).collect();
    let broadcast_all = rule.broadcast.iter().any(|text| text == "*");
    stentor_edge::Rule {
        event: rule.event.clone(),
        namespace: some(&rule.namespace),
        join: templates(&rule.join),
        leave: templates(&rule.leave),
        broadcast: templates(&rule.broadcast),
        broadcast_all,
        broadcast_as: some(&rule.broadcast_as),
        except_sender: rule.except_sender,
        echo: rule.echo,
        ack: rule.ack,
    }
}

fn driver_choice(driver: Driver) -> DriverChoice {
    match driver {
        Driver::Auto => DriverChoice::Auto,
        Driver::IoUring => DriverChoice::IoUring,
        Driver::Epoll => DriverChoice::Epoll,
    }
}

/// The control plane's options.
pub(crate) fn control_options(config: &Config) -> stentor_control::Options {
    let Config { server, limits, admin_limits, feeds, feeds_limits, .. } = config;
    stentor_control::Options {
        feeds: FeedsOptions {
            upstreams: feeds.iter().filter(|feed| !feed.push).map(upstream_options).collect(),
            pushed: feeds.iter().filter(|feed| feed.push).map(pushed_keys).collect(),
            keys_max: feeds_limits.keys_max,
            cold_keys_max: limits.cold_keys_max,
            documents_bytes_max: feeds_limits.documents_bytes_max.0,
            fetches_max: feeds_limits.fetches_max,
            idle_ttl: feeds_limits.idle_ttl,
            not_found_retry_interval: feeds_limits.not_found_retry_interval,
            backoff_initial: feeds_limits.backoff_initial,
            backoff_max: feeds_limits.backoff_max,
            max_age_max: feeds_limits.max_age_max,
            pushed_keys_max: feeds_limits.pushed_keys_max,
            pushed_documents_bytes_max: feeds_limits.pushed_documents_bytes_max.0,
            pushed_document_bytes_max: feeds_limits.pushed_document_bytes_max.0,
            ca_file: (!feeds_limits.ca_file.is_empty()).then(|| PathBuf::from(&feeds_limits.ca_file)),
        },
        admin: AdminOptions {
            listen: server.admin,
            token: server.admin_token.0.as_ref().map(|token| token.reveal().into()),
            hosts: server.admin_hosts.clone(),
            message_bytes_max: limits.message_bytes_max.0,
            connections_max: admin_limits.connections_max,
            header_timeout: admin_limits.header_timeout,
            body_timeout: admin_limits.body_timeout,
            busy_timeout: admin_limits.busy_timeout,
            shutdown_timeout: ADMIN_SHUTDOWN_TIME_MAX,
        },
        counters: Vec::new(),
    }
}

fn pushed_keys(feed: &Feed) -> PushedKeys {
    PushedKeys { prefix: feed.prefix.clone(), key: feed.key.clone() }
}

fn upstream_options(feed: &Feed) -> UpstreamOptions {
    UpstreamOptions {
        name: feed.name.clone(),
        prefix: feed.prefix.clone(),
        key: feed.key.clone(),
        url: feed.url.clone(),
        poll_interval: feed.poll_interval,
        timeout: feed.timeout,
        read_timeout: feed.read_timeout,
        document_bytes_max: feed.document_bytes_max.0,
        concurrency_max: feed.concurrency_max,
        requests_per_second_max: feed.requests_per_second_max,
        headers: feed.headers.0.iter().map(|(name, value)| (name.clone(), value.reveal().into())).collect(),
        content: match feed.content {
            Content::Json => stentor_control::Content::Json,
            Content::Any => stentor_control::Content::Any,
        },
        ignore_cache_control: feed.ignore_cache_control,
        complete_on_max_age_zero: feed.complete_on.contains(&EndSignal::MaxAgeZero),
        identity: feed.identity.clone(),
    }
}

/// A server that listens.
pub(crate) struct Launched {
    /// What the data plane has become.
    pub(crate) started: Started,
    pub(crate) plane: Arc<dyn DataPlane>,
    pub(crate) control: Control,
    /// Completes when the data plane has ended, or a core of it has failed.
    pub(crate) ended: Pin<Box<dyn Future<Output = Result<(), CoreFailed>> + Send>>,
}

/// Why a server doesn't start.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The kernel doesn't let it listen there.
    Listen { flag: &'static str, addr: SocketAddr, error: io::Error },
    /// Another reason, told by the data plane.
    Edge(StartError),
    /// Another reason, told by the control plane.
    Control(stentor_control::Error),
    /// An origin that isn't one.
    Origin(PatternError),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flag, addr, error) = match self {
            Self::Listen { flag, addr, error } => (flag, addr, error),
            Self::Edge(error) => return error.fmt(f),
            Self::Control(error) => return error.fmt(f),
            Self::Origin(error) => return error.fmt(f),
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

impl From<StartError> for LaunchError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Listen(addr, error) => Self::Listen { flag: "--listen", addr, error },
            other => Self::Edge(other),
        }
    }
}

impl From<stentor_control::Error> for LaunchError {
    fn from(error: stentor_control::Error) -> Self {
        match error {
            stentor_control::Error::Listen { listen, source } => {
                Self::Listen { flag: "--admin", addr: listen, error: source }
            }
            other => Self::Control(other),
        }
    }
}

/// Says whether both planes would take this configuration. Opens no socket; files that it names are read.
///
/// # Errors
/// What is wrong, for people.
pub(crate) fn validate(config: &Config) -> Result<(), LaunchError> {
    edge_options(config, Vec::new()).map_err(LaunchError::Origin)?;
    control_options(config).check()?;
    Ok(())
}

/// Starts both planes; returns when they listen. `counters` are shown in `/metrics`. Called within the control plane's
/// runtime.
pub(crate) fn launch(
    config: &Config,
    routes: Vec<StaticRoute>,
    counters: Vec<ProcessCounter>,
) -> Result<Launched, LaunchError> {
    let options = edge_options(config, routes).map_err(LaunchError::Origin)?;
    let signals = Signals::new();
    let node = Node::start(options, driver_choice(config.server.driver), signals.clone(), None)?;
    let (started, plane) = (node.started().clone(), node.plane());
    let runtime = tokio::runtime::Handle::current();
    let options = stentor_control::Options { counters, ..control_options(config) };
    let control = Control::start(&runtime, options, plane.clone(), signals)?;
    let joined = runtime.spawn_blocking(move || node.join());
    let ended = Box::pin(async move {
        joined.await.unwrap_or_else(|error| {
            tracing::error!(%error, "can't wait for the data plane");
            Ok(())
        })
    });
    Ok(Launched { started, plane, control, ended })
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

    /// A limit has one default, wherever it is looked up.
    #[test]
    fn the_defaults_are_those_of_the_planes() {
        let config = Config::default();
        let edge = edge_options(&config, Vec::new()).unwrap();
        let theirs = stentor_edge::Options::default();
        assert_eq!(edge.limits, theirs.limits);
        assert_eq!((edge.heartbeat, edge.deflate), (theirs.heartbeat, theirs.deflate));
        assert_eq!((edge.listen, edge.cores, edge.app), (theirs.listen, theirs.cores, theirs.app));
        assert_eq!((edge.origins, edge.rooms), (theirs.origins, theirs.rooms));
        let ours = control_options(&config);
        let theirs = stentor_control::Options::default();
        assert_eq!(format!("{:?}", ours.feeds), format!("{:?}", theirs.feeds));
        let admin = AdminOptions { shutdown_timeout: ADMIN_SHUTDOWN_TIME_MAX, ..theirs.admin };
        assert_eq!(format!("{:?}", ours.admin), format!("{admin:?}"));
        let feed = upstream_options(&Feed::default());
        assert_eq!(format!("{feed:?}"), format!("{:?}", UpstreamOptions::default()));
    }

    #[test]
    fn the_configuration_reaches_the_options() {
        let mut config = Config::default();
        config.rooms.history_length = 10;
        config.deflate.level = 9;
        config.limits.fragments_max = 7;
        let edge = edge_options(&config, Vec::new()).unwrap();
        assert_eq!(edge.rooms.history.len(), 1);
        assert_eq!(edge.rooms.history[0].1.publications_max, 10);
        assert_eq!((edge.deflate.level, edge.limits.fragments_max), (9, 7));
    }
}
