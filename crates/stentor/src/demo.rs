//! `stentor demo`: a server with simulated live matches, a room, and a page that shows both.
//!
//! The matches come from the HTTP API of `stentor-demo` on loopback. The server polls it as any other
//! upstream. The demo's backend publishes each goal to the room, with a request to the admin API. No other
//! module contains code for the demo.

use crate::cli::DemoArgs;
use crate::config::schema::{Feed, Hook, HookOn, Link};
use crate::config::{Config, Sources};
use crate::logging;
use crate::reload::Reloader;
use crate::serve::{block_on, environment, serve};
use anyhow::Context;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stentor_control::{AdminClient, Target};
use stentor_demo::page::{self, Facts, ROOM, Stops, WorkerFacts};
use stentor_demo::replay::Replay;
use stentor_demo::upstream::{self, ClusterNode, DemoUpstream};
use stentor_demo::worker::{self, Worker};
use stentor_edge::StaticRoute;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};

/// Number of matches that are played at the same time.
const MATCHES: u32 = 5;

/// The room to which goals are published.
const LOBBY: Target<'_> =
    Target { room: Some("lobby"), namespace: None, event: Some("chat"), idempotency_key: None };
/// Interval at which goals are published. A match changes once per second.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a node that a visitor stops has for its answer.
const STOP_DELAY: Duration = Duration::from_millis(300);
/// Host names of a demo whose visitors may end its processes, with any port.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let replay = match &args.replay {
        Some(dir) => {
            Some(Replay::load(dir, args.speed).with_context(|| format!("--replay {}", dir.display()))?)
        }
        None => None,
    };
    let worker = Worker::find(args.libraries.as_deref());
    block_on(async {
        // The listener is bound before the configuration is made, because the configuration contains its
        // port.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the demo's HTTP API")?;
        let config = config(listener.local_addr()?, replay.as_ref());
        let sources = Sources::from_config(config).text("room.toml", ROOM);
        let (mut config, warnings) = sources.environment(environment()).flags(args.common.flags()).load()?;
        config.server.admin = known_port(config.server.admin).context("the admin port")?;
        let certificate = Some(&config.admin_tls.certificate).filter(|file| !file.is_empty());
        let scheme = if certificate.is_some() { "https" } else { "http" };
        let client = AdminClient {
            url: format!("{scheme}://{}", reachable(config.server.admin)),
            token: config.server.admin_token.0.as_ref().map(|token| token.reveal().to_owned()),
            ca_file: certificate.map(Into::into),
        };
        // Node doesn't know the demo's own certificate.
        let worker = worker.filter(|_| scheme == "http");
        // Only visitors of this machine may end its processes.
        let can_restart = config.server.listen.ip().is_loopback() && config.listeners.is_empty();
        // Nodes of a cluster have an API each, and one of them fetches for all.
        let (is_alone, name) = (config.cluster.engine.0.is_none(), config.cluster.node.clone());
        let node = (!is_alone && !name.is_empty()).then(|| ClusterNode { name, stop: Box::new(end_soon) });
        let stops = if is_alone { Some(Stops::Api) } else { node.as_ref().map(|_| Stops::Node) };
        let stops = stops.filter(|_| can_restart);
        // A foreign page whose name resolves to loopback has the same origin as the demo, and must not use its buttons.
        if can_restart && (stops.is_some() || worker.is_some()) && config.server.hosts.is_empty() {
            config.server.hosts = LOOPBACK_HOSTS.map(Into::into).into();
        }
        let hooks = stops.map(|_| format!("/hooks/{:032x}", fastrand::u128(..)));
        if let Some(path) = &hooks {
            config.hooks.push(Hook {
                name: "demo".into(),
                url: format!("http://{}{path}", listener.local_addr()?),
                on: vec![HookOn::Event],
                events: vec![upstream::STOP_EVENT.into(), upstream::STOP_NODE_EVENT.into()],
                ..Hook::default()
            });
        }
        let facts = Facts {
            has_replay: replay.is_some(),
            admin: client.url.clone(),
            needs_token: client.token.is_some(),
            stops,
            worker: worker.as_ref().map(|_| WorkerFacts { can_restart }),
        };
        if let Some(worker) = worker {
            config.links.push(Link { app: worker::APP.into(), path: worker::PATH.into(), ..Link::default() });
            let (url, token) = (client.url.replacen("http", "ws", 1), client.token.clone());
            std::thread::Builder::new().name("worker".into()).spawn(move || {
                let error = worker.run(&url, token.as_deref(), can_restart);
                tracing::warn!(error, "the demo's worker has ended");
            })?;
        }
        let files = page::files(args.libraries.as_deref(), args.docs.as_deref(), &facts)?;
        let routes = files.into_iter().map(|file| StaticRoute {
            path: file.path,
            content_type: file.content_type.into(),
            body: file.body.into(),
        });
        let log = logging::start(config.server.log, config.server.log_level, config.server.access_log)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let kickoff = args.kickoff.map(Duration::from_secs);
        let upstream = DemoUpstream::new(args.seed, MATCHES, kickoff, replay, Box::new(wall_clock));
        let upstream = Arc::new(upstream.of_node(node));
        tokio::spawn(announce(upstream.clone(), client));
        tokio::spawn(async move {
            if let Err(error) = upstream::serve(listener, upstream, hooks.as_deref()).await {
                tracing::error!(%error, "the demo's HTTP API has ended");
            }
        });
        let unchanged = config.clone();
        let reloader =
            Reloader::new(config, Box::new(move || Ok((unchanged.clone(), Vec::new()))), log.level());
        serve(&reloader, routes.collect(), &log).await
    })
}

