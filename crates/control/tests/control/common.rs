//! Helpers of the tests: a fake data plane, and scripted upstreams on loopback.

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_control::{AdminOptions, Auth, Control, FeedsOptions, Options, Signals, UpstreamOptions};
use stentor_hub::{Key, KeyCharset};
use stentor_ports::fake::{self, Call};
use stentor_ports::{
    Busy, Command, CommandError, Concerned, ControlPlane, DataPlane, DocumentChange, Done, FeedUpdate,
    Histogram, HistogramSample, KeyInterest, MemberList, Metric, MetricKind, Publish, Readiness, Recheck,
    RoomList, RoomsQuery, SessionDetails, SessionInfo, SessionList, SubscriberCounts, Target,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Maximum time that a test waits for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// A data plane that records the control plane's calls.
#[derive(Default)]
pub(crate) struct FakePlane {
    pub(crate) signals: Arc<Signals>,
    wanted: Mutex<Vec<KeyInterest>>,
    updates: Mutex<VecDeque<(Key, FeedUpdate)>>,
    /// Per key, the last document that [`Self::next`] has returned. The next patch must apply to it.
    bases: Mutex<HashMap<Key, String>>,
    pub(crate) published: Mutex<Vec<Publish>>,
    /// Commands and rechecks, in `Debug` format.
    pub(crate) commands: Mutex<Vec<String>>,
    pub(crate) rechecks: Mutex<Vec<Recheck>>,
    /// Number of further calls that are refused as busy.
    pub(crate) busy: AtomicUsize,
    pub(crate) refusals: AtomicUsize,
    pub(crate) readiness: Mutex<Readiness>,
    /// `true` if commands aren't answered.
    pub(crate) stops: AtomicBool,
    pub(crate) broken_wanted: AtomicBool,
    pub(crate) broken_metrics: AtomicBool,
    changed: Notify,
}

impl FakePlane {
    pub(crate) fn want(&self, key: &str, wanted: bool) {
        let requesters = Vec::new();
        self.wanted.lock().unwrap().push(KeyInterest {
            key: Key::parse_as(key, KeyCharset::Utf8).unwrap(),
            wanted,
            requesters,
        });
        self.signals.interest_changed();
    }

    fn is_busy(&self) -> bool {
        let busy = self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        if busy {
            self.refusals.fetch_add(1, Ordering::SeqCst);
            self.changed.notify_waiters();
        }
        busy
    }

    /// Records a command and answers it, or refuses it as busy.
    fn execute<T>(&self, command: &dyn fmt::Debug, target: &Target, answer: T, done: Done<T>) {
        if self.is_busy() {
            return done.answer(Err(CommandError::Busy));
        }
        self.commands.lock().unwrap().push(format!("{command:?} {target:?}"));
        done.answer(Ok(answer));
    }

    /// Waits until `found` returns a value.
    pub(crate) async fn until<T>(&self, what: &str, mut found: impl FnMut(&Self) -> Option<T>) -> T {
        let look = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(found) = found(self) {
                    return found;
                }
                changed.await;
            }
        };
        patiently(what, look).await
    }

    /// Waits for a call that is refused as busy. Counts refusals since the last call of this function.
    pub(crate) async fn until_refused(&self) {
        self.until("a refusal", |plane| (plane.refusals.swap(0, Ordering::SeqCst) > 0).then_some(())).await;
    }

    /// Waits for the next updates and asserts their texts (see [`Self::next`]).
    pub(crate) async fn expect(&self, updates: &[&str]) {
        for update in updates {
            assert_eq!(self.next().await, *update, "in {updates:?}");
        }
    }

    /// Waits for the next update of any key. Returns it as `key=document`, `key=document by patch` or
    /// `key:state:reason`.
    pub(crate) async fn next(&self) -> String {
        let (key, update) = self.until("an update", |plane| plane.updates.lock().unwrap().pop_front()).await;
        match update {
            FeedUpdate::Changed(DocumentChange { document, patch: None }) => {
                let body = String::from_utf8_lossy(&document.body).into_owned();
                self.bases.lock().unwrap().insert(key.clone(), body.clone());
                format!("{key}={body}")
            }
            FeedUpdate::Changed(DocumentChange { document, patch: Some(patch) }) => {
                let [body, base, operations] = [&document.body, &patch.base, &patch.operations]
                    .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                assert_eq!(self.bases.lock().unwrap().get(&key), Some(&base), "for another document");
                self.bases.lock().unwrap().insert(key.clone(), body.clone());
                format!("{key}={body} by {operations}")
            }
            FeedUpdate::At { .. } | FeedUpdate::Confirmed(_) => {
                panic!("the control plane assigns no positions")
            }
            FeedUpdate::State { state, reason } => format!("{key}:{}:{reason}", state.as_str()),
            FeedUpdate::Forget => format!("{key}:forget"),
            FeedUpdate::Refuse(requester) => format!("{key}:refuse:{}", requester.session.to_bits()),
        }
    }

    /// Returns `true` if the control plane hasn't taken all changes of subscribed keys.
    pub(crate) fn has_wanted(&self) -> bool {
        !self.wanted.lock().unwrap().is_empty()
    }

    pub(crate) fn has_updates(&self) -> bool {
        !self.updates.lock().unwrap().is_empty()
    }
}

