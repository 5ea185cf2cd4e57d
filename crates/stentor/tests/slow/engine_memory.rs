//! Tests that messages that wait for an unreachable cluster engine are charged to the server's memory.

use crate::process::{self, answer, ask, metric, until_metric};
use crate::redis_server::RedisServer;

#[test]
fn data_for_the_engine_is_charged_until_it_is_sent() {
    let Some(redis) = RedisServer::start(&[]) else { return };
    let server = process::start(&format!("[cluster]\nengine = \"{}\"\n", redis.url()));
    until_metric(&server.admin, "stentor_cluster_engine_up", |up| up == 1.0);
    redis.stop();
    until_metric(&server.admin, "stentor_cluster_engine_up", |up| up == 0.0);
    let message = format!(r#"{{"room":"r","data":"{}"}}"#, "x".repeat(100_000));
    for _ in 0..10 {
        assert_eq!(answer(ask(&server.admin, "POST", "/api/v1/publish", &message)).0, 200);
    }
    let charged = "stentor_memory_bytes{class=\"cluster\"}";
    until_metric(&server.admin, charged, |bytes| bytes >= 1_000_000.0);
    assert!(metric(&server.admin, "stentor_cluster_outgoing_bytes") >= 1_000_000.0);
    assert_eq!(metric(&server.admin, "stentor_cluster_outgoing_messages"), 10.0);
    redis.run();
    until_metric(&server.admin, "stentor_cluster_outgoing_messages", |messages| messages == 0.0);
    until_metric(&server.admin, charged, |bytes| bytes < 100_000.0);
}
