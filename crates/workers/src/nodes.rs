//! The other nodes of a cluster that have the same applications: messages to them, and the number of their workers.
//!
//! ```text
//!  entries of this node's workers ──► Outgoing ── one message per turn ──► LinkCarrier ──► the engine ──┐
//!  cores, workers ◄── Applications::handle_node ◄── Inbox ◄── LinkNodeSink ◄────────────────────────────┘
//! ```
//!
//! - A message has entries ([`NodeEntry`]) about one application, for one node or for all others. Entries of one worker keep their order
//!   at each receiving node.
//! - Each node announces its number of workers when it changes, and regularly. A node that is silent for long, or that has left,
//!   counts no more.
//! - An announcement has the settings of the workers. A worker with others is refused while none of this node's workers or clients decides what
//!   the application's settings are. A difference that is found later, as when workers start at several nodes at once, is logged.
//! - Other nodes' links have numbers of this node, by which its workers answer.
//!
//! While the engine is away, this node is alone: entries for other nodes are dropped, and their workers don't count.
//!
//! **Invariant.** While a message waits for the engine, no frame of a worker and no message of another node is taken. Messages of other
//! nodes then wait in the inbox up to its bound, above which they are dropped: nothing waits for this node. For the workers, a dropped
//! message is one that the engine has lost: its broadcasts reach no socket of this node, its requests get no answer. Changes of sockets
//! have twice the bound, because a socket that was to be disconnected would stay.

use crate::inbox::EngineChanges;
use crate::occasional::Occasional;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_link::{Entry, FRAME_BYTES, Json, NodeEntry, Settings, Writer};
use stentor_ports::LinkCarrier;

/// Interval at which a node announces its number of workers. An announcement that was lost counts until then.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(10);
/// Time without an announcement after which a node's workers don't count. A dead node is usually reported earlier.
const SILENCE_MAX: Duration = Duration::from_secs(35);
/// Maximum number of nodes whose workers count.
const NODES_MAX: usize = 1_000;
/// Time after which a message that the engine had no room for is offered again.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// The bit of the numbers that other nodes' links have at this node. This node's own links have numbers without it.
const FOREIGN: u32 = 1 << 31;
/// Maximum number of other nodes' links with a number. Above it, the oldest are forgotten: answers to them would be late.
const LINKS_MAX: usize = 1 << 16;
/// Settings of workers with more bytes aren't announced, and so not compared.
const SETTINGS_BYTES_MAX: usize = 16 << 10;
/// The workers whose settings differ, in a refusal and in the log.
pub(crate) const ELSEWHERE: &str = "the workers beside other nodes";
/// Bytes that a number of a link takes.
const LINK_BYTES: usize = 96;

/// A link of another node: the node, and the link's number there.
pub(crate) type ForeignLink = (u64, u32);

/// Numbers of other nodes' links.
#[derive(Default)]
struct ForeignLinks {
    numbers: HashMap<ForeignLink, u32>,
    links: BTreeMap<u32, ForeignLink>,
    next: u32,
}

impl ForeignLinks {
    fn number(&mut self, link: ForeignLink) -> u32 {
        if let Some(number) = self.numbers.get(&link) {
            return *number;
        }
        if self.links.len() >= LINKS_MAX
            && let Some((_, oldest)) = self.links.pop_first()
        {
            self.numbers.remove(&oldest);
        }
        let number = self.next | FOREIGN;
        self.next = (self.next + 1) & !FOREIGN;
        self.links.insert(number, link);
        self.numbers.insert(link, number);
        number
    }

    fn forget(&mut self, node: u64) {
        self.links.retain(|_, link| link.0 != node);
        self.numbers.retain(|link, _| link.0 != node);
    }
}

/// The workers of another node.
struct Neighbor {
    workers: u16,
    /// `None`: they aren't compared.
    settings: Option<Settings>,
    /// Size of the settings.
    bytes: usize,
    heard_at: Instant,
}

/// This node's part of an application.
#[derive(Clone, Copy)]
pub(crate) struct Own {
    /// Number of workers that take sessions.
    pub(crate) workers: u16,
    /// Number of the last broadcast that clients can miss.
    pub(crate) last: u64,
}

/// An announcement of another node.
pub(crate) struct Announced {
    pub(crate) workers: u16,
    /// `true` if the node wants an answer.
    pub(crate) asks: bool,
    /// The settings of these workers.
    pub(crate) settings: Option<Json>,
}