/// Ends the process like a crash: its leases aren't given away, and its clients aren't told.
fn end_soon() {
    tracing::warn!("a visitor of the demo stops this node");
    tokio::spawn(async {
        tokio::time::sleep(STOP_DELAY).await;
        std::process::exit(1);
    });
}

/// Publishes goals until the runtime ends, over the admin API. Goals scored before the start are not published.
async fn announce(upstream: Arc<DemoUpstream>, admin: AdminClient) {
    let mut announced = HashMap::new();
    upstream.new_goals(&mut announced);
    let mut ticks = interval(ANNOUNCE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (id, goal) in upstream.new_goals(&mut announced) {
            let data = serde_json::json!({ "from": "Scoreboard", "text": goal }).to_string();
            // Several nodes may play the same matches and publish all goals. The idempotency key makes sure
            // that each goal is published once.
            let target = Target { idempotency_key: Some(&id), ..LOBBY };
            if let Err(error) = admin.publish(target, &data).await {
                tracing::warn!(%error, "the demo could not publish a goal");
            }
        }
    }
}

/// Replaces port 0 by a free port, because the page shows the admin port and is built before this port is
/// opened. If another process takes the port in between, the server reports that the address is in use.
fn known_port(addr: SocketAddr) -> std::io::Result<SocketAddr> {
    if addr.port() != 0 {
        return Ok(addr);
    }
    std::net::TcpListener::bind(addr)?.local_addr()
}

/// Returns the address to which to connect, for an address to listen on.
fn reachable(mut addr: SocketAddr) -> SocketAddr {
    if addr.ip().is_unspecified() {
        addr.set_ip(match addr {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    addr
}

/// Returns the time since 1970, which documents contain.
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Makes the configuration with feeds for the upstream's documents.
fn config(upstream: SocketAddr, replay: Option<&Replay>) -> Config {
    let feed = |name: &str, prefix: &str, interval| Feed {
        name: name.into(),
        prefix: prefix.into(),
        url: format!("http://{upstream}"),
        poll_interval: interval,
        ..Feed::default()
    };
    let second = Duration::from_secs(1);
    let mut feeds =
        vec![feed("matchcentre", "matchcentre/", second), feed("scoreboard", "scoreboard/", second)];
    feeds.extend(replay.map(|replay| feed("replay", "replay", replay.interval())));
    Config { feeds, ..Config::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_is_replaced_by_loopback() {
        fn check(listen: &str, expect: &str) {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), expect);
        }
        check("0.0.0.0:1", "127.0.0.1:1");
        check("[::]:1", "[::1]:1");
        check("192.0.2.1:1", "192.0.2.1:1");
    }

    #[test]
    fn the_configuration_of_the_demo_is_valid() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("1.json"), "{}").unwrap();
        for speed in [0.01, 1.0, 100.0] {
            let replay = Replay::load(dir.path(), speed).unwrap();
            let config = config("127.0.0.1:1234".parse().unwrap(), Some(&replay));
            let (config, _) = Sources::from_config(config).text("room.toml", ROOM).load().unwrap();
            assert!(config.rooms.publish);
            assert_eq!(config.rules.len(), 4);
            assert_eq!(config.feeds.len(), 3);
            assert_eq!(config.feeds[2].url, "http://127.0.0.1:1234");
        }
    }
}