impl FakePlane {
    pub(crate) fn data_plane(self: &Arc<Self>) -> DataPlane {
        let this = self.clone();
        let mut node = fake::Node::new(move |call| this.handle(call));
        let this = self.clone();
        node.take_key_interest = Box::new(move || this.take_key_interest());
        let this = self.clone();
        node.metrics = Box::new(move || this.metrics());
        node.histograms = Box::new(histograms);
        let this = self.clone();
        node.readiness = Box::new(move || *this.readiness.lock().unwrap());
        DataPlane::new(Arc::new(node))
    }

    fn handle(&self, call: Call) -> Result<(), Busy> {
        match call {
            Call::Publish(message) => self.publish(message)?,
            Call::PublishKept(message, _, done) => {
                done.answer(self.publish(message).map(Ok).map_err(|Busy| CommandError::Busy));
            }
            Call::Recheck(recheck, done) => self.recheck(recheck, done),
            Call::UpdateFeed(key, update) => self.update_feed(&key, update)?,
            Call::Command(target, command) => self.command(target, command),
            Call::ListMembers(_, done) => done.answer(Ok(MemberList::default())),
            Call::ListRooms(query, done) => self.list_rooms(query, done),
            Call::ListSessions(query, done) => {
                self.commands.lock().unwrap().push(format!("{query:?}"));
                done.answer(Ok(SessionList::new(vec![session()], 7)));
            }
            Call::CountSubscribers(_, done) if self.is_busy() => done.answer(Err(CommandError::Busy)),
            Call::CountSubscribers(keys, done) => {
                done.answer(Ok(SubscriberCounts {
                    counts: vec![2; keys.len()],
                    ..SubscriberCounts::default()
                }));
            }
            _ => {}
        }
        Ok(())
    }

    fn publish(&self, message: Publish) -> Result<(), Busy> {
        if self.is_busy() {
            return Err(Busy);
        }
        self.published.lock().unwrap().push(message);
        self.changed.notify_waiters();
        Ok(())
    }

    fn recheck(&self, recheck: Recheck, done: Done<Concerned>) {
        self.commands.lock().unwrap().push(format!("{recheck:?}"));
        self.rechecks.lock().unwrap().push(recheck);
        done.answer(Ok(Concerned::sessions(3)));
    }

    fn update_feed(&self, key: &Key, update: FeedUpdate) -> Result<(), Busy> {
        if self.is_busy() {
            return Err(Busy);
        }
        self.updates.lock().unwrap().push_back((key.clone(), update));
        self.changed.notify_waiters();
        Ok(())
    }

