//! A node, on the virtual clock or over real sockets, and its clients.
//!
//! On the virtual clock, a test and its nodes run on one thread. Real sockets are for tests that need the kernel or real
//! threads. Each wait ends with an event, after at most [`PATIENCE`]. Time never decides whether a test passes.

#![allow(dead_code)] // Each test file uses its part.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests may panic; clippy knows only functions marked as such.

pub(crate) mod http;
pub(crate) mod io;
mod rooms;
mod simulated;
mod stream;
pub(crate) mod tls;
pub(crate) mod ws;

#[allow(unused_imports)] // As above.
pub(crate) use http::{Http, Response, UPGRADE, request};
#[allow(unused_imports)]
pub(crate) use io::{Io, Packet, TRANSPORTS, VERSIONS, WAYS, Way};
#[allow(unused_imports)]
pub(crate) use rooms::{id_of, joins, leaves, rule, says, template};
#[allow(unused_imports)]
pub(crate) use simulated::{advance, pass};
pub(crate) use stream::Stream;
#[allow(unused_imports)]
pub(crate) use ws::{Seen, Ws};

use bytes::Bytes;
use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stentor_delta::{self as delta, Delta, Differ, Seed};
use stentor_edge::{App, AppFactory, CoreFailed, DriverChoice, Node, NodeHandle, Options};
use stentor_hub::{Data, Document, FeedState, Key, KeyCharset, Patch, Room};
use stentor_ports::{
    CommandError, Commands, ControlPlane, DocumentChange, Done, Drain, FeedUpdate, Feeds, KeyInterest,
    Lifecycle, LocalNode, MetricSource, Publish,
};

