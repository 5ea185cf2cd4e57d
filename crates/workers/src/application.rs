//! The applications with their sessions, and the instructions for the cores that follow from their workers' entries.

mod broadcasts;
mod changes;
mod departed;
mod node;
mod refused;
mod relay;
mod returning;

use crate::engine::{self, Allowed};
use crate::headers;
use crate::inbox::Call;
use crate::known::{Known, Sessions, can_be_kept};
use crate::nodes::Nodes;
use crate::options::AppOptions;
use crate::outbox::Outbox;
use crate::recovery::{Evicted, Persisted, Recovered, Recovery, RecoveryStats, Source};
use crate::refused::Reports;
use crate::searches::Searches;
use bytes::Bytes;
use changes::Changes;
use departed::is_disconnect;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_link::{
    Action, Application, Change, Closing, Code, End, Handle, Hello, LINK_BITS, LinkError, Message, Messages,
    Namespace, Parser, Refusal, ServerEntry, SessionId, Settings, Transmit, WorkerEntry,
};
use stentor_ports::{
    EngineOptions, LinkApp, LinkApps, LinkCarrier, LinkChange, LinkEntry, LinkInbox, LinkMessage,
    LinkMessages, LinkReport, LinkSelected, LinkSession, LinkSocket, content_bytes,
};

/// Names of the ends of links, in the order of [`Applications::ends`].
pub(crate) const ENDS: [&str; 6] = ["done", "stopped", "lost", "hung", "overdue", "failed"];

/// The applications, and the sessions of their clients.
pub(crate) struct Applications {
    options: Vec<AppOptions>,
    names: Vec<Arc<str>>,
    /// The engine's options of each application, for the cores.
    engines: Arc<LinkApps>,
    applications: Vec<Application>,
    sessions: Sessions,
    /// The disconnected sockets and the log of broadcasts of each application.
    recoveries: Vec<Recovery>,
    searches: Searches,
    outbox: Outbox,
    inbox: Arc<dyn LinkInbox>,
    /// The other nodes. `None` without a cluster.
    nodes: Option<Nodes>,
    /// Reports of refused requests of each application.
    reports: Vec<Reports>,
    /// Number of links that have ended, of each application and in the order of [`ENDS`].
    ends: Vec<[u64; ENDS.len()]>,
    /// The changes of each application's sockets that the cores carry out.
    changes: Vec<Changes>,
    /// Number of questions and answers of workers that didn't fit on the link of another worker.
    relays_dropped: u64,
}

fn id_of(session: LinkSession) -> SessionId {
    SessionId(session.to_bits())
}

fn session_of(id: SessionId) -> LinkSession {
    LinkSession::from_bits(id.0)
}

fn to_cores(messages: Messages) -> LinkMessages {
    let each = |message| match message {
        Message::Text(data) => LinkMessage::Text(data),
        Message::Binary(data) => LinkMessage::Binary(data),
    };
    messages.into_iter().map(each).collect()
}

fn to_worker(messages: LinkMessages) -> Messages {
    let each = |message| match message {
        LinkMessage::Text(data) => Message::Text(data),
        LinkMessage::Binary(data) => Message::Binary(data),
    };
    messages.into_iter().map(each).collect()
}

impl Applications {
    pub(crate) fn new(
        options: &[AppOptions],
        engines: Arc<LinkApps>,
        inbox: Arc<dyn LinkInbox>,
        carrier: Option<Arc<dyn LinkCarrier>>,
    ) -> Self {
        let application = |(app, options): (usize, &AppOptions)| {
            // The numbers of all links of the node differ.
            let first = fastrand::u32(1..1 << (LINK_BITS - 1));
            Application::new(options.application, (app as u32) << LINK_BITS | first)
        };
        let names: Vec<Arc<str>> = options.iter().map(|options| options.name.as_str().into()).collect();
        Self {
            options: options.to_vec(),
            engines,
            nodes: carrier.map(|carrier| Nodes::new(carrier, names.clone())),
            names,
            applications: options.iter().enumerate().map(application).collect(),
            sessions: Sessions::default(),
            recoveries: options.iter().map(|options| Recovery::new(options.recovery)).collect(),
            searches: Searches::default(),
            outbox: Outbox::default(),
            inbox,
            reports: vec![Reports::default(); options.len()],
            ends: vec![[0; ENDS.len()]; options.len()],
            changes: options.iter().map(|_| Changes::default()).collect(),
            relays_dropped: 0,
        }
    }

