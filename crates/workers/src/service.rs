//! The task of the link, and its handle.

use crate::application::{Applications, without_hello};
use crate::connection::{self, Connection, Input, Io};
use crate::forward::{Forwarder, Targets};
use crate::handshake::{self, Accepted, LinkRequest, Refused};
use crate::inbox::{Counted, Inbox, Joining};
use crate::node_sink::NodeSink;
use crate::options::AppOptions;
use crate::view::View;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use stentor_link::{Code, Hello, Link, Refusal, Transmit};
use stentor_ports::{
    Charge, Class, Done, Forward, Ledger, LinkApp, LinkApps, LinkCarrier, LinkInbox, LinkInfo, LinkList,
    LinkSink, MetricSource,
};
use stentor_wire::ws;
use tokio::sync::watch;
use tokio::time::{Sleep, timeout};

/// Bytes that a turn reads from a connection, about.
pub const TURN_BYTES: usize = 64 << 10;

/// Bytes up to which a connection's output is filled. The rest stays in the link.
const OUTPUT_BYTES: usize = 64 << 10;

/// Maximum time until a connection's HELLO.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time to close a connection, so that the worker reads the last frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time until an overdue timeout is tried again. It is overdue while a connection's output is full.
const OVERDUE_RETRY: Duration = Duration::from_millis(20);

/// Maximum number of turns before other tasks run.
const TURNS_MAX: usize = 4;

/// Maximum number of connections that have no link, beside those of workers.
const SPARE_CONNECTIONS: usize = 32;

/// Close codes of RFC 6455 section 7.4.1.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const POLICY: u16 = 1008;

/// The handle of the service.
pub struct Workers {
    apps: Vec<AppOptions>,
    engines: Arc<LinkApps>,
    http: Option<Http>,
    inbox: Arc<Inbox>,
    view: Arc<View>,
    ledger: Arc<Ledger>,
    open: Arc<AtomicUsize>,
    refusing: Arc<AtomicUsize>,
    /// Carries messages to the other nodes of a cluster.
    carrier: OnceLock<Arc<dyn LinkCarrier>>,
}

/// The requests for other paths.
#[derive(Clone)]
struct Http {
    /// The application whose workers answer them.
    app: usize,
    targets: Arc<watch::Sender<Targets>>,
    forwarder: Arc<Forwarder>,
}

stentor_ports::opaque_debug!(Workers, "Workers");

impl Workers {
    /// The handle of a service with these applications. Must be called within the runtime of the service. A session's [`stentor_ports::LinkApp`] is an application's number.
    pub fn new(apps: Vec<AppOptions>, ledger: Arc<Ledger>) -> Arc<Self> {
        let names = apps.iter().map(|app| app.name.as_str().into()).collect();
        let inbox = Arc::new(Inbox::new(names, ledger.clone()));
        let (open, refusing) = (Arc::default(), Arc::default());
        let engines = Arc::new(LinkApps::new(apps.iter().map(AppOptions::engine)));
        let http = apps.iter().enumerate().find_map(|(app, options)| {
            let (targets, followed) = watch::channel(Targets::default());
            let forwarder = Forwarder::new(options.http.clone()?, followed, ledger.clone());
            Some(Http { app, targets: Arc::new(targets), forwarder })
        });
        Arc::new(Self {
            apps,
            engines,
            http,
            inbox,
            view: Arc::default(),
            ledger,
            open,
            refusing,
            carrier: OnceLock::new(),
        })
    }

    /// The side of the service that the cores call.
    pub fn sink(&self) -> Arc<dyn LinkSink> {
        self.inbox.clone()
    }

    /// The application with this name.
    pub fn find(&self, app: &str) -> Option<LinkApp> {
        let place = self.apps.iter().position(|options| options.name == app)?;
        Some(LinkApp(place as u16))
    }

    /// The name of an application.
    pub fn name(&self, app: LinkApp) -> Option<&str> {
        self.apps.get(usize::from(app.0)).map(|options| &*options.name)
    }

    /// The options of the applications' clients, which workers change.
    pub fn engines(&self) -> Arc<LinkApps> {
        self.engines.clone()
    }

    /// The application whose workers' HTTP servers answer requests for other paths.
    pub fn http(&self) -> Option<(LinkApp, Arc<dyn Forward>)> {
        self.http.as_ref().map(|http| (LinkApp(http.app as u16), http.forwarder.clone() as Arc<dyn Forward>))
    }

    /// The metrics of the service.
    pub fn metrics(&self) -> Vec<Arc<dyn MetricSource>> {
        let http = self.http.as_ref().map(|http| http.forwarder.clone() as Arc<dyn MetricSource>);
        std::iter::once(self.view.clone() as Arc<dyn MetricSource>).chain(http).collect()
    }

