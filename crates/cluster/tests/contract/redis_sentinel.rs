//! The engine on Redis with Sentinel.

use crate::feeds::{LONG, acquire, load, store, version};
use crate::proxy::Proxy;
use crate::redis_server::{RedisServer, free_port, program, until};
use crate::servers::{connect, connected, options};
use crate::{key, room, sleep_ms};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_cluster::engine::{EngineError, Reply, Request};
use stentor_hub::Position;
use tempfile::TempDir;

/// Runs `redis-sentinel` on a free port. Dropping the value stops it.
struct Sentinel {
    port: u16,
    _folder: TempDir,
    child: Child,
}

impl Sentinel {
    /// Starts a Sentinel that watches a primary under the name `main`, with a quorum of one.
    fn start(primary: &RedisServer, lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (file, port, of) = (folder.path().join("sentinel.conf"), free_port(), primary.port);
        let config = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {of} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n{lines}\n"
        );
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(program());
        let child = command.arg(&file).arg("--sentinel").stdout(Stdio::null()).spawn().unwrap();
        let sentinel = Self { port, _folder: folder, child };
        sentinel.until("PING", |_| true);
        sentinel
    }

    /// Repeats a command until its answer is as expected.
    fn until(&self, command: &str, is_expected: impl Fn(&str) -> bool) {
        until(command, || {
            let mut cli = Command::new("redis-cli");
            cli.args(["-p", &self.port.to_string()]).args(command.split(' ')).stderr(Stdio::null());
            let output = cli.output().unwrap();
            output.status.success() && is_expected(&String::from_utf8(output.stdout).unwrap())
        });
    }

    fn knows_a_replica(&self) {
        self.until("SENTINEL replicas main", |replicas| replicas.contains("master-link-status\nok"));
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn replica_of(port: u16) -> RedisServer {
    let arguments = ["--replicaof", &format!("127.0.0.1 {port}"), "--repl-diskless-sync-delay", "0"];
    let replica = RedisServer::start(&arguments).unwrap();
    until("the replica is connected", || {
        replica.command(&["INFO", "replication"]).contains("master_link_status:up")
    });
    replica
}

#[tokio::test]
async fn a_connection_serves_while_no_sentinel_answers() {
    let Some(primary) = RedisServer::start(&[]) else { return };
    let sentinel = Sentinel::start(&primary, "");
    let silent = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = silent.iter().map(|listener| format!(",127.0.0.1:{}", listener.local_addr().unwrap().port()));
    let ports: String = ports.collect();
    let url = format!("redis+sentinel://127.0.0.1:{}{ports}/main", sentinel.port);
    let mut node = connected(&url, options()).await;
    let r = room("r");
    node.join(&r).await;
    drop(sentinel);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        let appended_at = Instant::now();
        node.append(&r, "x").await;
        assert_eq!(node.message().await.2, "x");
        assert!(appended_at.elapsed() < Duration::from_secs(4), "{:?}", appended_at.elapsed());
        sleep_ms(50).await;
    }
}

