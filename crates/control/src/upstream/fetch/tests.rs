//! Tests of forms of responses. For each row of a table, a server sends the row's bytes to the fetcher.

mod network;
mod paths;
mod secrets;
mod shapes;

use super::super::Upstreams;
use crate::options::{FeedsOptions, UpstreamOptions};
use crate::schedule::{FetchJob, Freshness, Outcome, Version};
use crate::secrets::Secrets;
use crate::upstream::{Bodies, DocumentProcessor};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Key;
use stentor_ports::Ledger;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Timeout of the fetches, longer than any of them takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A response of the test server.
#[derive(Clone)]
struct Reply {
    bytes: Vec<u8>,
    /// `true` if the server closes the connection after the response.
    closes: bool,
}

/// Makes a response with a body. In `head`, `|` separates the status and the headers. `Content-Length` is
/// added if the response has no other framing.
fn reply(head: &str, body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let mut text = format!("HTTP/1.1 {}\r\n", head.replace('|', "\r\n"));
    if !["content-length", "transfer-encoding"].iter().any(|name| head.contains(name)) {
        text += &format!("content-length: {}\r\n", body.len());
    }
    Reply { bytes: [text.as_bytes(), b"\r\n", body].concat(), closes: false }
}

impl Reply {
    /// Like [`reply`], with characters up to U+00FF as one byte each.
    fn latin1(head: &str, body: &str) -> Self {
        let Self { bytes, closes } = reply(head, body);
        let text = String::from_utf8(bytes).expect("a text");
        Self { bytes: text.chars().map(|c| u8::try_from(c).expect("Latin-1")).collect(), closes }
    }
}

/// Makes a response of these bytes, followed by the end of the connection.
fn raw(bytes: impl AsRef<[u8]>) -> Reply {
    Reply { bytes: bytes.as_ref().to_vec(), closes: true }
}

/// The requests that the server has received.
#[derive(Default)]
struct Requests {
    /// Conditional headers of the requests, and types and bodies of POST requests, each in brackets.
    conditions: String,
    connections: usize,
    /// The request line and headers of each request.
    heads: Vec<String>,
}

/// A row of the table.
struct Shape {
    name: &'static str,
    change: fn(&mut UpstreamOptions),
    replies: Vec<Reply>,
    /// One entry per fetch: the conditional headers of its requests, then its result. The last reply is
    /// repeated. An entry that ends in a colon and a space is a prefix.
    expect: Vec<String>,
}

fn shape(name: &'static str, replies: impl Into<Vec<Reply>>, expect: &[&str]) -> Shape {
    Shape {
        name,
        change: |_| {},
        replies: replies.into(),
        expect: expect.iter().copied().map(String::from).collect(),
    }
}

impl Shape {
    fn with(self, change: fn(&mut UpstreamOptions)) -> Self {
        Self { change, ..self }
    }

    /// Fetches as often as the row has entries. Returns the results.
    async fn run(&self) -> Vec<String> {
        let mut rig = Rig::new(self.replies.clone(), self.change).await;
        let mut happened = Vec::new();
        for _ in &self.expect {
            happened.push(rig.fetch().await);
        }
        happened
    }
}

/// A fetcher and its server.
struct Rig {
    /// The URL of the server.
    url: String,
    secrets: Secrets,
    upstreams: Upstreams,
    processor: DocumentProcessor,
    job: FetchJob,
    requests: Arc<Mutex<Requests>>,
    /// The server's task, if there is one. It ends with the rig.
    server: JoinSet<()>,
}

impl Rig {
    async fn new(replies: Vec<Reply>, change: impl FnOnce(&mut UpstreamOptions)) -> Self {
        Self::with_secrets(replies, Secrets::default(), change).await
    }

    async fn with_secrets(
        replies: Vec<Reply>,
        secrets: Secrets,
        change: impl FnOnce(&mut UpstreamOptions),
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut rig = Self::serverless(listener.local_addr().unwrap(), secrets, change);
        rig.server.spawn(serve(listener, replies, rig.requests.clone()));
        rig
    }

    /// Makes a rig for a server that the test runs.
    fn at(addr: SocketAddr, change: impl FnOnce(&mut UpstreamOptions)) -> Self {
        Self::serverless(addr, Secrets::default(), change)
    }

    fn serverless(addr: SocketAddr, secrets: Secrets, change: impl FnOnce(&mut UpstreamOptions)) -> Self {
        let url = format!("http://{addr}/api");
        let mut options = UpstreamOptions {
            name: "s".into(),
            url: url.clone(),
            timeout: PATIENCE,
            connect_timeout: PATIENCE,
            ..UpstreamOptions::default()
        };
        change(&mut options);
        let feeds =
            FeedsOptions { upstreams: vec![options], secrets: secrets.clone(), ..FeedsOptions::default() };
        Self {
            url,
            secrets,
            upstreams: Upstreams::new(&feeds).unwrap(),
            processor: DocumentProcessor::default(),
            job: FetchJob { key: Key::parse("k").unwrap(), upstream: 0, kept: None },
            requests: Arc::default(),
            server: JoinSet::new(),
        }
    }

    /// Fetches the key, and keeps its document for the next fetch. Returns the conditional headers and the
    /// result, as in [`Shape::expect`].
    async fn fetch(&mut self) -> String {
        let bodies = Bodies::new(usize::MAX, Arc::new(Ledger::new(usize::MAX)));
        let fetched = self.upstreams.at(0).fetch(&self.job, &self.processor, &bodies).await;
        let conditions = std::mem::take(&mut self.requests.lock().conditions);
        let failure = fetched.failure.map(|failure| failure.to_string());
        let happened = format!("{conditions}{}", shown(&fetched.outcome, failure));
        keep(&mut self.job.kept, fetched.outcome);
        happened
    }
}

