//! The sockets of the application link on a core, and their rooms.
//!
//! A socket is a client in a namespace of its application. Its id is a room of its own, as in Socket.IO, so messages to one socket need no
//! other index. Names have any length, and rooms exist while they have members.
//!
//! These rooms aren't rooms of the hub, for three reasons. A hub's room has a name of 1 to 256 bytes, while a worker may use any
//! name. A session would reach `limits.subscriptions_max`, which Socket.IO doesn't have. Other cores would be notified of each room,
//! although each core receives all broadcasts in the order of their links.

use crate::identity::ClientId;
use crate::ledger::Charge;
use crate::ports::{LinkApp, LinkSocket, RoomsQuery};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

type Clients = BTreeSet<ClientId>;

/// With more exceptions, their members are collected first, unless that is more work. Otherwise, each client would be looked up in each
/// of them.
const EXCEPT_LOOKUPS_MAX: usize = 4;

/// Approximate size of a client's place in a room, with the room's place in the client's list.
const PLACE_BYTES: usize = 48;
/// Approximate size of a room or a socket, without its name.
const ENTRY_BYTES: usize = 96;

/// The sockets of a namespace.
#[derive(Default)]
struct Namespace {
    all: Clients,
    rooms: BTreeMap<Arc<str>, Clients>,
}

/// A client in a namespace.
struct Socket {
    namespace: Arc<str>,
    id: Box<str>,
    rooms: BTreeSet<Arc<str>>,
    /// Length of the rooms' names in bytes.
    names_bytes: usize,
}

impl Socket {
    fn describe(&self) -> LinkSocket {
        self.describe_within(usize::MAX)
    }

    /// The socket with its first rooms, whose names have at most `bytes_max` bytes.
    fn describe_within(&self, bytes_max: usize) -> LinkSocket {
        let mut bytes = 0;
        let rooms = self.rooms.iter().take_while(|room| {
            bytes += room.len();
            bytes <= bytes_max
        });
        let rooms = rooms.map(|room| (**room).into()).collect();
        LinkSocket { namespace: self.namespace.clone(), id: self.id.clone(), rooms }
    }
}

/// The sockets of a core, with their rooms.
pub(crate) struct Members {
    namespaces: BTreeMap<(LinkApp, Arc<str>), Namespace>,
    sockets: BTreeMap<ClientId, SmallVec<[Socket; 1]>>,
    charge: Charge,
}

impl Members {
    pub(crate) fn new(charge: Charge) -> Self {
        Self { namespaces: BTreeMap::new(), sockets: BTreeMap::new(), charge }
    }

    /// Adds a socket with its rooms. It replaces the client's socket in the same namespace.
    pub(crate) fn add(&mut self, app: LinkApp, client: ClientId, socket: LinkSocket) {
        let LinkSocket { namespace, id, rooms } = socket;
        self.remove(app, client, &namespace);
        self.charge.add(ENTRY_BYTES + id.len());
        let place = self.namespaces.entry((app, namespace.clone())).or_default();
        place.all.insert(client);
        let socket = Socket { namespace: namespace.clone(), id, rooms: BTreeSet::new(), names_bytes: 0 };
        self.sockets.entry(client).or_default().push(socket);
        self.join(app, client, &namespace, &rooms);
    }

    /// Removes a client's socket in a namespace.
    pub(crate) fn remove(&mut self, app: LinkApp, client: ClientId, namespace: &Arc<str>) {
        let Some(sockets) = self.sockets.get_mut(&client) else { return };
        let Some(at) = sockets.iter().position(|socket| socket.namespace == *namespace) else { return };
        let socket = sockets.swap_remove(at);
        if sockets.is_empty() {
            self.sockets.remove(&client);
        }
        self.forget(app, client, &socket);
    }

    /// Removes all sockets of a client, and returns them.
    pub(crate) fn take_all(&mut self, app: LinkApp, client: ClientId) -> Vec<LinkSocket> {
        let sockets = self.sockets.remove(&client).unwrap_or_default();
        let take = |socket: Socket| {
            self.forget(app, client, &socket);
            socket.describe()
        };
        sockets.into_iter().map(take).collect()
    }

    fn forget(&mut self, app: LinkApp, client: ClientId, socket: &Socket) {
        self.charge.subtract(ENTRY_BYTES + socket.id.len());
        let key = (app, socket.namespace.clone());
        let Some(namespace) = self.namespaces.get_mut(&key) else { return };
        namespace.all.remove(&client);
        for room in &socket.rooms {
            namespace.leave(client, room, &self.charge);
        }
        if namespace.all.is_empty() {
            self.namespaces.remove(&key);
        }
    }

    /// Adds a client's socket to rooms. Without effect if the client isn't in the namespace.
    pub(crate) fn join(&mut self, app: LinkApp, client: ClientId, namespace: &Arc<str>, rooms: &[Box<str>]) {
        let Some(socket) = find(&mut self.sockets, client, namespace) else { return };
        let Some(place) = self.namespaces.get_mut(&(app, namespace.clone())) else { return };
        for name in rooms {
            if socket.rooms.contains(&**name) {
                continue;
            }
            // A room and its members share the name.
            let room = match place.rooms.get_key_value(&**name) {
                Some((room, _)) => room.clone(),
                None => {
                    self.charge.add(ENTRY_BYTES + name.len());
                    Arc::from(&**name)
                }
            };
            self.charge.add(PLACE_BYTES);
            socket.names_bytes += name.len();
            place.rooms.entry(room.clone()).or_default().insert(client);
            socket.rooms.insert(room);
        }
    }

