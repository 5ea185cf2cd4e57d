//! Documents that change as scores and lists do, and how a control plane would tell of it.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use stentor_delta::{Delta, Differ, Options, Seed};
use stentor_edge::FeedUpdate;
use stentor_hub::{Document, Patch};

/// SplitMix64: small, seeded, good enough to choose what happens next.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.roll(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.roll(among.len())]
    }
}

/// A document of about 50 bytes to 6 kB. Each version says its number.
fn fresh(dice: &mut Dice) -> Value {
    let mut document = json!({"version": 0, "table": {}, "text": "x".repeat(dice.roll(1_500))});
    let matches = dice.roll(12);
    document["matches"] = (0..matches).map(|_| game(dice)).collect();
    document
}

fn game(dice: &mut Dice) -> Value {
    json!({
        "id": dice.roll(1_000_000),
        "score": [dice.roll(5), dice.roll(5)],
        "events": (0..dice.roll(6)).map(|_| event(dice)).collect::<Vec<_>>(),
    })
}

fn event(dice: &mut Dice) -> Value {
    json!({"minute": dice.roll(90), "what": dice.pick(&["goal", "card", "corner/€", "shot~1"])})
}

fn edit(dice: &mut Dice, document: &mut Value) {
    let matches = document["matches"].as_array_mut().unwrap();
    let at = dice.roll(matches.len().max(1));
    match dice.roll(8) {
        0 => {
            let game = game(dice);
            matches.insert(at.min(matches.len()), game);
        }
        1 if !matches.is_empty() => {
            matches.remove(at);
        }
        2 if !matches.is_empty() => {
            let game = matches.remove(at);
            let to = dice.roll(matches.len() + 1);
            matches.insert(to, game);
        }
        3..=5 if !matches.is_empty() => match dice.roll(2) {
            0 => matches[at]["score"][dice.roll(2)] = dice.roll(100).into(),
            _ => matches[at]["events"].as_array_mut().unwrap().insert(0, event(dice)),
        },
        6 => {
            let table: &mut Map<String, Value> = document["table"].as_object_mut().unwrap();
            let name = dice.pick(&["a", "a/b", "~0", "", "é", "__proto__"]);
            if table.remove(name).is_none() {
                table.insert(name.into(), json!([dice.roll(9), null, true]));
            }
        }
        _ => document["text"] = "y".repeat(dice.roll(1_500)).into(),
    }
}

/// All versions of one feed.
pub(crate) struct Versions {
    pub(crate) all: Vec<Value>,
    text: Bytes,
    differ: Differ,
}

impl Versions {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let differ = Differ::new(Options::default(), Seed([dice.0, 7]));
        let mut versions = Self { all: Vec::new(), text: Bytes::new(), differ };
        let first = fresh(dice);
        versions.push(first);
        versions
    }

    fn push(&mut self, mut value: Value) {
        value["version"] = self.all.len().into();
        self.text = value.to_string().into();
        self.all.push(value);
    }

    /// The newest version, as a control plane that has just begun tells of it.
    pub(crate) fn newest(&self) -> FeedUpdate {
        let (body, content_type) = (self.text.clone(), "application/json".into());
        FeedUpdate::Document(Document { body, json: true, content_type })
    }

    /// Another version, mostly a little different from the last.
    pub(crate) fn next(&mut self, dice: &mut Dice) -> FeedUpdate {
        let base = self.text.clone();
        let value = if dice.one_in(30) {
            fresh(dice)
        } else {
            let mut value = self.all.last().unwrap().clone();
            for _ in 0..1 + dice.roll(3) {
                edit(dice, &mut value);
            }
            value
        };
        self.push(value);
        let (old, new) = (self.differ.parse(&base).unwrap(), self.differ.parse(&self.text).unwrap());
        match (self.differ.diff(&old, &new).delta, self.newest()) {
            (Delta::Patch(operations), FeedUpdate::Document(document)) => {
                FeedUpdate::Patched(document, Patch { base, operations: operations.into() })
            }
            (_, whole) => whole,
        }
    }
}
