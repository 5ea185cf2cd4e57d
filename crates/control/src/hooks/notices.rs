//! Notices: what the backend is told without being asked. docs/hooks.md, "Notices".
//!
//! ```text
//!  cores ── NoticeSink ──► Queue ──► POST, one at a time ──► the backend
//!              full: dropped  ▲          │ failed: again, after a pause
//!                             └──────────┘
//! ```
//!
//! A notice leaves the queue when the backend has answered 200. Each has the next number of its hook on this node, also those that are
//! dropped: the backend sees that they are missing.

use super::failure::Cause;
use super::http;
use super::options::HookKind;
use super::question::{self, About, Connection};
use super::run::{Logged, Runner};
use super::{BATCH_BYTES_MAX, Hook, Hooks, QUESTION_BYTES, locked};
use crate::signals::stopped;
use crate::unix_time::unix_millis;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_edge::{DataPlane, NodeInfo, Notice, NoticeSink};
use stentor_hub::Topic;
use tokio::sync::watch;

/// The pause after a request that has failed; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often a single notice is sent that the backend answers with an error, before it is dropped.
const TRIES_MAX: u32 = 5;
/// Time between two looks at the nodes of the cluster.
const NODES_INTERVAL: Duration = Duration::from_secs(1);
/// Approximate size of an occupied topic besides its name.
const TOPIC_BYTES: usize = 96;

/// Notices that wait.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    last: u64,
}

impl Queue {
    /// Takes a notice, which `write` writes, given its number. Returns whether there is room for it.
    fn push(&mut self, (count_max, bytes_max): (usize, usize), write: impl FnOnce(u64) -> Vec<u8>) -> bool {
        self.last += 1;
        if self.waiting.len() >= count_max {
            return false;
        }
        let text = write(self.last);
        if self.bytes + text.len() > bytes_max {
            return false;
        }
        self.bytes += text.len();
        self.waiting.push_back(text);
        true
    }

    /// How many notices the next request has.
    fn next_batch(&self, count_max: usize) -> usize {
        let mut bytes = 0;
        let fits = |text: &&Vec<u8>| {
            bytes += text.len();
            bytes <= BATCH_BYTES_MAX
        };
        self.waiting
            .iter()
            .take(count_max)
            .take_while(fits)
            .count()
            .max(usize::from(!self.waiting.is_empty()))
    }

    /// The backend has taken so many.
    fn confirm(&mut self, count: usize) {
        self.bytes -= self.waiting.drain(..count).map(|text| text.len()).sum::<usize>();
    }
}

/// On how many cores topics have subscribers.
#[derive(Default)]
pub(super) struct Occupied {
    cores: HashMap<Topic, usize>,
    bytes: usize,
}

impl Occupied {
    /// A topic has its first subscriber on a core, or has lost the last one. Returns whether this concerns the node.
    fn change(&mut self, topic: &Topic, is_occupied: bool) -> bool {
        let bytes = TOPIC_BYTES
            + match topic {
                Topic::Room(room) | Topic::Presence(room) => room.namespace().len() + room.name().len(),
                Topic::Feed(key) => key.as_str().len(),
            };
        match (self.cores.get_mut(topic), is_occupied) {
            (Some(cores), true) => *cores += 1,
            (Some(cores), false) if *cores > 1 => *cores -= 1,
            (None, true) => {
                self.cores.insert(topic.clone(), 1);
                self.bytes += bytes;
                return true;
            }
            (Some(_), false) => {
                self.cores.remove(topic);
                self.bytes -= bytes;
                return true;
            }
            (None, false) => {}
        }
        false
    }
}

impl Hook {
    fn notify(&self, kind: HookKind, about: &About<'_>) {
        let at_ms = unix_millis();
        self.metrics.notice(kind).inc();
        let mut queue = locked(&self.notices);
        let (count_max, bytes_max) = self.notices_max;
        // Without memory, it is counted, and nothing is kept.
        let count_max = if self.ledger.has_room(QUESTION_BYTES) { count_max } else { 0 };
        if !queue.push((count_max, bytes_max), |number| question::notice(number, kind, at_ms, about)) {
            self.metrics.notices_dropped.inc();
        }
        self.account(&queue);
        drop(queue);
        self.notified.notify_one();
    }

