//! The service, its cores and its workers.

use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stentor_link::{Entry, Exchange, Json, Message, Received, ServerEntry, WorkerEntry, Writer};
use stentor_ports::fake::{Call, Node};
use stentor_ports::{
    Busy, Ledger, LinkApp, LinkCarrier, LinkCloseReason, LinkEntry, LinkHandshake, LinkInbox, LinkMessage,
    LinkQueued, LinkReport, LinkSession, LinkSink, LinkSocket,
};
use stentor_wire::ws::{self, Event, Opcode, Role};
use stentor_workers::{AppOptions, LinkRequest, Token, Workers};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Maximum virtual time of one step of a test. Heartbeats never end.
const PATIENCE: Duration = Duration::from_secs(60);

const HANDSHAKE: [(&str, &[u8]); 6] = [
    ("host", b"a"),
    ("connection", b"Upgrade"),
    ("upgrade", b"websocket"),
    ("sec-websocket-version", b"13"),
    ("sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-protocol", b"stentor.link.v1"),
];

pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

pub(crate) fn json(text: &str) -> Json {
    Json::new(text).unwrap()
}

/// Instructions that the cores have received.
#[derive(Debug, PartialEq)]
pub(crate) enum CoreCall {
    Entry(u32, LinkEntry),
    Space,
}

/// A running service with the applications `chat`, and `shop`, which has a token.
pub(crate) struct Rig {
    pub(crate) workers: Arc<Workers>,
    pub(crate) sink: Arc<dyn LinkSink>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) service: JoinHandle<()>,
    cores: mpsc::UnboundedReceiver<CoreCall>,
    /// Size of the messages of each session that wait.
    queued: Mutex<HashMap<u64, LinkQueued>>,
    /// While `true`, the inbox of a core is full.
    pub(crate) is_full: Arc<Mutex<bool>>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(AppOptions::default())
    }

    /// A service whose application `chat` has these options.
    pub(crate) fn with(chat: AppOptions) -> Self {
        Self::start_service(chat, None)
    }

    /// A service at a node of a cluster.
    pub(crate) fn on(carrier: Arc<dyn LinkCarrier>) -> Self {
        Self::start_service(AppOptions::default(), Some(carrier))
    }

    fn start_service(chat: AppOptions, carrier: Option<Arc<dyn LinkCarrier>>) -> Self {
        let shop = AppOptions {
            name: "shop".into(),
            token: Some(Token::new("shop-token")),
            ..AppOptions::default()
        };
        let ledger = Arc::new(Ledger::new(1 << 30));
        let workers = Workers::new(vec![AppOptions { name: "chat".into(), ..chat }, shop], ledger.clone());
        let (received, cores) = mpsc::unbounded_channel();
        let is_full = Arc::new(Mutex::new(false));
        let full = is_full.clone();
        let node = Node::new(move |call| {
            if *full.lock().unwrap() {
                return Err(Busy);
            }
            match call {
                Call::CarryOut(link, entries) => {
                    for entry in entries {
                        received.send(CoreCall::Entry(link, entry)).unwrap();
                    }
                }
                Call::ReportsHaveSpace => received.send(CoreCall::Space).unwrap(),
                _ => panic!("another call"),
            }
            Ok(())
        });
        let inbox: Arc<dyn LinkInbox> = Arc::new(node);
        carrier.into_iter().for_each(|carrier| workers.join(carrier));
        let service = tokio::spawn(workers.service(inbox));
        Self { sink: workers.sink(), workers, ledger, service, cores, queued: Mutex::default(), is_full }
    }

    /// The next instruction for a core, with the number of its link.
    pub(crate) async fn core(&mut self) -> (u32, LinkEntry) {
        match timeout(PATIENCE, self.cores.recv()).await {
            Ok(Some(CoreCall::Entry(link, entry))) => (link, entry),
            other => panic!("no entry: {other:?}"),
        }
    }

    /// The instructions that the cores have received.
    pub(crate) fn core_entries(&mut self) -> Vec<(u32, LinkEntry)> {
        let mut entries = Vec::new();
        while let Ok(call) = self.cores.try_recv() {
            let CoreCall::Entry(link, entry) = call else { continue };
            entries.push((link, entry));
        }
        entries
    }

    pub(crate) async fn space(&mut self) {
        assert_eq!(self.cores.recv().await, Some(CoreCall::Space));
    }

    pub(crate) fn report(&self, session: u64, report: LinkReport) {
        self.sink.report(LinkSession::from_bits(session), report).unwrap();
    }

    pub(crate) fn open(&self, session: u64) {
        self.open_counted(session);
    }

    /// Opens a session. The size of its messages that wait.
    pub(crate) fn open_counted(&self, session: u64) -> LinkQueued {
        let handshake = handshake();
        let queued = handshake.queued.clone();
        self.queued.lock().unwrap().insert(session, queued.clone());
        self.report(session, LinkReport::Opened(LinkApp(0), Box::new(handshake)));
        queued
    }

    pub(crate) fn say(&self, session: u64, text: &str) {
        let message = LinkMessage::Text(Bytes::copy_from_slice(text.as_bytes()));
        self.queued.lock().unwrap()[&session].enter(text.len());
        self.report(session, LinkReport::Messages([message].into_iter().collect()));
    }

    pub(crate) fn close(&self, session: u64) {
        self.close_with(session, Vec::new());
    }

    /// A client with these sockets loses its connection.
    pub(crate) fn close_with(&self, session: u64, sockets: Vec<LinkSocket>) {
        let reason = LinkCloseReason::TransportClose;
        self.report(session, LinkReport::Closed { reason, sockets });
    }

    /// A worker that has sent a request, without HELLO.
    pub(crate) async fn connect(&self, query: &str, token: Option<&str>) -> Worker {
        let authorization = token.map(|token| format!("Bearer {token}").into_bytes());
        let mut headers = HANDSHAKE.to_vec();
        headers.extend(authorization.as_ref().map(|value| ("authorization", &**value)));
        let peer = Some(std::net::Ipv4Addr::LOCALHOST.into());
        let request =
            LinkRequest { query, headers: &headers, has_admin_token: false, needs_token: false, peer };
        let accepted = self.workers.accept(request).unwrap();
        let (io, server) = duplex(256 << 10);
        let workers = self.workers.clone();
        tokio::spawn(async move { workers.connect(accepted, server, &[]).await });
        Worker::new(io)
    }

    /// A worker of `chat` that has received WELCOME, and its link.
    pub(crate) async fn start(&self, name: &str) -> (Worker, u32) {
        self.start_with(name, "").await
    }

    /// Like [`Self::start`], with further fields of HELLO.
    pub(crate) async fn start_with(&self, name: &str, fields: &str) -> (Worker, u32) {
        let mut worker = self.connect("app=chat", None).await;
        worker.hello(name, None, fields).await;
        let link = worker.welcome().await;
        (worker, link)
    }

    /// A link's number of sessions. `None`: there is no such link.
    pub(crate) fn sessions_of(&self, link: u32) -> Option<usize> {
        self.workers.links().into_iter().find(|info| info.link == link).map(|info| info.sessions)
    }

    /// The bytes of the class `link` in the ledger.
    pub(crate) fn held_bytes(&self) -> usize {
        self.ledger.by_class().find(|(class, _)| *class == "link").unwrap().1
    }

    /// A metric's value, with the labels that contain all of these texts.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let metrics: Vec<_> = self.workers.metrics().iter().flat_map(|source| source.metrics()).collect();
        let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
        let is_meant = |found: &[(&str, String)]| {
            labels.iter().all(|label| found.iter().any(|(_, value)| value == label))
        };
        metric.samples.iter().filter(|(found, _)| is_meant(found)).map(|(_, value)| value).sum()
    }
}

