//! Clients that move between nodes, and name the version that they have. The hubs are real.

use super::*;
use stentor_hub::{
    Body, Encoder, FormatId, Hub, Options, Policy, Publication, RecoveryLimits, Room, SessionId,
};

/// An encoder for whole documents.
pub(super) struct Whole;

impl Encoder for Whole {
    type Frame = ();

    fn encode(&self, _: FormatId, publication: &Publication<()>) -> Option<()> {
        matches!(publication.body(), Body::Snapshot { .. }).then_some(())
    }

    fn len((): &()) -> usize {
        1
    }
}

pub(super) fn hub() -> Hub<Whole> {
    let recovery = RecoveryLimits { bytes_max: 1 << 20, age_max: Duration::from_secs(60) };
    let options = Options {
        external_positions: true,
        reports_rooms: true,
        recovery: Some(recovery),
        ..Options::default()
    };
    Hub::new(options, Whole)
}

/// A client of the feed [`key`].
#[derive(Default)]
pub(super) struct Client {
    /// Index of the client's node, and its session there. `None` while the client is disconnected.
    at: Option<(usize, SessionId)>,
    /// The version received last.
    last: Option<(Position, u64)>,
    /// `true` if the client uses Socket.IO: nodes hand its session over.
    is_socket: bool,
}

impl Client {
    pub(super) fn new(is_socket: bool) -> Self {
        Self { is_socket, ..Self::default() }
    }

    fn version(&self) -> Option<u64> {
        self.last.map(|(_, version)| version)
    }
}

