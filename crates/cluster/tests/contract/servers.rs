//! Connections of nodes to real servers, and checks that both Redis and NATS pass.

use crate::proxy::Proxy;
use crate::{Fixture, KEEP, Node, START, room, sleep_ms};
use bytes::Bytes;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_cluster::NodeId;
use stentor_cluster::engine::{
    self, Address, ConnectOptions, Engine, EngineError, Event, EventReceiver, Limits, Request, SILENCE_MAX,
    Waiting,
};
use stentor_hub::Room;
use stentor_ports::Ledger;

/// A server of Redis or NATS.
pub(crate) trait Server: Fixture {
    /// `true` if a room's epoch begins when the room is read, `false` if it begins with the next message.
    const READING_BEGINS_EPOCHS: bool;
    /// `true` if waiting messages are published only after the node is subscribed again.
    const PUBLISHES_WHEN_SUBSCRIBED: bool;
    /// Text in the reason for replacing a silent connection. Empty if several reasons are possible.
    const SILENCE: &str;

    fn port(&self) -> u16;

    /// The server's URL with another port.
    fn url_at(&self, port: u16) -> String;

    fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// Kills the server.
    fn stop(&self);

    /// Starts the server again, with its stored data.
    fn run(&self);
}

pub(crate) fn options() -> ConnectOptions {
    ConnectOptions {
        prefix: "test:".into(),
        wait: false,
        ca_file: None,
        identity: None,
        credentials_file: None,
        limits: Limits { request_timeout: Duration::from_secs(10), ..Limits::default() },
        ledger: Arc::new(Ledger::new(usize::MAX)),
    }
}

pub(crate) async fn connect(url: &str) -> Result<Node, String> {
    connect_with(url, options()).await
}

pub(crate) async fn connect_with(url: &str, options: ConnectOptions) -> Result<Node, String> {
    let (id, address) = (NodeId::draw(), Address::parse(url).map_err(|error| error.to_string())?);
    let connected = engine::connect(id, &address, options).await;
    let (engine, events) = connected.map_err(|error| error.to_string())?;
    Ok(Node { id, engine, events })
}

/// Connects a node, and waits until it is connected.
pub(crate) async fn connected(url: &str, options: ConnectOptions) -> Node {
    let mut node = connect_with(url, options).await.unwrap();
    assert_eq!(node.event().await, Event::Connected);
    node
}

/// An engine for [`Fixture::connect`].
pub(crate) async fn attach(
    node: NodeId,
    url: &str,
    options: ConnectOptions,
) -> (Arc<dyn Engine>, EventReceiver) {
    engine::connect(node, &Address::parse(url).unwrap(), options).await.unwrap()
}

/// Checks that connecting to each URL fails with an error that contains the reason but not the password `wrong`.
pub(crate) async fn check_refused(rows: impl IntoIterator<Item = (String, &str)>) {
    for (url, reason) in rows {
        let error = connect(&url).await.err().unwrap();
        assert!(error.contains(reason) && !error.contains("wrong"), "{url}: {error}");
    }
}

/// Starts a server that answers each connection with an HTTP error. Returns its port.
pub(crate) fn http_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    port
}

impl Node {
    /// Waits until the connection is lost and restored. Returns the reason for the loss.
    pub(crate) async fn reconnected(&mut self) -> Arc<str> {
        loop {
            if let Event::Disconnected { reason } = self.event().await {
                assert_eq!(self.event().await, Event::Connected);
                return reason;
            }
        }
    }

    /// Appends a message to a room in which the node is interested, and waits for it.
    pub(crate) async fn receives(&mut self, name: &str) {
        let key: Arc<str> = fastrand::u64(..).to_string().into();
        let append = || append(&room(name), "again", Some(key.clone()));
        // The read succeeds only after the subscription. Messages appended earlier don't arrive.
        let history =
            || Request::History { room: room(name), since: START, messages_max: 0, age_max: KEEP.age_max };
        while self.try_request(history()).await.is_err() {}
        // A request has an unknown outcome if its connection is cut, so the append is repeated.
        while let Err(error) = self.try_request(append()).await {
            assert!(matches!(error, EngineError::Unavailable(_)), "{error}");
        }
        assert_eq!(self.message().await.2, "again");
    }

    /// Joins a room, appends a message, and waits for it.
    pub(crate) async fn serves(&mut self) {
        self.join(&room("r")).await;
        self.receives("r").await;
    }

    /// Joins 2,500 rooms. Returns every 500th of them.
    pub(crate) async fn join_many(&self) -> Vec<Room> {
        let rooms: Vec<_> = (0..2_500).map(|i| room(&format!("r{i}"))).collect();
        for r in &rooms {
            self.engine.set_interest(r.clone().into(), true);
        }
        self.join(rooms.last().unwrap()).await;
        rooms.into_iter().step_by(500).collect()
    }
}

pub(crate) fn append(room: &Room, payload: impl Into<Bytes>, idempotency_key: Option<Arc<str>>) -> Request {
    Request::Append { room: room.clone(), payload: payload.into(), idempotency_key, limits: KEEP }
}

