//! Documents that change like scores and lists, and the updates of a control plane.

use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Map, Value, json};
use stentor_delta::{Delta, Differ, Options, Seed};
use stentor_hub::{Document, Patch};
use stentor_ports::{DocumentChange, FeedUpdate};

/// A document of about 50 bytes to 6 kB. Each version contains its number.
fn fresh(random: &mut Rng) -> Value {
    let mut document = json!({"version": 0, "table": {}, "text": "x".repeat(random.usize(..1_500))});
    let matches = random.usize(..12);
    document["matches"] = (0..matches).map(|_| game(random)).collect();
    document
}

fn game(random: &mut Rng) -> Value {
    json!({
        "id": random.usize(..1_000_000),
        "score": [random.usize(..5), random.usize(..5)],
        "events": (0..random.usize(..6)).map(|_| event(random)).collect::<Vec<_>>(),
    })
}

fn event(random: &mut Rng) -> Value {
    json!({"minute": random.usize(..90), "what": random.choice(["goal", "card", "corner/€", "shot~1"]).unwrap()})
}

fn edit(random: &mut Rng, document: &mut Value) {
    let matches = document["matches"].as_array_mut().unwrap();
    let at = random.usize(..matches.len().max(1));
    match random.usize(..8) {
        0 => {
            let game = game(random);
            matches.insert(at.min(matches.len()), game);
        }
        1 if !matches.is_empty() => {
            matches.remove(at);
        }
        2 if !matches.is_empty() => {
            let game = matches.remove(at);
            let to = random.usize(..matches.len() + 1);
            matches.insert(to, game);
        }
        3..=5 if !matches.is_empty() => match random.usize(..2) {
            0 => matches[at]["score"][random.usize(..2)] = random.usize(..100).into(),
            _ => matches[at]["events"].as_array_mut().unwrap().insert(0, event(random)),
        },
        6 => {
            let table: &mut Map<String, Value> = document["table"].as_object_mut().unwrap();
            let name = random.choice(["a", "a/b", "~0", "", "é", "__proto__"]).unwrap();
            if table.remove(name).is_none() {
                table.insert(name.into(), json!([random.usize(..9), null, true]));
            }
        }
        _ => document["text"] = "y".repeat(random.usize(..1_500)).into(),
    }
}

/// All versions of one feed.
pub(crate) struct Versions {
    pub(crate) all: Vec<Value>,
    text: Bytes,
    differ: Differ,
}

impl Versions {
    pub(crate) fn new(random: &mut Rng) -> Self {
        let differ = Differ::new(Options::default(), Seed([random.get_seed(), 7]));
        let mut versions = Self { all: Vec::new(), text: Bytes::new(), differ };
        let first = fresh(random);
        versions.push(first);
        versions
    }

    fn push(&mut self, mut value: Value) {
        value["version"] = self.all.len().into();
        self.text = value.to_string().into();
        self.all.push(value);
    }

    /// Returns the newest version without a patch, as a new control plane sends it.
    pub(crate) fn newest(&self) -> FeedUpdate {
        FeedUpdate::Changed(self.document().into())
    }

    fn document(&self) -> Document {
        Document { body: self.text.clone(), json: true, content_type: "application/json".into() }
    }

    /// Makes another version, usually with a small difference.
    pub(crate) fn next(&mut self, random: &mut Rng) -> FeedUpdate {
        let base = self.text.clone();
        let value = if random.usize(..30) == 0 {
            fresh(random)
        } else {
            let mut value = self.all.last().unwrap().clone();
            for _ in 0..1 + random.usize(..3) {
                edit(random, &mut value);
            }
            value
        };
        self.push(value);
        let (old, new) = (self.differ.parse(&base).unwrap(), self.differ.parse(&self.text).unwrap());
        let patch = match self.differ.diff(&old, &new).delta {
            Delta::Patch(operations) => Some(Patch { base, operations: operations.into() }),
            Delta::Unchanged | Delta::Snapshot => None,
        };
        FeedUpdate::Changed(DocumentChange { document: self.document().into(), patch })
    }
}
