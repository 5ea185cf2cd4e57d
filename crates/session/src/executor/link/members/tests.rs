//! Sockets and rooms.

use super::Members;
use crate::identity::{ClientId, ClientKind};
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::{LinkApp, LinkSocket};
use std::sync::Arc;

const APP: LinkApp = LinkApp(0);

fn client(number: u32) -> ClientId {
    ClientId::new(ClientKind::EngineIo, number as usize, number)
}

fn names(names: &[&str]) -> Vec<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

struct Table {
    members: Members,
    namespace: Arc<str>,
}

impl Table {
    fn new() -> Self {
        let charge = Charge::new(Arc::new(Ledger::new(usize::MAX)), Class::Link);
        Self { members: Members::new(charge), namespace: "/".into() }
    }

    fn add(&mut self, number: u32, rooms: &[&str]) {
        let id = format!("id-{number}");
        let rooms = names(&[&[&*id], rooms].concat());
        let socket = LinkSocket { namespace: self.namespace.clone(), id: id.into(), rooms };
        self.members.add(APP, client(number), socket);
    }

    fn check(&self, rooms: &[&str], except: &[&str], expect: &[u32]) {
        let found = self.members.select(APP, &self.namespace, &names(rooms), &names(except));
        assert_eq!(
            found,
            expect.iter().map(|number| client(*number)).collect::<Vec<_>>(),
            "{rooms:?} {except:?}"
        );
    }
}

#[test]
fn selections_are_unions_without_exceptions() {
    let mut table = Table::new();
    table.add(1, &["a"]);
    table.add(2, &["a", "b"]);
    table.add(3, &["b", ""]);
    table.check(&[], &[], &[1, 2, 3]);
    table.check(&["a"], &[], &[1, 2]);
    table.check(&["b", "a", "b"], &[], &[1, 2, 3]);
    table.check(&["a", "b"], &["id-2"], &[1, 3]);
    table.check(&[], &["a"], &[3]);
    table.check(&[""], &[], &[3]);
    table.check(&["id-1", "id-3", "nobody"], &["b"], &[1]);
    table.check(&["nobody"], &[], &[]);
    table.check(&[], &["id-1", "id-2", "a", "x", "a", "nobody"], &[3]);
    table.check(&[], &["id-1", "id-2", "id-3", "a", "b"], &[]);
    table.add(4, &["c", "d"]);
    table.check(&[], &["id-1", "id-2", "a", "id-4", "c", "d", "c"], &[3]);
    table.check(&["b", "d"], &["id-1", "a", "id-4", "c", "d"], &[3]);
    // One client is looked up in rooms that have more members.
    let except = ["id-1", "id-2", "a", "id-4", "c"];
    table.check(&["id-3"], &except, &[3]);
    table.check(&["id-2"], &except, &[]);
    table.check(&["nobody"], &except, &[]);
    assert_eq!(table.members.select(LinkApp(1), &table.namespace, &[], &[]), [], "another application");
    assert_eq!(table.members.select(APP, &"/other".into(), &[], &[]), [], "another namespace");
}

#[test]
fn a_room_that_is_named_often_counts_once() {
    let mut table = Table::new();
    (1..=10).for_each(|number| table.add(number, &["a"]));
    let often = vec!["a".into(); 10_000];
    let found = table.members.select(APP, &table.namespace, &often, &[]);
    assert_eq!(found.len(), 10);
    assert!(found.capacity() < 100, "room for {} clients was allocated", found.capacity());
    assert_eq!(table.members.select(APP, &table.namespace, &[], &often), []);
}

#[test]
fn sockets_that_leave_free_their_memory() {
    let mut table = Table::new();
    let long = "x".repeat(65_535);
    table.add(1, &["a", &long]);
    table.add(1, &["b"]);
    table.check(&["a"], &[], &[]);
    table.check(&["b"], &[], &[1]);
    table.add(2, &[]);
    let namespace = table.namespace.clone();
    table.members.join(APP, client(2), &namespace, &names(&["b", &long, "b"]));
    table.check(&[&long], &["id-1"], &[2]);
    table.members.leave(APP, client(2), &namespace, "b");
    table.members.leave(APP, client(2), &namespace, "nobody");
    assert!((65_535..66_500).contains(&table.members.held_bytes(client(2))));
    assert!(table.members.held_bytes(client(1)) < 1_000);
    table.check(&["b"], &[], &[1]);
    let rooms = &table.members.describe(client(2))[0].rooms;
    assert_eq!(*rooms, names(&["id-2", &long]));
    table.members.remove(APP, client(1), &namespace);
    table.members.join(APP, client(1), &namespace, &names(&["b"]));
    table.check(&[], &[], &[2]);
    table.members.take_all(APP, client(2));
    assert!(table.members.is_empty());
}
