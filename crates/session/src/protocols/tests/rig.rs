//! Runs protocol machines without a core: one executor with a real hub, on a virtual clock, without sockets.

use crate::access::AccessLog;
use crate::app::Application;
use crate::core::decided;
use crate::executor::{Apps, Effect, Executor, ToClient};
use crate::identity::ClientId;
use crate::limits::Slot;
use crate::options::Options;
use crate::ports::ControlPlane;
use crate::ports::{Handover, Location};
use crate::protocols::client::{ClientTimer, Flow, TransportStatus};
use crate::protocols::clients::Clients;
use crate::protocols::engineio;
use crate::protocols::http::{Http, HttpContext, MovedRequest};
use crate::protocols::websocket::{SocketContext, WebSocket};
use crate::shared::Shared;
use crate::system::tests::SYSTEM;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_frame::{ConnId, Key, TimerId};
use stentor_hub::SessionId;
use stentor_wire::ws;

struct NoControl;

impl ControlPlane for NoControl {
    fn interest_changed(&self) {}
    fn space(&self) {}
}

/// The machine of a connection.
pub(super) enum Machine {
    Http(Box<Http>),
    WebSocket(Box<WebSocket>),
    Ended,
}

/// A connection.
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) machine: Machine,
    pub(super) session: Option<SessionId>,
}

/// The executor and the clients of a core.
pub(super) struct Rig {
    pub(super) ex: Executor,
    pub(super) clients: Clients,
    ws: ws::Shared,
    now: Instant,
    connections: u32,
    access: AccessLog,
}

impl Rig {
    pub(super) fn new(app: Box<dyn Application>, set: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::default();
        set(&mut options);
        let limits = ws::Limits {
            message_bytes_max: options.limits.message_bytes_max,
            fragments_max: options.limits.fragments_max,
        };
        let services = options.sockjs.iter().map(|_| None).collect();
        let now = Instant::now();
        let shared = Arc::new(Shared::new(options, 1, [1, 2], Arc::new(NoControl), Vec::new));
        Self {
            access: AccessLog::new(false, shared.ledger.clone()),
            ex: Executor::new(shared, 0, now, Apps { node: app, services }, SYSTEM),
            clients: Clients::default(),
            ws: ws::Shared::new(limits),
            now,
            connections: 0,
        }
    }

    pub(super) fn connect(&mut self) -> Conn {
        self.connect_by(None)
    }

    /// Opens a connection. With `handover`, another node passed it through, or it returned from a node that can't be reached.
    pub(super) fn connect_by(&mut self, handover: Option<Handover>) -> Conn {
        self.connections += 1;
        let deadline = self.ex.millis().after(self.ex.options().limits.header_timeout);
        let moved = MovedRequest { handover, ..MovedRequest::default() };
        let http = Http::new(([127, 0, 0, 1], 1).into(), deadline, moved, false);
        let id = ConnId(Key { index: self.connections, generation: 0 });
        Conn { id, machine: Machine::Http(Box::new(http)), session: None }
    }

