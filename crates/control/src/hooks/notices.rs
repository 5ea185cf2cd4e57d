//! Notices: reports to the backend that need no answer (docs/hooks.md, "Notices").
//!
//! ```text
//!  cores ── NoticeSink ──► Queue ──► POST, one at a time ──► the backend
//!              full: dropped  ▲          │ failed: again, after a pause
//!                             └──────────┘
//! ```
//!
//! A notice is removed from the queue when the backend has answered 200. `delivery` describes the exception.
//! Each notice has the next sequence number of its hook on this node. Dropped notices have numbers too, so
//! that the backend detects missing notices.

use super::delivery::{Next, Queue};
use super::http;
use super::options::{Filter, HookKind};
use super::question::{self, About, Connection};
use super::resync::{Page, PageRequest};
use super::run::{Logged, Runner};
use super::{BATCH_BYTES_MAX, Hook, Hooks, QUESTION_BYTES, source_of};
use crate::signals::stopped;
use crate::unix_time::unix_millis;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{ShrinkingMap, Topic};
use stentor_ports::{NodeInfo, Notice, NoticeSink, Topology};
use tokio::sync::watch;
use tokio::time::sleep_until;

/// Interval at which the nodes of the cluster are compared with the nodes of the previous comparison.
const NODES_INTERVAL: Duration = Duration::from_secs(1);
/// Approximate size of an occupied topic without its name, in bytes.
const TOPIC_BYTES: usize = 160;
/// Maximum number of topics that are visited for a page of a resync while the lock is held.
const SCANNED_MAX: usize = 1_000;

/// Topics with subscribers on this node. They are numbered in the order of their first subscribers.
#[derive(Default)]
pub(super) struct Occupied {
    /// For each topic, the number of cores with subscribers, and the topic's number.
    cores: ShrinkingMap<Topic, (usize, u64)>,
    by_number: BTreeMap<u64, Topic>,
    last: u64,
    bytes: usize,
}