/// After a restart, stored messages can be read. Later messages may follow lost ones, so they have another epoch.
pub(crate) async fn a_server_that_starts_again_begins_another_epoch_also_with_its_data<S: Server>(
    server: &S,
) {
    let mut node = Node::connect(server).await;
    let r = room("r");
    node.join(&r).await;
    let old = node.append_with(&r, "old", Some("key"), KEEP).await;
    assert_eq!(node.message().await.2, "old");
    server.stop();
    server.run();
    node.reconnected().await;
    let head = node.head(&r).await.unwrap();
    if S::READING_BEGINS_EPOCHS {
        // The head is that of a new epoch, because a head never goes back within an epoch.
        assert!(head.epoch != old.epoch && head.offset == 0, "{head:?}");
        assert_eq!(node.history(&r, old, 10).await, (Some(head), vec![], true));
    } else {
        assert_eq!(head, old);
    }
    assert_eq!(node.append_with(&r, "retried", Some("key"), KEEP).await, old, "the data is kept");
    let new = node.append(&r, "new").await;
    assert!(new.epoch != old.epoch && new.offset == 1, "{new:?}");
    assert!(!S::READING_BEGINS_EPOCHS || new.epoch == head.epoch, "{new:?} after {head:?}");
    assert_eq!(node.message().await.2, "new");
    assert_eq!(node.history(&r, old, 10).await, (Some(new), vec!["new".into()], true));
}

pub(crate) async fn messages_published_during_an_outage_wait_within_bounds<S: Server>(server: &S) {
    const BUDGET: usize = 1 << 20;
    let limits =
        Limits { outgoing_messages_max: 3, request_timeout: Duration::from_millis(300), ..Limits::default() };
    let ledger = Arc::new(Ledger::new(BUDGET));
    let options = ConnectOptions { limits, ledger: ledger.clone(), ..options() };
    let mut node = connected(&server.url(), options).await;
    let r = room("r");
    node.join(&r).await;
    assert_eq!(node.engine.waiting(), Waiting::default());
    let free = (0..=BUDGET).rev().find(|bytes| ledger.has_room(*bytes)).unwrap();
    assert!(BUDGET - free < 1_000, "what is known of a room");
    server.stop();
    let Event::Disconnected { reason } = node.event().await else { panic!() };
    assert_eq!(&*reason, "the connection was closed");
    let published: Vec<_> =
        (0..5).map(|i| node.engine.publish(r.clone().into(), vec![b'0' + i].into())).collect();
    assert_eq!(published, [Ok(()), Ok(()), Ok(()), Err(EngineError::Full), Err(EngineError::Full)]);
    let asked = node.engine.request(Request::Heads { rooms: vec![r.clone()] });
    let waiting = node.engine.waiting();
    assert_eq!((waiting.messages, waiting.requests), (3, 1));
    let waiting_bytes = waiting.messages_bytes + waiting.requests_bytes;
    assert!(waiting_bytes > 100 && ledger.has_room(free - waiting_bytes), "{waiting:?}");
    assert!(!ledger.has_room(free - waiting_bytes + 1), "it is charged");
    let asked = asked.await;
    assert_eq!(node.engine.waiting().requests_bytes, 0);
    assert!(matches!(asked, Err(EngineError::Unavailable(_))), "{asked:?}");
    server.run();
    assert_eq!(node.event().await, Event::Connected);
    while node.engine.publish(r.clone().into(), "end".into()).is_err() {
        sleep_ms(10).await;
    }
    let mut received = Vec::new();
    while received.last().is_none_or(|last| last != "end") {
        received.push(node.message().await.2);
    }
    assert!(!S::PUBLISHES_WHEN_SUBSCRIBED || received == ["0", "1", "2", "end"], "{received:?}");
    // The engine reads the answer to the last batch after its messages.
    while node.engine.waiting() != Waiting::default() {
        sleep_ms(1).await;
    }
    assert!(ledger.has_room(free));
}

pub(crate) async fn a_connection_that_is_silent_in_one_direction_is_replaced<S: Server>(server: &S) {
    for way in [0, 1] {
        let proxy = Proxy::start(server.port());
        let mut node = connected(&server.url_at(proxy.port), options()).await;
        node.join(&room("r")).await;
        let cut_at = Instant::now();
        proxy.swallows[way].store(true, Ordering::Relaxed);
        let reason = node.reconnected().await;
        assert!(reason.contains(S::SILENCE), "{reason}");
        let took = cut_at.elapsed();
        let most = SILENCE_MAX + Duration::from_secs(3);
        assert!(took > Duration::from_secs(2) && took < most, "{took:?}");
        node.receives("r").await;
    }
}

pub(crate) async fn a_node_may_wait_for_the_server(server: &impl Server) {
    server.stop();
    let mut node = connect_with(&server.url(), ConnectOptions { wait: true, ..options() }).await.unwrap();
    node.engine.set_interest(room("r").into(), true);
    server.run();
    assert_eq!(node.event().await, Event::Connected);
    node.receives("r").await;
}
