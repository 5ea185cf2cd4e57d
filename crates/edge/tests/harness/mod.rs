//! A node, on the virtual clock or over real sockets, and clients that talk to it.
//!
//! Tests run on the virtual clock, all of a test on its thread. Real sockets are for tests of the kernel's part, and of real
//! threads. Everything waits for an event, at most [`PATIENCE`]; time never decides whether a test passes.

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
    CommandError, Commands, ControlPlane, Done, Drain, FeedUpdate, Feeds, KeyInterest, Lifecycle, LocalNode,
    MetricSource, Publish,
};

/// How long anything may take. Far more than it does, so that a slow machine fails no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than a test takes.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Reads what is there. A signal for the thread (the end of a ring, too) is no answer.
pub(crate) fn read(mut stream: impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A control plane that only takes notes.
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

/// A node, drained when it is dropped.
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
    /// A node on the virtual clock of this thread, with as many cores, its other options set by `set`.
    pub(crate) fn start(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        Self::simulated(cores, None, set)
    }

    /// A node of an application of its own, whose heartbeats disturb nobody.
    pub(crate) fn quiet(cores: usize, app: App, set: impl FnOnce(&mut Options)) -> Self {
        Self::start(cores, |options| {
            options.app = app;
            options.heartbeat.interval = HOUR;
            set(options);
        })
    }

    /// A quiet node that sends each message back.
    pub(crate) fn echo(cores: usize) -> Self {
        Self::quiet(cores, App::Echo, |_| {})
    }

    /// As `start`, with an application of the test's.
    pub(crate) fn with_app(cores: usize, app: AppFactory, set: impl FnOnce(&mut Options)) -> Self {
        Self::simulated(cores, Some(app), set)
    }

    fn simulated(cores: usize, app: Option<AppFactory>, set: impl FnOnce(&mut Options)) -> Self {
        Self::new(cores, set, |options, control| {
            let (number, node) = simulated::start(options, control, app);
            (Host::Simulated(number), node.plane, node.addrs)
        })
    }

    /// A node over real sockets, on epoll.
    pub(crate) fn on_sockets(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        Self::on_driver(DriverChoice::Epoll, cores, None, set)
    }

    /// A node over real sockets, with an application of the test's or none.
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

    /// Whether it keeps what lost Socket.IO clients miss.
    pub(crate) fn recovers(&self) -> bool {
        self.recovers
    }

    pub(crate) fn plane(&self) -> &dyn LocalNode {
        &*self.plane
    }

    /// The handle by which options are changed.
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

    /// A WebSocket client of `target` that offers no compression.
    pub(crate) fn ws(&self, target: &str) -> Ws {
        Ws::open(self.addr, target, &[], false).unwrap()
    }

    /// The answer to a request over a connection of its own.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Response {
        self.http().ask(request)
    }

    /// The answer to a request with these headers, over a connection of its own.
    pub(crate) fn request(&self, method: &str, target: &str, headers: &str) -> Response {
        self.ask(request(method, target, headers))
    }

    pub(crate) fn get(&self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    /// Runs what sends a request, and waits until the server has received it.
    pub(crate) fn until_requested(&self, send: impl FnOnce()) {
        let before = self.metric("http_requests");
        send();
        self.until_metric("http_requests", |requests| requests > before);
    }

    /// A client of `stentor.v1` that has been welcomed.
    pub(crate) fn client(&self) -> Ws {
        let mut ws = self.ws("/ws");
        assert_eq!(ws.next_json()["type"], "welcome");
        ws
    }

    /// Waits until `key` is wanted, or no longer.
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

    /// Forgets a feed at each report that it has no subscribers, as the control plane does, until no topic is left. There may
    /// be one more: a core may still be asking for the feed for a session that has ended.
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

    /// The number of times that the control plane was notified of space.
    pub(crate) fn spaces(&self) -> u64 {
        self.control.spaces.load(Ordering::SeqCst)
    }

    /// Waits until the control plane has been told of space more often than `before`.
    pub(crate) fn wait_space(&self, before: u64) {
        until("space", || self.spaces() > before);
    }

    /// A new version of a JSON document.
    pub(crate) fn document(&self, key: &str, body: &str) {
        let document =
            Document { body: body.to_owned().into(), json: true, content_type: "application/json".into() };
        self.update(key, FeedUpdate::Document(document));
    }

    /// A new version of a JSON document without whitespace, with the patch from the last one that was given here, as
    /// the control plane makes it.
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
        match patch {
            Some(patch) => self.update(key, FeedUpdate::Patched(document, patch)),
            None => self.update(key, FeedUpdate::Document(document)),
        }
    }

    /// A change of a feed's state.
    pub(crate) fn state(&self, key: &str, state: FeedState, reason: &str) {
        self.update(key, FeedUpdate::State { state, reason: reason.into() });
    }

    pub(crate) fn update(&self, key: &str, update: FeedUpdate) {
        self.plane.update_feed(&Key::parse_as(key, KeyCharset::Utf8).unwrap(), update).unwrap();
    }

    /// A message of the control plane's to a room, in JSON.
    pub(crate) fn publish(&self, room: &str, data: &str) {
        let room = Room::plain(room).unwrap();
        let data = Data::Json(data.to_owned().into());
        let publish = Publish { room, event: None, data };
        until("the mailbox to have room", || self.plane.publish(publish.clone()).is_ok());
    }

    /// The sum of a figure over its samples; `name{value}` is over those with this value of a label.
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

    /// The samples of a figure, with their labels.
    fn samples(&self, name: &str) -> Vec<(Vec<(&'static str, String)>, u64)> {
        let all = self.plane.metrics();
        all.into_iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}")).samples
    }

    /// Sessions ended by the server for this reason.
    pub(crate) fn disconnects(&self, reason: &str) -> u64 {
        self.metric(&format!("disconnects{{{reason}}}"))
    }

    /// Waits until a figure is what `holds` says.
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

    /// Puts the server over its budget for as long as the clients that this returns are open: their feeds' documents are
    /// larger together, and nobody holds enough to be ended for it.
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

    /// Checks that the counters of deliveries add up, once nothing moves.
    pub(crate) fn check_balance(&self) {
        until("the counters of deliveries to add up", || {
            let [due, sent, dropped, conflated, pending, dropped_on_disconnect] =
                ["due", "sent", "dropped", "conflated", "pending", "dropped_on_disconnect"]
                    .map(|name| self.metric(&format!("deliveries_{name}")));
            due == sent + dropped + conflated + pending + dropped_on_disconnect
        });
    }

    /// Checks that everything that clients cost is given back.
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

    /// Checks that others are still served.
    pub(crate) fn check_serves(&self) {
        assert_eq!(self.get("/healthz").status, 200);
    }

    /// Begins to drain.
    pub(crate) fn drain(&self, within: Duration) {
        self.plane.drain(Drain::within(within));
    }

    /// Stops a core of a node on the virtual clock, as if its application were busy, or lets it continue.
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

/// Waits for what is sent.
pub(crate) fn receive<T>(receiver: &mpsc::Receiver<T>) -> T {
    let mut received = None;
    until("something to be sent", || {
        received = receiver.try_recv().ok();
        received.is_some()
    });
    received.unwrap()
}

/// Waits for the answer to a command.
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

/// The time that passes for the node.
pub(crate) fn now() -> Instant {
    simulated::now().unwrap_or_else(Instant::now)
}

/// Runs what takes so long on the virtual clock, and checks that it does: no less, and hardly more.
pub(crate) fn takes<R>(time: Duration, run: impl FnOnce() -> R) -> R {
    /// Of the way to the server and back, about.
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
    /// The samples of a figure that is kept by core.
    pub(crate) fn by_core(&self, name: &str) -> Vec<u64> {
        self.samples(name).into_iter().map(|(_, value)| value).collect()
    }

    /// At least four WebSocket clients of `target`, and at least two on each core.
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

/// Makes sure that each client's messages reach all of them: that cores know of each other's members takes a
/// moment. `send` publishes a text, `receive` waits for the next text published by any of them.
///
/// Sends rounds of messages until each client has one of each other client, and then one more of each. (A client that has
/// received a message of a core has received, before it, that core's reports of its members.)
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
