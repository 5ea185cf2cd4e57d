//! The application link on a core: the sessions whose messages go to workers, their sockets, and the reports that the link has refused.
//!
//! ```text
//!  a request ──► open ──► the client waits ──► Accept, Refuse ──► its connection continues
//!                                         └──► the connection ends: the client ends
//! ```

mod calls;
mod members;

use super::Executor;
use crate::identity::{ClientId, End};
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::{LinkApp, LinkHandshake, LinkReport, LinkSelected, LinkSession, LinkSink};
use calls::Calls;
pub(crate) use members::Members;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use stentor_frame::ConnId;
use stentor_hub::{CoreId, Data, Room, SessionId};

/// The namespace of the messages that sessions receive from their workers. The hub requires one.
const NAMESPACE: &str = "link";

/// The sessions of the application link on a core.
pub(crate) struct LinkSessions {
    sink: Arc<dyn LinkSink>,
    core: CoreId,
    /// The number of the last session.
    last: u64,
    clients: BTreeMap<LinkSession, ClientId>,
    /// The connections whose requests wait for an answer.
    requests: BTreeMap<ConnId, ClientId>,
    /// Clients with messages that the link has refused, in order.
    refused: VecDeque<ClientId>,
    pub(crate) members: Members,
    pub(crate) calls: Calls,
    room: Room,
}

impl LinkSessions {
    pub(crate) fn new(sink: Arc<dyn LinkSink>, core: CoreId, ledger: Arc<Ledger>) -> Option<Box<Self>> {
        Some(Box::new(Self {
            sink,
            core,
            last: 0,
            clients: BTreeMap::new(),
            requests: BTreeMap::new(),
            refused: VecDeque::new(),
            members: Members::new(Charge::new(ledger.clone(), Class::Link)),
            calls: Calls::new(Charge::new(ledger, Class::Link)),
            room: Room::all_members(NAMESPACE).ok()?,
        }))
    }

    /// Draws the number of a session.
    pub(crate) fn draw(&mut self) -> LinkSession {
        self.last += 1;
        LinkSession::of(self.core, self.last)
    }

    /// Reports that a client requests a session on a connection. Returns `false` if the link takes no request.
    pub(crate) fn open(
        &mut self,
        session: LinkSession,
        client: ClientId,
        conn: ConnId,
        (app, handshake): (LinkApp, LinkHandshake),
    ) -> bool {
        if self.sink.report(session, LinkReport::Opened(app, Box::new(handshake))).is_err() {
            return false;
        }
        self.clients.insert(session, client);
        self.requests.insert(conn, client);
        true
    }

    /// The client of a session. `None` if the session has ended.
    pub(crate) fn client_of(&self, session: LinkSession) -> Option<ClientId> {
        self.clients.get(&session).copied()
    }

    /// Reports an event of a session.
    ///
    /// # Errors
    /// The link's inbox is full: the report is returned.
    pub(crate) fn report(&self, session: LinkSession, report: LinkReport) -> Result<(), LinkReport> {
        self.sink.report(session, report)
    }

    pub(crate) fn report_selected(&self, selected: LinkSelected) {
        self.sink.report_selected(selected);
    }

    /// Reports that the inbox of this core has space again.
    pub(crate) fn space(&self) {
        self.sink.space();
    }

    /// `true` while other nodes may take sockets of disconnected clients from the link.
    pub(crate) fn keeps_sockets(&self) -> bool {
        self.sink.keeps_sockets()
    }

    /// Keeps a client whose messages the link has refused, until the link takes reports again.
    pub(crate) fn keep_refused(&mut self, client: ClientId) {
        self.refused.push_back(client);
    }

    /// Takes the clients whose messages the link has refused.
    pub(crate) fn take_refused(&mut self) -> VecDeque<ClientId> {
        std::mem::take(&mut self.refused)
    }

    /// Forgets a session, so that nothing more is reported about it. Returns `false` if the session was already forgotten.
    pub(crate) fn forget(&mut self, session: LinkSession) -> bool {
        self.clients.remove(&session).is_some()
    }
}

impl Executor {
    /// Takes the client for which a request on this connection waits.
    pub(crate) fn take_requested(&mut self, conn: ConnId) -> Option<ClientId> {
        self.link.as_mut()?.requests.remove(&conn)
    }

    /// Ends the client for which a request on this connection waits, because the connection has ended.
    pub(crate) fn forget_request(&mut self, conn: ConnId) {
        if let Some(client) = self.take_requested(conn) {
            self.end_client(client, End::Gone);
        }
    }

    /// Sends messages of a worker to sessions, in order with their other deliveries. `records` are Engine.IO packets, as
    /// [`records`](crate::encode::records) reads them.
    pub(crate) fn send_records(
        &mut self,
        sessions: impl IntoIterator<Item = SessionId>,
        records: Vec<u8>,
        is_volatile: bool,
    ) {
        let Some(link) = &self.link else { return };
        self.budget.count_published(records.len() + crate::app::ENVELOPE_BYTES);
        let room = link.room.clone();
        self.hub.handle_send_to_all(sessions, &room, Data::Binary(records.into()), is_volatile);
    }
}