    fn command(&self, target: Target, command: Command) {
        if self.stops.load(Ordering::SeqCst) {
            return;
        }
        let concerned = Concerned::sessions(3);
        match command {
            Command::Emit { event, data, volatile, done } => {
                self.execute(&(event, data, volatile), &target, concerned, done);
            }
            Command::Call { data, answered, done, .. } => {
                // One client acknowledges.
                answered(data);
                done.answer(Ok(concerned));
            }
            Command::Join { rooms, done } => {
                let concerned = Concerned { sessions: 2, refused: 1, ..Concerned::default() };
                self.execute(&("join", rooms), &target, concerned, done);
            }
            Command::Leave { rooms, done } => self.execute(&("leave", rooms), &target, concerned, done),
            Command::Disconnect { close, done } => {
                self.execute(&("disconnect", close), &target, concerned, done);
            }
            Command::Sessions { limit, done } => {
                self.execute(&("sessions", limit), &target, SessionList::new(vec![session()], 7), done);
            }
        }
    }

    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>) {
        self.commands.lock().unwrap().push(format!("{query:?}"));
        done.answer(Ok(RoomList {
            rooms: vec![("a".into(), 2), ("b".into(), 1)],
            truncated: query.limit == 2,
            missing_nodes: Vec::new(),
        }));
    }

    fn take_key_interest(&self) -> Vec<KeyInterest> {
        assert!(!self.broken_wanted.load(Ordering::SeqCst), "broken on purpose");
        let wanted = std::mem::take(&mut *self.wanted.lock().unwrap());
        self.changed.notify_waiters();
        wanted
    }

    fn metrics(&self) -> Vec<Metric> {
        assert!(!self.broken_metrics.load(Ordering::SeqCst), "broken on purpose");
        vec![
            Metric {
                name: "connections",
                help: "Open connections",
                kind: MetricKind::Gauge,
                samples: vec![(vec![("core", "0".into())], 17), (vec![("core", "1".into())], 18)],
            },
            Metric {
                name: "sent_bytes",
                help: "Bytes sent",
                kind: MetricKind::Counter,
                samples: vec![(vec![], u64::MAX)],
            },
        ]
    }
}

fn session() -> SessionInfo {
    SessionInfo {
        id: "id".into(),
        protocol: "socketio".into(),
        rooms: vec!["a".into()],
        handshake: None,
        details: SessionDetails::default(),
    }
}

fn histograms() -> Vec<Histogram> {
    let labels = vec![("core", "0".into())];
    let sample = HistogramSample { labels, buckets: vec![5, 2, 1], sum: 1.5 };
    let (name, help) = ("turn_cpu_seconds", "Processor time");
    vec![Histogram { name, help, bounds: &[0.001, 0.5], samples: vec![sample] }]
}

/// A control plane with a fake data plane.
pub(crate) struct Rig {
    pub(crate) plane: Arc<FakePlane>,
    pub(crate) control: Control,
}

impl Rig {
    pub(crate) fn new(feeds: FeedsOptions, admin: AdminOptions) -> Self {
        Self::start(Options { feeds, admin, ..Options::default() })
    }

    /// Makes a rig without feeds, with changed options of the admin port.
    pub(crate) fn with_admin(change: impl FnOnce(&mut AdminOptions)) -> Self {
        let mut admin = AdminOptions::default();
        change(&mut admin);
        Self::new(FeedsOptions::default(), admin)
    }

    /// Makes a rig that fetches the keys of the issuers of `auth`.
    pub(crate) fn auth(auth: &Arc<Auth>) -> Self {
        Self::start(Options { auth: Some(auth.clone()), ..Options::default() })
    }

    pub(crate) fn start(mut options: Options) -> Self {
        options.admin.listen.set_port(0);
        let plane = Arc::<FakePlane>::default();
        let control = Control::start(&Handle::current(), options, plane.data_plane(), plane.signals.clone());
        Self { control: control.unwrap(), plane }
    }

    /// Adds a subscriber of this key.
    pub(crate) fn want(&self, key: &str) {
        self.plane.want(key, true);
    }

    pub(crate) fn feeds(upstreams: Vec<UpstreamOptions>) -> Self {
        Self::new(feeds(upstreams), AdminOptions::default())
    }