    fn account(&self, queue: &Queue) {
        self.noticed.set(queue.bytes + queue.waiting.len() * size_of::<Vec<u8>>());
        self.metrics.notices_waiting.set(queue.waiting.len() as i64);
    }
}

impl Hooks {
    /// Whether any hook gets any notice.
    pub fn has_notices(&self) -> bool {
        HookKind::NOTICES.into_iter().any(|kind| self.asks_about(kind))
    }

    fn topic_notice(&self, kind: HookKind, about: &About<'_>, topic: &Topic) {
        let (namespace, name) = match topic {
            Topic::Room(room) | Topic::Presence(room) => (Some(room.namespace()), room.name()),
            Topic::Feed(key) => (None, key.as_str()),
        };
        let takes = |hook: &&Arc<Hook>| hook.filter.takes_topic(kind, namespace, name);
        self.hooks.iter().filter(takes).for_each(|hook| hook.notify(kind, about));
    }

    fn session_notice(&self, kind: HookKind, namespace: &str, about: &About<'_>) {
        let takes = |hook: &&Arc<Hook>| hook.filter.is_on(kind) && hook.filter.takes_namespace(namespace);
        self.hooks.iter().filter(takes).for_each(|hook| hook.notify(kind, about));
    }

    /// Watches the nodes of a cluster. The one with the smallest id reports those that are gone.
    pub(super) async fn watch_nodes(
        self: Arc<Self>,
        plane: Arc<dyn DataPlane>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut known = HashSet::new();
        loop {
            tokio::select! {
                () = stopped(&mut stop) => return,
                () = tokio::time::sleep(NODES_INTERVAL) => {}
            }
            let (now, is_first) = alive(plane.nodes());
            for lost in known.difference(&now).filter(|_| is_first) {
                let takes = |hook: &&Arc<Hook>| hook.filter.is_on(HookKind::NodeLost);
                let notify = |hook: &Arc<Hook>| hook.notify(HookKind::NodeLost, &About::Node(lost));
                self.hooks.iter().filter(takes).for_each(notify);
            }
            known = now;
        }
    }
}

/// The ids of nodes, and whether this one has the smallest.
fn alive(nodes: Vec<NodeInfo>) -> (HashSet<String>, bool) {
    let first = nodes.iter().min_by(|one, other| one.id.cmp(&other.id));
    let is_first = first.is_some_and(|node| node.is_this);
    (nodes.into_iter().map(|node| node.id).collect(), is_first)
}

impl NoticeSink for Hooks {
    fn wants_topics(&self) -> bool {
        [HookKind::Subscribed, HookKind::Occupied, HookKind::Vacated]
            .into_iter()
            .any(|kind| self.asks_about(kind))
    }

    fn notify(&self, notice: &Notice<'_>) {
        match *notice {
            Notice::Connected { session, identity, protocol, namespace, address } => {
                let session = session.to_string();
                let connection = Connection {
                    session: Some(&session),
                    protocol: Some(protocol),
                    namespace: Some(namespace),
                    address,
                };
                self.session_notice(
                    HookKind::Connected,
                    namespace,
                    &About::Session(connection, identity, None),
                );
            }
            Notice::Disconnected { session, namespace, identity } => {
                let session = session.to_string();
                let connection = Connection {
                    session: Some(&session),
                    namespace: Some(namespace),
                    ..Connection::default()
                };
                let about = About::Session(connection, identity, None);
                self.session_notice(HookKind::Disconnected, namespace, &about);
            }
            Notice::Subscribed { session, identity, topic } => {
                let session = session.to_string();
                let namespace = match topic {
                    Topic::Room(room) | Topic::Presence(room) => Some(room.namespace()),
                    Topic::Feed(_) => None,
                };
                let connection = Connection { session: Some(&session), namespace, ..Connection::default() };
                let about = About::Session(connection, identity, Some(topic));
                self.topic_notice(HookKind::Subscribed, &about, topic);
            }
            Notice::Occupied(topic) => self.occupancy(topic, true),
            Notice::Vacated(topic) => self.occupancy(topic, false),
        }
    }
}

