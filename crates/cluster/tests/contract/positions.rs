//! Rooms with history on nodes whose data plane is a hub: `ok` is a position.

use crate::{Fixture, KEEP, room};
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_cluster::engine::Limits;
use stentor_cluster::{Cluster, NodeId};
use stentor_edge::{Broadcast, Broker, Busy, CommandInbox, DataPlane, FeedSource, Ledger, RoomUpdate};
use stentor_hub::{
    Body, Data, Emit, Encoder, FormatId, Hub, Options, Policy, Publication, Room, SessionId, Topic,
};
use tokio::sync::{Notify, watch};

/// Frames without content.
struct NoFrames;

impl Encoder for NoFrames {
    type Frame = ();

    fn encode(&self, _: FormatId, _: &Publication<()>) -> Option<()> {
        Some(())
    }

    fn len((): &()) -> usize {
        1
    }
}

/// A core with a client.
struct Plane {
    hub: Mutex<Hub<NoFrames>>,
    client: SessionId,
    changed: Notify,
}

impl Plane {
    fn new() -> Self {
        let options = Options {
            external_positions: true,
            reports_rooms: true,
            room_history: vec![(String::new(), KEEP)],
            ..Options::default()
        };
        let mut hub = Hub::new(options, NoFrames);
        let client = hub.handle_open(FormatId(0), 0);
        Self { hub: Mutex::new(hub), client, changed: Notify::new() }
    }
}

impl CommandInbox for Plane {
    ignore!(publish, receive, decide, update_feed, command, list_rooms);

    fn update_room(&self, room: &Room, update: RoomUpdate) -> Result<(), Busy> {
        let (mut hub, now) = (self.hub.lock().unwrap(), tokio::time::Instant::now().into_std());
        match update {
            RoomUpdate::Message { position, event, data, .. } => {
                hub.handle_positioned(now, room, position, event, data, Emit::default());
            }
            RoomUpdate::History { after, messages } => hub.handle_history(now, room, after, messages),
            RoomUpdate::Confirmed => hub.handle_confirmed(room),
        }
        drop(hub);
        self.changed.notify_one();
        Ok(())
    }
}

impl DataPlane for Plane {
    ignore!(take_wanted, metrics, is_ready, drain);
}

struct Server {
    cluster: Arc<Cluster>,
    plane: Arc<Plane>,
    _stop: watch::Sender<bool>,
}

impl Server {
    async fn start(fixture: &impl Fixture) -> Self {
        let id = NodeId::draw();
        let limits = Limits { request_timeout: Duration::from_secs(10), ..Limits::default() };
        let (engine, events) = fixture.connect(id, limits).await;
        let options = stentor_cluster::Options {
            name: id.to_string(),
            advertise: None,
            relays: None,
            secret: None,
            version: "1".into(),
            history: vec![(String::new(), KEEP)],
            decision_timeout: Duration::from_secs(30),
            feed_source: Arc::new(|_| FeedSource::Fetched),
            feed_idle_ttl: Duration::ZERO,
            revocations: None,
            document_bytes_max: 1_000,
            ledger: Arc::new(Ledger::new(1 << 30)),
        };
        let cluster = Cluster::new(id, options, engine, &events, 0);
        let plane = Arc::new(Plane::new());
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(cluster.clone().run(events, plane.clone(), stopped));
        Self { cluster, plane, _stop: stop }
    }

    /// Changes the hub, and reports which rooms have subscribers then.
    fn change<R>(&self, change: impl FnOnce(&mut Hub<NoFrames>) -> R) -> R {
        let mut hub = self.plane.hub.lock().unwrap();
        let result = change(&mut hub);
        while let Some((topic, has_subscribers)) = hub.poll_subscribed() {
            self.cluster.set_interest(&topic, has_subscribers);
        }
        result
    }

    /// The client subscribes, and has its `ok`.
    async fn subscribe(&self, room: &Room) {
        let waits = !self.change(|hub| hub.handle_prepare(room));
        while waits && self.change(Hub::poll_prepared).is_none() {
            self.plane.changed.notified().await;
        }
        self.change(|hub| {
            let topic = Topic::Room(room.clone());
            hub.handle_subscribe(self.plane.client, &topic, Policy::Queue, None).unwrap();
            if waits {
                hub.handle_release(room);
            }
        });
    }

    fn unsubscribe(&self, room: &Room) {
        let topic = Topic::Room(room.clone());
        assert!(self.change(|hub| hub.handle_unsubscribe(self.plane.client, &topic)));
    }

    fn publish(&self, room: &Room, text: &str) {
        let message = Broadcast {
            id: 0,
            rooms: room.clone().into(),
            except_rooms: Vec::new(),
            except_sessions: Vec::new(),
            event: None,
            data: Data::Text(Bytes::from(text.to_owned())),
            volatile: false,
        };
        self.cluster.publish_with_history(&message, None).unwrap();
    }

    /// Waits for so many messages. Returns their texts.
    async fn receive(&self, count: usize) -> Vec<String> {
        let mut messages = Vec::new();
        let mut next = None;
        let all = async {
            while messages.len() < count {
                self.change(|hub| {
                    assert_eq!(hub.poll_notice(), None);
                    hub.take(self.plane.client, usize::MAX, usize::MAX, |publication, ()| {
                        let Body::Message { data: Data::Text(text), position: Some(at), .. } =
                            publication.body()
                        else {
                            panic!("{:?}", publication.body())
                        };
                        assert_eq!(at.offset, next.unwrap_or(at.offset));
                        next = Some(at.offset + 1);
                        messages.push(String::from_utf8(text.to_vec()).unwrap());
                    });
                    hub.handle_sent(self.plane.client);
                });
                if messages.len() < count {
                    self.plane.changed.notified().await;
                }
            }
        };
        let is_complete = tokio::time::timeout(Duration::from_secs(30), all).await.is_ok();
        assert!(is_complete, "only {messages:?} of {count} messages");
        messages
    }
}

/// The first subscriber of a room on its node; also when it leaves and is back at once.
pub(crate) async fn what_is_published_after_an_answer_arrives_once(fixture: &impl Fixture) {
    let (a, b) = (Server::start(fixture).await, Server::start(fixture).await);
    for i in 0..15 {
        let r = room(&format!("r{i}"));
        for round in 0..3 {
            a.subscribe(&r).await;
            let mut expect: Vec<String> =
                ["a1", "b1", "a2", "a3"].map(|name| format!("{name} {round}")).into();
            for text in &expect {
                let publisher = if text.starts_with('a') { &a } else { &b };
                publisher.publish(&r, text);
            }
            let mut received = a.receive(expect.len()).await;
            received.sort();
            expect.sort();
            assert_eq!(received, expect, "room {i}, round {round}");
            a.unsubscribe(&r);
        }
    }
}
