//! The behavior of one client of an attack, as data: the connections that it opens, the bytes that it sends,
//! and how it ends.
//!
//! A script has *lanes*, its connections. Placeholders are replaced when bytes are sent: [`ANSWERED`] by
//! values from the server's answers, [`NUMBER`] by eight digits that grow with every pass, and [`BRIEF`] by a
//! token. The table's attacks consist of scripts, the fuzzer mutates scripts, and a failing seed is reduced
//! to scripts.

use crate::doors::Reached;
use crate::{token, wire};
use bytes::Bytes;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// Placeholders of values in the server's answers, in sends of up to [`REPLACED_BYTES_MAX`], each with the bytes before and
/// after the newest such value.
const ANSWERED: [(&[u8], &[u8], &[u8]); 6] = [
    // The session's id in a handshake of Engine.IO.
    (b"{sid}", b"0{\"sid\":\"", b"\""),
    // The ids of connection state recovery: in the answer to CONNECT, and in the event `mark`.
    (b"{pid}", b"\"pid\":\"", b"\""),
    (b"{mark}", b"[\"mark\",1,\"", b"\""),
    // The position in a room with history, or in a feed.
    (b"{epoch}", b"\"epoch\":", b","),
    (b"{offset}", b"\"offset\":", b","),
    // The id of a node in an answer of Redis.
    (b"{node}", b"\r\n$16\r\n", b"\r\n"),
];
/// Precedes the id of a Socket.IO socket in the answer to CONNECT, which isn't a session's id.
const CONNECTED: &[u8] = b"40{\"sid\":\"";
/// Replaced by eight digits that are unique to the pass and the client.
pub(crate) const NUMBER: &[u8] = b"{number}";
/// Replaced by a token that expires within the round. The token's id is the value of [`NUMBER`].
const BRIEF: &[u8] = b"{brief}";
/// Maximum size of a send in which placeholders are replaced.
const REPLACED_BYTES_MAX: usize = 1 << 20;

/// Maximum time that a script waits for an answer. Then it continues without one.
const RECEIVE_TIME_MAX: Duration = Duration::from_secs(2);
/// Delay before a script restarts after the server has ended a connection.
const RETRY_TIME: Duration = Duration::from_millis(100);
/// Maximum number of connections that are opened at the same time: fewer than any backlog.
const CONNECTS_MAX: usize = 256;
/// Size of the receive buffer of a client that doesn't read: the minimum in Linux, so that the server holds
/// the unread bytes.
const UNREAD_BYTES: u32 = 4096;

/// One of the server's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Public,
    Admin,
    /// TLS; the script contains the TLS records.
    Tls,
    /// TLS; the program encrypts the script's bytes.
    Tunnel,
    /// Connections begin with a header of the PROXY protocol.
    Proxy,
    /// The listener for nodes of the server's cluster.
    Relay,
    /// Like `Relay`, after the handshake of nodes.
    Introduced,
    /// The Redis of the server's cluster.
    Redis,
    /// The second server.
    Second,
}

/// The address of each [`Port`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) public: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) tls: SocketAddr,
    pub(crate) tunnel: SocketAddr,
    pub(crate) proxy: SocketAddr,
    pub(crate) relay: SocketAddr,
    pub(crate) introduced: SocketAddr,
    pub(crate) redis: SocketAddr,
    pub(crate) second: SocketAddr,
}

impl Addresses {
    /// Returns the addresses of a server without TLS, PROXY protocol and cluster.
    pub(crate) fn plain(public: SocketAddr, admin: SocketAddr) -> Self {
        let [tls, tunnel, proxy, relay, introduced, redis, second] = [public; 7];
        Self { public, admin, tls, tunnel, proxy, relay, introduced, redis, second }
    }

    fn of(&self, port: Port) -> SocketAddr {
        match port {
            Port::Public => self.public,
            Port::Admin => self.admin,
            Port::Tls => self.tls,
            Port::Tunnel => self.tunnel,
            Port::Proxy => self.proxy,
            Port::Relay => self.relay,
            Port::Introduced => self.introduced,
            Port::Redis => self.redis,
            Port::Second => self.second,
        }
    }
}

/// One action of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Opens a lane to one of the server's addresses. A lane that is already open is closed first.
    Open(usize, Port),
    /// Sends bytes.
    Send(usize, Bytes),
    /// Sends bytes one by one, with a pause after each.
    Dribble(usize, Bytes, Duration),
    /// Waits until something arrives.
    Receive(usize),
    /// Waits and reads arriving bytes.
    Pause(Duration),
    /// Ends the sending side.
    HalfClose(usize),
    /// Closes with a RST.
    Reset(usize),
    /// Closes.
    Close(usize),
}

