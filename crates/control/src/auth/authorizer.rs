//! What one client may do: the rules for everybody, and the grants of its token.

use super::metrics::AuthMetrics;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use stentor_auth::{Action, Attributes, Permissions, Topic};
use stentor_edge::{Access, Authorizer, Decision, Denial, Question};

/// The rules for everybody, which change when the configuration is reloaded.
#[derive(Debug, Default)]
pub(super) struct SharedPermissions(RwLock<Arc<Permissions>>);

impl SharedPermissions {
    pub(super) fn new(permissions: Permissions) -> Self {
        Self(RwLock::new(Arc::new(permissions)))
    }

    pub(super) fn replace(&self, permissions: Permissions) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(permissions);
    }

    fn current(&self) -> Arc<Permissions> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Decides for the clients of one identity.
pub(super) struct ClientAuthorizer {
    shared: Arc<SharedPermissions>,
    /// The claims. `None`: anonymous.
    attributes: Option<Attributes>,
    /// What the token grants. `None`: nothing.
    grants: Option<Permissions>,
    metrics: AuthMetrics,
}

impl fmt::Debug for ClientAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientAuthorizer")
    }
}

impl ClientAuthorizer {
    pub(super) fn new(
        shared: Arc<SharedPermissions>,
        attributes: Option<Attributes>,
        grants: Option<Permissions>,
        metrics: AuthMetrics,
    ) -> Self {
        Self { shared, attributes, grants, metrics }
    }

    fn allows(&self, access: Access<'_>) -> bool {
        let attributes = self.attributes.as_ref();
        let check = |permissions: &Permissions| {
            let (action, topic) = match access {
                Access::Connect { namespace } => return permissions.allows_namespace(attributes, namespace),
                Access::Subscribe(topic) => (Action::Subscribe, topic_of(topic)),
                Access::Presence(topic) => (Action::Presence, topic_of(topic)),
                Access::History(topic) => (Action::History, topic_of(topic)),
                Access::Publish(room) => (Action::Publish, room_of(room)),
            };
            permissions.allows(attributes, action, topic)
        };
        check(&self.shared.current()) || self.grants.as_ref().is_some_and(check)
    }
}

fn room_of(room: &stentor_hub::Room) -> Topic<'_> {
    Topic::Room { namespace: room.namespace(), name: room.name() }
}

fn topic_of(topic: &stentor_hub::Topic) -> Topic<'_> {
    match topic {
        stentor_hub::Topic::Feed(key) => Topic::Feed(key.as_str()),
        stentor_hub::Topic::Room(room) | stentor_hub::Topic::Presence(room) => room_of(room),
    }
}

impl Authorizer for ClientAuthorizer {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        if self.allows(question.access) {
            return Decision::Allow;
        }
        self.metrics.denied.inc();
        let message = match question.access {
            Access::Connect { .. } => "no permission concerns this namespace",
            Access::Subscribe(_) => "no permission allows to subscribe to this",
            Access::Publish(_) => "no permission allows to publish to this room",
            Access::Presence(_) => "no permission allows listing the members",
            Access::History(_) => "no permission allows to receive the history of this",
        };
        Decision::Deny(Denial::new("not_allowed", message))
    }

    /// Rules change with the generation only, claims with the identity.
    fn is_cacheable(&self, _access: Access<'_>) -> bool {
        true
    }
}