/// Keeps a new document, or new validators of the kept document, as the scheduler does.
fn keep(kept: &mut Option<Arc<Version>>, outcome: Outcome) {
    match outcome {
        Outcome::Fresh { change, validators, .. } => {
            *kept = Some(Arc::new(Version { document: change.document, validators }));
        }
        Outcome::Same { validators: Some(validators), .. } => {
            if let Some(kept) = kept {
                Arc::make_mut(kept).validators = validators;
            }
        }
        _ => {}
    }
}

fn shown(outcome: &Outcome, failure: Option<String>) -> String {
    // Removes the server's port, which differs each time.
    let failure = failure.map(|failure| match failure.split_once(" to http://127.0.0.1:") {
        Some((before, after)) => {
            format!("{before} to {}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => failure,
    });
    let fresh = |freshness: &Freshness| match freshness {
        Freshness::Unsaid => String::new(),
        Freshness::For(time) => format!(" for {time:?}"),
        Freshness::Over => " and no more".into(),
    };
    match outcome {
        Outcome::Fresh { change, freshness, .. } => {
            let document = &change.document;
            let body = String::from_utf8_lossy(&document.body);
            let kind = if document.json { String::new() } else { format!("{} ", document.content_type) };
            format!("{kind}{body}{}", fresh(freshness))
        }
        Outcome::Same { freshness, .. } => format!("same{}", fresh(freshness)),
        Outcome::Gone { .. } => "gone".into(),
        Outcome::NotFound { .. } => format!("not found: {}", failure.unwrap_or_default()),
        Outcome::Failed { class, retry_after, .. } => {
            let after = retry_after.map(|time| format!(" after {time:?}")).unwrap_or_default();
            format!("{}: {}{after}", class.name(), failure.unwrap_or_default())
        }
    }
}

/// Answers each request with the next reply. Records connections, and the conditional headers of each
/// request.
async fn serve(listener: TcpListener, replies: Vec<Reply>, requests: Arc<Mutex<Requests>>) {
    let mut replies = replies.into_iter();
    let mut last = None;
    while let Ok((mut stream, _)) = listener.accept().await {
        requests.lock().connections += 1;
        while let Some(head) = request_head(&mut stream).await {
            let conditions = head.lines().filter(|line| line.starts_with("if-"));
            let mut conditions: String = conditions.map(|line| format!("[{line}] ")).collect();
            if head.starts_with("POST ") {
                let field = |name| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("none");
                let mut body = vec![0; field("content-length: ").parse().unwrap()];
                stream.read_exact(&mut body).await.unwrap();
                let content_type = field("content-type: ");
                conditions += &format!("[{content_type} {}] ", String::from_utf8(body).unwrap());
            }
            requests.lock().conditions += &conditions;
            requests.lock().heads.push(head);
            last = replies.next().or(last);
            let Some(reply) = &last else { return };
            let _ = stream.write_all(&reply.bytes).await;
            if reply.closes {
                break;
            }
        }
        // Ends the connection with a FIN. Dropping it with unread requests would reset it before the client
        // has read its response.
        let _ = stream.shutdown().await;
    }
}

async fn request_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(head.into_iter().map(char::from).collect())
}

/// Advances the clock, which then runs on. A paused clock would fire timers while the fetcher waits for its
/// server.
async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn each_shape_of_response_has_its_result() {
    let mut wrong = Vec::new();
    for shape in shapes::all() {
        let happened = shape.run().await;
        let is_expected = |(happened, expect): (&String, &String)| {
            if expect.ends_with(": ") { happened.starts_with(expect) } else { happened == expect }
        };
        if !happened.iter().zip(&shape.expect).all(is_expected) {
            wrong.push(format!("{}\n  expected {:?}\n  happened {happened:?}", shape.name, shape.expect));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A connection older than [`UpstreamOptions::connection_age_max`] isn't used for further fetches.
#[tokio::test]
async fn an_old_connection_is_replaced() {
    let mut rig = Rig::new(vec![reply("200 OK", "1")], |options| {
        options.connection_age_max = Duration::from_secs(20);
    })
    .await;
    let mut connections = Vec::new();
    for _ in 0..4 {
        rig.fetch().await;
        connections.push(rig.requests.lock().connections);
        advance(Duration::from_secs(15)).await;
    }
    assert_eq!(connections, [1, 1, 2, 2]);
}

/// The failure names the timeout that has passed. `connects` is `true` for a server that accepts connections
/// but sends nothing, and `false` for one whose accept queue is full.
#[tokio::test(start_paused = true)]
async fn the_timeout_that_passed_is_named() {
    async fn check(connects: bool, change: fn(&mut UpstreamOptions), expect: &str) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(if connects { 8 } else { 0 }).unwrap();
        let _queued = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut rig = Rig::at(listener.local_addr().unwrap(), change);
        assert_eq!(rig.fetch().await, expect);
    }
    const TEN: Duration = Duration::from_secs(10);
    check(true, |options| options.read_timeout = TEN, "timeout: no data for 10s (read_timeout)").await;
    check(
        true,
        |options| options.timeout = TEN,
        "timeout: the response was not complete after 10s (timeout)",
    )
    .await;
    let connect = "connect: can't connect: no connection after 3s (connect_timeout)";
    check(false, |options| options.connect_timeout = UpstreamOptions::default().connect_timeout, connect)
        .await;
    check(
        false,
        |options| options.timeout = Duration::from_secs(2),
        "timeout: the response was not complete after 2s (timeout)",
    )
    .await;
}