pub(crate) fn handshake() -> LinkHandshake {
    LinkHandshake {
        sid: "sid".into(),
        protocol: 4,
        transport: "polling",
        method: "GET".into(),
        url: "/socket.io/?EIO=4".into(),
        http_version: "1.1",
        headers: vec![("Host".into(), "a".into())],
        query: vec![("EIO".into(), "4".into())],
        address: "127.0.0.1".into(),
        port: 1,
        local_address: "127.0.0.1".into(),
        local_port: 2,
        encrypted: false,
        queued: LinkQueued::default(),
    }
}

pub(crate) fn socket(namespace: &str, id: &str, rooms: &[&str]) -> LinkSocket {
    let rooms = rooms.iter().map(|room| (*room).into()).collect();
    LinkSocket { namespace: namespace.into(), id: id.into(), rooms }
}

pub(crate) fn text(content: &str) -> Message {
    Message::Text(Bytes::copy_from_slice(content.as_bytes()))
}

/// A worker. It acknowledges what it has read with its next frame.
pub(crate) struct Worker {
    pub(crate) io: DuplexStream,
    ws: ws::Connection,
    shared: ws::Shared,
    pub(crate) exchange: Exchange<ServerEntry, WorkerEntry>,
    /// Entries that were received but not returned.
    entries: VecDeque<ServerEntry>,
    /// `false`: the worker answers no ping.
    pub(crate) is_alive: bool,
    /// The close code of the server.
    pub(crate) closed: Option<u16>,
    input: Vec<u8>,
}

impl Worker {
    fn new(io: DuplexStream) -> Self {
        Self {
            io,
            ws: ws::Connection::new(Role::Client, None),
            shared: ws::Shared::new(ws::Limits::default()),
            exchange: Exchange::default(),
            entries: VecDeque::new(),
            is_alive: true,
            closed: None,
            input: Vec::new(),
        }
    }

    pub(crate) async fn message(&mut self, opcode: Opcode, payload: &[u8]) {
        let mut out = Vec::new();
        ws::encode(&mut out, opcode, payload, false, Some([0; 4]));
        self.io.write_all(&out).await.unwrap();
    }

