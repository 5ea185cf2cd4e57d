//! Revocations: every node of the cluster keeps the list.
//!
//! ```text
//!  POST on one node ── Question::Recheck ──► all others: each adds the entry, and ends its sessions
//!  joined, reconnected, every 30 s ── Compare(digest) ──► others with another digest: Page, and they Ask
//! ```
//!
//! A node requests the next page only after it has merged the previous one, so a long list never fills a queue. The
//! next comparison repairs lost messages.

use super::Cluster;
use crate::NodeId;
use crate::engine::Channel;
use crate::frame::{AnswerError, Answered, Frame, REVOCATIONS_MAX, RevocationsFrame};
use crate::tasks::done;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::{
    Done, IdentityFilter, LocalNode, Recheck, RecheckAction, RevocationList, RevocationsFull, Revoked,
};

/// Interval at which a node compares its list with those of the others.
pub const REVOCATIONS_INTERVAL: Duration = Duration::from_secs(30);

impl Cluster {
    /// Compares lists every [`REVOCATIONS_INTERVAL`], because messages may be lost.
    pub(super) async fn share_revocations(&self) {
        if self.options.revocations.is_none() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(REVOCATIONS_INTERVAL).await;
            self.compare_revocations();
        }
    }

    /// Sends the digest of this node's list. Nodes with another list send theirs, and request this one.
    pub(super) fn compare_revocations(&self) {
        if let Some(list) = &self.options.revocations {
            let compare = RevocationsFrame::Compare { digest: list.digest() };
            self.send_revocations(Channel::Nodes, compare);
        }
    }

    fn send_revocations(&self, whom: Channel, frame: RevocationsFrame) {
        // If the engine's queue is full, the next comparison repairs the loss.
        let _ = self.send(whom, &Frame::Revocations(frame));
    }

    pub(super) fn handle_revocations(&self, sender: NodeId, frame: RevocationsFrame, plane: &dyn LocalNode) {
        let Some(list) = &self.options.revocations else { return };
        let send = |frame| self.send_revocations(Channel::Node(sender), frame);
        let own = list.digest();
        let send_page = |after| {
            let entries = list.entries(after, REVOCATIONS_MAX);
            if !entries.is_empty() {
                send(RevocationsFrame::Page { digest: own, entries });
            }
        };
        match frame {
            RevocationsFrame::Compare { digest } if digest != own => {
                send_page(None);
                send(RevocationsFrame::Ask { digest: own, after: None });
            }
            RevocationsFrame::Ask { digest, after } if digest != own => send_page(after.as_ref()),
            RevocationsFrame::Compare { .. } | RevocationsFrame::Ask { .. } => {}
            RevocationsFrame::Page { digest, entries } => {
                let after = entries.last().map(|entry| entry.filter.clone());
                let bytes = entries.iter().map(bytes_of).sum();
                let is_merged = self.has_memory_for(bytes) && merge(list, entries, plane);
                let own = list.digest();
                if is_merged && own != digest {
                    send(RevocationsFrame::Ask { digest: own, after });
                }
            }
        }
    }

    /// Carries out a command that another node received. A node that can't store the entry reports this, but still ends
    /// its sessions.
    pub(super) fn answer_recheck(
        &self,
        recheck: Recheck,
        reply: impl FnOnce(Result<Answered, AnswerError>) + Send + 'static,
        plane: &dyn LocalNode,
    ) {
        let revokes = recheck.action == RecheckAction::Disconnect && recheck.filter.session.is_none();
        let kept = match &self.options.revocations {
            Some(list) if revokes => {
                list.merge(vec![Revoked { filter: recheck.filter.clone(), until: u64::MAX }])
            }
            _ => Ok(false),
        };
        match kept {
            Ok(_) => plane.recheck(recheck, done(reply, Answered::Concerned)),
            Err(RevocationsFull) => {
                warn_full();
                plane.recheck(recheck, Done::new(|_| reply(Err(AnswerError))));
            }
        }
    }
}

/// Merges entries, and ends the sessions of tokens that have become void. Returns `false` if the list is full.
fn merge(list: &Arc<dyn RevocationList>, entries: Vec<Revoked>, plane: &dyn LocalNode) -> bool {
    let merged = list.merge(entries);
    if merged != Ok(false) {
        let recheck = Recheck { filter: IdentityFilter::default(), action: RecheckAction::EndRevoked };
        plane.recheck(recheck, Done::new(|_| {}));
    }
    if merged.is_err() {
        warn_full();
    }
    merged.is_ok()
}

fn warn_full() {
    tracing::warn!(
        "the list of revocations is full: some of other nodes aren't kept; raise revocations_max in [auth]"
    );
}

fn bytes_of(entry: &Revoked) -> usize {
    let IdentityFilter { issuer, subject, token_id, .. } = &entry.filter;
    let names = [issuer, subject, token_id].into_iter().flatten();
    size_of::<Revoked>() + names.map(|name| name.len()).sum::<usize>()
}