/// The behaviour of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    /// `true` if the client reads.
    pub(crate) reads: bool,
    /// Index of the step with which the script continues after the last step, repeatedly. `None` holds the
    /// connections to the end.
    pub(crate) repeat_from: Option<usize>,
    /// `true` if the script restarts when the server has ended a connection.
    pub(crate) persists: bool,
}

impl Script {
    /// Makes a client with one lane, which reads and holds its connection.
    pub(crate) fn new(sends: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self::at(Port::Public, sends)
    }

    /// Like [`Self::new`], at another address.
    pub(crate) fn at(port: Port, sends: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let script = Self { steps: Vec::new(), reads: true, repeat_from: None, persists: false };
        script.on(0, port, sends)
    }

    /// Adds steps: opens a lane, and sends each of `sends` there and waits for an answer.
    pub(crate) fn on(mut self, lane: usize, port: Port, sends: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.steps.push(Step::Open(lane, port));
        for bytes in sends {
            self.steps.push(Step::Send(lane, bytes.into()));
            self.steps.push(Step::Receive(lane));
        }
        self
    }

    /// Adds sends on lane 0 without waiting for answers.
    pub(crate) fn then(mut self, sends: impl IntoIterator<Item = Bytes>) -> Self {
        self.steps.extend(sends.into_iter().map(|bytes| Step::Send(0, bytes)));
        self
    }

    /// Adds sends that are repeated to the end. The script restarts when the server ends a connection.
    pub(crate) fn repeating(mut self, sends: impl IntoIterator<Item = Bytes>) -> Self {
        self.repeat_from = Some(self.steps.len());
        self.persists = true;
        self.then(sends)
    }

    /// Makes the client read nothing.
    pub(crate) fn deaf(mut self) -> Self {
        self.reads = false;
        self
    }

    /// Makes the script restart when the server ends a connection.
    pub(crate) fn persistent(mut self) -> Self {
        self.persists = true;
        self
    }
}

/// The totals of all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) connections: u64,
    pub(crate) refused: u64,
    /// Connections that the server ended.
    pub(crate) ended: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// The doors that the clients have reached.
    pub(crate) doors: Reached,
}

/// Runs all scripts concurrently on this thread until `duration` is over. Then all connections are closed.
pub(crate) fn run(addresses: Addresses, scripts: Vec<Script>, duration: Duration) -> anyhow::Result<Totals> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shared = Rc::new(Shared {
        addresses,
        totals: Cell::default(),
        passes: Cell::new(0),
        connects: Semaphore::new(CONNECTS_MAX),
    });
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let deadline = Instant::now() + duration;
        let clients: Vec<_> = scripts
            .into_iter()
            .map(|script| tokio::task::spawn_local(play(shared.clone(), script, deadline)))
            .collect();
        for client in clients {
            // A panic of a client is a bug of this program. The panic has been printed.
            let _ = client.await;
        }
    });
    Ok(shared.totals.get())
}

struct Shared {
    addresses: Addresses,
    totals: Cell<Totals>,
    passes: Cell<u64>,
    connects: Semaphore,
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut Totals)) {
        let mut totals = self.totals.get();
        change(&mut totals);
        self.totals.set(totals);
    }
}

async fn play(shared: Rc<Shared>, script: Script, deadline: Instant) {
    loop {
        let mut client = Client {
            shared: shared.clone(),
            reads: script.reads,
            lanes: Vec::new(),
            answered: Default::default(),
            pass: 0,
        };
        let over = timeout_at(deadline, client.play(&script, deadline)).await.is_err();
        if over || !script.persists {
            // An error ends the script. Its open connections are held.
            sleep_until(deadline).await;
            return;
        }
        drop(client);
        if timeout_at(deadline, sleep(RETRY_TIME)).await.is_err() {
            return;
        }
    }
}

struct Client {
    shared: Rc<Shared>,
    reads: bool,
    lanes: Vec<Option<Lane>>,
    /// The newest values of [`ANSWERED`].
    answered: [Option<Vec<u8>>; ANSWERED.len()],
    pass: u64,
}

struct Lane {
    stream: TcpStream,
    port: Port,
    /// Bytes that arrived since the last send.
    arrived_bytes: u64,
}

