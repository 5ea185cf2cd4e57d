//! The names of sessions that clients choose, claimed in the engine by the node that has the session.
//!
//! A claim lasts for [`CLAIM_TTL`] and is renewed as long as the session lives. While the engine doesn't answer, sessions are
//! opened without a claim: other nodes don't find them then.
//!
//! **Invariant.** Claims of one name are requested and released under one lock. So dropping the previous claim can't
//! release a name that is claimed again at once.

use super::metrics::{Counters, count};
use super::peers::Peers;
use crate::NodeId;
use crate::engine::{Engine, Reply, Request};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stentor_ports::{
    Charge, Class, Done, Ledger, Location, Metric, SessionClaim, SessionName, plain_metrics,
};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Duration of a claim without renewal.
pub(super) const CLAIM_TTL: Duration = Duration::from_secs(60);
/// Interval at which claims are renewed.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(20);
/// Approximate size of a claim: its name and its place in the table.
const CLAIM_BYTES: usize = 192;
/// Maximum number of claims renewed at once, so that the engine has room for other requests.
const RENEWALS_MAX: usize = 128;

/// This node's claims.
pub(super) struct Claims {
    node: NodeId,
    engine: Arc<dyn Engine>,
    runtime: Handle,
    counters: Arc<Counters>,
    charge: Charge,
    held: Mutex<HashMap<Arc<str>, Weak<Claim>>>,
}

/// A name that this node has claimed, or is about to claim. Dropping it releases the name.
struct Claim {
    name: Arc<str>,
    claims: Arc<Claims>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.name).finish()
    }
}

impl SessionClaim for Claim {}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.charge.subtract(CLAIM_BYTES);
        let mut held = self.claims.held.lock();
        let is_current = held.get(&self.name).is_some_and(|current| std::ptr::eq(current.as_ptr(), self));
        if is_current {
            held.remove(&self.name);
            let answer = self.claims.request(&self.name, Duration::ZERO);
            self.claims.runtime.spawn(answer);
        }
    }
}

/// The name in the engine: a digest, because clients choose names of any length.
fn name_of(SessionName { prefix, key, session }: SessionName<'_>) -> Arc<str> {
    let mut digest = Sha256::new();
    for part in [prefix, key.unwrap_or_default(), session] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    format!("sockjs:{}", URL_SAFE_NO_PAD.encode(digest.finalize())).into()
}

/// The metrics of `claims` claimed names.
pub(super) fn metrics(counters: &Counters, claims: usize) -> Vec<Metric> {
    Vec::from(plain_metrics! {
        /// SockJS sessions whose names this node has claimed in the engine.
        Gauge "cluster_sockjs_claims" = claims;
        /// SockJS sessions that other nodes may not find: their names couldn't be claimed, or the claim wasn't renewed.
        Counter "cluster_sockjs_claims_failed" = counters.claims_failed.load(Ordering::Relaxed);
    })
}

impl Claims {
    pub(super) fn new(
        node: NodeId,
        engine: Arc<dyn Engine>,
        runtime: Handle,
        counters: Arc<Counters>,
        ledger: Arc<Ledger>,
    ) -> Arc<Self> {
        let charge = Charge::new(ledger, Class::Relays);
        Arc::new(Self { node, engine, runtime, counters, charge, held: Mutex::default() })
    }

    /// Number of claims.
    pub(super) fn len(&self) -> usize {
        self.held.lock().len()
    }

    fn request(&self, name: &Arc<str>, ttl: Duration) -> crate::engine::Answer {
        // Threads of cores, which have no runtime, call this function, and engines start tasks.
        let _entered = self.runtime.enter();
        self.engine.request(Request::Claim { name: name.clone(), owner: self.node, ttl })
    }

    /// Looks up the node with a session. Claims the session for this node if no node has it and `claims` is set.
    pub(super) fn locate(
        self: &Arc<Self>,
        session: SessionName<'_>,
        claims: bool,
        done: Done<Location>,
        peers: Arc<Peers>,
    ) {
        let name = name_of(session);
        let (claim, answer) = {
            let mut held = self.held.lock();
            // A lookup would release the name if this node has it. So a claim that another request holds is renewed.
            let claim = held.get(&name).and_then(Weak::upgrade).or_else(|| {
                let claim = claims.then(|| Arc::new(Claim { name: name.clone(), claims: self.clone() }))?;
                self.charge.add(CLAIM_BYTES);
                held.insert(name.clone(), Arc::downgrade(&claim));
                Some(claim)
            });
            let ttl = if claim.is_some() { CLAIM_TTL } else { Duration::ZERO };
            let answer = self.request(&name, ttl);
            (claim, answer)
        };
        let (own, counters) = (self.node, self.counters.clone());
        self.runtime.spawn(async move {
            let location = match answer.await {
                Ok(Reply::Owner(Some(node))) if node == own => match claim {
                    Some(claim) if claims => Location::Here(claim),
                    // The session isn't open yet.
                    _ => Location::Unknown,
                },
                Ok(Reply::Owner(Some(node))) if peers.wait_for(node.tag()).await => {
                    Location::Node(node.tag())
                }
                // The session's node is dead, or there is no such session.
                Ok(_) => Location::Unknown,
                Err(_) => {
                    count(&counters.claims_failed);
                    Location::Unknown
                }
            };
            done.answer(Ok(location));
        });
    }

    /// Renews the claims. Never returns.
    pub(super) async fn keep(&self) {
        // The first renewal waits for the interval.
        let mut ticks = interval_at(Instant::now() + RENEWAL_INTERVAL, RENEWAL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let names: Vec<Arc<str>> = self.held.lock().keys().cloned().collect();
            let mut renewals = JoinSet::new();
            for name in names {
                if renewals.len() >= RENEWALS_MAX
                    && let Some(renewed) = renewals.join_next().await
                {
                    self.handle_renewal(renewed);
                }
                let held = self.held.lock();
                // The claim may have been released in the meantime.
                if held.contains_key(&name) {
                    renewals.spawn(self.request(&name, CLAIM_TTL));
                }
            }
            while let Some(renewed) = renewals.join_next().await {
                self.handle_renewal(renewed);
            }
        }
    }

    fn handle_renewal(&self, renewed: Renewed) {
        match renewed {
            Ok(Ok(Reply::Owner(Some(owner)))) if owner == self.node => {}
            // Another node has the name, because the claim expired, or the engine didn't answer.
            _ => count(&self.counters.claims_failed),
        }
    }
}

type Renewed = Result<Result<Reply, crate::engine::EngineError>, tokio::task::JoinError>;
