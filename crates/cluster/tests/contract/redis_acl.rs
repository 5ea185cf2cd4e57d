//! The engine on Redis as a user that has only the permissions listed in docs/cluster.md.

use crate::proxy::Proxy;
use crate::redis_server::RedisServer;
use crate::servers::{attach, check_refused, connect_with, options};
use crate::{Fixture, contract, sleep_ms};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_cluster::NodeId;
use stentor_cluster::engine::{ConnectOptions, Engine, EventReceiver, Limits};

fn server(user: &str) -> Option<RedisServer> {
    RedisServer::start(&["--user"].into_iter().chain(user.split(' ')).collect::<Vec<_>>())
}

/// The permissions of the user `stentor`, from docs/cluster.md.
pub(crate) fn permissions() -> &'static str {
    let page = include_str!("../../../../docs/cluster.md");
    page.lines().find_map(|line| line.strip_prefix("ACL SETUSER ")).unwrap()
}

/// A server to which nodes connect as this user.
struct Restricted(RedisServer);

impl Restricted {
    fn start() -> Option<Self> {
        server(permissions()).map(Self)
    }
}

impl Fixture for Restricted {
    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver) {
        let url = format!("redis://stentor:password@127.0.0.1:{}", self.0.port);
        let options = ConnectOptions { prefix: "stentor:".into(), limits, ..options() };
        attach(node, &url, options).await
    }

    async fn forget(&self) {
        self.0.stop();
        self.0.run();
    }
}

contract!(Restricted::start());

#[tokio::test]
async fn a_missing_permission_is_named() {
    let all = "on >p ~* &* +@all";
    for (user, reason) in [
        (format!("u {all} -info"), "'info' command"),
        (format!("u {all} -subscribe"), "'subscribe' command"),
        (format!("u {all} -publish"), "'publish' command"),
        ("u on >p resetchannels +@all ~*".into(), "channel"),
    ] {
        let Some(server) = server(&user) else { return };
        let url = format!("redis://u:p@127.0.0.1:{}", server.port);
        check_refused([(url.clone(), "Permissions"), (url, reason)]).await;
    }
}

/// A node may wait for a server that accepts it and then refuses to let it subscribe.
#[tokio::test]
async fn a_server_that_refuses_subscriptions_is_connected_with_growing_delays() {
    let Some(server) = server("u on >p ~* +@all resetchannels") else { return };
    let proxy = Proxy::start(server.port);
    let (url, started) = (format!("redis://u:p@127.0.0.1:{}", proxy.port), Instant::now());
    let _node = connect_with(&url, ConnectOptions { wait: true, ..options() }).await.unwrap();
    // One connection publishes, and one makes requests.
    while proxy.connections.load(Ordering::Relaxed) < 2 + 4 {
        sleep_ms(5).await;
    }
    let least = Duration::from_millis(50 + 100 + 200);
    assert!(started.elapsed() >= least, "{:?}", started.elapsed());
}