    /// The links of this node's workers.
    pub fn links(&self) -> Vec<LinkInfo> {
        self.view.links()
    }

    /// Lists the links of all nodes' workers.
    pub fn list(&self, done: Done<LinkList>) {
        match self.carrier.get() {
            Some(carrier) => carrier.list_links(done),
            None => done.answer(Ok(LinkList::new(self.links()))),
        }
    }

    /// Makes the workers of all nodes of a cluster one application each. Must be called before [`Self::service`], once.
    pub fn join(&self, carrier: Arc<dyn LinkCarrier>) {
        let names: Vec<Arc<str>> = self.apps.iter().map(|app| app.name.as_str().into()).collect();
        carrier.join(&names, Arc::new(NodeSink { inbox: self.inbox.clone(), view: self.view.clone() }));
        // A second one would be a bug of the node's start.
        assert!(self.carrier.set(carrier).is_ok());
    }

    /// The task, which runs until [`Self::stop`]. There may be only one. It needs a tokio runtime with time.
    pub fn service(&self, inbox: Arc<dyn LinkInbox>) -> Service {
        Service {
            apps: Applications::new(&self.apps, self.engines.clone(), inbox, self.carrier.get().cloned()),
            slots: Vec::new(),
            shared: connection::shared(),
            http: self.http.clone(),
            inbox: self.inbox.clone(),
            view: self.view.clone(),
            charge: Charge::new(self.ledger.clone(), Class::Link),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            is_stopping: false,
        }
    }

    /// Checks the request of a worker, and returns the answer. [`Self::connect`] takes the connection.
    ///
    /// # Errors
    /// If the request isn't the handshake of a link.
    pub fn accept(&self, request: LinkRequest<'_>) -> Result<Accepted, Refused> {
        handshake::check(request, &self.apps)
    }

    /// Takes the connection of an accepted request, with the bytes already `read` from it. Returns at once, unless the worker is refused.
    pub async fn connect(&self, accepted: Accepted, io: impl Io + 'static, read: &[u8]) {
        let peer = accepted.peer;
        let refusal = match accepted.target {
            Ok(app) => {
                let workers: usize = self.apps.iter().map(|app| app.application.workers_max).sum();
                if let Some(counted) = Counted::new(&self.open, workers + SPARE_CONNECTIONS) {
                    let connection = Connection::new(Box::new(io), read);
                    let joining = Joining { app, peer, connection, counted };
                    return self.inbox.change(|calls| calls.connections.push(joining));
                }
                Refusal::new(Code::TooManyWorkers, "the server has too many connections of workers")
            }
            Err(refusal) => refusal,
        };
        self.view.handle_refusal(None, &refusal, tokio::time::Instant::now().into_std());
        let Some(_counted) = Counted::new(&self.refusing, SPARE_CONNECTIONS) else { return };
        let mut connection = Connection::new(Box::new(io), &[]);
        connection.send(&refusal.frame());
        connection.close(POLICY);
        let end = poll_fn(|cx| {
            if ready!(connection.poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            connection.poll_ended(cx)
        });
        // A worker that doesn't close its side in time is disconnected.
        let _ = timeout(CLOSE_TIMEOUT, end).await;
    }

    /// Ends the service: it closes the connections of all workers.
    pub fn stop(&self) {
        self.inbox.change(|calls| calls.is_stopped = true);
    }
}

/// The part of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// HELLO is expected.
    Joining { until: Instant },
    /// The connection is that of the link with this number.
    Linked(u32),
    /// The last frame is sent, and the worker's end of the connection is expected.
    Closing { until: Instant },
    /// The connection is dropped.
    Gone,
}

/// A connection of a worker of an application.
struct Slot {
    app: usize,
    /// The worker's address.
    peer: Option<IpAddr>,
    phase: Phase,
    /// `true` if the link wasn't read in this turn, because a change of its worker waits.
    is_waiting: bool,
    connection: Connection,
    _counted: Counted,
}

impl Slot {
    fn close(&mut self, code: u16, now: Instant) {
        self.connection.close(code);
        self.phase = Phase::Closing { until: now + CLOSE_TIMEOUT };
    }

    fn refuse(&mut self, app: &str, refusal: &Refusal, view: &View, now: Instant) {
        view.handle_refusal(Some(app), refusal, now);
        self.connection.send(&refusal.frame());
        self.close(POLICY, now);
    }

    fn until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Joining { until } | Phase::Closing { until } => Some(until),
            Phase::Linked(_) | Phase::Gone => None,
        }
    }
}