impl Node {
    /// Passes an update to the hub's subscribers.
    pub(super) fn update_hub(&mut self, key: &Key, update: FeedUpdate) {
        match update {
            FeedUpdate::At { position, document, patches } => {
                self.hub.handle_document_at(key, position, FeedState::Live, document, &patches);
            }
            FeedUpdate::State { state, reason } => self.hub.handle_state(key, state, reason),
            FeedUpdate::Forget => self.hub.handle_forget(key),
            FeedUpdate::Confirmed(read) => self.hub.handle_feed_confirmed(key, read),
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// Passes on the feeds that the hub wants confirmed.
    fn confirm(&mut self, now: Instant) {
        while let Some(topic) = self.hub.poll_unconfirmed() {
            assert_eq!(topic, Topic::Feed(key()));
            self.hub.handle_asked(&key(), self.feeds.requests_drawn());
            self.feeds.handle_confirm(now, &key());
        }
    }

    /// Adds or removes a subscriber that doesn't move to other nodes.
    pub(super) fn resident(&mut self, is_there: bool) {
        if let Some(session) = self.resident.take() {
            self.hub.handle_close(session);
        }
        if is_there {
            self.resident = Some(self.subscribe(None));
        }
        while self.hub.poll_subscribed().is_some() {}
    }

    fn subscribe(&mut self, since: Option<Position>) -> SessionId {
        let session = self.hub.handle_open(FormatId(0), 0);
        let result = self.hub.handle_subscribe(session, &Topic::Feed(key()), Policy::Latest, since);
        result.expect("there is space");
        session
    }
}

impl Node {
    /// Opens a session that comes from another node, with the positions that it may have.
    fn arrive(&mut self, now: Instant, positions: Vec<(Key, Position)>) -> SessionId {
        let session = self.hub.handle_open(FormatId(0), 0);
        assert!(self.hub.handle_suspend(session));
        let result = self.hub.handle_subscribe(session, &Topic::Feed(key()), Policy::Latest, None);
        result.expect("there is space");
        for (key, position) in positions {
            self.hub.handle_may_have(session, &key, position);
        }
        let room = Room::all_members("/").expect("a namespace");
        let arrived = self.hub.handle_arrival(now, session, &room, None, Vec::new(), &HashSet::new());
        assert_eq!(arrived, Ok(()));
        session
    }
}

impl Cluster {
    /// Moves a client to a node, or disconnects the client (`None`). A client can't move to a node without
    /// subscribers.
    pub(super) fn move_client(&mut self, client: usize, to: Option<usize>) {
        let client = &mut self.clients[client];
        let mut positions = Vec::new();
        if let Some((at, session)) = client.at.take() {
            positions = self.nodes[at].hub.feed_positions(session);
            self.nodes[at].hub.handle_close(session);
        }
        let Some(index) = to.filter(|index| self.nodes[*index].view.wanted) else { return };
        let node = &mut self.nodes[index];
        let session = match client.is_socket {
            // A client whose session wasn't at another node begins anew.
            true if positions.is_empty() => {
                client.last = None;
                node.subscribe(None)
            }
            true => node.arrive(self.now, positions),
            false => node.subscribe(client.last.map(|(position, _)| position)),
        };
        client.at = Some((index, session));
        self.take();
    }

    /// Removes the clients of a node that has no subscribers left.
    pub(super) fn leave(&mut self, index: usize) {
        for client in 0..self.clients.len() {
            if self.clients[client].at.is_some_and(|(at, _)| at == index) {
                self.move_client(client, None);
            }
        }
    }

    /// Clients receive their updates. No update is older than the version that its client has.
    pub(super) fn take(&mut self) {
        for node in &mut self.nodes {
            node.confirm(self.now);
            if let Some(session) = node.resident {
                node.hub.take(session, usize::MAX, usize::MAX, |_, ()| {});
                node.hub.handle_sent(session);
            }
        }
        for client in &mut self.clients {
            let Some((at, session)) = client.at else { continue };
            let hub = &mut self.nodes[at].hub;
            hub.take(session, usize::MAX, usize::MAX, |publication, ()| {
                let Body::Snapshot { position, document, .. } = publication.body() else {
                    panic!("{:?}", publication.body())
                };
                let version = version_of(document);
                let before = client.last.replace((*position, version));
                assert!(
                    before.is_none_or(|(_, before)| before <= version),
                    "{before:?}, then {:?}",
                    client.last
                );
            });
            hub.handle_sent(session);
        }
    }

    /// Checks that all clients at a node have the newest version.
    pub(super) fn check_clients(&mut self, expect: u64) {
        self.take();
        for client in self.clients.iter().filter(|client| client.at.is_some()) {
            assert_eq!(client.version(), Some(expect), "at {:?}", client.at);
        }
    }

    /// Creates two nodes, with a client at the first one. The second node is cut off when the engine forgets
    /// everything. The client has a version of the epoch that begins then.
    fn forgotten() -> Self {
        let mut cluster = Self::following(2, 2);
        cluster.clients.push(Client::default());
        cluster.move_client(0, Some(0));
        let before = cluster.clients[0].last.expect("a version");
        cluster.disconnect(1);
        cluster.bus.forget();
        cluster.connect(0);
        cluster.upstream = 2;
        cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
        let (after, version) = cluster.clients[0].last.expect("a version");
        assert_eq!(version, 2);
        assert_ne!(before.0.epoch, after.epoch);
        cluster
    }
}

/// A version of an epoch that no node knows.
const OLD: (Position, u64) = (Position { epoch: Epoch(9), offset: 9 }, 1);

#[test]
fn a_client_of_another_epoch_waits_while_its_node_is_cut_off() {
    let mut cluster = Cluster::forgotten();
    cluster.move_client(0, Some(1));
    cluster.run_for(Duration::from_secs(60));
    assert_eq!((cluster.clients[0].version(), cluster.newest(1)), (Some(2), Some(1)));
    cluster.connect(1);
    cluster.upstream = 3;
    cluster.run_for(Duration::from_secs(2));
    cluster.check_clients(3);
}

/// No further version is published, because it would hide that a client waits.
#[test]
fn a_client_of_an_older_epoch_has_the_newest_version_at_once() {
    let mut cluster = Cluster::forgotten();
    cluster.connect(1);
    cluster.run_for(Duration::from_secs(2));
    for index in [0, 1] {
        cluster.clients[0].last = Some(OLD);
        cluster.move_client(0, Some(index));
        assert_eq!(cluster.clients[0].version(), Some(1));
        cluster.run_for(Duration::from_millis(100));
        cluster.check_clients(2);
    }
}

/// The node that reconnects finds no log, because no node has stored a version yet.
#[test]
fn a_client_of_another_epoch_waits_for_the_next_version_if_the_engine_has_lost_all() {
    let mut cluster = Cluster::forgotten();
    cluster.move_client(0, Some(1));
    cluster.disconnect(0);
    cluster.bus.forget();
    cluster.connect(1);
    cluster.run_for(RETRY_DELAY * 2);
    assert_eq!(cluster.clients[0].version(), Some(2));
    cluster.upstream = 3;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    cluster.check_clients(3);
    // Without a new version of the upstream, the client receives the node's version after `LOST_WAIT_MAX`.
    cluster.bus.forget();
    cluster.connect(1);
    cluster.clients[0].last = Some(OLD);
    cluster.move_client(0, Some(1));
    cluster.run_for(LOST_WAIT_MAX - RETRY_DELAY);
    assert_eq!(cluster.clients[0].version(), Some(1));
    cluster.run_for(RETRY_DELAY * 3);
    cluster.check_clients(3);
}

/// A read that began before a client came doesn't confirm the node's version to this client.
#[test]
fn a_client_is_not_sent_versions_read_before_its_request() {
    let mut cluster = Cluster::forgotten();
    cluster.connect(1);
    cluster.run_until_idle();
    cluster.clients[0].last = Some(OLD);
    cluster.clients.push(Client { last: Some(OLD), ..Client::default() });
    cluster.move_client(0, Some(1));
    cluster.pass(CONFIRM_DELAY);
    // The read for the first client is on its way when the second client comes.
    assert_eq!(cluster.requests.len(), 1);
    cluster.move_client(1, Some(1));
    cluster.answer();
    cluster.take();
    assert_eq!(cluster.clients.iter().map(Client::version).collect::<Vec<_>>(), [Some(2), Some(1)]);
    cluster.run_for(Duration::from_millis(200));
    cluster.check_clients(2);
}