impl Occupied {
    /// Records that a topic gained its first subscriber on a core, or lost its last one there. Returns `true`
    /// if this makes the topic occupied or vacant on the node.
    fn change(&mut self, topic: &Topic, is_occupied: bool) -> bool {
        let bytes = TOPIC_BYTES
            + match topic {
                Topic::Room(room) | Topic::Presence(room) => room.namespace().len() + room.name().len(),
                Topic::Feed(key) => key.as_str().len(),
            };
        match (self.cores.get_mut(topic), is_occupied) {
            (Some((cores, _)), true) => *cores += 1,
            (Some((cores, _)), false) if *cores > 1 => *cores -= 1,
            (None, true) => {
                self.last += 1;
                self.cores.insert(topic.clone(), (1, self.last));
                self.by_number.insert(self.last, topic.clone());
                self.bytes += bytes;
                return true;
            }
            (Some((_, number)), false) => {
                self.by_number.remove(number);
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
        let subject = match about {
            About::Session(connection, ..) => source_of(connection.session),
            About::Topic(topic) => source_of(topic),
            About::Node(id) => source_of(id),
        };
        let has_memory = self.ledger.has_room(QUESTION_BYTES);
        self.notices.with(|queue| {
            if !queue.push(subject, has_memory, || question::notice(kind, at_ms, about)) {
                self.metrics.notices_dropped.inc();
            }
            self.metrics.notices_waiting.set(queue.held() as i64);
        });
        self.notified.notify_one();
    }
}

impl Hooks {
    /// Returns `true` if any hook receives notices.
    pub fn has_notices(&self) -> bool {
        HookKind::NOTICES.into_iter().any(|kind| self.asks_about(kind))
    }

    fn topic_notice(&self, kind: HookKind, about: &About<'_>, topic: &Topic) {
        let (namespace, name) = place(topic);
        let takes = |hook: &&Arc<Hook>| hook.filter.takes_topic(kind, namespace, name);
        self.hooks.iter().filter(takes).for_each(|hook| hook.notify(kind, about));
    }

    fn session_notice(&self, kind: HookKind, namespace: &str, about: &About<'_>) {
        self.hooks_of(kind, namespace).for_each(|hook| hook.notify(kind, about));
    }

    /// Returns the hooks that receive this kind of notice about sessions of a namespace.
    fn hooks_of(&self, kind: HookKind, namespace: &str) -> impl Iterator<Item = &Arc<Hook>> {
        let takes =
            move |hook: &&Arc<Hook>| hook.filter.is_on(kind) && hook.filter.takes_namespace(namespace);
        self.hooks.iter().filter(takes)
    }

    /// Watches the nodes of a cluster. The node with the smallest id reports lost nodes.
    pub(super) async fn watch_nodes(
        self: Arc<Self>,
        topology: Arc<dyn Topology>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut known = HashSet::new();
        loop {
            tokio::select! {
                () = stopped(&mut stop) => return,
                () = tokio::time::sleep(NODES_INTERVAL) => {}
            }
            let (now, is_first) = alive(topology.nodes());
            for lost in known.difference(&now).filter(|_| is_first) {
                let takes = |hook: &&Arc<Hook>| hook.filter.is_on(HookKind::NodeLost);
                let notify = |hook: &Arc<Hook>| hook.notify(HookKind::NodeLost, &About::Node(lost));
                self.hooks.iter().filter(takes).for_each(notify);
            }
            known = now;
        }
    }
}

/// Returns the ids of the nodes, and `true` if this node's id is the smallest one.
fn alive(nodes: Vec<NodeInfo>) -> (HashSet<String>, bool) {
    let first = nodes.iter().min_by(|one, other| one.id.cmp(&other.id));
    let is_first = first.is_some_and(|node| node.is_this);
    (nodes.into_iter().map(|node| node.id).collect(), is_first)
}

impl NoticeSink for Hooks {
    fn wants_topics(&self) -> bool {
        [HookKind::Subscribed, HookKind::Occupied, HookKind::Vacated, HookKind::Resync]
            .into_iter()
            .any(|kind| self.asks_about(kind))
    }

    fn rooms_max(&self) -> usize {
        self.most_rooms(HookKind::Disconnected)
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
                    rooms: None,
                };
                self.session_notice(
                    HookKind::Connected,
                    namespace,
                    &About::Session(connection, identity, None),
                );
            }
            Notice::Disconnected { session, namespace, identity, rooms } => {
                let session = session.to_string();
                for hook in self.hooks_of(HookKind::Disconnected, namespace) {
                    let connection = Connection {
                        session: Some(&session),
                        namespace: Some(namespace),
                        rooms: Some((rooms, hook.rooms_max)),
                        ..Connection::default()
                    };
                    hook.notify(HookKind::Disconnected, &About::Session(connection, identity, None));
                }
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
        let kinds = [HookKind::Occupied, HookKind::Vacated, HookKind::Resync];
        if !kinds.into_iter().any(|kind| self.asks_about(kind)) {
            return;
        }
        let mut occupied = self.occupied.lock();
        if occupied.change(topic, is_occupied) {
            self.occupied_bytes.set(occupied.bytes);
            // The lock is held here, so that the notices of a topic keep their order.
            self.topic_notice(kind, &About::Topic(topic), topic);
        }
    }

    /// Makes a page of a resync with the currently occupied topics.
    fn page(&self, filter: &Filter, wanted: &PageRequest) -> Page {
        let (mut end, mut topics, mut rooms) = (wanted.after, 0, b"[".to_vec());
        let until = wanted.until.unwrap_or_else(|| self.occupied.lock().last);
        let mut is_full = false;
        while !is_full && end < until {
            let occupied = self.occupied.lock();
            let mut scanned = 0;
            for (number, topic) in occupied.by_number.range(end + 1..=until).take(SCANNED_MAX) {
                scanned += 1;
                let (namespace, name) = place(topic);
                let is_listed = filter.takes_topic(HookKind::Resync, namespace, name);
                if is_listed && !wanted.left_out.contains(number) {
                    let text = question::occupied(topic);
                    is_full = topics > 0 && rooms.len() + text.len() > BATCH_BYTES_MAX;
                    if is_full {
                        break;
                    }
                    if topics > 0 {
                        rooms.push(b',');
                    }
                    rooms.extend(text);
                    topics += 1;
                    is_full = topics >= wanted.topics_max;
                }
                end = *number;
                if is_full {
                    break;
                }
            }
            if scanned < SCANNED_MAX && !is_full {
                end = until;
            }
        }
        rooms.push(b']');
        let text = question::page(unix_millis(), wanted.id, wanted.page, topics == 0, &rooms);
        Page { end, until, topics, text }
    }
}

/// Returns the namespace and the name of a topic. A feed has no namespace.
fn place(topic: &Topic) -> (Option<&str>, &str) {
    match topic {
        Topic::Room(room) | Topic::Presence(room) => (Some(room.namespace()), room.name()),
        Topic::Feed(key) => (None, key.as_str()),
    }
}

impl Runner {
    /// Sends notices until `stop` is set, then the remaining notices within `timeout`.
    pub(super) async fn run_notices(self, mut stop: watch::Receiver<bool>) {
        let hook = &self.hook;
        let (mut logged, mut ends_at) = (Logged::default(), None);
        loop {
            if ends_at.is_none() && *stop.borrow_and_update() {
                ends_at = Some(Instant::now() + hook.timeout);
                hook.notices.with(Queue::end);
            }
            let (next, timeout, is_paused) = hook.notices.with(|queue| {
                let now = Instant::now();
                (queue.poll_request(now), queue.poll_timeout(now), queue.is_paused(now))
            });
            let body = match next {
                None => None,
                Some(Next::Send(texts)) => Some(http::body(&self.hooks.node, "notices", texts.iter())),
                Some(Next::MakePage(wanted)) => {
                    let page = self.hooks.page(&hook.filter, &wanted);
                    hook.metrics.notice(HookKind::Resync).inc();
                    hook.notices.with(|queue| queue.set_page(page));
                    continue;
                }
            };
            match (body, ends_at) {
                (_, Some(at)) if at <= Instant::now() => return,
                (None, Some(_)) => return,
                (Some(body), _) => {
                    let failure = self.send_notices(body, ends_at).await;
                    let is_over = failure.is_some() && ends_at.is_some();
                    self.log(&mut logged, failure);
                    if is_over {
                        return;
                    }
                }
                (None, None) => {
                    let timer = async {
                        match timeout {
                            Some(timeout) => sleep_until(timeout.into()).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = stopped(&mut stop) => {}
                        () = timer => {}
                        () = hook.notified.notified(), if !is_paused => {
                            // Waits for further notices, so that notices of the same moment share a request.
                            tokio::time::sleep(hook.batch_delay).await;
                        }
                    }
                }
            }
        }
    }

    /// Sends one request. Returns the cause of a failure, for the log.
    async fn send_notices(&self, body: Vec<u8>, ends_at: Option<Instant>) -> Option<String> {
        let hook = &self.hook;
        let held = hook.charge_body(body.len());
        hook.metrics.requests.inc();
        let begun = Instant::now();
        let deadline = begun + hook.timeout;
        let sent = hook.sender.send(body, ends_at.map_or(deadline, |at| at.min(deadline))).await;
        hook.metrics.request_seconds.observe(begun.elapsed().as_secs_f64());
        drop(held);
        let (outcome, failure) = match sent {
            Ok(_) => (Ok(()), None),
            Err((cause, text)) => {
                hook.metrics.failure(cause).inc();
                (Err(cause), Some(text))
            }
        };
        hook.notices.with(|queue| {
            let dropped = queue.handle_outcome(Instant::now(), outcome);
            hook.metrics.notices_dropped.inc_by(dropped);
            hook.metrics.notices_waiting.set(queue.held() as i64);
        });
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::HookOptions;
    use crate::hooks::delivery::numbered;
    use crate::hooks::tests::{Anything, documented};
    use serde_json::Value;
    use stentor_hub::{Key, Room};
    use stentor_ports::{Identity, Ledger, Principal};

    #[test]
    fn sent_notices_match_the_documentation() {
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
        .map(|((kind, at, about), n)| numbered(n, &question::notice(*kind, 1_800_000_000_000 + at, about)))
        .collect();
        let body = http::body("5c1f0a7e9b3d2468", "notices", texts.iter());
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), documented()[5]);
        let feed = Topic::Feed(Key::parse("matches/1").unwrap());
        let rooms = [&room, &feed].map(|topic| String::from_utf8(question::occupied(topic)).unwrap());
        let rooms = format!("[{}]", rooms.join(","));
        let page = question::page(1_800_000_000_300, 1, 0, false, rooms.as_bytes());
        let body = http::body("5c1f0a7e9b3d2468", "notices", [numbered(93, &page)].iter());
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), documented()[6]);
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
    fn pages_list_the_occupied_topics_that_the_hook_takes() {
        let options = HookOptions {
            name: "h".into(),
            url: "http://127.0.0.1:1".into(),
            on: vec![HookKind::Resync],
            topics: vec!["a*".into()],
            ..HookOptions::default()
        };
        let hooks = Hooks::new("n", &[options], &Arc::new(Ledger::new(1 << 20))).unwrap();
        assert!(hooks.has_notices() && hooks.wants_topics());
        let topic = |name: &str| Topic::Room(Room::plain(name).unwrap());
        for name in ["a1", "b", "a2", "a3", "a4", "a5"] {
            hooks.occupancy(&topic(name), true);
        }
        hooks.occupancy(&topic("a2"), false);
        let filter = &hooks.hooks[0].filter;
        let mut wanted =
            PageRequest { id: 3, page: 0, after: 0, until: None, topics_max: 2, left_out: [5].into() };
        let mut pages = Vec::new();
        for page in 0..3 {
            wanted.page = page;
            let made = hooks.page(filter, &wanted);
            (wanted.after, wanted.until) = (made.end, Some(made.until));
            let value: Value = serde_json::from_slice(&numbered(9, &made.text)).unwrap();
            assert_eq!(
                (&value["id"], &value["page"], &value["sequence"]),
                (&3.into(), &page.into(), &9.into())
            );
            let names = value["rooms"].as_array().unwrap().iter().map(|room| room["room"].as_str().unwrap());
            pages.push((names.map(str::to_owned).collect::<Vec<_>>().join(" "), value["last"] == true));
            // A topic that becomes occupied during the pass isn't part of it.
            hooks.occupancy(&topic(&format!("a-new-{page}")), true);
        }
        assert_eq!(
            pages,
            [("a1 a3", false), ("a5", false), ("", true)].map(|(names, last)| (names.into(), last))
        );
    }

    #[test]
    fn topics_are_occupied_once() {
        let mut occupied = Occupied::default();
        let topic = Topic::Room(Room::plain("a").unwrap());
        let changes = [true, true, false, false, false, true].map(|is| occupied.change(&topic, is));
        assert_eq!(changes, [true, false, false, true, false, true]);
        assert!(occupied.bytes > 0 && !occupied.change(&topic, true));
        assert!(!occupied.change(&topic, false) && occupied.change(&topic, false) && occupied.bytes == 0);
        assert!(occupied.by_number.is_empty() && occupied.cores.is_empty());
    }
}