    /// Number of applications.
    pub(crate) fn len(&self) -> usize {
        self.applications.len()
    }

    pub(crate) fn name_of(&self, app: usize) -> &Arc<str> {
        &self.names[app]
    }

    pub(crate) fn ends(&self, app: usize) -> [u64; ENDS.len()] {
        self.ends[app]
    }

    pub(crate) fn recovery(&self, app: usize) -> RecoveryStats {
        RecoveryStats { searches: self.searches.count(app), ..self.recoveries[app].stats() }
    }

    pub(crate) fn get(&self, app: usize) -> &Application {
        &self.applications[app]
    }

    /// Bytes that are held for sessions and workers.
    pub(crate) fn held_bytes(&self) -> usize {
        let applications: usize = self.applications.iter().map(Application::held_bytes).sum();
        let recoveries: usize = self.recoveries.iter().map(Recovery::bytes).sum();
        let nodes = self.nodes.as_ref().map_or(0, Nodes::held_bytes) + self.searches.bytes();
        let changes: usize = self.changes.iter().map(Changes::held_bytes).sum();
        applications + recoveries + self.sessions.bytes() + self.outbox.bytes() + nodes + changes
    }

    /// Number of STATE, RELEASED and PERSIST whose data exceeded the bound.
    pub(crate) fn data_refused(&self) -> u64 {
        self.sessions.data_refused
    }

    /// `true` while instructions wait for the inbox of a core, or a message for other nodes waits for the engine.
    pub(crate) fn is_blocked(&self) -> bool {
        self.outbox.is_blocked || self.nodes.as_ref().is_some_and(Nodes::is_blocked)
    }

    /// Goes on with changes that wait. Gives the instructions to the cores, and the messages for other nodes to the engine.
    pub(crate) fn flush(&mut self, now: Instant) {
        for app in 0..self.len() {
            self.changes[app].forget_finished();
            if self.applications[app].waiting_changes() > 0 {
                self.act(app, now);
            }
        }
        self.outbox.flush(&*self.inbox);
        self.flush_nodes(now);
    }

    /// Notifies the cores that the service takes reports again.
    pub(crate) fn reports_have_space(&self) {
        self.inbox.reports_have_space();
    }

    // Connections.

    pub(crate) fn handle_hello(
        &mut self,
        app: usize,
        mut hello: Hello,
        now: Instant,
    ) -> Result<u32, Refusal> {
        let (name, instance, is_known) = (hello.name.clone(), hello.instance.clone(), hello.link);
        // As the worker has them: what the node replaces isn't the worker's.
        let settings = Settings::of(&hello);
        let checked = self.check_settings(app, &settings);
        let result = checked.and_then(|()| self.read_options(app, &mut hello)).and_then(|options| {
            let link = self.applications[app].handle_hello(hello, now)?;
            if is_known != Some(link) {
                self.recoveries[app].ttl = self.recovery_ttl(app, link);
                self.engines.set(LinkApp(app as u16), options);
                self.nodes.iter_mut().for_each(|nodes| nodes.set_settings(app, settings.clone()));
            }
            Ok(link)
        });
        let app_name = &self.names[app];
        match &result {
            Ok(link) if is_known == Some(*link) => {
                tracing::info!(app = %app_name, worker = name, link, "the connection of a worker is restored");
            }
            Ok(link) => tracing::info!(app = %app_name, worker = name, instance, link, "a worker is linked"),
            Err(_) => {}
        }
        self.act(app, now);
        result
    }

