//! Clients with ever new names on one node leave no memory behind. The program has one test, because the test counts
//! the heap of the process.

#![allow(clippy::unwrap_used)] // Tests may panic.

#[path = "cluster/fixture.rs"]
#[allow(dead_code)] // Nodes under test use more of it.
mod fixture;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use cap::Cap;
use fixture::{answer_to, options, pass};
use std::alloc::System;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_cluster::engine::{
    Answer, Channel, Engine, EngineError, Event, EventSender, History, Lease, Limits, Reply, Request, events,
};
use stentor_cluster::frame::{Frame, Frames};
use stentor_cluster::{Cluster, ClusterCommands, NodeId, Options};
use stentor_hub::{Data, Epoch, FeedState, HistoryLimits, Key, Position, Room, Rooms, Topic};
use stentor_ports::{
    Broadcast, Broker, Claimant, Command, Commands, ControlPlane, FeedUpdate, Feeds, KeyInterest, Ledger,
    Pid, SocketName, SocketQuestion, Target, Ticket, fake,
};
use tokio::sync::watch;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Names of each kind in a cycle.
const NAMES: usize = 500;
/// Maximum growth of the heap (bytes) in the last seven cycles: ten bytes for each name. The size of a table depends on
/// the hashes of its entries.
const GROWTH_MAX: usize = 32 << 10;
/// Maximum charge at the end (bytes): a few replaced epochs.
const COUNTED_MAX: usize = 1_000;
const KEEP: HistoryLimits =
    HistoryLimits { publications_max: 3, bytes_max: 1_000, age_max: Duration::from_secs(5) };

/// An engine that stores nothing. Heartbeats return these records of nodes.
struct Sink(Arc<Mutex<Vec<(NodeId, Bytes)>>>);

impl Engine for Sink {
    fn publish(&self, _: Channel, _: Bytes) -> Result<(), EngineError> {
        Ok(())
    }

    fn set_interest(&self, _: Channel, _: bool) -> bool {
        true
    }

    fn request(&self, request: Request) -> Answer {
        let lease = Lease { term: 1, token: 1 };
        let reply = match request {
            Request::Append { .. } => Reply::Position(Position { epoch: Epoch(1), offset: 1 }),
            Request::History { .. } => Reply::History(History::default()),
            Request::Heads { rooms } => Reply::Heads(vec![None; rooms.len()]),
            Request::AcquireLease { .. } | Request::RenewLease { .. } => Reply::Lease(Some(lease)),
            Request::LoadFeed { .. } => Reply::Feed(None),
            Request::Heartbeat { .. } => Reply::Nodes(self.0.lock().unwrap().clone()),
            Request::Claim { owner, .. } => Reply::Owner(Some(owner)),
            Request::EndEpoch { .. } | Request::ReleaseLease { .. } | Request::StoreVersion { .. } => {
                Reply::Done
            }
        };
        Box::pin(async move { Ok(reply) })
    }
}

/// A node under test, with the engine's events and the data plane's interest in keys.
struct Bench {
    id: NodeId,
    nodes: Arc<Mutex<Vec<(NodeId, Bytes)>>>,
    events: EventSender,
    wanted: Arc<Mutex<Vec<KeyInterest>>>,
    cluster: Arc<Cluster>,
    all: ClusterCommands,
    /// Number of names used so far.
    drawn: usize,
}

