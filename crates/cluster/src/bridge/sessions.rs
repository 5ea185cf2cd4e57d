//! Sessions with channels of their own, in the subscription mode `dynamic-private`.

use super::Bridges;
use std::sync::Arc;
use stentor_ports::{Notice, NoticeSink};

/// Subscribes to the channels of sessions, and passes all notices on.
#[derive(Debug)]
struct SessionObserver {
    bridges: Arc<Bridges>,
    inner: Option<Arc<dyn NoticeSink>>,
}

impl Bridges {
    /// Returns an observer of sessions that wraps `inner`.
    pub fn observe_sessions(
        self: &Arc<Self>,
        inner: Option<Arc<dyn NoticeSink>>,
    ) -> Option<Arc<dyn NoticeSink>> {
        let mut ways = self.namespaces.values().flatten();
        if !ways.any(|(_, namespace)| namespace.protocol.has_session_channels()) {
            return inner;
        }
        Some(Arc::new(SessionObserver { bridges: self.clone(), inner }))
    }
}

impl NoticeSink for SessionObserver {
    fn wants_topics(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.wants_topics())
    }

    fn rooms_max(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.rooms_max())
    }

    fn notify(&self, notice: &Notice<'_>) {
        let change = match notice {
            Notice::Connected { session, namespace, .. } => Some((*session, *namespace, true)),
            Notice::Disconnected { session, namespace, .. } => Some((*session, *namespace, false)),
            _ => None,
        };
        if let Some((session, namespace, has_begun)) = change {
            for (bridge, namespace) in self.bridges.find(namespace) {
                if namespace.set_session(session, has_begun) {
                    bridge.interest_changed.notify_one();
                }
            }
        }
        if let Some(inner) = &self.inner {
            inner.notify(notice);
        }
    }
}