    /// Reads the options of a worker's engine, and replaces those that the node decides.
    fn read_options(&self, app: usize, hello: &mut Hello) -> Result<EngineOptions, Refusal> {
        let conflict = |message: String| Refusal::new(Code::OptionsConflict, message);
        let AppOptions { path, message_bytes_max, .. } = &self.options[app];
        let allowed = Allowed { path, message_bytes_max: *message_bytes_max };
        let mut options = engine::read(&mut hello.options, allowed).map_err(conflict)?;
        options.queue_bytes_max = self.options[app].queue_bytes_max;
        match self.engines.other_at(&options.path, LinkApp(app as u16)) {
            None => Ok(options),
            Some(other) => {
                let name = self.names.get(usize::from(other.0)).map_or("", |name| &**name);
                Err(conflict(format!("the application {name:?} has the path {:?} already", options.path)))
            }
        }
    }

    pub(crate) fn handle_frame(&mut self, app: usize, link: u32, frame: Bytes, now: Instant) {
        self.applications[app].handle_frame(link, frame, now);
        self.act(app, now);
        self.acknowledge(app, link);
    }

    pub(crate) fn handle_heartbeat(&mut self, app: usize, link: u32, now: Instant) {
        self.applications[app].handle_pong(link, now);
    }

    pub(crate) fn handle_violation(&mut self, app: usize, link: u32, error: LinkError, now: Instant) {
        self.applications[app].handle_violation(link, error, now);
        self.act(app, now);
    }

    pub(crate) fn handle_disconnect(&mut self, app: usize, link: u32, now: Instant) {
        if self.applications[app].link(link).is_some_and(|link| !link.is_ended()) {
            tracing::info!(app = %self.names[app], link, "the connection of a worker has ended");
        }
        self.applications[app].handle_disconnect(link, now);
        self.act(app, now);
    }

    pub(crate) fn poll_transmit(&mut self, app: usize, link: u32, now: Instant) -> Option<Transmit> {
        let transmit = self.applications[app].poll_transmit(link, now);
        self.act(app, now);
        transmit
    }