impl Hooks {
    fn occupancy(&self, topic: &Topic, is_occupied: bool) {
        let kind = if is_occupied { HookKind::Occupied } else { HookKind::Vacated };
        if !self.asks_about(HookKind::Occupied) && !self.asks_about(HookKind::Vacated) {
            return;
        }
        let mut occupied = locked(&self.occupied);
        if occupied.change(topic, is_occupied) {
            self.occupied_bytes.set(occupied.bytes);
            // Within the lock, so that notices of a topic keep their order.
            self.topic_notice(kind, &About::Topic(topic), topic);
        }
    }
}

impl Runner {
    /// Sends notices until `stop`, and then what is left, as far as `timeout` allows.
    pub(super) async fn run_notices(self, mut stop: watch::Receiver<bool>) {
        let (mut logged, mut pause): (_, Option<Duration>) = (Logged::default(), None);
        let (mut batch_max, mut tries) = (self.hook.batch_max, 0);
        let mut ends_at = None;
        loop {
            if ends_at.is_none() && *stop.borrow_and_update() {
                ends_at = Some(Instant::now() + self.hook.timeout);
            }
            let is_empty = locked(&self.hook.notices).waiting.is_empty();
            match (is_empty, ends_at) {
                (true, Some(_)) => return,
                (_, Some(at)) if at <= Instant::now() => return,
                (true, None) => {
                    tokio::select! {
                        () = stopped(&mut stop) => {}
                        () = self.hook.notified.notified() => {}
                    }
                    // Those of one moment share a request.
                    tokio::time::sleep(self.hook.batch_delay).await;
                    continue;
                }
                (false, _) => {}
            }
            let (count, failed) = self.send_notices(ends_at, batch_max).await;
            let concerns_one = failed.as_ref().is_some_and(|(cause, _)| cause.may_concern_one_question());
            (batch_max, tries) = match concerns_one {
                // Others needn't wait for one that the backend can't handle.
                true if count > 1 => (count / 2, 0),
                true => (1, tries + 1),
                false if failed.is_none() => ((2 * batch_max).min(self.hook.batch_max), 0),
                false => (batch_max, tries),
            };
            if tries == TRIES_MAX {
                self.drop_notice();
                tries = 0;
            }
            pause = match (&failed, pause) {
                (None, _) => None,
                (Some(_), Some(pause)) if !concerns_one => Some((2 * pause).min(PAUSE_MAX)),
                (Some(_), _) => Some(PAUSE_MIN),
            };
            let failure = failed.map(|(_, text)| text);
            self.log(&mut logged, failure);
            if let (Some(pause), None) = (pause, ends_at) {
                tokio::select! {
                    () = stopped(&mut stop) => {}
                    () = tokio::time::sleep(pause) => {}
                }
            } else if pause.is_some() {
                return;
            }
        }
    }

    /// Sends one request of at most `batch_max` notices. Returns how many, and why it failed.
    async fn send_notices(
        &self,
        ends_at: Option<Instant>,
        batch_max: usize,
    ) -> (usize, Option<(Cause, String)>) {
        let hook = &self.hook;
        let (count, body) = {
            let queue = locked(&hook.notices);
            let count = queue.next_batch(batch_max);
            (count, http::body(&self.hooks.node, "notices", queue.waiting.iter().take(count)))
        };
        let held = body.len();
        hook.bodies.add(held);
        hook.metrics.requests.inc();
        let begun = Instant::now();
        let deadline = begun + hook.timeout;
        let sent = hook.sender.send(body, ends_at.map_or(deadline, |at| at.min(deadline))).await;
        hook.metrics.request_seconds.observe(begun.elapsed().as_secs_f64());
        hook.bodies.subtract(held);
        if let Err((cause, text)) = sent {
            hook.metrics.failure(cause).inc();
            return (count, Some((cause, text)));
        }
        let mut queue = locked(&hook.notices);
        queue.confirm(count);
        hook.account(&queue);
        (count, None)
    }

