//! Entries beside a model: a plain list that every question walks, whatever the number of members.

use super::*;
use crate::members::room::RoomPresence;
use crate::presence::RoomMember;
use std::sync::Arc;
use std::time::Duration;

/// A model of an entry.
#[derive(Clone)]
struct Model {
    id: MemberId,
    node: u64,
    user: Option<User>,
    is_listed: bool,
    owns_texts: bool,
    leaves_at: Option<Instant>,
    unreported: Option<Unreported>,
}

impl Model {
    fn entry(&self) -> Entry {
        let member =
            RoomMember { id: self.id, user: self.user.clone(), info: Some("{}".into()), since_ms: 1 };
        Entry {
            id: self.id,
            owns_texts: self.owns_texts,
            node: self.node,
            member: self.is_listed.then(|| Arc::new(member)),
            leaves_at: self.leaves_at,
            unreported: self.unreported,
        }
    }

    /// Users of members without a record are unknown.
    fn known_user(&self) -> Option<&User> {
        self.user.as_ref().filter(|_| self.is_listed)
    }
}

fn id(n: u8) -> MemberId {
    MemberId([n; 15])
}

fn user(n: u8) -> User {
    User { issuer: "issuer".into(), subject: format!("user-{n}").into() }
}

/// Entries and the model of them, in the order of the ids.
struct Pair {
    entries: Entries,
    model: Vec<Model>,
    start: Instant,
}

impl Pair {
    fn new() -> Self {
        Self { entries: Entries::default(), model: Vec::new(), start: Instant::now() }
    }

    fn insert(&mut self, model: Model) {
        self.entries.insert(model.entry());
        self.model.push(model);
        self.model.sort_by_key(|model| model.id);
    }

    fn remove(&mut self, id: MemberId) {
        let removed = self.entries.remove(id);
        assert_eq!(removed.is_some(), self.model.iter().any(|model| model.id == id));
        self.model.retain(|model| model.id != id);
    }

    /// Changes the entries and the model at random.
    fn change(&mut self, random: &mut fastrand::Rng, members: u8) {
        let id = id(random.u8(..members));
        let at = self.start + Duration::from_secs(random.u64(..5));
        let known = self.model.iter_mut().find(|model| model.id == id);
        match (known, random.u8(..8)) {
            (None, 0..4) => self.insert(Model {
                id,
                node: random.u64(..3),
                user: random.bool().then(|| user(random.u8(..3))),
                is_listed: random.u8(..4) > 0,
                owns_texts: random.bool(),
                leaves_at: None,
                unreported: random.bool().then(|| Unreported { replaces: random.bool().then_some(id) }),
            }),
            (_, 0..3) => self.remove(id),
            (Some(model), 3) => {
                model.leaves_at = random.bool().then_some(at);
                self.entries.set_leaves_at(id, model.leaves_at);
            }
            (Some(model), 4) => {
                (model.node, model.owns_texts) = (random.u64(..3), true);
                self.entries.move_to(id, model.node);
            }
            (_, 6) if random.u8(..4) == 0 => {
                let unreported = self.model.iter_mut();
                let unreported = unreported.filter_map(|model| Some((model.id, model.unreported.take()?)));
                assert_eq!(self.entries.report(), unreported.collect::<Vec<_>>());
            }
            _ => self.entries.trim(),
        }
    }

    /// Compares all answers.
    fn check(&self, context: &str) {
        let Self { entries, model, .. } = self;
        assert!(entries.is_counted(), "{context}");
        assert_eq!(entries.len(), model.len(), "{context}");
        assert_eq!(entries.iter().count(), model.len(), "{context}");
        for model in model {
            let entry = entries.get(model.id).unwrap();
            let parts = (entry.node, entry.leaves_at, entry.unreported, entry.user());
            let wanted = (model.node, model.leaves_at, model.unreported, model.known_user());
            assert_eq!(parts, wanted, "{context}");
            assert_eq!(entry.record_bytes(), model.entry().record_bytes(), "{context}");
        }
        let listed = || model.iter().filter(|model| model.is_listed).map(|model| model.id);
        assert_eq!(entries.listed_len(), listed().count(), "{context}");
        for after in [None, Some(id(0)), Some(id(5)), Some(id(200))] {
            let answer = entries.listed(after).filter_map(|entry| Some(entry.member.as_ref()?.id));
            let wanted = listed().filter(|id| after.is_none_or(|after| *id > after));
            assert_eq!(answer.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "{context}");
        }
        let leaving = || model.iter().filter_map(|model| Some((model.leaves_at?, model)));
        let first = leaving().map(|(at, model)| (at, model.id)).min();
        assert_eq!(entries.first_leaving(), first, "{context}");
        for n in 0..3 {
            let mut of = leaving().filter(|(_, model)| model.known_user() == Some(&user(n)));
            assert_eq!(entries.leaving_of(&user(n)), of.next().map(|(_, model)| model.id), "{context}");
        }
        let records: usize = model.iter().map(|model| model.entry().record_bytes()).sum();
        assert!(entries.bytes() >= records + model.len() * size_of::<Entry>(), "{context}");
    }
}

#[test]
fn few_and_many_members_give_the_same_answers() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pair = Pair::new();
        let mut forms = [0; 2];
        for step in 0..300 {
            // The number of members goes up and down over both limits.
            let members = if step / 50 % 2 == 0 { 24 } else { 6 };
            if members == 6 && random.bool() {
                let last = pair.model.last().map(|model| model.id);
                last.into_iter().for_each(|id| pair.remove(id));
            }
            pair.change(&mut random, members);
            pair.check(&format!("seed {seed}, step {step}"));
            forms[usize::from(matches!(pair.entries, Entries::Many(_)))] += 1;
        }
        assert!(forms.iter().all(|steps| *steps > 20), "seed {seed}: {forms:?}");
    }
}

#[test]
fn the_form_changes_above_the_upper_and_at_the_lower_limit() {
    let model = |n| Model {
        id: id(n),
        node: 0,
        user: None,
        is_listed: true,
        owns_texts: false,
        leaves_at: None,
        unreported: None,
    };
    let mut pair = Pair::new();
    let is_few = |pair: &Pair| matches!(pair.entries, Entries::Few(_));
    for n in 0..12 {
        pair.insert(model(n));
        assert_eq!(is_few(&pair), usize::from(n) < FEW_MAX, "{n}");
    }
    for n in (0..12).rev() {
        pair.remove(id(n));
        assert_eq!(is_few(&pair), usize::from(n) <= FEW_AGAIN, "{n}");
        pair.check("shrinking");
    }
    assert_eq!(pair.entries.bytes(), 0);
    for n in 0..4 {
        pair.insert(model(n));
    }
    for _ in 0..3 {
        pair.insert(model(4));
        pair.remove(id(4));
        assert!(is_few(&pair), "a member that joins and leaves changes no form");
    }
}

#[test]
fn an_entry_and_a_room_are_small() {
    assert!(size_of::<Entry>() <= 64, "{}", size_of::<Entry>());
    assert!(size_of::<RoomPresence>() <= 64, "{}", size_of::<RoomPresence>());
}