    /// Checks what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for app in 0..self.applications.len() {
            if self.applications[app].poll_timeout().is_some_and(|at| at <= now) {
                self.applications[app].handle_timeout(now);
                self.act(app, now);
            }
            if self.recoveries[app].poll_timeout().is_some_and(|at| at <= now) {
                self.recoveries[app].handle_timeout(now);
            }
        }
        self.handle_searches(now);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let recoveries = self.recoveries.iter().filter_map(Recovery::poll_timeout);
        let reports = self.reports.iter().filter_map(Reports::poll_timeout);
        let nodes = self.nodes.as_ref().and_then(Nodes::poll_timeout);
        let applications = self.applications.iter().filter_map(Application::poll_timeout);
        applications.chain(recoveries).chain(reports).chain(nodes).chain(self.searches.poll_timeout()).min()
    }

    // Reports of the cores.

    pub(crate) fn handle_call(&mut self, call: Call, now: Instant) {
        match call {
            Call::Report(session, LinkReport::Opened(app, handshake)) => {
                let app = usize::from(app.0);
                if app >= self.applications.len() {
                    return self.outbox.push(0, LinkEntry::Refuse(session, Box::new(headers::refusal(None))));
                }
                let queued = handshake.queued.0.clone();
                let handshake = self.sessions.open(session, app, &handshake);
                self.applications[app].handle_request(id_of(session), handshake, queued, now);
                self.act(app, now);
            }
            Call::Report(session, report) => {
                let Some(known) = self.sessions.get(session) else { return };
                let app = known.app;
                self.handle_report(app, session, report, now);
                self.act(app, now);
            }
            Call::Selected(selected) => self.handle_selected(&selected, now),
            Call::Refused(refused) => self.handle_refused(&refused, now),
        }
    }

    fn handle_report(&mut self, app: usize, session: LinkSession, report: LinkReport, now: Instant) {
        let (application, id) = (&mut self.applications[app], id_of(session));
        match report {
            LinkReport::Opened(..) => {}
            LinkReport::Messages(messages) => {
                let bytes = content_bytes(&messages);
                if is_disconnect(&messages) {
                    self.sessions.leave(session);
                }
                application.handle_message(id, to_worker(messages), now);
                if let Some(known) = self.sessions.get(session) {
                    known.queued.leave(bytes);
                }
            }
            LinkReport::Full => application.handle_full(id, now),
            LinkReport::Confirm => application.confirm(id, now),
            LinkReport::Upgraded(transport) => {
                self.sessions.upgrade(session, transport);
                application.handle_upgrade(id, transport.into(), now);
            }
            LinkReport::Closed { reason, sockets } => {
                let worker = application.known_by(id).map(|(link, _)| (link, application.last_message(id)));
                application.handle_closed(id, reason.name().into(), None, now);
                if reason.is_recoverable() {
                    self.keep(app, session, worker, sockets, now);
                }
                self.sessions.close(session);
                self.recoveries[app].release_all(session);
            }
            LinkReport::Receipt => application.write(id, |handle| ServerEntry::Receipt { handle }, now),
            LinkReport::Pressure(is_on) => {
                application.write(id, |handle| ServerEntry::Pressure { handle, is_on }, now);
            }
            LinkReport::Described(description) => {
                if let Some(known) = self.sessions.get(session) {
                    let resumed = known.resumed(&description);
                    application.handle_description(id, Handle(description.request), resumed, now);
                }
            }
        }
    }

    /// Notifies the workers, other than the one that asked for it, of changes to their sockets.
    fn handle_selected(&mut self, selected: &LinkSelected, now: Instant) {
        let app = usize::from(selected.app.0);
        let Some(application) = self.applications.get_mut(app) else { return };
        let mut by_link: BTreeMap<u32, Vec<Handle>> = BTreeMap::new();
        let closes = selected.select.change == LinkChange::Disconnect { closes: true };
        for session in &selected.sessions {
            let id = id_of(*session);
            if closes && application.disconnect_waiting(id, now) {
                continue;
            }
            if let Some((link, handle)) = application.known_by(id)
                && link != selected.link
            {
                by_link.entry(link).or_default().push(handle);
            }
        }
        for (number, handles) in by_link {
            let link = application.link(number);
            let Some(namespace) = link.and_then(|link| link.namespace_index(&selected.namespace)) else {
                continue;
            };
            let rooms = || selected.select.targets.clone();
            let entry = match selected.select.change {
                LinkChange::Join => {
                    ServerEntry::Members { namespace, change: Change::Join, handles, rooms: rooms() }
                }
                LinkChange::Leave => {
                    ServerEntry::Members { namespace, change: Change::Leave, handles, rooms: rooms() }
                }
                LinkChange::Disconnect { closes } => ServerEntry::Kick { namespace, closes, handles },
            };
            application.write_to_link(number, &entry, now);
        }
        self.act(app, now);
    }

    // Actions.

    /// Carries out what an application wants.
    fn act(&mut self, app: usize, now: Instant) {
        self.carry_out_all(app, now);
        while let Some((link, worker, end)) = self.applications[app].poll_end() {
            let name = &self.names[app];
            let (index, reason) = match end {
                End::Done => (0, None),
                End::Stopped => (1, None),
                End::Lost => (2, None),
                End::Hung => (3, None),
                End::Overdue => (4, None),
                End::Failed(error) => (5, Some(error)),
            };
            self.ends[app][index] += 1;
            self.recoveries[app].handle_end(link, now);
            match (end, reason) {
                (End::Done | End::Stopped, _) => {
                    tracing::info!(app = %name, %worker, link, "a worker has left")
                }
                (End::Lost, _) => {
                    tracing::warn!(app = %name, %worker, link, "a worker is lost: its connection wasn't restored")
                }
                (End::Overdue, _) => {
                    tracing::warn!(app = %name, %worker, link, "a worker is lost: its handover took too long");
                }
                (_, None) => tracing::warn!(app = %name, %worker, link, "a worker is lost: it didn't answer"),
                (_, Some(error)) => {
                    let code = error.code().name();
                    tracing::warn!(app = %name, %worker, link, code, %error, "a link was ended because of its worker");
                }
            }
        }
    }

    fn carry_out(&mut self, app: usize, action: Action, now: Instant) {
        let (link, entry) = match action {
            Action::Accept(id, accept) => {
                let link = self.owner_of(app, id);
                let parser = self.applications[app].link(link).map_or(Parser::Json, |link| link.parser());
                let acceptance = headers::acceptance(accept.as_ref(), parser);
                (link, LinkEntry::Accept(session_of(id), Box::new(acceptance)))
            }
            Action::Refuse(id, refuse) => {
                self.sessions.close(session_of(id));
                (0, LinkEntry::Refuse(session_of(id), Box::new(headers::refusal(refuse.as_ref()))))
            }
            Action::Close(id, closing) => {
                let session = session_of(id);
                let is_disconnected = closing == Closing::Disconnected;
                if is_disconnected {
                    self.say_disconnect(app, session);
                }
                (0, LinkEntry::Close { session, discards: !is_disconnected })
            }
            Action::Pause(id) => (0, LinkEntry::Pause(session_of(id))),
            Action::Continue(id) => (0, LinkEntry::Continue(session_of(id))),
            Action::Handled(id) => (0, LinkEntry::Handled(session_of(id))),
            Action::Describe(id, handle) => {
                let session = session_of(id);
                self.recoveries[app].release_all(session);
                self.outbox.push(self.owner_of(app, id), LinkEntry::Own(session));
                (0, LinkEntry::Describe { session, request: handle.0 })
            }
            Action::Session(link, id, entry) => {
                match self.session_entry(app, link, session_of(id), entry, now) {
                    Some(entry) => (link, entry),
                    None => return,
                }
            }
            Action::Namespace(link, entry) => match self.namespace_entry(app, link, entry, now) {
                Some(entry) => (link, entry),
                None => return,
            },
        };
        self.outbox.push(link, entry);
    }

    /// Sends a client the DISCONNECT packets of its sockets, as its worker would, so that it doesn't connect again by itself. A client of
    /// a custom parser can't be sent any.
    fn say_disconnect(&mut self, app: usize, session: LinkSession) {
        let known = self.sessions.get(session).filter(|_| self.applications[app].parser() == Parser::Json);
        let packet = |namespace: &str| match namespace {
            "/" => LinkMessage::Text(Bytes::from_static(b"1")),
            namespace => LinkMessage::Text(format!("1{namespace},").into()),
        };
        let packets: Vec<LinkMessage> = known.into_iter().flat_map(Known::namespaces).map(packet).collect();
        for message in packets {
            let messages = [message].into_iter().collect();
            let (is_volatile, is_compressed, wants_receipt) = (false, true, false);
            let send = LinkEntry::Send { session, is_volatile, is_compressed, wants_receipt, messages };
            self.outbox.push(0, send);
        }
    }

    /// Number of the link that has a session. 0: there is none.
    fn owner_of(&self, app: usize, id: SessionId) -> u32 {
        self.applications[app].owner_of(id).map_or(0, |(link, _)| link)
    }

    fn name(&self, app: usize, link: u32, namespace: Namespace) -> Option<Arc<str>> {
        self.applications[app].link(link)?.namespace(namespace).cloned()
    }

    fn recovery_ttl(&self, app: usize, link: u32) -> Option<Duration> {
        self.applications[app].link(link)?.recovery_ttl()
    }

    /// The last instruction for the core of a session. `None`: there is none.
    fn session_entry(
        &mut self,
        app: usize,
        link: u32,
        session: LinkSession,
        entry: WorkerEntry,
        now: Instant,
    ) -> Option<LinkEntry> {
        use WorkerEntry as E;
        Some(match entry {
            E::Send { flags, messages, .. } => LinkEntry::Send {
                session,
                is_volatile: flags.is_volatile,
                is_compressed: !flags.is_uncompressed,
                wants_receipt: flags.wants_receipt,
                messages: to_cores(messages),
            },
            E::Close { discard, .. } => LinkEntry::Close { session, discards: discard },
            E::Add { namespace, id, pid, rooms, state, .. } => {
                let namespace = self.name(app, link, namespace)?;
                let recovered = self.recoveries[app].complete(session, &namespace, &pid);
                self.sessions.add(session, &namespace, pid, state);
                let messages = match recovered {
                    None => LinkMessages::new(),
                    Some(Ok(Recovered { data, missed, brought })) => {
                        self.sessions.recover(session, &namespace, data, brought);
                        missed
                    }
                    // The client connects again, and begins anew.
                    Some(Err(Evicted)) => return Some(LinkEntry::Close { session, discards: true }),
                };
                let socket = Box::new(LinkSocket { namespace, id, rooms });
                self.outbox.push(link, LinkEntry::Add { session, socket });
                if messages.is_empty() {
                    return None;
                }
                let (is_volatile, is_compressed, wants_receipt) = (false, true, false);
                LinkEntry::Send { session, is_volatile, is_compressed, wants_receipt, messages }
            }
            E::Del { namespace, .. } => {
                let namespace = self.name(app, link, namespace)?;
                self.sessions.delete(session, &namespace);
                LinkEntry::Delete { session, namespace }
            }
            E::Join { namespace, rooms, .. } => {
                LinkEntry::Join { session, namespace: self.name(app, link, namespace)?, rooms }
            }
            E::Leave { namespace, room, .. } => {
                LinkEntry::Leave { session, namespace: self.name(app, link, namespace)?, room }
            }
            E::State { namespace, data, .. } | E::Released { namespace, data: Some(data), .. } => {
                let namespace = self.name(app, link, namespace)?;
                self.sessions.set_data(session, &namespace, data);
                return None;
            }
            E::Restore { request, namespace, pid, offset, .. } => {
                let key = (self.name(app, link, namespace)?, pid);
                self.restore(app, (link, session, request), key, &offset, now);
                return None;
            }
            _ => return None,
        })
    }

    /// The instruction for all cores. `None`: there is none.
    fn namespace_entry(
        &mut self,
        app: usize,
        link: u32,
        entry: WorkerEntry,
        now: Instant,
    ) -> Option<LinkEntry> {
        match entry {
            WorkerEntry::Broadcast { namespace, broadcast } => {
                let namespace = self.name(app, link, namespace)?;
                let ttl = self.recovery_ttl(app, link).filter(|_| broadcast.offset.is_some());
                let source = ttl.map(|_| self.recoveries[app].origins.draw());
                let source = source.unwrap_or(Source { node: None, number: 0 });
                let broadcast = self.share_broadcast(app, &namespace, broadcast, (source.number, ttl));
                Some(self.broadcast(app, namespace, (broadcast, source), (now, ttl)))
            }
            WorkerEntry::Persist { namespace, id, pid, rooms, data } => {
                let key = (self.name(app, link, namespace)?, pid);
                let ttl = self.recovery_ttl(app, link)?;
                let brought = self.recoveries[app].unreported.report(link, &key, now)?;
                if can_be_kept(&data) {
                    self.recoveries[app].persist(key, Persisted { id, rooms, data, brought }, (now, ttl));
                } else {
                    self.sessions.data_refused += 1;
                }
                None
            }
            WorkerEntry::Select { namespace, select } => {
                let namespace = self.name(app, link, namespace)?;
                let select = self.share_select(app, &namespace, select);
                Some(self.select(app, link, namespace, select))
            }
            WorkerEntry::Relay { namespace, link: to, body, messages } => {
                self.relay(app, (link, namespace), to, &body, &messages, now);
                None
            }
            _ => None,
        }
    }
}

/// The reason why a connection without a link ends.
pub(crate) fn without_hello() -> Refusal {
    Refusal::new(Code::Protocol, "HELLO didn't arrive in time")
}
