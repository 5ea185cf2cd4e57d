//! Random entries of two workers for clients on all cores, compared with a model that carries them out one after the other.

use super::{APP, Stage, names, unit};
use crate::harness::{Io, TRANSPORTS, on_one_and_three};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use stentor_ports::{
    LinkAcceptance, LinkBroadcast, LinkChange, LinkEntry, LinkSelect, LinkSession, LinkSocket,
};

const LINKS: [u32; 2] = [7, 8];
const NAMESPACES: [&str; 2] = ["/", "/chat"];
const ROOMS: [&str; 5] = ["a", "b", "", "id-0", "id-3"];

/// A client of the model.
struct Client {
    io: Io,
    session: LinkSession,
    owner: u32,
    /// The rooms of the client's socket in each namespace. `None`: it isn't in the namespace.
    rooms: [Option<BTreeSet<String>>; 2],
    /// Messages that the client receives, in order.
    expected: Vec<String>,
}

/// A random selection of sockets.
struct Selected {
    namespace: usize,
    is_local: bool,
    rooms: Vec<&'static str>,
    except: Vec<&'static str>,
}

impl Selected {
    fn draw(random: &mut Rng) -> Self {
        let mut draw =
            |max: usize| (0..random.usize(..=max)).map(|_| ROOMS[random.usize(..ROOMS.len())]).collect();
        let (rooms, except) = (draw(2), draw(1));
        Self { namespace: random.usize(..2), is_local: random.usize(..4) == 0, rooms, except }
    }

    fn has(&self, client: &Client, link: u32) -> bool {
        let Some(own) = &client.rooms[self.namespace] else { return false };
        let is_in = |rooms: &[&str]| rooms.iter().any(|room| own.contains(*room));
        (!self.is_local || client.owner == link)
            && (self.rooms.is_empty() || is_in(&self.rooms))
            && !is_in(&self.except)
    }
}

fn join(rooms: &mut Option<BTreeSet<String>>, room: &str) {
    if let Some(rooms) = rooms {
        rooms.insert(room.to_owned());
    }
}

fn leave(rooms: &mut Option<BTreeSet<String>>, room: &str) {
    if let Some(rooms) = rooms {
        rooms.remove(room);
    }
}

struct Model {
    clients: Vec<Client>,
    sent: u32,
}

impl Model {
    fn text(&mut self) -> String {
        self.sent += 1;
        self.sent.to_string()
    }

    /// Draws an entry of a link, and carries it out.
    fn entry(&mut self, random: &mut Rng, link: u32) -> LinkEntry {
        let number = random.usize(..self.clients.len());
        let namespace = random.usize(..2);
        let name: Arc<str> = NAMESPACES[namespace].into();
        let room = ROOMS[random.usize(..ROOMS.len())];
        let text = self.text();
        let client = &mut self.clients[number];
        let session = client.session;
        match random.usize(..10) {
            0..3 => {
                client.expected.push(text.clone());
                super::send(session, &[&text])
            }
            3 => {
                let id = format!("id-{number}");
                client.rooms[namespace] = Some(BTreeSet::from([id.clone(), room.to_owned()]));
                let rooms = names(&[&*id, room]);
                LinkEntry::Add {
                    session,
                    socket: LinkSocket { namespace: name, id: id.into(), rooms }.into(),
                }
            }
            4 => {
                join(&mut client.rooms[namespace], room);
                LinkEntry::Join { session, namespace: name, rooms: names(&[room, room]) }
            }
            5 => {
                leave(&mut client.rooms[namespace], room);
                LinkEntry::Leave { session, namespace: name, room: room.into() }
            }
            6 if random.usize(..4) == 0 => {
                client.rooms[namespace] = None;
                LinkEntry::Delete { session, namespace: name }
            }
            6 => {
                client.owner = link;
                LinkEntry::Own(session)
            }
            7 => self.select(random, link, room),
            _ => self.broadcast(random, link, &text),
        }
    }

    fn broadcast(&mut self, random: &mut Rng, link: u32, text: &str) -> LinkEntry {
        let selected = Selected::draw(random);
        for client in self.clients.iter_mut().filter(|client| selected.has(client, link)) {
            client.expected.push(text.to_owned());
        }
        let broadcast = LinkBroadcast {
            rooms: names(&selected.rooms),
            except: names(&selected.except),
            is_local: selected.is_local,
            is_volatile: false,
            is_compressed: true,
            messages: unit(&[text]),
        };
        LinkEntry::Broadcast(APP, NAMESPACES[selected.namespace].into(), broadcast.into())
    }

    fn select(&mut self, random: &mut Rng, link: u32, target: &str) -> LinkEntry {
        let selected = Selected::draw(random);
        let change = match random.usize(..5) {
            0..2 => LinkChange::Join,
            2..4 => LinkChange::Leave,
            _ => LinkChange::Disconnect { closes: false },
        };
        for client in self.clients.iter_mut().filter(|client| selected.has(client, link)) {
            let rooms = &mut client.rooms[selected.namespace];
            match change {
                LinkChange::Join => join(rooms, target),
                LinkChange::Leave => leave(rooms, target),
                LinkChange::Disconnect { .. } => *rooms = None,
            }
        }
        let select = LinkSelect {
            change,
            is_local: selected.is_local,
            rooms: names(&selected.rooms),
            except: names(&selected.except),
            targets: names(&[target]),
        };
        LinkEntry::Select(APP, NAMESPACES[selected.namespace].into(), select.into())
    }
}

fn run(seed: u64, cores: usize) {
    let mut random = Rng::with_seed(seed);
    let stage = Stage::with(cores, |options| {
        // In a part of the runs, inboxes are often full.
        options.limits.inbox_messages_max = if seed.is_multiple_of(3) { 1 } else { 1_000 };
    });
    let clients = (0..8).map(|n| {
        let (version, way) = TRANSPORTS[n % TRANSPORTS.len()];
        let owner = LINKS[random.usize(..2)];
        let (io, session) = stage.open_for(owner, version, way, LinkAcceptance::default());
        Client { io, session, owner, rooms: [None, None], expected: Vec::new() }
    });
    let mut model = Model { clients: clients.collect(), sent: 0 };
    for _ in 0..random.usize(1..12) {
        for _ in 0..random.usize(1..6) {
            let link = LINKS[random.usize(..2)];
            let count = random.usize(1..20);
            let entries: Vec<LinkEntry> = (0..count).map(|_| model.entry(&mut random, link)).collect();
            stage.entries_of(link, entries);
        }
        // Some clients read now, the others later.
        for client in model.clients.iter_mut().filter(|_| random.bool()) {
            client.expected.drain(..).for_each(|text| client.io.expect(&format!("4{text}")));
        }
    }
    // The last message shows that a client receives nothing else before it.
    stage.entries(model.clients.iter().map(|client| super::send(client.session, &["end"])));
    for client in &mut model.clients {
        client.expected.drain(..).for_each(|text| client.io.expect(&format!("4{text}")));
        client.io.expect("4end");
    }
    stage.entries(
        model.clients.iter().map(|client| LinkEntry::Close { session: client.session, discards: false }),
    );
    drop(model);
    stage.server.check_empty();
    stage.server.until_metric("memory_bytes{link}", |bytes| bytes == 0);
}

#[test]
fn random_entries_take_effect_in_order() {
    for seed in 0..40 {
        on_one_and_three(|cores| {
            eprintln!("seed {seed}, {cores} cores");
            run(seed, cores);
        });
    }
}
