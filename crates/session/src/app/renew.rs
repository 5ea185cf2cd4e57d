//! Newer tokens that clients present.

use super::effect::{Effect, ToSession};
use super::questions::Steps;
use super::{Context, Decided, Refused, renews};
use crate::ports::{ClientFacts, Credentials};
use stentor_hub::SessionId;

/// A request to replace the token of a session. The new token must belong to the same user, unless the session is
/// anonymous. The session's subscriptions are authorized again.
pub(super) struct RenewToken {
    pub(super) token: String,
}

impl Steps for RenewToken {
    fn bytes(&self) -> usize {
        self.token.len()
    }

    fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        decided: Option<Decided>,
    ) -> Result<bool, Refused> {
        let namespace = ctx.scope.namespace;
        let client = ClientFacts { protocol: "message", namespace, ..ClientFacts::default() };
        let credentials = Credentials { user: None, token: Some(&self.token), client, session: None };
        let now = ctx.core.now;
        let asker = ctx.scope.asker;
        let identity = ctx.questions.identify(now, asker, &credentials, decided, ctx.budget, || None)?;
        let Some(new) = identity else { return Ok(true) };
        let current = ctx.questions.identities.get(session);
        let is_newer = match current.filter(|current| current.principal.is_some()) {
            Some(current) => renews(current, &new).map_err(Refused::Denied)?,
            None => true,
        };
        if is_newer {
            ctx.effects.push(Effect::Session(session, ToSession::Renew(new)));
        }
        Ok(true)
    }
}
