//! The rule which options may change while the node runs.

use crate::options::{Limits, Options};
use stentor_hub::HistoryLimits;

impl Options {
    /// The options that apply after [`NodeHandle::configure`](crate::shared::Shared::configure): the changeable options of
    /// `next`, and the other options of `self`.
    pub fn reloaded(&self, next: Self) -> Self {
        let Self { hosts, origins, limits, proxies, engine, sse, keys, mut rooms, .. } = next;
        let own = self;
        let address_limits = own.address_limits.reloaded(next.address_limits);
        let user_limits = own.user_limits.reloaded(next.user_limits);
        let session_limits = own.session_limits.reloaded(next.session_limits);
        let [accepts, next_accepts] = [own.limits.connections_per_second, limits.connections_per_second];
        let connections_per_second = if (accepts > 0) == (next_accepts > 0) { next_accepts } else { accepts };
        rooms.presence = crate::rule::Presence {
            info_bytes_max: rooms.presence.info_bytes_max,
            ..own.rooms.presence.clone()
        };
        let orders_history = own.broker.as_ref().is_some_and(|broker| broker.orders_history());
        if orders_history || !has_same_rooms(&own.rooms.history, &rooms.history) {
            rooms.history.clone_from(&own.rooms.history);
        }
        Self {
            hosts,
            origins,
            limits: Limits {
                connections_per_second,
                inbox_messages_max: own.limits.inbox_messages_max,
                inbox_bytes_max: own.limits.inbox_bytes_max,
                mailbox_messages_max: own.limits.mailbox_messages_max,
                ..limits
            },
            engine: crate::options::EngineIo {
                recovery: own.engine.recovery,
                feed_event: own.engine.feed_event.clone(),
                feed_as_string: own.engine.feed_as_string,
                ..engine
            },
            sse,
            keys,
            rooms,
            proxies,
            address_limits,
            user_limits,
            session_limits,
            ..own.clone()
        }
    }
}

/// Returns `true` if the same rooms keep history before and after a reload. Otherwise, the cores would disagree for a
/// moment about which core orders a room.
fn has_same_rooms(before: &[(String, HistoryLimits)], now: &[(String, HistoryLimits)]) -> bool {
    let kept = |(prefix, limits): &(String, HistoryLimits)| (prefix.clone(), limits.publications_max > 0);
    before.iter().map(kept).eq(now.iter().map(kept))
}