/// The task of the service.
pub struct Service {
    apps: Applications,
    slots: Vec<Slot>,
    shared: ws::Shared,
    http: Option<Http>,
    inbox: Arc<Inbox>,
    view: Arc<View>,
    /// Memory that the service holds, without its inbox.
    charge: Charge,
    timer: Pin<Box<Sleep>>,
    is_stopping: bool,
}

stentor_ports::opaque_debug!(Service, "Service");

impl Service {
    /// Handles all that has happened. Returns `true` if there is more to do at once.
    fn turn(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        self.handle_calls(now);
        self.apps.handle_timeout(now);
        let mut has_more = false;
        for index in 0..self.slots.len() {
            has_more |= self.receive(index, now, cx);
        }
        self.apps.flush(now);
        for slot in &mut self.slots {
            has_more |= Self::transmit(&mut self.apps, slot, now, cx);
        }
        // A write may end a link, and so cause further instructions.
        self.apps.flush(now);
        self.slots.retain(|slot| slot.phase != Phase::Gone);
        // Links whose changes have gone on meanwhile are read in the next turn.
        has_more |= self.slots.iter().any(|slot| slot.is_waiting && !self.is_waiting(slot));
        let connections: usize = self.slots.iter().map(|slot| slot.connection.held_bytes()).sum();
        self.charge.set(connections + self.apps.held_bytes());
        self.view.update(&self.apps);
        self.apps.update_reports(now);
        self.update_targets();
        if self.inbox.finish(self.apps.keeps_sockets()) {
            self.apps.reports_have_space();
        }
        has_more
    }

    /// Reports the HTTP servers of the workers that take sessions, if they have changed.
    fn update_targets(&self) {
        let Some(Http { app, targets, .. }) = &self.http else { return };
        let address = |slot: &Slot| {
            let Phase::Linked(number) = slot.phase else { return None };
            let link = self.apps.get(slot.app).link(number).filter(|link| link.takes_sessions())?;
            Some(SocketAddr::new(slot.peer?, link.http()?))
        };
        let found: Vec<SocketAddr> =
            self.slots.iter().filter(|slot| slot.app == *app).filter_map(address).collect();
        targets.send_if_modified(|known| {
            let is_other = **known != *found;
            if is_other {
                *known = found.into();
            }
            is_other
        });
    }

    fn handle_calls(&mut self, now: Instant) {
        let calls = self.inbox.take();
        let has_refused = calls.has_refused;
        for Joining { app, peer, connection, counted } in calls.connections {
            let phase = Phase::Joining { until: now + HELLO_TIMEOUT };
            let is_waiting = false;
            self.slots.push(Slot { app, peer, phase, is_waiting, connection, _counted: counted });
        }
        for call in calls.calls {
            self.apps.handle_call(call, now);
        }
        if let Some(changes) = calls.engine {
            self.apps.handle_engine(changes, now);
        }
        self.apps.count_missed(calls.dropped, now);
        if !self.apps.is_blocked() {
            for call in self.inbox.take_of_nodes() {
                self.apps.handle_node_call(call, now);
            }
        }
        if has_refused {
            self.apps.reports_have_space();
        }
        if calls.is_stopped {
            self.is_stopping = true;
        }
        if self.is_stopping {
            self.apps.leave();
            let open = self.slots.iter_mut().filter(|slot| !matches!(slot.phase, Phase::Closing { .. }));
            open.for_each(|slot| slot.close(GOING_AWAY, now));
        }
    }

    /// `true` while a change of a link's worker waits.
    fn is_waiting(&self, slot: &Slot) -> bool {
        matches!(slot.phase, Phase::Linked(link) if self.apps.get(slot.app).is_waiting(link))
    }