impl Client {
    /// Plays a script. Returns when the server has ended a connection, or when the script is over and no
    /// connection is left to hold.
    async fn play(&mut self, script: &Script, deadline: Instant) -> io::Result<()> {
        let mut at = 0;
        self.begin_pass();
        loop {
            let Some(step) = script.steps.get(at) else {
                match script.repeat_from {
                    Some(first) if first < script.steps.len() => {
                        at = first;
                        self.begin_pass();
                        // A pass that never waits must not starve the other clients.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    _ => return self.read_until(deadline).await,
                }
            };
            self.step(step).await?;
            at += 1;
        }
    }

    fn begin_pass(&mut self) {
        self.pass = self.shared.passes.get();
        self.shared.passes.set(self.pass + 1);
    }

    async fn step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::Open(lane, port) => self.open(*lane, *port).await,
            Step::Send(lane, bytes) => {
                let bytes = self.replaced(bytes);
                self.send(*lane, &bytes).await
            }
            Step::Dribble(lane, bytes, pause) => {
                for byte in self.replaced(bytes) {
                    self.send(*lane, &[byte]).await?;
                    sleep(*pause).await;
                }
                Ok(())
            }
            Step::Receive(lane) => match timeout(RECEIVE_TIME_MAX, self.receive(*lane)).await {
                Ok(result) => result,
                Err(_) => Ok(()),
            },
            Step::Pause(time) => self.read_until(Instant::now() + *time).await,
            Step::HalfClose(lane) => match self.lane(*lane) {
                Some(lane) => socket2::SockRef::from(&lane.stream).shutdown(std::net::Shutdown::Write),
                None => Ok(()),
            },
            Step::Reset(lane) => {
                if let Some(lane) = self.take(*lane) {
                    socket2::SockRef::from(&lane.stream).set_linger(Some(Duration::ZERO))?;
                }
                Ok(())
            }
            Step::Close(lane) => {
                drop(self.take(*lane));
                Ok(())
            }
        }
    }

    fn lane(&mut self, lane: usize) -> Option<&mut Lane> {
        self.lanes.get_mut(lane)?.as_mut()
    }

    fn take(&mut self, lane: usize) -> Option<Lane> {
        self.lanes.get_mut(lane)?.take()
    }

    async fn open(&mut self, lane: usize, port: Port) -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        if !self.reads {
            socket.set_recv_buffer_size(UNREAD_BYTES)?;
        }
        let stream = {
            let _one_of_few = self.shared.connects.acquire().await;
            socket.connect(self.shared.addresses.of(port)).await
        };
        let stream = stream.inspect_err(|_| self.shared.count(|totals| totals.refused += 1))?;
        stream.set_nodelay(true)?;
        self.shared.count(|totals| totals.connections += 1);
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, || None);
        }
        self.lanes[lane] = Some(Lane { stream, port, arrived_bytes: 0 });
        Ok(())
    }

    /// Returns the bytes with the placeholders replaced. A complete WebSocket frame remains a complete frame.
    fn replaced(&self, bytes: &Bytes) -> Bytes {
        if bytes.len() > REPLACED_BYTES_MAX {
            return bytes.clone();
        }
        match wire::unframed(bytes) {
            Some((first, payload)) => {
                wire::frame(first, &self.filled(Bytes::copy_from_slice(payload))).into()
            }
            None => self.filled(bytes.clone()),
        }
    }

    fn filled(&self, mut bytes: Bytes) -> Bytes {
        let mut fill = |placeholder, value: &[u8]| {
            if let Some(filled) = replace(&bytes, placeholder, value) {
                bytes = filled.into();
            }
        };
        let number = format!("{:08}", self.pass % 100_000_000);
        fill(NUMBER, number.as_bytes());
        fill(BRIEF, token::sign_with_id(token::USER, &number, token::BRIEF).as_bytes());
        for ((placeholder, ..), value) in ANSWERED.iter().zip(&self.answered) {
            if let Some(value) = value {
                fill(placeholder, value);
            }
        }
        bytes
    }

    async fn send(&mut self, lane: usize, bytes: &[u8]) -> io::Result<()> {
        let reads = self.reads;
        let mut rest = bytes;
        while !rest.is_empty() {
            // In a mutated script the lane may never have been opened, or be closed. The send is then
            // skipped.
            let Some(Lane { stream, arrived_bytes, .. }) = self.lane(lane) else { return Ok(()) };
            *arrived_bytes = 0;
            let interest = if reads { Interest::READABLE | Interest::WRITABLE } else { Interest::WRITABLE };
            let ready = stream.ready(interest).await?;
            if ready.is_writable() {
                match stream.try_write(rest) {
                    Ok(n) => {
                        rest = &rest[n..];
                        self.shared.count(|totals| totals.sent_bytes += n as u64);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(self.ended(lane, error)),
                }
            }
            if reads && ready.is_readable() {
                self.read(lane)?;
            }
        }
        Ok(())
    }

    /// Waits until bytes have arrived on a lane since its last send.
    async fn receive(&mut self, lane: usize) -> io::Result<()> {
        loop {
            let Some(Lane { stream, arrived_bytes, .. }) = self.lane(lane) else { return Ok(()) };
            if *arrived_bytes > 0 {
                return Ok(());
            }
            stream.readable().await?;
            self.read(lane)?;
        }
    }

    /// Reads once, if there are bytes.
    fn read(&mut self, lane: usize) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        let Some(Lane { stream, port, arrived_bytes }) = self.lane(lane) else { return Ok(()) };
        match stream.try_read(&mut buffer) {
            Ok(0) => Err(self.ended(lane, ErrorKind::UnexpectedEof.into())),
            Ok(n) => {
                *arrived_bytes += n as u64;
                let port = *port;
                self.shared.count(|totals| totals.received_bytes += n as u64);
                for ((_, before, after), value) in ANSWERED.iter().zip(&mut self.answered) {
                    if let Some(found) = answered(&buffer[..n], before, after) {
                        *value = Some(found.to_vec());
                    }
                }
                self.shared.count(|totals| totals.doors.look(port, &buffer[..n]));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(self.ended(lane, error)),
        }
    }

    fn ended(&mut self, lane: usize, error: io::Error) -> io::Error {
        self.lanes[lane] = None;
        self.shared.count(|totals| totals.ended += 1);
        error
    }

    /// Holds all lanes until `deadline`, and reads them if the script reads. Returns early if the server has
    /// ended a lane.
    async fn read_until(&mut self, deadline: Instant) -> io::Result<()> {
        if !self.reads {
            sleep_until(deadline).await;
            return Ok(());
        }
        loop {
            let Ok(lane) = timeout_at(deadline, self.readable()).await else { return Ok(()) };
            self.read(lane)?;
        }
    }

    /// Waits until a lane has bytes to read, and returns its index. Never returns if no lane is open.
    async fn readable(&self) -> usize {
        std::future::poll_fn(|context| {
            let is_readable = |lane: &Option<Lane>| match lane {
                Some(lane) => lane.stream.poll_read_ready(context).is_ready(),
                None => false,
            };
            match self.lanes.iter().position(is_readable) {
                Some(lane) => Poll::Ready(lane),
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// Returns `bytes` with every `placeholder` replaced; `None` if there is none.
fn replace(bytes: &[u8], placeholder: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let mut out = None;
    let mut rest = bytes;
    while let Some(at) = find(rest, placeholder) {
        let out = out.get_or_insert_with(Vec::new);
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(value);
        rest = &rest[at + placeholder.len()..];
    }
    out.map(|mut out: Vec<u8>| {
        out.extend_from_slice(rest);
        out
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

/// Returns the last value between `before` and `after`, if `bytes` contains all of it.
fn answered<'a>(bytes: &'a [u8], before: &[u8], after: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::rfind(bytes, before)? + before.len();
    if bytes[..at].ends_with(CONNECTED) {
        return None;
    }
    Some(&bytes[at..at + find(&bytes[at..], after)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn placeholders() {
        let check = |bytes: &str, expect: Option<&str>| {
            let got =
                replace(bytes.as_bytes(), b"{sid}", b"xyz").map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(got.as_deref(), expect, "{bytes}");
        };
        check("sid={sid}&sid={sid}", Some("sid=xyz&sid=xyz"));
        check("{sid", None);
        let check = |number: usize, bytes: &str, expect: Option<&str>| {
            let (_, before, after) = ANSWERED[number];
            assert_eq!(answered(bytes.as_bytes(), before, after), expect.map(str::as_bytes), "{bytes}");
        };
        check(0, r#"0{"sid":"abc","upgrades":[]}"#, Some("abc"));
        check(0, r#"0{"sid":"abc"#, None);
        check(0, r#"40{"sid":"abc","pid":"def"}"#, None);
        check(1, r#"40{"sid":"abc","pid":"def"}"#, Some("def"));
        check(2, r#"42["mark",1,"abc"]"#, Some("abc"));
        check(3, r#"{"epoch":17,"offset":1,"a":1}{"epoch":17,"offset":2,"a":1}"#, Some("17"));
        check(4, r#"{"epoch":17,"offset":1,"a":1}{"epoch":17,"offset":2,"a":1}"#, Some("2"));
    }

    #[test]
    fn a_script_talks_to_a_server() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(br#"0{"sid":"abc"}"#).unwrap();
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            rest
        });
        let script = Script::new([b"hello".to_vec()]).then([Bytes::from_static(b"sid {sid} {number}")]);
        let script = Script { steps: [script.steps, vec![Step::HalfClose(0)]].concat(), ..script };
        let totals = run(Addresses::plain(addr, addr), vec![script], Duration::from_secs(1)).unwrap();
        assert_eq!(server.join().unwrap(), "sid abc 00000000");
        assert_eq!(
            totals,
            Totals {
                connections: 1,
                refused: 0,
                ended: 1,
                sent_bytes: 21,
                received_bytes: 14,
                ..Totals::default()
            }
        );
    }
}
