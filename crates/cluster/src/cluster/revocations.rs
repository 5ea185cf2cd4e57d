//! Revocations: every node of the cluster keeps the list.
//!
//! ```text
//!  POST on one node ── Question::Recheck ──► all others: each adds the entry, and ends its sessions
//!  joined, reconnected, every 30 s ── Ask(digest) ──► the first of the others by id ── Page ──► this node
//!  entries that the pages lack ── Added ──► all others
//! ```
//!
//! A node asks for the next page only after it has merged the previous one, so a long list never fills a queue. If the node that is
//! asked doesn't answer, the next one is asked. The next comparison repairs lost messages.

use super::Cluster;
use crate::NodeId;
use crate::engine::Channel;
use crate::frame::{AnswerError, Answered, Frame, REVOCATIONS_MAX, RevocationsFrame};
use crate::surveys::SURVEY_TIMEOUT;
use crate::tasks::done;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stentor_ports::{
    Done, IdentityFilter, LocalNode, Recheck, RecheckAction, RevocationList, RevocationsFull, Revoked,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

/// Interval at which a node compares its list with another node's.
pub const REVOCATIONS_INTERVAL: Duration = Duration::from_secs(30);
/// Delay between two messages with entries for all nodes: at most ten megabytes a second.
const ADDED_INTERVAL: Duration = Duration::from_millis(100);

/// A page of another node's list, with the digest of the list.
type Page = (u64, Vec<Revoked>);

/// The comparison of this node's list with another node's.
#[derive(Default)]
pub(super) struct Comparison {
    /// Notified when this node has joined the cluster.
    pub(super) wanted: Notify,
    /// The node that is asked for a page, and the receiver of the page.
    asked: Mutex<Option<(NodeId, oneshot::Sender<Page>)>>,
    /// `true` if this node's list had no room for an entry of another node, until it has room for a whole other list, or no other node
    /// answers. Meanwhile, the node doesn't answer: its list isn't the one to copy.
    is_full: AtomicBool,
}

impl Cluster {
    /// Compares lists when this node has joined, and every [`REVOCATIONS_INTERVAL`], because messages may be lost.
    pub(super) async fn share_revocations(&self, plane: &dyn LocalNode) {
        let Some(list) = &self.options.revocations else { return std::future::pending().await };
        loop {
            let _ = timeout(REVOCATIONS_INTERVAL, self.comparison.wanted.notified()).await;
            // If no other node answers, their lists may be full. This node answers them from now on, even if its own list is full.
            let mut had_room = true;
            // All nodes ask the same one, so an entry that a node lacks arrives there at once, or after the next comparison of a node
            // that has it.
            for node in self.others() {
                if let Some(room) = self.compare_revocations(node, list, plane).await {
                    had_room = room;
                    break;
                }
            }
            if had_room {
                self.comparison.is_full.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Merges the list of another node, and sends all nodes the entries that it lacks. Returns `Some(true)` if this node's list had room for
    /// all entries, and `None` if the other node doesn't answer.
    async fn compare_revocations(
        &self,
        node: NodeId,
        list: &Arc<dyn RevocationList>,
        plane: &dyn LocalNode,
    ) -> Option<bool> {
        let (mut after, mut had_room) = (None, true);
        loop {
            let (answer, page) = oneshot::channel();
            *self.comparison.asked.lock() = Some((node, answer));
            let own = list.digest();
            let ask = RevocationsFrame::Ask { digest: own, after: after.clone() };
            self.send_revocations(Channel::Node(node), ask);
            let (digest, page) = timeout(SURVEY_TIMEOUT, page).await.ok()?.ok()?;
            // The other node may lack entries of this node, even if this node has no room for those of the other node.
            had_room &= self.merge_revocations(list, &page, plane);
            // If the lists were equal, the page is empty, whatever this node has added since.
            if digest == own || digest == list.digest() {
                return Some(had_room);
            }
            let is_last = page.len() < REVOCATIONS_MAX;
            for entries in lacking(&**list, after.as_ref(), &page, is_last).chunks(REVOCATIONS_MAX) {
                self.send_revocations(Channel::Nodes, RevocationsFrame::Added { entries: entries.into() });
                sleep(ADDED_INTERVAL).await;
            }
            if is_last {
                return Some(had_room);
            }
            after = page.into_iter().next_back().map(|entry| entry.filter);
        }
    }

    fn send_revocations(&self, whom: Channel, frame: RevocationsFrame) {
        // If the engine's queue is full, the next comparison repairs the loss.
        let _ = self.send(whom, &Frame::Revocations(frame));
    }

    pub(super) fn handle_revocations(&self, sender: NodeId, frame: RevocationsFrame, plane: &dyn LocalNode) {
        let Some(list) = &self.options.revocations else { return };
        match frame {
            RevocationsFrame::Ask { digest, after } => {
                if self.comparison.is_full.load(Ordering::Relaxed) {
                    return;
                }
                let own = list.digest();
                let is_equal = digest == own;
                let entries =
                    if is_equal { Vec::new() } else { list.entries(after.as_ref(), REVOCATIONS_MAX) };
                let page = RevocationsFrame::Page { digest: own, entries };
                self.send_revocations(Channel::Node(sender), page);
            }
            RevocationsFrame::Page { digest, entries } => {
                let asked = self.comparison.asked.lock().take_if(|(node, _)| *node == sender);
                // The node may have stopped waiting.
                let _ = asked.map(|(_, page)| page.send((digest, entries)));
            }
            RevocationsFrame::Added { entries } => {
                self.merge_revocations(list, &entries, plane);
            }
        }
    }

    /// Merges entries, and ends the sessions of tokens that have become void. Returns `false` if the list is full, or memory is short.
    fn merge_revocations(
        &self,
        list: &Arc<dyn RevocationList>,
        entries: &[Revoked],
        plane: &dyn LocalNode,
    ) -> bool {
        if !self.has_memory_for(entries.iter().map(bytes_of).sum()) {
            return false;
        }
        let merged = list.merge(entries.to_vec());
        if merged != Ok(false) {
            let recheck = Recheck { filter: IdentityFilter::default(), action: RecheckAction::EndRevoked };
            plane.recheck(recheck, Done::new(|_| {}));
        }
        self.note_merged(merged)
    }

    /// Notes that the list had no room for an entry. Returns `true` if it had.
    fn note_merged(&self, merged: Result<bool, RevocationsFull>) -> bool {
        if merged.is_err() && !self.comparison.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the list of revocations is full: some of other nodes aren't kept; raise revocations_max in [auth]"
            );
        }
        merged.is_ok()
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
        match self.note_merged(kept) {
            true => plane.recheck(recheck, done(reply, Answered::Concerned)),
            false => plane.recheck(recheck, Done::new(|_| reply(Err(AnswerError)))),
        }
    }
}

/// The entries of this node's list from `after` to the end of another node's page that the page lacks, or has with another time. If this node's
/// list had room, the page has been merged. `is_last`: no page follows.
fn lacking(
    list: &dyn RevocationList,
    after: Option<&IdentityFilter>,
    page: &[Revoked],
    is_last: bool,
) -> Vec<Revoked> {
    let subject = |IdentityFilter { issuer, subject, token_id, .. }: &IdentityFilter| {
        [issuer, subject, token_id].map(Clone::clone)
    };
    let times = page.iter().map(|entry| (subject(&entry.filter), entry.filter.issued_before));
    let theirs: HashMap<_, _> = times.collect();
    // The first entry after the page, which belongs to the next page.
    let end = page.last().filter(|_| !is_last);
    let end = end.and_then(|last| list.entries(Some(&last.filter), 1).into_iter().next());
    let end = end.map(|entry| subject(&entry.filter));
    let (mut lacking, mut after) = (Vec::new(), after.cloned());
    loop {
        let own = list.entries(after.as_ref(), REVOCATIONS_MAX);
        let Some(last) = own.last() else { return lacking };
        after = Some(last.filter.clone());
        for entry in own {
            let key = subject(&entry.filter);
            if end.as_ref() == Some(&key) {
                return lacking;
            }
            if theirs.get(&key) != Some(&entry.filter.issued_before) {
                lacking.push(entry);
            }
        }
    }
}

fn bytes_of(entry: &Revoked) -> usize {
    let IdentityFilter { issuer, subject, token_id, .. } = &entry.filter;
    let names = [issuer, subject, token_id].into_iter().flatten();
    size_of::<Revoked>() + names.map(|name| name.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of users with the times before which their tokens are void, in the order of their names.
    #[derive(Debug)]
    struct Users(&'static [(&'static str, u64)]);

    fn entries(users: &[(&str, u64)]) -> Vec<Revoked> {
        let entry = |(name, time): &(&str, u64)| {
            let (subject, issued_before) = (Some((*name).into()), Some(*time));
            Revoked {
                filter: IdentityFilter { subject, issued_before, ..IdentityFilter::default() },
                until: 9,
            }
        };
        users.iter().map(entry).collect()
    }

    impl RevocationList for Users {
        fn digest(&self) -> u64 {
            0
        }

        fn entries(&self, after: Option<&IdentityFilter>, _: usize) -> Vec<Revoked> {
            let mut all = entries(self.0);
            all.retain(|entry| after.is_none_or(|after| entry.filter.subject > after.subject));
            all
        }

        fn merge(&self, _: Vec<Revoked>) -> Result<bool, RevocationsFull> {
            Ok(false)
        }
    }

    #[test]
    fn entries_that_another_list_lacks_are_found_within_its_page() {
        let own = Users(&[("a", 1), ("b", 1), ("c", 2), ("d", 1), ("e", 1)]);
        let check = |after: Option<&str>, page: &[(&str, u64)], is_last, expect: &[(&str, u64)]| {
            let after = after.map(|name| entries(&[(name, 1)]).remove(0).filter);
            assert_eq!(lacking(&own, after.as_ref(), &entries(page), is_last), entries(expect), "{page:?}");
        };
        check(None, &[("b", 1), ("c", 2)], false, &[("a", 1)]);
        check(None, &[("a", 1), ("c", 1), ("d", 1)], false, &[("b", 1), ("c", 2)]);
        check(Some("c"), &[("d", 1)], true, &[("e", 1)]);
        check(None, &[], true, own.0);
        check(Some("e"), &[], true, &[]);
        // This node didn't keep `bb` and `x`: they may have expired, or its list had no room for them.
        check(None, &[("b", 1), ("bb", 1)], false, &[("a", 1)]);
        check(None, &[("b", 1), ("d", 1), ("x", 1)], false, &[("a", 1), ("c", 2), ("e", 1)]);
    }
}