    /// Sends HELLO with further fields, and the link that the process knows.
    pub(crate) async fn hello(&mut self, name: &str, link: Option<(u32, u32)>, fields: &str) {
        self.hello_with(name, link, fields, "{}").await;
    }

    /// Like [`Self::hello`], with the options of an engine.
    pub(crate) async fn hello_with(
        &mut self,
        name: &str,
        link: Option<(u32, u32)>,
        fields: &str,
        options: &str,
    ) {
        let (link, received) =
            link.map_or(("null".into(), 0), |(link, received)| (link.to_string(), received));
        let v = if fields.contains(r#""v":"#) { "" } else { r#""v":[1],"# };
        let parser = if fields.contains(r#""parser":"#) { "" } else { r#""parser":"json","# };
        let hello = format!(
            r#"{{{v}{parser}"name":"{name}","instance":"{name}-1","link":{link},"received":{received},"options":{options}{fields}}}"#
        );
        let mut writer = Writer::default();
        writer.entry(&WorkerEntry::Hello { hello: json(&hello) });
        let frame = writer.finish(0, 0).to_bytes();
        self.message(Opcode::Binary, &frame).await;
    }

    /// Waits for WELCOME. Returns the number of the link.
    pub(crate) async fn welcome(&mut self) -> u32 {
        let ServerEntry::Welcome { welcome } = self.next().await.unwrap() else { panic!("no WELCOME") };
        let rest = welcome.as_str().split(r#""link":"#).nth(1).unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    }

    /// Reads until a message has arrived. `None`: the connection has ended.
    async fn read(&mut self) -> Option<Bytes> {
        let mut answers = Vec::new();
        loop {
            let received = self.ws.receive(&mut self.shared, &mut self.input, &mut answers);
            let message = match received.event {
                Some(Event::Message(message)) => Some(Bytes::copy_from_slice(message.bytes())),
                Some(Event::Closed { code, .. }) => {
                    self.closed = Some(code);
                    None
                }
                _ => None,
            };
            let consumed = received.consumed;
            self.input.drain(..consumed);
            if !answers.is_empty() && self.is_alive {
                self.io.write_all(&std::mem::take(&mut answers)).await.ok()?;
            }
            if message.is_some() {
                return message;
            }
            if self.input.is_empty() && self.io.read_buf(&mut self.input).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// The next entry. `None`: the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<ServerEntry> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(entry);
            }
            if let Some(entry) = self.exchange.poll_entry().unwrap() {
                return Some(entry);
            }
            let frame = self.read().await?;
            let received = Received::<ServerEntry>::new(frame.clone()).unwrap();
            if received.number == 0 && received.unread_bytes() > 0 {
                self.entries.extend(received.map(Result::unwrap));
            } else {
                self.exchange.handle_frame(frame, now()).unwrap();
            }
        }
    }

    /// The next entry other than PEERS.
    pub(crate) async fn entry(&mut self) -> ServerEntry {
        loop {
            match timeout(PATIENCE, self.next()).await.unwrap().unwrap() {
                ServerEntry::Peers { .. } => {}
                entry => return entry,
            }
        }
    }

    /// Code and message of the next entry, which is ERROR. The connection ends after it.
    pub(crate) async fn error(&mut self) -> String {
        let ServerEntry::Error { error } = self.entry().await else { panic!("no ERROR") };
        assert_eq!(self.next().await, None);
        error.as_str().into()
    }

    /// Sends entries in one frame.
    pub(crate) async fn write(&mut self, entries: &[WorkerEntry]) {
        while let Some(entry) = self.exchange.poll_entry().unwrap() {
            self.entries.push_back(entry);
        }
        entries.iter().for_each(|entry| self.exchange.write(entry));
        while let Some(frame) = self.exchange.poll_transmit(now()) {
            let frame = frame.to_bytes();
            self.message(Opcode::Binary, &frame).await;
        }
    }

    /// Sends entries, and waits until the server has handled them.
    pub(crate) async fn write_handled(&mut self, entries: &[WorkerEntry]) {
        self.write(&[entries, &[WorkerEntry::Nop {}]].concat()).await;
        while self.exchange.unacknowledged_bytes() > 0 {
            let frame = self.read().await.unwrap();
            self.exchange.handle_frame(frame, now()).unwrap();
            while let Some(entry) = self.exchange.poll_entry().unwrap() {
                self.entries.push_back(entry);
            }
        }
    }

    /// Reads all that the server sends in this time. The entries' names.
    pub(crate) async fn entries_of(&mut self, time: Duration) -> Vec<&'static str> {
        let (mut found, end) = (Vec::new(), tokio::time::Instant::now() + time);
        while let Ok(Some(entry)) = tokio::time::timeout_at(end, self.next()).await {
            found.push(entry.name());
        }
        found
    }
}