/// Counts of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeStats {
    /// Workers that take sessions at other nodes.
    pub(crate) workers: u16,
    /// Other nodes whose workers have other settings than this node's.
    pub(crate) conflicts: usize,
    /// Entries that were sent to other nodes.
    pub(crate) sent: u64,
    /// Entries that other nodes have sent.
    pub(crate) received: u64,
    /// Entries for other nodes that were dropped because the engine was unreachable, or because they were too large for the
    /// engine.
    pub(crate) dropped: u64,
    /// Messages of other nodes that the inbox dropped, because too many waited.
    pub(crate) missed: u64,
    /// Messages of other nodes that were malformed.
    pub(crate) refused: u64,
}

/// An application at the other nodes.
#[derive(Default)]
struct AppNodes {
    neighbors: HashMap<u64, Neighbor>,
    /// The last number of this node's workers that was announced, and the time. `None`: none since the engine is connected.
    announced: Option<(u16, Instant)>,
    /// The settings of this node's workers.
    settings: Option<Settings>,
    stats: NodeStats,
    /// Messages that were missed, for the log.
    missed: Occasional,
    /// Announcements with other settings, for the log.
    conflicting: Occasional,
}

/// `false` if the entry is a node's own.
pub(crate) fn is_of_worker(entry: &NodeEntry) -> bool {
    !matches!(entry, NodeEntry::Workers { .. })
}

/// `true` for changes of sockets and for numbers of workers: a node that is behind keeps them longer than broadcasts and requests.
/// Messages have entries of one kind.
fn changes_members(entry: &NodeEntry) -> bool {
    matches!(entry, NodeEntry::Workers { .. } | NodeEntry::Select { .. })
}

/// Entries to send, or a message that the engine had no room for.
enum Content {
    Open(Box<Writer>),
    Sealed(bytes::Bytes),
}

struct Outgoing {
    app: usize,
    /// The receiving node. `None`: all others.
    node: Option<u64>,
    /// The kind of all entries: see [`changes_members`].
    changes_members: bool,
    content: Content,
    /// Number of entries of workers.
    entries: u64,
}

impl Outgoing {
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Open(writer) => writer.len(),
            Content::Sealed(message) => message.len(),
        }
    }

    /// The message. No further entries are added to it.
    fn seal(&mut self) -> bytes::Bytes {
        if let Content::Open(writer) = &mut self.content {
            self.content = Content::Sealed(writer.finish(0, 0).to_bytes());
        }
        match &self.content {
            Content::Sealed(message) => message.clone(),
            Content::Open(_) => bytes::Bytes::new(),
        }
    }
}

/// The other nodes.
pub(crate) struct Nodes {
    carrier: Arc<dyn LinkCarrier>,
    names: Vec<Arc<str>>,
    is_connected: bool,
    /// `true` when this node leaves: it announces no workers.
    is_leaving: bool,
    apps: Vec<AppNodes>,
    links: ForeignLinks,
    outgoing: VecDeque<Outgoing>,
    /// The time at which a message that the engine had no room for is offered again.
    retry_at: Option<Instant>,
}

impl Nodes {
    pub(crate) fn new(carrier: Arc<dyn LinkCarrier>, names: Vec<Arc<str>>) -> Self {
        let apps = names.iter().map(|_| AppNodes::default()).collect();
        Self {
            carrier,
            names,
            is_connected: false,
            is_leaving: false,
            apps,
            links: ForeignLinks::default(),
            outgoing: VecDeque::new(),
            retry_at: None,
        }
    }

    /// `true` while a message waits for the engine.
    pub(crate) fn is_blocked(&self) -> bool {
        self.retry_at.is_some()
    }

    pub(crate) fn stats(&self, app: usize) -> NodeStats {
        self.apps[app].stats
    }

