//! A node on a port of its own, and clients that talk to it over real sockets.
//!
//! Everything waits for an event, at most [`PATIENCE`]; time never decides whether a test passes.

#![allow(dead_code)] // Each test file uses its part.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests may panic; clippy knows only functions marked as such.

pub(crate) mod http;
pub(crate) mod io;
mod simulated;
mod stream;
pub(crate) mod tls;
pub(crate) mod ws;

#[allow(unused_imports)] // As above.
pub(crate) use http::{Http, Response};
#[allow(unused_imports)]
pub(crate) use io::{Io, Packet, VERSIONS, WAYS, Way};
pub(crate) use stream::Stream;
#[allow(unused_imports)]
pub(crate) use ws::{Seen, Ws};

use bytes::Bytes;
use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use stentor_delta::{self as delta, Delta, Differ, Seed};
use stentor_edge::{
    AppFactory, ControlPlane, CoreFailed, DataPlane, Drain, DriverChoice, FeedUpdate, Node, Options, Publish,
    Wanted,
};
use stentor_hub::{Data, Document, FeedState, Key, Patch, Room};

/// How long anything may take. Far more than it does, so that a slow machine fails no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Which driver the node has: epoll, or with `STENTOR_DRIVER=io_uring` that one where it works.
fn driver() -> DriverChoice {
    match std::env::var("STENTOR_DRIVER").as_deref() {
        Ok("io_uring") => DriverChoice::Auto,
        _ => DriverChoice::Epoll,
    }
}

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
    calls: Mutex<Calls>,
    called: Condvar,
}

#[derive(Default)]
struct Calls {
    wanted: u64,
    space: u64,
}

impl ControlPlane for Control {
    fn wanted(&self) {
        self.calls.lock().unwrap().wanted += 1;
        self.called.notify_all();
    }

    fn space(&self) {
        self.calls.lock().unwrap().space += 1;
        self.called.notify_all();
    }
}

/// A node, drained when it is dropped.
pub(crate) struct Server {
    node: Option<Node>,
    plane: Arc<dyn DataPlane>,
    control: Arc<Control>,
    levels: Mutex<HashMap<Key, bool>>,
    versions: Mutex<HashMap<String, Bytes>>,
    recovers: bool,
    pub addr: SocketAddr,
    /// All addresses; of a simulated node, none.
    pub addrs: Vec<SocketAddr>,
}

impl Server {
    /// A node with as many cores, its other options set by `set`.
    pub(crate) fn start(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        Self::with_app(cores, None, set)
    }

    /// A node on the virtual clock of this thread.
    pub(crate) fn simulated(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options { cores, ..Options::default() };
        set(&mut options);
        let control = Arc::new(Control::default());
        let recovers = options.engine.recovery.is_some();
        let (plane, addr) = simulated::start(cores, options, control.clone());
        let (levels, versions) = (Mutex::default(), Mutex::default());
        Self { node: None, plane, control, levels, versions, recovers, addr, addrs: Vec::new() }
    }

    /// A node with an application of the test's.
    pub(crate) fn with_app(cores: usize, app: Option<AppFactory>, set: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options { listen: ([127, 0, 0, 1], 0).into(), cores, ..Options::default() };
        if tls::is_everywhere() {
            options.tls = Some(tls::Certificates::new(&["localhost"]).handle());
        }
        set(&mut options);
        let control = Arc::new(Control::default());
        let recovers = options.engine.recovery.is_some();
        let node = Node::start(options, driver(), control.clone(), app).unwrap();
        let (plane, started) = (node.plane(), node.started().clone());
        let (levels, versions) = (Mutex::default(), Mutex::default());
        let (addr, addrs) = (started.addr, started.addrs);
        Self { node: Some(node), plane, control, levels, versions, recovers, addr, addrs }
    }

    /// Whether it keeps what lost Socket.IO clients miss.
    pub(crate) fn recovers(&self) -> bool {
        self.recovers
    }

    pub(crate) fn plane(&self) -> &dyn DataPlane {
        &*self.plane
    }

    /// A handle that outlives the server.
    pub(crate) fn plane_handle(&self) -> Arc<dyn DataPlane> {
        self.plane.clone()
    }

    pub(crate) fn http(&self) -> Http {
        Http::connect(self.addr)
    }

    /// A WebSocket client of `target` that offers no compression.
    pub(crate) fn ws(&self, target: &str) -> Ws {
        Ws::open(self.addr, target, &[], false).unwrap()
    }