#[tokio::test]
async fn after_a_failover_to_a_replica_that_lagged_no_continuity_is_claimed() {
    let Some(primary) = RedisServer::start(&["--repl-diskless-sync-delay", "0"]) else { return };
    // The proxy between the primary and its replica can swallow the primary's bytes.
    let proxy = Proxy::start(primary.port);
    let replica = replica_of(proxy.port);
    let sentinel = Sentinel::start(&primary, "");
    sentinel.knows_a_replica();
    // The first Sentinel can't be reached.
    let url = format!("redis+sentinel://127.0.0.1:1,127.0.0.1:{}/main", sentinel.port);
    let mut node = connected(&url, options()).await;
    let r = room("r");
    node.join(&r).await;
    for offset in 1..=3 {
        assert_eq!(node.append(&r, "replicated").await.offset, offset);
    }
    let k = key("feed");
    let lease = acquire(&node, &k, 0, LONG).await.unwrap();
    assert_eq!(store(&node, &k, lease, version(1, "", Some("replicated"))).await, Ok(Reply::Done));
    let offset = |server: &RedisServer| {
        let info = server.command(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).unwrap().trim().to_owned()
    };
    until("all is replicated", || offset(&replica) == offset(&primary));
    proxy.swallows[1].store(true, Ordering::Relaxed);
    let lost = node.append(&r, "lost").await;
    assert_eq!(lost.offset, 4);
    assert_eq!(store(&node, &k, lease, version(2, "lost", None)).await, Ok(Reply::Done));
    for _ in 0..4 {
        node.message().await;
    }
    let killed_at = Instant::now();
    primary.stop();
    node.reconnected().await;
    println!("connected to the new primary after {:?}", killed_at.elapsed());
    // The replica has offset 3, so it doesn't continue the epoch in which offset 4 was delivered.
    let head = node.head(&r).await.unwrap();
    assert!(head.epoch != lost.epoch && head.offset == 0, "{head:?} after {lost:?}");
    assert_eq!(node.history(&r, Position { offset: 3, ..lost }, 10).await, (Some(head), vec![], true));
    assert_eq!(node.append(&r, "new").await, Position { offset: 1, ..head });
    assert_eq!(node.message().await.2, "new");
    // The replica has version 1 of the feed. Its log says that newer versions may be missing.
    let log = load(&node, &k).await.unwrap();
    assert!(log.base == "replicated" && log.changes.is_empty() && log.may_lack_newest, "{log:?}");
    let change = store(&node, &k, lease, version(2, "change", None)).await;
    assert!(matches!(change, Err(EngineError::Refused(_))), "{change:?}");
    assert_eq!(store(&node, &k, lease, version(3, "", Some("new"))).await, Ok(Reply::Done));
    assert_eq!(store(&node, &k, lease, version(4, "change", None)).await, Ok(Reply::Done));
    let log = load(&node, &k).await.unwrap();
    assert!(log.base == "new" && log.changes.len() == 1 && !log.may_lack_newest, "{log:?}");
    drop(replica);
}

#[tokio::test]
async fn a_node_follows_a_failover_of_a_primary_that_lives_on() {
    let Some(primary) = RedisServer::start(&["--repl-diskless-sync-delay", "0"]) else { return };
    let replica = replica_of(primary.port);
    let sentinel = Sentinel::start(&primary, "requirepass watch");
    let auth = |command: &str| format!("--no-auth-warning -a watch {command}");
    sentinel.until(&auth("SENTINEL replicas main"), |replicas| replicas.contains("master-link-status\nok"));
    let url = format!(
        "redis+sentinel://127.0.0.1:{}/main?sentinel_user=default&sentinel_password=watch",
        sentinel.port
    );
    let mut node = connected(&url, options()).await;
    let r = room("r");
    node.join(&r).await;
    let old = node.append(&r, "old").await;
    assert_eq!(node.message().await.2, "old");
    sentinel.until(&auth("SENTINEL FAILOVER main"), |answer| answer == "OK\n");
    node.reconnected().await;
    node.receives("r").await;
    let head = node.head(&r).await.unwrap();
    assert!(head.epoch != old.epoch, "{head:?} after {old:?}");
    assert!(replica.command(&["INFO", "replication"]).contains("role:master"));
    // No node is subscribed at the former primary any more.
    until("nobody subscribes", || primary.command(&["PUBSUB", "CHANNELS", "test:*"]) == "\n");
}

#[tokio::test]
async fn sentinels_that_do_not_help_are_an_error() {
    let Some(primary) = RedisServer::start(&[]) else { return };
    let (open, closed) = (Sentinel::start(&primary, ""), Sentinel::start(&primary, "requirepass watch"));
    for (hosts, name, reason) in [
        (format!("127.0.0.1:{}", open.port), "other", "doesn't know a primary of the name `other`"),
        (format!("127.0.0.1:{}", closed.port), "main", "see sentinel_user and sentinel_password in the URL"),
        (format!("127.0.0.1:{}", primary.port), "main", "isn't a Sentinel"),
        ("127.0.0.1:1".into(), "main", "Sentinel 127.0.0.1:1: Connection refused"),
    ] {
        let url = format!("redis+sentinel://:secret@{hosts}/{name}");
        let error = connect(&url).await.err().unwrap();
        assert!(error.contains(reason) && !error.contains("secret"), "{error}");
    }
    // A node stays connected to the primary while the Sentinels are down.
    let node = connect(&format!("redis+sentinel://127.0.0.1:{}/main", open.port)).await.unwrap();
    assert_eq!(node.append(&room("r"), "x").await.offset, 1);
    drop((open, closed));
    sleep_ms(5_000).await;
    for offset in 2..4 {
        assert_eq!(node.append(&room("r"), "x").await.offset, offset);
    }
    primary.stop();
    let lost = node.try_request(Request::Heads { rooms: vec![room("r")] }).await;
    assert!(matches!(lost, Err(EngineError::Unavailable(_))), "{lost:?}");
}