/// Maximum duration of each wait. Far above the usual duration, so that no test fails on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than any test.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Reads available bytes. Repeats a read that a signal has interrupted (the end of an io_uring ring sends one, too).
pub(crate) fn read(mut stream: impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A control plane that counts the notifications of space.
#[derive(Default)]
pub(crate) struct Control {
    spaces: AtomicU64,
}

impl ControlPlane for Control {
    fn interest_changed(&self) {}

    fn space(&self) {
        self.spaces.fetch_add(1, Ordering::SeqCst);
    }
}

enum Host {
    /// The number of a node of this thread's simulation.
    Simulated(u64),
    Sockets(Option<Node>),
}

/// A node. It is drained when this is dropped.
pub(crate) struct Server {
    host: Host,
    plane: Arc<NodeHandle>,
    control: Arc<Control>,
    levels: Mutex<HashMap<Key, bool>>,
    versions: Mutex<HashMap<String, Bytes>>,
    recovers: bool,
    pub addr: SocketAddr,
    pub addrs: Vec<SocketAddr>,
}

impl Server {
    /// Starts a node on the virtual clock of this thread. `set` sets its other options.
    pub(crate) fn start(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        Self::simulated(cores, None, set)
    }

    /// Starts a node with this application. Its heartbeat interval is longer than a test.
    pub(crate) fn quiet(cores: usize, app: App, set: impl FnOnce(&mut Options)) -> Self {
        Self::start(cores, |options| {
            options.app = app;
            options.heartbeat.interval = HOUR;
            set(options);
        })
    }

    /// Starts a quiet node with the `echo` application.
    pub(crate) fn echo(cores: usize) -> Self {
        Self::quiet(cores, App::Echo, |_| {})
    }

    /// As `start`, with an application of the test.
    pub(crate) fn with_app(cores: usize, app: AppFactory, set: impl FnOnce(&mut Options)) -> Self {
        Self::simulated(cores, Some(app), set)
    }

    fn simulated(cores: usize, app: Option<AppFactory>, set: impl FnOnce(&mut Options)) -> Self {
        Self::new(cores, set, |options, control| {
            let (number, node) = simulated::start(options, control, app);
            (Host::Simulated(number), node.plane, node.addrs)
        })
    }

    /// Starts a node over real sockets, on epoll.
    pub(crate) fn on_sockets(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        Self::on_driver(DriverChoice::Epoll, cores, None, set)
    }

    /// Starts a node over real sockets on this driver. `app` is an application of the test.
    pub(crate) fn on_driver(
        driver: DriverChoice,
        cores: usize,
        app: Option<AppFactory>,
        set: impl FnOnce(&mut Options),
    ) -> Self {
        Self::new(cores, set, |options, control| {
            let node = Node::start(options, driver, control, app).unwrap();
            let (plane, addrs) = (node.plane(), node.started().addrs.clone());
            (Host::Sockets(Some(node)), plane, addrs)
        })
    }

    fn new(
        cores: usize,
        set: impl FnOnce(&mut Options),
        start: impl FnOnce(Options, Arc<Control>) -> (Host, Arc<NodeHandle>, Vec<SocketAddr>),
    ) -> Self {
        let mut options = Options { listen: ([127, 0, 0, 1], 0).into(), cores, ..Options::default() };
        set(&mut options);
        let (control, recovers) = (Arc::new(Control::default()), options.engine.recovery.is_some());
        let (host, plane, addrs) = start(options, control.clone());
        let (levels, versions) = (Mutex::default(), Mutex::default());
        Self { host, plane, control, levels, versions, recovers, addr: addrs[0], addrs }
    }

    /// `true` if Socket.IO clients can recover missed messages.
    pub(crate) fn recovers(&self) -> bool {
        self.recovers
    }

    pub(crate) fn plane(&self) -> &dyn LocalNode {
        &*self.plane
    }

    /// The handle that changes options.
    pub(crate) fn node(&self) -> &NodeHandle {
        &self.plane
    }

    /// A handle that outlives the server.
    pub(crate) fn plane_handle(&self) -> Arc<dyn LocalNode> {
        self.plane.clone()
    }

    pub(crate) fn http(&self) -> Http {
        Http::connect(self.addr)
    }

    /// Opens a WebSocket at `target`, without offering compression.
    pub(crate) fn ws(&self, target: &str) -> Ws {
        Ws::open(self.addr, target, &[], false).unwrap()
    }

    /// Sends a request over a new connection. Returns the response.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Response {
        self.http().ask(request)
    }

    /// Sends a request with these headers over a new connection. Returns the response.
    pub(crate) fn request(&self, method: &str, target: &str, headers: &str) -> Response {
        self.ask(request(method, target, headers))
    }

    pub(crate) fn get(&self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    /// Runs `send`, which sends a request, and waits until the server has received the request.
    pub(crate) fn until_requested(&self, send: impl FnOnce()) {
        let before = self.metric("http_requests");
        send();
        self.until_metric("http_requests", |requests| requests > before);
    }

    /// Connects a client of `stentor.v1`, and waits for its `welcome`.
    pub(crate) fn client(&self) -> Ws {
        let mut ws = self.ws("/ws");
        assert_eq!(ws.next_json()["type"], "welcome");
        ws
    }

    /// Waits until the last reported interest in `key` is `level` (`true`: the key has subscribers).
    pub(crate) fn wait_wanted(&self, key: &str, level: bool) {
        let feed = Key::parse_as(key, KeyCharset::Utf8).unwrap();
        until(&format!("{key} to be wanted = {level}"), || {
            let mut levels = self.levels.lock().unwrap();
            levels.extend(
                self.plane
                    .take_key_interest()
                    .into_iter()
                    .map(|KeyInterest { key, wanted, .. }| (key, wanted)),
            );
            levels.get(&feed).copied().unwrap_or(false) == level
        });
    }

    /// Forgets a feed at each report that it has no subscribers, as the control plane does, until no topic is left.
    /// There may be a second report, because a core may still request the feed for a session that has ended.
    pub(crate) fn forget_unwanted(&self, key: &str) {
        let feed = Key::parse_as(key, KeyCharset::Utf8).unwrap();
        self.wait_wanted(key, false);
        self.update(key, FeedUpdate::Forget);
        self.levels.lock().unwrap().remove(&feed);
        self.until_metric("topics", |topics| {
            self.wait_wanted(key, false);
            if self.levels.lock().unwrap().remove(&feed).is_some() {
                self.update(key, FeedUpdate::Forget);
            }
            topics == 0
        });
    }

    /// Number of notifications of space to the control plane.
    pub(crate) fn spaces(&self) -> u64 {
        self.control.spaces.load(Ordering::SeqCst)
    }

    /// Waits until the control plane has received more than `before` notifications of space.
    pub(crate) fn wait_space(&self, before: u64) {
        until("space", || self.spaces() > before);
    }

    /// Publishes a new version of a JSON document.
    pub(crate) fn document(&self, key: &str, body: &str) {
        let document =
            Document { body: body.to_owned().into(), json: true, content_type: "application/json".into() };
        self.update(key, FeedUpdate::Changed(document.into()));
    }

    /// Publishes a new version of a JSON document (without whitespace), with the patch from the last version published
    /// here, like the control plane.
    pub(crate) fn version(&self, key: &str, body: &str) {
        let body = Bytes::from(body.to_owned());
        let document = Document { body: body.clone(), json: true, content_type: "application/json".into() };
        let last = self.versions.lock().unwrap().insert(key.to_owned(), body.clone());
        let patch = last.and_then(|base| {
            let differ = Differ::new(delta::Options::default(), Seed([1, 2]));
            match differ.diff(&differ.parse(&base).unwrap(), &differ.parse(&body).unwrap()).delta {
                Delta::Patch(operations) => Some(Patch { base, operations: operations.into() }),
                Delta::Unchanged | Delta::Snapshot => None,
            }
        });
        self.update(key, FeedUpdate::Changed(DocumentChange { document: document.into(), patch }));
    }

    /// Changes a feed's state.
    pub(crate) fn state(&self, key: &str, state: FeedState, reason: &str) {
        self.update(key, FeedUpdate::State { state, reason: reason.into() });
    }

    pub(crate) fn update(&self, key: &str, update: FeedUpdate) {
        self.plane.update_feed(&Key::parse_as(key, KeyCharset::Utf8).unwrap(), update).unwrap();
    }

    /// Publishes JSON data to a room, as the control plane.
    pub(crate) fn publish(&self, room: &str, data: &str) {
        let room = Room::plain(room).unwrap();
        let data = Data::Json(data.to_owned().into());
        let publish = Publish { room, event: None, data };
        until("the mailbox to have room", || self.plane.publish(publish.clone()).is_ok());
    }

    /// The sum of a metric's samples. `name{value}` sums only the samples with this value of a label.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let (name, label) = match name.strip_suffix('}').and_then(|name| name.split_once('{')) {
            Some((name, label)) => (name, Some(label)),
            None => (name, None),
        };
        let is_asked_for = |labels: &[(&str, String)]| {
            label.is_none_or(|label| labels.iter().any(|(_, value)| value == label))
        };
        let samples = self.samples(name).into_iter().filter(|(labels, _)| is_asked_for(labels));
        samples.map(|(_, value)| value).sum()
    }

    /// The samples of a metric, with their labels.
    fn samples(&self, name: &str) -> Vec<(Vec<(&'static str, String)>, u64)> {
        let all = self.plane.metrics();
        all.into_iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}")).samples
    }

    /// Number of sessions that the server has ended for this reason.
    pub(crate) fn disconnects(&self, reason: &str) -> u64 {
        self.metric(&format!("disconnects{{{reason}}}"))
    }

    /// Waits until `holds` returns `true` for a metric.
    pub(crate) fn until_metric(&self, name: &str, holds: impl Fn(u64) -> bool) {
        let deadline = now() + PATIENCE;
        loop {
            let value = self.metric(name);
            if holds(value) {
                return;
            }
            assert!(now() < deadline, "{name} stayed at {value}");
            pause();
        }
    }

    /// Puts the server over its memory budget while the returned clients are connected. The documents of their feeds
    /// together exceed the budget, and no client holds enough memory to be disconnected.
    pub(crate) fn overload(&self, budget: usize) -> Vec<Ws> {
        const DOCUMENT_BYTES: usize = 3_000;
        let keys: Vec<_> = (0..budget / DOCUMENT_BYTES + 1).map(|n| format!("document-{n}")).collect();
        let subscribers = keys.iter().map(|key| self.ws(&format!("/ws/{key}"))).collect();
        for key in &keys {
            self.document(key, &"1".repeat(DOCUMENT_BYTES));
        }
        self.until_metric("memory_bytes{publications}", |bytes| bytes > budget as u64);
        subscribers
    }

    /// Waits until the counters of deliveries add up.
    pub(crate) fn check_balance(&self) {
        until("the counters of deliveries to add up", || {
            let [due, sent, dropped, conflated, pending, dropped_on_disconnect] =
                ["due", "sent", "dropped", "conflated", "pending", "dropped_on_disconnect"]
                    .map(|name| self.metric(&format!("deliveries_{name}")));
            due == sent + dropped + conflated + pending + dropped_on_disconnect
        });
    }

    /// Waits until all resources of clients are freed.
    pub(crate) fn check_empty(&self) {
        for name in [
            "connections",
            "sessions",
            "engineio_sessions",
            "sockjs_sessions",
            "memory_bytes{frames}",
            "deliveries_pending",
            "send_buffer_bytes",
        ] {
            self.until_metric(name, |value| value == 0);
        }
        self.check_balance();
    }

    /// Checks that the server answers a new client.
    pub(crate) fn check_serves(&self) {
        assert_eq!(self.get("/healthz").status, 200);
    }

    /// Begins to drain the node.
    pub(crate) fn drain(&self, within: Duration) {
        self.plane.drain(Drain::within(within));
    }

    /// Stops a core of a node on the virtual clock, as if its application were busy. With `false`, the core continues.
    pub(crate) fn stop_core(&self, core: usize, is_stopped: bool) {
        let Host::Simulated(number) = self.host else { panic!("this needs a simulation") };
        simulated::stop_core(number, core, is_stopped);
    }

    /// Waits until the node has ended.
    pub(crate) fn join(mut self) {
        match &mut self.host {
            Host::Simulated(number) => assert!(simulated::join(*number), "the node doesn't end"),
            Host::Sockets(node) => node.take().unwrap().join().unwrap(),
        }
    }

    /// Waits until a core has failed, over real sockets.
    pub(crate) fn wait_failed(mut self) -> CoreFailed {
        let Host::Sockets(node) = &mut self.host else { panic!("cores of a simulation don't fail") };
        node.take().unwrap().join().expect_err("the node was drained")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.plane.drain(Drain::default());
        // A second panic would abort, and hide the first.
        let is_panicking = std::thread::panicking();
        match &mut self.host {
            Host::Simulated(number) => {
                assert!(is_panicking || simulated::join(*number), "the node doesn't end");
                simulated::remove(*number);
            }
            Host::Sockets(node) => {
                let joined = node.take().map_or(Ok(()), Node::join);
                assert!(is_panicking || joined.is_ok(), "{joined:?}");
            }
        }
    }
}