    /// Advances the clock.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.ex.begin_turn(self.now);
    }

    /// Calls `run` with an HTTP connection, which appends its answer to `out`. Then upgrades or ends the connection as
    /// `run` decided.
    fn run_http(
        &mut self,
        conn: &mut Conn,
        out: &mut Vec<u8>,
        run: impl FnOnce(&mut Http, &mut HttpContext<'_>, &mut Vec<u8>) -> Flow,
    ) {
        let Machine::Http(http) = &mut conn.machine else { panic!("it speaks HTTP no more") };
        let mut cx = HttpContext {
            ex: &mut self.ex,
            clients: &mut self.clients,
            departed: &|_| None,
            conn: conn.id,
            session: &mut conn.session,
            slot: &mut Slot::default(),
            access: &mut self.access,
        };
        let flow = run(http, &mut cx, out);
        if let Some(upgraded) = http.take_upgraded() {
            conn.machine = Machine::WebSocket(Box::new(upgraded.0));
        } else if flow == Flow::Stop {
            conn.machine = Machine::Ended;
        }
    }

    /// Resumes the request that a connection kept waiting. Returns the answer.
    pub(super) fn resume(&mut self, conn: &mut Conn) -> String {
        let mut out = Vec::new();
        self.run_http(conn, &mut out, |http, cx, out| http.handle_ready(cx, out));
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Tells a connection the location of the session that its request names. Returns the answer.
    pub(super) fn locate(&mut self, conn: &mut Conn, location: Location) -> String {
        let Machine::Http(http) = &mut conn.machine else { panic!("it speaks HTTP no more") };
        assert!(http.handle_location(location));
        self.resume(conn)
    }

    /// Passes bytes of the client to a connection. Returns the answer.
    pub(super) fn receive(&mut self, conn: &mut Conn, bytes: impl AsRef<[u8]>) -> String {
        let mut out = Vec::new();
        let mut bytes = bytes.as_ref().to_vec();
        match &mut conn.machine {
            Machine::Http(_) => {
                self.run_http(conn, &mut out, |http, cx, out| http.handle_input(cx, &mut bytes, out));
            }
            Machine::WebSocket(socket) => {
                let mut cx = SocketContext {
                    ex: &mut self.ex,
                    clients: &mut self.clients,
                    conn: conn.id,
                    session: conn.session,
                };
                if socket.handle_input(&mut cx, &mut self.ws, &mut bytes, &mut out) == Flow::Stop {
                    conn.machine = Machine::Ended;
                }
            }
            Machine::Ended => panic!("the connection has ended"),
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Continues with a WebSocket after the answers to its questions. Returns the answer to its client, or `None` if no answer
    /// has arrived.
    pub(super) fn resume_decided(&mut self, conn: &mut Conn) -> Option<String> {
        self.ex.questions.expire(self.now);
        let decided = self.ex.questions.waiting.poll_decided()?;
        assert_eq!(decided, conn.id);
        Some(self.resume_after(conn))
    }

    /// Like [`Self::resume_decided`], if the connection is known to have its answers.
    pub(super) fn resume_after(&mut self, conn: &mut Conn) -> String {
        assert!(decided::resume(&mut self.ex, &mut self.clients, conn.id));
        let Machine::WebSocket(socket) = &mut conn.machine else { panic!("not a WebSocket") };
        let mut cx = SocketContext {
            ex: &mut self.ex,
            clients: &mut self.clients,
            conn: conn.id,
            session: conn.session,
        };
        let client = socket.client().and_then(|id| cx.clients.get_mut(id));
        let mut out = client.map(|client| client.take_queue()).unwrap_or_default();
        if socket.has_unread() {
            socket.resume_input(&mut cx, &mut self.ws, &mut out);
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Calls the timeout handler of a connection. Returns the output.
    pub(super) fn time_out(&mut self, conn: &mut Conn) -> String {
        let mut out = Vec::new();
        match &mut conn.machine {
            Machine::Http(http) => {
                let status = TransportStatus::default();
                if http.handle_timeout(&mut self.ex, conn.id, status, &mut out) == Flow::Stop {
                    conn.machine = Machine::Ended;
                }
            }
            Machine::WebSocket(socket) => {
                socket.handle_timeout(&mut self.ex, conn.session, TransportStatus::default(), &mut out);
            }
            Machine::Ended => {}
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Sets the timers that clients have requested. Drops all other effects.
    pub(super) fn arm_clients(&mut self) {
        while let Some(effect) = self.ex.effects.pop() {
            if let Effect::Client(id, ToClient::Arm) = effect
                && let Some(client) = self.clients.get_mut(id)
            {
                let timer =
                    ClientTimer { id: TimerId(Key { index: 0, generation: 0 }), at: client.poll_timeout() };
                client.state_mut().timer = Some(timer);
            }
        }
    }

    /// Takes and encodes the pending deliveries of a session.
    pub(super) fn deliveries(&mut self, session: SessionId) -> String {
        let mut out = Vec::new();
        self.ex.take_at_once(session, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// The only client of Engine.IO.
    pub(super) fn engine_client(&mut self) -> &mut engineio::Client {
        let id: ClientId = self.clients.ids()[0];
        self.clients.engineio.get_mut(id).unwrap()
    }
}

/// Returns a request that opens a WebSocket.
pub(super) fn upgrade(target: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// Returns the frame of a client's text message.
pub(super) fn text(message: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    ws::encode(&mut frame, ws::Opcode::Text, message.as_bytes(), false, Some([1, 2, 3, 4]));
    frame
}

/// Returns the frame of a server's text message.
pub(super) fn frame(message: &str) -> String {
    let mut frame = Vec::new();
    ws::encode(&mut frame, ws::Opcode::Text, message.as_bytes(), false, None);
    String::from_utf8_lossy(&frame).into_owned()
}

pub(super) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
}

pub(super) fn post(target: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
