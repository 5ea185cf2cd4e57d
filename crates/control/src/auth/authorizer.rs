//! The permissions of one client: the rules for all clients, and the grants of the client's token.

use super::metrics::AuthMetrics;
use crate::access::allows;
use crate::current::Current;
use std::sync::Arc;
use stentor_auth::{Attributes, Permissions};
use stentor_ports::{Access, Authorizer, Decision, Denial, Question};

/// Decides what clients with one identity may do.
pub(super) struct ClientAuthorizer {
    /// The rules for all clients.
    shared: Arc<Current<Permissions>>,
    /// The token's claims. `None` for anonymous clients.
    attributes: Option<Attributes>,
    /// The token's grants. `None` if it has none.
    grants: Option<Permissions>,
    metrics: AuthMetrics,
}

stentor_ports::opaque_debug!(ClientAuthorizer, "ClientAuthorizer");

impl ClientAuthorizer {
    pub(super) fn new(
        shared: Arc<Current<Permissions>>,
        attributes: Option<Attributes>,
        grants: Option<Permissions>,
        metrics: AuthMetrics,
    ) -> Self {
        Self { shared, attributes, grants, metrics }
    }

    fn allows(&self, access: Access<'_>) -> bool {
        let check = |permissions: &Permissions| allows(permissions, self.attributes.as_ref(), access);
        check(&self.shared.load()) || self.grants.as_ref().is_some_and(check)
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

    /// Returns `true`, because the rules change only with the generation, and the claims only with the
    /// identity.
    fn is_cacheable(&self, _access: Access<'_>) -> bool {
        true
    }
}
