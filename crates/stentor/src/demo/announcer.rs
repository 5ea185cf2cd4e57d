//! The demo's backend: publishes each goal to the room, with a request to the admin API as any backend would.

use super::upstream::DemoUpstream;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stentor_control::{AdminClient, Target};
use tokio::time::{MissedTickBehavior, interval};

const LOBBY: Target<'_> =
    Target { room: Some("lobby"), namespace: None, event: Some("chat"), idempotency_key: None };
/// A match changes once per second.
const INTERVAL: Duration = Duration::from_secs(1);

/// Publishes goals until the runtime ends, over the admin API. Goals scored before the start are not
/// published.
pub(super) async fn announce(upstream: Arc<DemoUpstream>, admin: AdminClient) {
    let mut announced = HashMap::new();
    upstream.new_goals(&mut announced);
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (id, goal) in upstream.new_goals(&mut announced) {
            let data = serde_json::json!({ "from": "Scoreboard", "text": goal }).to_string();
            // Several nodes play the same matches, and each announces all goals.
            let target = Target { idempotency_key: Some(&id), ..LOBBY };
            if let Err(error) = admin.publish(target, &data).await {
                tracing::warn!(%error, "the demo could not publish a goal");
            }
        }
    }
}