fn report(node: NodeId, number: u64) -> (NodeId, Bytes) {
    let record =
        format!(r#"{{"name":"n","version":"1","started_at_seconds":1,"connections":0,"number":{number}}}"#);
    (node, record.into())
}

/// The `n`th id drawn by a node.
fn pid(node: NodeId, n: usize) -> Pid {
    let mut bytes = [7; 15];
    bytes[1..5].copy_from_slice(&node.tag().0.to_le_bytes());
    bytes[7..].copy_from_slice(&(n as u64).to_le_bytes());
    Pid::parse(&URL_SAFE_NO_PAD.encode(bytes)).unwrap()
}

impl Bench {
    fn wants(&self, key: &Key, wanted: bool) {
        self.cluster.set_interest(&Topic::Feed(key.clone()), wanted);
        self.wanted.lock().unwrap().push(KeyInterest { key: key.clone(), wanted, requesters: Vec::new() });
        self.cluster.interest_changed();
    }

    /// Runs all actions of a client with a name of its own, while the node `other` is in the cluster.
    async fn visit(&mut self, other: NodeId) {
        self.drawn += 1;
        let (name, frames) = (format!("{:x}", self.drawn), Frames::new(other, None, 1_000));
        let kept = Room::plain(&format!("kept/{name}")).unwrap();
        let message = Broadcast {
            id: 0,
            rooms: Rooms::new("/", [kept.name()]).unwrap(),
            except_rooms: Vec::new(),
            except_sessions: Vec::new(),
            event: None,
            data: Data::Json("1".into()),
            volatile: false,
        };
        let topic = Topic::Room(kept.clone());
        self.cluster.set_interest(&topic, true);
        self.cluster.publish_with_history(&message, None, Some(self.drawn as u64), None).unwrap();
        let channel = Channel::from(kept);
        let payload = frames.encode(&channel, &Frame::Message(message.clone()));
        for offset in [1, 3] {
            let position = Some(Position { epoch: Epoch(1), offset });
            self.events.send(Event::Message { channel: channel.clone(), position, payload: payload.clone() });
        }
        let key = Key::parse(&format!("feed/{name}")).unwrap();
        self.wants(&key, true);
        pass(Duration::from_millis(1)).await;
        assert!(self.all.take_key_interest().iter().any(|wanted| wanted.key == key && wanted.wanted));
        let update = FeedUpdate::State { state: FeedState::NotFound, reason: "none".into() };
        self.all.update_feed(&key, update).unwrap();
        self.cluster.set_interest(&topic, false);
        self.wants(&key, false);
        // A room without history, a socket of a dead node, a command to all nodes, and bytes that no node sent.
        self.cluster.publish(&Broadcast { rooms: Rooms::new("/", [&*name]).unwrap(), ..message }).unwrap();
        let name = SocketName {
            pid: pid(NodeId(1 << 40), self.drawn),
            namespace: "/".into(),
            last: None,
            claimant: Claimant::Unverified,
        };
        self.cluster.find_socket(SocketQuestion { ticket: Ticket::for_test(self.drawn as u64), name });
        let payload = Bytes::from_static(b"none");
        self.events.send(Event::Message { channel: Channel::Nodes, position: None, payload });
        if self.drawn.is_multiple_of(100) {
            let target = Target::of("/").unwrap();
            let _ = answer_to(|done| self.all.command(target, Command::Sessions { limit: 1, done })).await;
        }
    }

    /// A node joins, clients come and go, the connection to the engine is lost, and the node leaves.
    async fn cycle(&mut self) {
        let other = NodeId::draw();
        for n in 0..NAMES {
            if n % 125 == 0 {
                *self.nodes.lock().unwrap() = vec![report(self.id, n as u64), report(other, n as u64)];
                self.events.send(Event::Disconnected { reason: "lost".into() });
                self.events.send(Event::Connected);
                pass(Duration::from_secs(4)).await;
            }
            self.visit(other).await;
        }
        self.nodes.lock().unwrap().truncate(1);
        // Waits until all state of clients has expired.
        pass(Duration::from_mins(5)).await;
        self.all.take_key_interest();
    }
}

#[tokio::test(start_paused = true)]
async fn clients_with_ever_new_names_leave_nothing_behind() {
    let (id, nodes) = (NodeId::draw(), Arc::<Mutex<Vec<_>>>::default());
    let ledger = Arc::new(Ledger::new(1 << 30));
    let (sender, receiver) = events(&Limits::default(), &ledger);
    let options = Options { history: vec![("kept/".into(), KEEP)], ledger: ledger.clone(), ..options() };
    let cluster = Cluster::new(id, options, Arc::new(Sink(nodes.clone())), &receiver, 0);
    let wanted = Arc::<Mutex<Vec<KeyInterest>>>::default();
    let mut plane = fake::Node::new(|_| Ok(()));
    let taken = wanted.clone();
    plane.take_key_interest = Box::new(move || std::mem::take(&mut *taken.lock().unwrap()));
    let plane = Arc::new(plane);
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(cluster.clone().run(receiver, plane.clone(), stopped));
    let all = ClusterCommands::new(plane, cluster.clone());
    let mut bench = Bench { id, nodes, events: sender, wanted, cluster, all, drawn: 0 };
    let mut held = Vec::new();
    for _ in 0..10 {
        bench.cycle().await;
        held.push(ALLOCATOR.allocated());
    }
    assert!(held[9] <= held[2] + GROWTH_MAX, "{held:?}");
    assert!(ledger.has_room((1 << 30) - COUNTED_MAX));
}