    /// Removes a client's socket from a room.
    pub(crate) fn leave(&mut self, app: LinkApp, client: ClientId, namespace: &Arc<str>, room: &str) {
        let Some(socket) = find(&mut self.sockets, client, namespace) else { return };
        if socket.rooms.remove(room) {
            socket.names_bytes -= room.len();
            if let Some(place) = self.namespaces.get_mut(&(app, namespace.clone())) {
                place.leave(client, room, &self.charge);
            }
        }
    }

    /// The clients of a namespace whose sockets are in one of the rooms and in no excepted one, each once. Without rooms: of all
    /// sockets.
    pub(crate) fn select(
        &self,
        app: LinkApp,
        namespace: &Arc<str>,
        rooms: &[Box<str>],
        except: &[Box<str>],
    ) -> Vec<ClientId> {
        let Some(place) = self.namespaces.get(&(app, namespace.clone())) else { return Vec::new() };
        // A worker may repeat a name. A room counts once, so that the work is bounded by the members of all rooms.
        let named = |names: &[Box<str>]| -> SmallVec<[&Clients; 4]> {
            let rooms = names.iter().filter_map(|name| place.rooms.get(&**name));
            let mut rooms: SmallVec<[&Clients; 4]> = rooms.collect();
            if rooms.len() > 1 {
                rooms.sort_unstable_by_key(|room| std::ptr::from_ref(*room));
                rooms.dedup_by_key(|room| std::ptr::from_ref(*room));
            }
            rooms
        };
        let size = |rooms: &[&Clients]| rooms.iter().map(|room| room.len()).sum::<usize>();
        let collected: Clients;
        let included = named(rooms);
        let candidates = || if rooms.is_empty() { place.all.len() } else { size(&included) };
        let mut except = named(except);
        if except.len() > EXCEPT_LOOKUPS_MAX && size(&except) < candidates().saturating_mul(except.len()) {
            collected = except.iter().flat_map(|room| room.iter()).copied().collect();
            except = SmallVec::from_slice(&[&collected]);
        }
        let is_left = |client: &&ClientId| !except.iter().any(|room| room.contains(client));
        if rooms.is_empty() {
            return place.all.iter().filter(is_left).copied().collect();
        }
        let mut found: Vec<ClientId> =
            included.iter().flat_map(|room| room.iter()).filter(is_left).copied().collect();
        if included.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    /// The sockets of a client.
    pub(crate) fn describe(&self, client: ClientId) -> Vec<LinkSocket> {
        self.sockets.get(&client).into_iter().flatten().map(Socket::describe).collect()
    }

    /// Approximate memory of a client's sockets, as if the client were the only member of their rooms.
    pub(crate) fn held_bytes(&self, client: ClientId) -> usize {
        let of_socket = |socket: &Socket| {
            ENTRY_BYTES + socket.names_bytes + socket.rooms.len() * (ENTRY_BYTES + PLACE_BYTES)
        };
        self.sockets.get(&client).into_iter().flatten().map(of_socket).sum()
    }

    /// The number of a client's sockets.
    pub(crate) fn count(&self, client: ClientId) -> usize {
        self.sockets.get(&client).map_or(0, SmallVec::len)
    }

    /// The sockets of a client, each with its first rooms, whose names have at most `bytes_max` bytes.
    pub(crate) fn list(&self, client: ClientId, bytes_max: usize) -> Vec<LinkSocket> {
        let sockets = self.sockets.get(&client).into_iter().flatten();
        sockets.map(|socket| socket.describe_within(bytes_max)).collect()
    }

    /// A client's socket in a namespace.
    pub(crate) fn socket(&self, client: ClientId, namespace: &str) -> Option<LinkSocket> {
        let sockets = self.sockets.get(&client)?;
        sockets.iter().find(|socket| *socket.namespace == *namespace).map(Socket::describe)
    }

    /// The rooms of a namespace that a query asks for, in the order of their names, with their numbers of members.
    pub(crate) fn rooms<'a>(
        &'a self,
        app: LinkApp,
        namespace: &Arc<str>,
        query: &'a RoomsQuery,
    ) -> impl Iterator<Item = (&'a str, usize)> {
        let RoomsQuery { prefix, after, .. } = query;
        let from = if after < prefix { Bound::Included(&**prefix) } else { Bound::Excluded(&**after) };
        let rooms = self.namespaces.get(&(app, namespace.clone())).map(|place| &place.rooms);
        let rooms = rooms.into_iter().flat_map(move |rooms| rooms.range::<str, _>((from, Bound::Unbounded)));
        rooms
            .take_while(|(name, _)| name.starts_with(&**prefix))
            .map(|(name, members)| (&**name, members.len()))
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.sockets.is_empty() && self.charge.bytes() == 0
    }
}

impl Namespace {
    fn leave(&mut self, client: ClientId, room: &str, charge: &Charge) {
        let Some(clients) = self.rooms.get_mut(room) else { return };
        if clients.remove(&client) {
            charge.subtract(PLACE_BYTES);
        }
        if clients.is_empty() {
            self.rooms.remove(room);
            charge.subtract(ENTRY_BYTES + room.len());
        }
    }
}

fn find<'a>(
    sockets: &'a mut BTreeMap<ClientId, SmallVec<[Socket; 1]>>,
    client: ClientId,
    namespace: &Arc<str>,
) -> Option<&'a mut Socket> {
    sockets.get_mut(&client)?.iter_mut().find(|socket| socket.namespace == *namespace)
}

#[cfg(test)]
mod tests;