    /// Waits until `key` is wanted, or no longer.
    pub(crate) fn wait_wanted(&self, key: &str, level: bool) {
        let key = Key::parse(key).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut levels = self.levels.lock().unwrap();
        loop {
            let calls = self.control.calls.lock().unwrap();
            levels
                .extend(self.plane.take_wanted().into_iter().map(|Wanted { key, wanted, .. }| (key, wanted)));
            if levels.get(&key).copied().unwrap_or(false) == level {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{key} never became wanted = {level}");
            if self.node.is_some() {
                drop(self.control.called.wait_timeout(calls, left).unwrap());
            } else {
                drop(calls);
                simulated::advance();
            }
        }
    }

    /// Forgets a feed at each report that it has no subscribers, as the control plane does, until no topic is left. There may
    /// be one more: a core may still be asking for the feed for a session that has ended.
    pub(crate) fn forget_unwanted(&self, key: &str) {
        let feed = Key::parse(key).unwrap();
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

    /// How often the control plane was told that there is space.
    pub(crate) fn spaces(&self) -> u64 {
        self.control.calls.lock().unwrap().space
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
        self.plane.update_feed(&Key::parse(key).unwrap(), update).unwrap();
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
        let all = self.plane.metrics();
        let metric = all.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"));
        let is_asked_for = |labels: &[(&str, String)]| {
            label.is_none_or(|label| labels.iter().any(|(_, value)| value == label))
        };
        metric.samples.iter().filter(|(labels, _)| is_asked_for(labels)).map(|(_, value)| value).sum()
    }

    /// Sessions ended by the server for this reason.
    pub(crate) fn disconnects(&self, reason: &str) -> u64 {
        let all = self.plane.metrics();
        let metric = all.iter().find(|metric| metric.name == "disconnects").unwrap();
        let sample = metric.samples.iter().find(|(labels, _)| labels[0].1 == reason).unwrap();
        sample.1
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
        for name in
            ["connections", "sessions", "memory_bytes{frames}", "deliveries_pending", "send_buffer_bytes"]
        {
            self.until_metric(name, |value| value == 0);
        }
        self.check_balance();
    }

    /// Checks that others are still served.
    pub(crate) fn check_serves(&self) {
        let mut http = self.http();
        http.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(http.response().status, 200);
    }

    /// Begins to drain.
    pub(crate) fn drain(&self, within: Duration) {
        self.plane.drain(Drain::within(within));
    }

    /// Waits until the node has ended, and says how long that took.
    pub(crate) fn join(mut self) -> Duration {
        let begun = Instant::now();
        self.node.take().unwrap().join().unwrap();
        begun.elapsed()
    }

    /// Waits until a core has failed.
    pub(crate) fn wait_failed(mut self) -> CoreFailed {
        self.node.take().unwrap().join().expect_err("the node was drained")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(node) = self.node.take() else { return simulated::stop() };
        self.plane.drain(Drain::default());
        if let Err(error) = node.join() {
            // Twice would abort, and hide the first.
            assert!(std::thread::panicking(), "{error}");
        }
    }
}

/// Waits until something is so, where nothing tells when.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = now() + PATIENCE;
    while !holds() {
        assert!(now() < deadline, "waited in vain for {what}");
        pause();
    }
}

/// The time that passes for the node.
pub(crate) fn now() -> Instant {
    simulated::now().unwrap_or_else(Instant::now)
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

/// Makes a client slow. That it is slow enough for what the test wants to show, the test checks.
pub(crate) fn pace(duration: Duration) {
    if !simulated::pass(duration) {
        std::thread::sleep(duration);
    }
}

impl Server {
    /// The samples of a figure that is kept by core.
    pub(crate) fn by_core(&self, name: &str) -> Vec<u64> {
        let all = self.plane.metrics();
        let metric = all.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"));
        metric.samples.iter().map(|(_, value)| *value).collect()
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
/// Rounds of messages, until everybody has one of everybody; then one more of each, the last that arrives. (Who
/// has received a message of a core has had, before it, what that core tells of its members.)
pub(crate) fn meet(clients: &mut [Ws], send: impl Fn(&mut Ws, &str), receive: impl Fn(&mut Ws) -> String) {
    let count = clients.len();
    let mut met = vec![vec![false; count]; count];
    let deadline = Instant::now() + PATIENCE;
    for round in 0.. {
        assert!(Instant::now() < deadline, "some clients never meet");
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
