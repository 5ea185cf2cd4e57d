//! Names that nodes claim: one message per name, which contains the owner. A claim ends when another node has seen it
//! unchanged for its whole duration, by that node's clock.

use super::Shared;
use super::jetstream::{Outcome, Session, Stream, Which, unexpected};
use super::observed::Observed;
use super::topics::Topic;
use crate::NodeId;
use crate::engine::{EngineError, Reply};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::Instant;

/// The message of a name.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    owner: String,
    /// Duration of the claim (ms). Zero if the owner has released it: the message is then deleted.
    ttl_ms: u64,
}

/// This node's knowledge of a name.
#[derive(Default)]
pub(super) struct ClaimState {
    observed: Observed,
}

impl Topic for ClaimState {}

impl Shared {
    pub(super) async fn claim(
        &self,
        session: &Session,
        state: &mut ClaimState,
        subject: &str,
        owner: NodeId,
        ttl: Duration,
    ) -> Result<Reply, EngineError> {
        let own = owner.to_string();
        loop {
            let stored = self.read(session, Stream::Claims, Which::Last(subject)).await?;
            let sequence = stored.as_ref().map_or(0, |stored| stored.sequence);
            let claim: Option<Claim> = match stored {
                Some(stored) => Some(stored.meta().ok_or_else(unexpected)?),
                None => None,
            };
            let claim = claim.filter(|claim| claim.ttl_ms > 0);
            state.observed.note(Instant::now(), sequence);
            match &claim {
                Some(claim) if claim.owner != own => {
                    let ttl = Duration::from_millis(claim.ttl_ms);
                    if !state.observed.is_unchanged_for(Instant::now(), ttl) {
                        let other = NodeId::parse(&claim.owner).ok_or_else(unexpected)?;
                        return Ok(Reply::Owner(Some(other)));
                    }
                }
                None if ttl.is_zero() => return Ok(Reply::Owner(None)),
                _ => {}
            }
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            let claim = serde_json::to_string(&Claim { owner: own.clone(), ttl_ms }).unwrap_or_default();
            let stored = self.store(session, subject, Some(sequence), None, &claim, &[]).await?;
            let Some(Outcome { sequence, .. }) = stored else { continue };
            if ttl.is_zero() {
                self.delete(session, Stream::Claims, sequence);
            }
            return Ok(Reply::Owner((!ttl.is_zero()).then_some(owner)));
        }
    }
}
