//! The clients of a core, by kind. The table of protocols lists the kinds.

use super::client::{self, Client, ClientTimer, Flow};
use crate::app::Message;
use crate::executor::Executor;
use crate::identity::{ClientId, ClientKind, Sid, SidHasher};
use crate::model::ConnId;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

struct Slot<C> {
    serial: u32,
    client: C,
}

/// Clients of one kind, by handle and by id.
pub struct ClientTable<C> {
    slots: slab::Slab<Slot<C>>,
    by_sid: HashMap<Sid, ClientId, BuildHasherDefault<SidHasher>>,
    serial: u32,
    kind: ClientKind,
}

impl<C: Client> ClientTable<C> {
    pub(crate) fn new(kind: ClientKind) -> Self {
        Self { slots: slab::Slab::new(), by_sid: HashMap::default(), serial: 0, kind }
    }

    /// Adds a client and sets its handle.
    pub fn insert(&mut self, mut client: C) -> &mut C {
        self.serial = self.serial.wrapping_add(1);
        let entry = self.slots.vacant_entry();
        let id = ClientId::new(self.kind, entry.key(), self.serial);
        let state = client.state_mut();
        state.id = id;
        self.by_sid.insert(state.sid, id);
        &mut entry.insert(Slot { serial: id.serial(), client }).client
    }

    /// The handle of the client with this id. `None` if it is removed.
    pub fn find(&self, sid: Sid) -> Option<ClientId> {
        let id = *self.by_sid.get(&sid)?;
        self.get(id).filter(|client| !client.state().removed).map(|_| id)
    }

    fn slot(&self, id: ClientId) -> Option<&Slot<C>> {
        self.slots.get(id.index()).filter(|slot| slot.serial == id.serial())
    }

    fn slot_mut(&mut self, id: ClientId) -> Option<&mut Slot<C>> {
        self.slots.get_mut(id.index()).filter(|slot| slot.serial == id.serial())
    }

    #[inline]
    pub(crate) fn get(&self, id: ClientId) -> Option<&C> {
        self.slot(id).map(|slot| &slot.client)
    }

    /// The client, if it hasn't been removed.
    #[inline]
    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut C> {
        self.slot_mut(id).map(|slot| &mut slot.client)
    }

    /// Removes a client.
    pub fn remove(&mut self, id: ClientId) -> Option<C> {
        self.slot(id)?;
        let Slot { client, .. } = self.slots.try_remove(id.index())?;
        let sid = client.state().sid;
        if self.by_sid.get(&sid) == Some(&id) {
            self.by_sid.remove(&sid);
        }
        Some(client)
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The total size of the table in bytes, with `more` additional bytes per client.
    pub fn bytes(&self, more: usize) -> usize {
        self.slots.capacity() * (size_of::<Slot<C>>() + more)
            + self.by_sid.capacity() * size_of::<(Sid, ClientId)>()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        self.slots.iter().map(|(_, slot)| &slot.client)
    }
}

macro_rules! define_clients {
    ($($kind:ident, $table:ident, $client:ty;)*) => {
        /// The clients of a core, by kind.
        #[expect(missing_docs, reason = "the tables are named after the protocols")]
        pub struct Clients {
            $(pub $table: ClientTable<$client>),*
        }

        impl Default for Clients {
            fn default() -> Self {
                Self { $($table: ClientTable::new(ClientKind::$kind)),* }
            }
        }

        impl Clients {
            /// The client, if it hasn't been removed.
            pub fn get(&self, id: ClientId) -> Option<&dyn Client> {
                match id.kind() {
                    $(ClientKind::$kind => self.$table.get(id).map(|client| client as &dyn Client)),*
                }
            }

            /// The client, if it hasn't been removed.
            #[inline]
            pub fn get_mut(&mut self, id: ClientId) -> Option<&mut (dyn Client + 'static)> {
                match id.kind() {
                    $(ClientKind::$kind => self.$table.get_mut(id).map(|client| client as &mut dyn Client)),*
                }
            }

            /// Handles a message on a WebSocket that carries or will carry the client. `None` if the client has been
            /// removed. The call isn't dynamic, because most clients receive each message by way of it.
            #[inline]
            pub(crate) fn handle_frame(
                &mut self,
                ex: &mut Executor,
                conn: ConnId,
                id: ClientId,
                message: Message<'_>,
                out: &mut Vec<u8>,
            ) -> Option<Flow> {
                match id.kind() {
                    $(ClientKind::$kind => {
                        Some(client::handle_frame(self.$table.get_mut(id)?, ex, conn, message, out))
                    })*
                }
            }

            /// Removes a client. Returns its id and its timer.
            pub fn remove(&mut self, id: ClientId) -> Option<(Sid, Option<ClientTimer>)> {
                let state = match id.kind() {
                    $(ClientKind::$kind => self.$table.remove(id)?.into_state()),*
                };
                Some((state.sid, state.timer))
            }

            /// The client with this id, unless it is removed.
            pub(crate) fn find(&self, sid: Sid) -> Option<&dyn Client> {
                self.get(None$(.or_else(|| self.$table.find(sid)))*?)
            }

            /// All clients.
            pub fn iter(&self) -> impl Iterator<Item = &dyn Client> {
                std::iter::empty()$(.chain(self.$table.iter().map(|client| client as &dyn Client)))*
            }

            /// The number of clients of each kind, in the order of [`ClientKind::ALL`].
            pub fn counts(&self) -> [usize; ClientKind::ALL.len()] {
                [$(self.$table.count()),*]
            }

            /// The size of all clients.
            pub fn bytes(&self) -> usize {
                [$(self.$table.bytes(<$client>::beside())),*].iter().sum()
            }
        }
    };
}

client_kinds!(define_clients);

impl Clients {
    /// The handles of all clients.
    pub fn ids(&self) -> Vec<ClientId> {
        self.iter().map(|client| client.state().id).collect()
    }
}