    /// Gives the oldest notice up. Its number is missing then.
    fn drop_notice(&self) {
        let mut queue = locked(&self.hook.notices);
        queue.confirm(1);
        self.hook.metrics.notices_dropped.inc();
        self.hook.account(&queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::tests::{Anything, documented};
    use serde_json::Value;
    use stentor_edge::{Identity, Principal};
    use stentor_hub::Room;

    #[test]
    fn the_documented_notices_are_what_is_sent() {
        let mut identity = Identity::anonymous(Arc::new(Anything));
        identity.principal = Some(Principal { issuer: "hook:chat".into(), subject: "42".into() });
        let room = Topic::Room(Room::plain("lobby").unwrap());
        let subscribed = Connection {
            session: Some("ZJ0sGbPTcG1y2fgHnVxz"),
            namespace: Some("/"),
            ..Connection::default()
        };
        let connected = Connection { protocol: Some("socketio"), address: Some("192.0.2.7"), ..subscribed };
        let texts: Vec<_> = [
            (HookKind::Connected, 0, About::Session(connected, Some(&identity), None)),
            (HookKind::Occupied, 100, About::Topic(&room)),
            (HookKind::Subscribed, 100, About::Session(subscribed, Some(&identity), Some(&room))),
            (HookKind::NodeLost, 200, About::Node("77d0e1f2a3b4c596")),
        ]
        .iter()
        .zip(1..)
        .map(|((kind, at, about), n)| question::notice(n, *kind, 1_800_000_000_000 + at, about))
        .collect();
        let body = http::body("5c1f0a7e9b3d2468", "notices", texts.iter());
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), documented()[5]);
    }

    #[test]
    fn the_queue_is_bounded_and_numbers_what_it_drops() {
        let mut queue = Queue::default();
        let push = |queue: &mut Queue| queue.push((3, 100), |number| number.to_string().into_bytes());
        assert_eq!([(); 5].map(|()| push(&mut queue)), [true, true, true, false, false]);
        assert_eq!((queue.next_batch(2), queue.next_batch(9), queue.bytes), (2, 3, 3));
        queue.confirm(2);
        assert!(push(&mut queue));
        assert_eq!(queue.waiting, [b"3".to_vec(), b"6".to_vec()]);
        queue.confirm(2);
        assert!(!queue.push((3, 100), |_| vec![0; 101]) && queue.next_batch(9) == 0 && queue.bytes == 0);
    }

    #[test]
    fn the_node_with_the_smallest_id_reports_others() {
        let node = |id: &str, is_this| NodeInfo {
            id: id.into(),
            name: String::new(),
            version: String::new(),
            address: None,
            started_at_seconds: 0,
            connections: 0,
            is_this,
        };
        let is_first = |nodes: Vec<NodeInfo>| alive(nodes).1;
        assert!(is_first(vec![node("b", false), node("a", true)]));
        assert!(!is_first(vec![node("b", true), node("a", false)]));
        assert!(!is_first(Vec::new()));
    }

    #[test]
    fn topics_are_occupied_once() {
        let mut occupied = Occupied::default();
        let topic = Topic::Room(Room::plain("a").unwrap());
        let changes = [true, true, false, false, false, true].map(|is| occupied.change(&topic, is));
        assert_eq!(changes, [true, false, false, true, false, true]);
        assert!(occupied.bytes > 0 && !occupied.change(&topic, true));
        assert!(!occupied.change(&topic, false) && occupied.change(&topic, false) && occupied.bytes == 0);
    }
}