    /// Bytes that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        let neighbors = self.apps.iter().flat_map(|app| app.neighbors.values());
        let settings: usize = neighbors.map(|neighbor| neighbor.bytes).sum();
        self.outgoing_bytes() + settings + self.links.links.len() * LINK_BYTES
    }

    /// Size of the messages that wait for the engine.
    pub(crate) fn outgoing_bytes(&self) -> usize {
        self.outgoing.iter().map(Outgoing::bytes).sum()
    }

    /// The number of another node's link, for this node's workers.
    pub(crate) fn number(&mut self, link: ForeignLink) -> u32 {
        self.links.number(link)
    }

    /// The link of another node that has a number.
    pub(crate) fn link(&self, number: u32) -> Option<ForeignLink> {
        self.links.links.get(&number).copied()
    }

    /// Writes an entry for a node, or for all others.
    pub(crate) fn write(&mut self, app: usize, node: Option<u64>, entry: &NodeEntry) {
        let entries = u64::from(is_of_worker(entry));
        if !self.is_connected {
            self.apps[app].stats.dropped += entries;
            return;
        }
        let changes_members = changes_members(entry);
        if let Some(last) = self.outgoing.back_mut()
            && (last.app, last.node, last.changes_members) == (app, node, changes_members)
            && let Content::Open(writer) = &mut last.content
            && writer.len() + entry.encoded_len() <= FRAME_BYTES
        {
            writer.entry(entry);
            last.entries += entries;
            return;
        }
        let mut writer = Box::<Writer>::default();
        writer.entry(entry);
        let content = Content::Open(writer);
        self.outgoing.push_back(Outgoing { app, node, changes_members, content, entries });
    }

    /// Gives the messages to the engine.
    pub(crate) fn flush(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        self.retry_at = None;
        while let Some(first) = self.outgoing.front_mut() {
            let message = first.seal();
            let Ok(is_sent) = self.carrier.carry(&self.names[first.app], first.node, message) else {
                self.retry_at = Some(now + RETRY_DELAY);
                return;
            };
            let stats = &mut self.apps[first.app].stats;
            *(if is_sent { &mut stats.sent } else { &mut stats.dropped }) += first.entries;
            self.outgoing.pop_front();
        }
    }

    /// Counts entries of another node, or a message that is malformed.
    pub(crate) fn count(&mut self, app: usize, entries: u64, is_malformed: bool) {
        let stats = &mut self.apps[app].stats;
        stats.received += entries;
        stats.refused += u64::from(is_malformed);
    }

    /// Counts messages of other nodes that the inbox dropped.
    pub(crate) fn count_missed(&mut self, app: usize, messages: u64, now: Instant) {
        let AppNodes { stats, missed, .. } = &mut self.apps[app];
        stats.missed += messages;
        if let Some(messages) = missed.count(messages, now) {
            let name = &self.names[app];
            tracing::warn!(app = %name, messages, "messages of other nodes' workers were dropped: this node is behind");
        }
    }

    /// The other nodes that have an application.
    pub(crate) fn neighbors(&self, app: usize) -> BTreeSet<u64> {
        self.apps[app].neighbors.keys().copied().collect()
    }

    /// Maximum delay of a message behind a message that another node has sent later.
    pub(crate) fn delay_max(&self) -> Duration {
        self.carrier.delay_max()
    }

    // Numbers and settings of workers.

    /// The settings of running workers beside other nodes.
    pub(crate) fn settings(&self, app: usize) -> Option<&Settings> {
        let running = self.apps[app].neighbors.iter().filter(|(_, neighbor)| neighbor.workers > 0);
        running.min_by_key(|(node, _)| **node)?.1.settings.as_ref()
    }

    /// Sets the settings of this node's workers.
    pub(crate) fn set_settings(&mut self, app: usize, settings: Settings) {
        let own = &mut self.apps[app];
        if own.settings.as_ref() != Some(&settings) {
            own.settings = Some(settings);
            own.announced = None;
        }
    }

    /// Announces the number of this node's workers, if it has changed or is due. Forgets nodes that have been silent for too long.
    pub(crate) fn announce(&mut self, app: usize, Own { workers, last }: Own, now: Instant) {
        if !self.is_connected {
            return;
        }
        let count = if self.is_leaving { 0 } else { workers };
        let announced = self.apps[app].announced;
        if announced.is_some_and(|(known, at)| known == count && now < at + ANNOUNCE_INTERVAL) {
            return;
        }
        self.apps[app].announced = Some((count, now));
        self.apps[app].neighbors.retain(|_, neighbor| now < neighbor.heard_at + SILENCE_MAX);
        self.add_up(app);
        let settings = self.settings_of(app, count);
        let asks = announced.is_none();
        self.write(app, None, &NodeEntry::Workers { count, asks, last, settings });
    }

    /// The settings that are announced with a number of workers.
    fn settings_of(&self, app: usize, count: u16) -> Option<Json> {
        let settings = self.apps[app].settings.as_ref().filter(|_| count > 0)?.to_json();
        (settings.as_str().len() <= SETTINGS_BYTES_MAX).then_some(settings)
    }

    /// Announces that this node has no workers.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Takes the announcement of another node.
    pub(crate) fn handle_workers(
        &mut self,
        app: usize,
        node: u64,
        announced: Announced,
        own: Own,
        now: Instant,
    ) {
        if !self.is_connected {
            return;
        }
        let Announced { workers, asks, settings } = announced;
        let count = if self.is_leaving { 0 } else { own.workers };
        let AppNodes { neighbors, settings: of_own, conflicting, .. } = &mut self.apps[app];
        let bytes = settings.as_ref().map_or(0, |settings| settings.as_str().len());
        let settings = settings.as_ref().and_then(Settings::from_json);
        let both = of_own.as_ref().zip(settings.as_ref()).filter(|_| count > 0 && workers > 0);
        if let Some(difference) = both.and_then(|(own, other)| other.difference(own, ELSEWHERE))
            && conflicting.count(1, now).is_some()
        {
            let (name, id) = (&self.names[app], format!("{node:016x}"));
            tracing::warn!(app = %name, id, difference, "workers beside two nodes have different options: restart those of one node");
        }
        if neighbors.len() < NODES_MAX || neighbors.contains_key(&node) {
            neighbors.insert(node, Neighbor { workers, settings, bytes, heard_at: now });
        }
        self.add_up(app);
        if asks {
            let settings = self.settings_of(app, count);
            let entry = NodeEntry::Workers { count, asks: false, last: own.last, settings };
            self.write(app, Some(node), &entry);
        }
    }

    /// A node has left, or is dead.
    pub(crate) fn handle_left(&mut self, node: u64) {
        self.links.forget(node);
        for app in 0..self.apps.len() {
            self.apps[app].neighbors.remove(&node);
            self.add_up(app);
        }
    }

    /// The engine is connected, or its connection is lost, perhaps both.
    pub(crate) fn handle_engine(&mut self, changes: EngineChanges) {
        self.is_connected = changes.is_connected;
        for app in &mut self.apps {
            app.announced = None;
        }
        if changes.is_lost {
            for message in self.outgoing.drain(..) {
                self.apps[message.app].stats.dropped += message.entries;
            }
            self.retry_at = None;
            for app in 0..self.apps.len() {
                self.apps[app].neighbors.clear();
                self.add_up(app);
            }
        }
    }

    /// The time at which [`Self::announce`] or [`Self::flush`] must be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let announced = self.apps.iter().filter_map(|app| app.announced);
        announced.map(|(_, at)| at + ANNOUNCE_INTERVAL).chain(self.retry_at).min()
    }

    fn add_up(&mut self, app: usize) {
        let AppNodes { neighbors, announced, settings, stats, .. } = &mut self.apps[app];
        let sum: usize = neighbors.values().map(|neighbor| usize::from(neighbor.workers)).sum();
        stats.workers = u16::try_from(sum).unwrap_or(u16::MAX);
        let own = settings.as_ref().filter(|_| announced.is_some_and(|(count, _)| count > 0));
        let is_other = |neighbor: &&Neighbor| neighbor.workers > 0 && neighbor.settings.as_ref() != own;
        let compared = neighbors.values().filter(|neighbor| own.is_some() && neighbor.settings.is_some());
        stats.conflicts = compared.filter(is_other).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_other_nodes_links_are_bounded() {
        let mut links = ForeignLinks::default();
        let first = links.number((1, 7));
        assert_eq!((first, links.number((1, 7)), links.number((2, 7))), (FOREIGN, FOREIGN, FOREIGN | 1));
        for link in 0..LINKS_MAX as u32 {
            links.number((3, link));
        }
        assert_eq!((links.numbers.len(), links.links.len()), (LINKS_MAX, LINKS_MAX));
        assert_eq!(links.links.get(&first), None, "the oldest is forgotten");
        links.forget(3);
        assert_eq!((links.numbers.len(), links.links.len()), (0, 0));
    }
}