    /// Sends a GET to the admin port. Returns the status and body of the response.
    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        self.send(&request("GET", path, "", "")).await
    }

    /// Sends a POST with JSON to the admin port. Returns the status and body of the response.
    pub(crate) async fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.send(&request("POST", path, JSON, body)).await
    }

    /// Sends these bytes to the admin port. Returns the status and body of the response.
    pub(crate) async fn send(&self, bytes: &[u8]) -> (u16, String) {
        let mut stream = self.begin(bytes).await;
        answer(&mut stream).await
    }

    /// Opens a connection to the admin port and writes these bytes.
    pub(crate) async fn begin(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.control.admin_addr()).await.unwrap();
        let _ = stream.write_all(bytes).await;
        stream
    }

    /// Returns the value of a line of `/metrics`.
    pub(crate) async fn metric(&self, line: &str) -> Option<f64> {
        let (status, text) = self.admin("/metrics").await;
        assert_eq!(status, 200);
        text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok())
    }

    /// Asserts values of lines of `/metrics`.
    pub(crate) async fn expect_metrics(&self, lines: &[(&str, f64)]) {
        for (line, value) in lines {
            assert_eq!(self.metric(line).await, Some(*value), "{line}");
        }
    }

    /// Waits until a line of `/metrics` has a value.
    pub(crate) async fn until_metric(&self, line: &str, is_reached: impl Fn(f64) -> bool) {
        patiently(line, async {
            while !self.metric(line).await.is_some_and(&is_reached) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// The header of requests with a JSON body.
pub(crate) const JSON: &str = "content-type: application/json\r\n";

/// Makes a request to the admin port. `fields` has complete header lines.
pub(crate) fn request(method: &str, path: &str, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Reads a response until the server closes the connection. Returns status and body, or status 0 without a
/// response.
pub(crate) async fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    let _ = patiently("an answer", stream.read_to_end(&mut text)).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}

/// Returns options with fast retries and short timeouts.
pub(crate) fn feeds(upstreams: Vec<UpstreamOptions>) -> FeedsOptions {
    FeedsOptions {
        upstreams,
        backoff_initial: Duration::from_millis(10),
        backoff_max: Duration::from_millis(10),
        not_found_retry_interval: Duration::from_millis(50),
        ..FeedsOptions::default()
    }
}

/// Makes an upstream that is polled every 10 ms.
pub(crate) fn upstream(name: &str, addr: SocketAddr) -> UpstreamOptions {
    UpstreamOptions {
        name: name.into(),
        prefix: format!("{name}/"),
        url: format!("http://{addr}/api"),
        poll_interval: Duration::from_millis(10),
        timeout: PATIENCE,
        connect_timeout: PATIENCE,
        ..UpstreamOptions::default()
    }
}

/// Makes an upstream that is polled every hour, which in a test is one fetch per key.
pub(crate) fn hourly(name: &str, addr: SocketAddr) -> UpstreamOptions {
    UpstreamOptions { poll_interval: HOUR, ..upstream(name, addr) }
}

pub(crate) type Answer = Response<Full<Bytes>>;

/// Runs an HTTP server. The handler receives each request and its number, counted from 0.
pub(crate) async fn http<F, Fut>(handler: F) -> SocketAddr
where
    F: Fn(usize, Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    counted(handler).await.0
}

/// Like [`http`]. Also returns a counter of requests.
pub(crate) async fn counted<F, Fut>(handler: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(usize, Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (handler, count) = (Arc::new(handler), Arc::new(AtomicUsize::new(0)));
    let requests = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (handler, count) = (handler.clone(), count.clone());
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let answer = handler(count.fetch_add(1, Ordering::SeqCst), request);
                    async { Ok::<_, Infallible>(answer.await) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (addr, requests)
}

/// Runs a server that sends these responses in order, then repeats the last one.
pub(crate) async fn script(answers: Vec<Answer>) -> SocketAddr {
    http(move |n, _| std::future::ready(answers[n.min(answers.len() - 1)].clone())).await
}

/// Runs a server that answers the requests with the documents 0, 1, 2 …
pub(crate) async fn numbers() -> SocketAddr {
    http(|n, _| std::future::ready(ok(&n.to_string()))).await
}

/// Runs a server that writes arbitrary bytes: `script` receives the number of each request, and the
/// connection after the request's headers. If it returns `None`, the connection closes.
pub(crate) async fn raw<F, Fut>(script: F) -> SocketAddr
where
    F: Fn(usize, TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<TcpStream>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (script, count) = (Arc::new(script), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (script, count) = (script.clone(), count.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        match script(count.fetch_add(1, Ordering::SeqCst), stream).await {
                            Some(back) => stream = back,
                            None => return,
                        }
                    }
                }
            });
        }
    });
    addr
}

/// Makes a response with a JSON body.
pub(crate) fn ok(body: &str) -> Answer {
    let answer = Response::new(Full::from(Bytes::copy_from_slice(body.as_bytes())));
    with(answer, "content-type", "application/json")
}

/// Adds a header to a response.
pub(crate) fn with(mut answer: Answer, name: &'static str, value: &str) -> Answer {
    answer.headers_mut().insert(name, value.parse().unwrap());
    answer
}

/// Makes a response with only a status.
pub(crate) fn bare(status: u16) -> Answer {
    Response::builder().status(status).body(Full::default()).unwrap()
}