/// Waits for a condition that no event announces.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = now() + PATIENCE;
    while !holds() {
        assert!(now() < deadline, "waited in vain for {what}");
        pause();
    }
}

/// Waits for a value from the channel.
pub(crate) fn receive<T>(receiver: &mpsc::Receiver<T>) -> T {
    let mut received = None;
    until("something to be sent", || {
        received = receiver.try_recv().ok();
        received.is_some()
    });
    received.unwrap()
}

/// Runs a command, and waits for its answer.
pub(crate) fn answer<T: Send + 'static>(command: impl FnOnce(Done<T>)) -> Result<T, CommandError> {
    let (sender, receiver) = mpsc::channel();
    command(Done::new(move |answer| sender.send(answer).unwrap()));
    receive(&receiver)
}

/// The Unix time of the node, in milliseconds.
pub(crate) fn unix_millis() -> u64 {
    let ahead = now().saturating_duration_since(Instant::now());
    (SystemTime::now() + ahead).duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The node's current time.
pub(crate) fn now() -> Instant {
    simulated::now().unwrap_or_else(Instant::now)
}

/// Checks that `run` takes this long on the virtual clock: not less, and at most about 10 % more.
pub(crate) fn takes<R>(time: Duration, run: impl FnOnce() -> R) -> R {
    /// Approximate round-trip time to the server.
    const LATENCY: Duration = Duration::from_millis(10);
    let begun = now();
    let result = run();
    let passed = now() - begun;
    let is_right = passed + LATENCY >= time && passed <= time + time / 10 + LATENCY;
    assert!(is_right, "{passed:?} instead of {time:?}");
    result
}

fn pause() {
    if !simulated::advance() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a test on one core and on three.
pub(crate) fn on_one_and_three(test: impl Fn(usize)) {
    for cores in [1, 3] {
        test(cores);
    }
}

impl Server {
    /// The samples of a metric that each core has.
    pub(crate) fn by_core(&self, name: &str) -> Vec<u64> {
        self.samples(name).into_iter().map(|(_, value)| value).collect()
    }

    /// Opens at least four WebSockets at `target`, and at least two on each core.
    pub(crate) fn ws_on_each_core(&self, target: &str) -> Vec<Ws> {
        let mut clients = Vec::new();
        while clients.len() < 4 || self.by_core("sessions").iter().any(|sessions| *sessions < 2) {
            assert!(clients.len() < 1000, "the kernel doesn't spread connections");
            clients.push(self.ws(target));
            let count = clients.len() as u64;
            self.until_metric("sessions", |sessions| sessions == count);
        }
        clients
    }
}

/// Waits until each client's messages reach all clients, because cores learn of each other's members with a delay. `send`
/// publishes a text, `receive` waits for the next text published by any of the clients.
///
/// Sends rounds of messages until each client has received a message of each client, and then one more of each. (Before a
/// client receives a message from a core, its own core has received that core's reports of members.)
pub(crate) fn meet(clients: &mut [Ws], send: impl Fn(&mut Ws, &str), receive: impl Fn(&mut Ws) -> String) {
    let count = clients.len();
    let mut met = vec![vec![false; count]; count];
    let deadline = now() + PATIENCE;
    for round in 0.. {
        assert!(now() < deadline, "some clients never meet");
        for (n, client) in clients.iter_mut().enumerate() {
            send(client, &format!("{n} meets in round {round}"));
        }
        for (n, client) in clients.iter_mut().enumerate() {
            loop {
                let text = receive(client);
                let from: usize = text.split(' ').next().unwrap().parse().unwrap();
                met[n][from] = true;
                if text == format!("{n} meets in round {round}") {
                    break;
                }
            }
        }
        if met.iter().flatten().all(|met| *met) {
            break;
        }
    }
    for (n, client) in clients.iter_mut().enumerate() {
        send(client, &format!("{n} has met"));
    }
    for client in clients {
        let mut left = count;
        while left > 0 {
            left -= usize::from(receive(client).ends_with("has met"));
        }
    }
}
