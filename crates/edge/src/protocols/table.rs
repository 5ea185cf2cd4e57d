//! The clients of a core: the only file that knows all kinds of them.

use super::client::{Client, ClientTimer};
use super::clients::ClientTable;
use super::socketio::SocketIo;
use super::{engineio, sockjs};
use crate::identity::{ClientId, ClientKind, Sid};

/// The clients of a core, by protocol.
pub(crate) struct Clients {
    pub(crate) engineio: ClientTable<engineio::Client>,
    pub(crate) sockjs: ClientTable<sockjs::Client>,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            engineio: ClientTable::new(ClientKind::EngineIo),
            sockjs: ClientTable::new(ClientKind::SockJs),
        }
    }
}

impl Clients {
    pub(crate) fn get(&self, id: ClientId) -> Option<&dyn Client> {
        match id.kind() {
            ClientKind::EngineIo => self.engineio.get(id).map(|client| client as &dyn Client),
            ClientKind::SockJs => self.sockjs.get(id).map(|client| client as &dyn Client),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut (dyn Client + 'static)> {
        match id.kind() {
            ClientKind::EngineIo => self.engineio.get_mut(id).map(|client| client as &mut dyn Client),
            ClientKind::SockJs => self.sockjs.get_mut(id).map(|client| client as &mut dyn Client),
        }
    }

    /// Removes a client. Returns its id and its timer.
    pub(crate) fn remove(&mut self, id: ClientId) -> Option<(Sid, Option<ClientTimer>)> {
        let state = match id.kind() {
            ClientKind::EngineIo => self.engineio.remove(id)?.into_state(),
            ClientKind::SockJs => self.sockjs.remove(id)?.into_state(),
        };
        Some((state.sid, state.timer))
    }

    /// The client with this id, unless it is removed.
    pub(crate) fn find(&self, sid: Sid) -> Option<&dyn Client> {
        self.get(self.sockjs.find(sid).or_else(|| self.engineio.find(sid))?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Client> {
        let engineio = self.engineio.iter().map(|client| client as &dyn Client);
        engineio.chain(self.sockjs.iter().map(|client| client as &dyn Client))
    }

    pub(crate) fn ids(&self) -> Vec<ClientId> {
        self.iter().map(|client| client.state().id).collect()
    }

    /// Numbers of clients of Engine.IO and of SockJS.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.engineio.count(), self.sockjs.count()]
    }

    /// The size of all clients. Each client of Engine.IO is counted as a Socket.IO client.
    pub(crate) fn bytes(&self) -> usize {
        self.engineio.bytes(size_of::<SocketIo>()) + self.sockjs.bytes(0)
    }
}