    /// Reads from a connection. Returns `true` if more may have arrived.
    fn receive(&mut self, index: usize, now: Instant, cx: &mut Context<'_>) -> bool {
        let mut bytes = 0;
        self.slots[index].is_waiting = false;
        loop {
            let slot = &mut self.slots[index];
            let app = slot.app;
            match slot.phase {
                Phase::Gone => return false,
                Phase::Closing { until } => {
                    if now >= until || slot.connection.poll_ended(cx).is_ready() {
                        slot.phase = Phase::Gone;
                    }
                    return false;
                }
                Phase::Joining { until } if now >= until => {
                    slot.refuse(self.apps.name_of(app), &without_hello(), &self.view, now);
                    continue;
                }
                // The worker is slowed down while a core is behind.
                Phase::Linked(_) if self.apps.is_blocked() => return false,
                Phase::Linked(link) if self.apps.get(app).is_waiting(link) => {
                    slot.is_waiting = true;
                    return false;
                }
                Phase::Joining { .. } | Phase::Linked(_) => {}
            }
            let Poll::Ready(input) = slot.connection.poll_input(&mut self.shared, cx) else { return false };
            match (slot.phase, input) {
                (Phase::Joining { .. }, Input::Frame(frame)) => self.join(index, frame, now),
                (Phase::Joining { .. }, Input::Violation(error)) => {
                    slot.refuse(self.apps.name_of(app), &Refusal::from(&error), &self.view, now);
                }
                (Phase::Linked(link), Input::Frame(frame)) => {
                    bytes += frame.len();
                    self.apps.handle_frame(app, link, frame, now);
                }
                (Phase::Linked(link), Input::Violation(error)) => {
                    self.apps.handle_violation(app, link, error, now);
                    return false;
                }
                (Phase::Linked(link), Input::Ended) => {
                    slot.phase = Phase::Gone;
                    self.apps.handle_disconnect(app, link, now);
                }
                (_, Input::Ended) => slot.phase = Phase::Gone,
                (Phase::Linked(link), Input::Heartbeat) => self.apps.handle_heartbeat(app, link, now),
                _ => {}
            }
            // An empty message has its costs, too.
            bytes += TURN_BYTES / 256;
            if bytes >= TURN_BYTES {
                return true;
            }
        }
    }

    /// Handles the first message of a connection.
    fn join(&mut self, index: usize, frame: bytes::Bytes, now: Instant) {
        let app = self.slots[index].app;
        match Hello::read(frame).and_then(|hello| self.apps.handle_hello(app, hello, now)) {
            Ok(link) => {
                let former = |slot: &&mut Slot| slot.app == app && slot.phase == Phase::Linked(link);
                self.slots.iter_mut().filter(former).for_each(|slot| slot.phase = Phase::Gone);
                self.slots[index].phase = Phase::Linked(link);
            }
            Err(refusal) => self.slots[index].refuse(self.apps.name_of(app), &refusal, &self.view, now),
        }
    }

    /// Writes to a connection. Returns `true` if the link has more to write.
    fn transmit(apps: &mut Applications, slot: &mut Slot, now: Instant, cx: &mut Context<'_>) -> bool {
        let app = slot.app;
        if let Phase::Linked(link) = slot.phase {
            // The last frame of an ended link doesn't wait for a worker that reads nothing.
            let is_ended = |apps: &Applications| apps.get(app).link(link).is_some_and(Link::is_ended);
            while slot.connection.queued_bytes() < OUTPUT_BYTES || is_ended(apps) {
                match apps.poll_transmit(app, link, now) {
                    Some(Transmit::Frame(frame)) => slot.connection.send(&frame),
                    Some(Transmit::Ping) => slot.connection.ping(),
                    Some(Transmit::Close) => slot.close(NORMAL, now),
                    None => break,
                }
            }
            // Another connection has taken the link's place.
            if slot.phase == Phase::Linked(link) && apps.get(app).link(link).is_none() {
                slot.close(NORMAL, now);
            }
        }
        let was_full = slot.connection.queued_bytes() >= OUTPUT_BYTES;
        let written = match slot.phase {
            Phase::Gone => return false,
            Phase::Closing { .. } => slot.connection.poll_shutdown(cx),
            Phase::Joining { .. } | Phase::Linked(_) => slot.connection.poll_output(cx),
        };
        match (written, slot.phase) {
            (Poll::Ready(Err(_)), Phase::Linked(link)) => {
                slot.phase = Phase::Gone;
                apps.handle_disconnect(app, link, now);
                false
            }
            (Poll::Ready(Err(_)), _) => {
                slot.phase = Phase::Gone;
                false
            }
            (Poll::Ready(Ok(())), _) => was_full,
            (Poll::Pending, _) => false,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.slots.iter().filter_map(Slot::until).chain(self.apps.poll_timeout()).min()
    }
}

impl Future for Service {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let service = self.get_mut();
        for _ in 0..TURNS_MAX {
            let now = tokio::time::Instant::now().into_std();
            let mut has_more = service.turn(now, cx);
            if service.is_stopping && service.slots.is_empty() {
                return Poll::Ready(());
            }
            if let Some(at) = service.poll_timeout() {
                let at = if at <= now { now + OVERDUE_RETRY } else { at };
                service.timer.as_mut().reset(at.into());
                has_more |= service.timer.as_mut().poll(cx).is_ready();
            }
            if service.inbox.register(cx.waker(), service.apps.is_blocked()) && !has_more {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.inbox.close();
    }
}
