//! Generates documents from a seed: a random one, and its next version. Names repeat and collide, strings
//! have every kind of escape, numbers every spelling, and the second text is formatted differently.

use fastrand::Rng;

#[derive(Clone)]
pub(crate) enum Json {
    /// A scalar as text.
    Scalar(String),
    Array(Vec<Json>),
    /// Members. Names are written as text, between quotes.
    Object(Vec<(String, Json)>),
}

/// Some scalars are equal, but spelled differently.
const SCALARS: [&str; 24] = [
    "null",
    "true",
    "false",
    "0",
    "-0",
    "0.0",
    "1",
    "1.0",
    "10e-1",
    "2",
    "-3.5",
    "12345678901234567",
    "1e300",
    "\"\"",
    "\"a\"",
    "\"\\u0061\"",
    "\"é\"",
    "\"\\u00e9\"",
    "\"😀\"",
    "\"\\ud83d\\ude00\"",
    "\"a/b~c\"",
    "\"\\\"\\\\\\/\\n\\u0000\"",
    "[]",
    "{}",
];
const NAMES: [&str; 16] = [
    "a",
    "b",
    "c",
    "\\u0061",
    "",
    "/",
    "~",
    "a~1b/",
    "id",
    "0",
    "-",
    "é",
    "\\u00e9",
    "\\\"\\\\\\t",
    "__proto__",
    "name",
];
/// Strings with unpaired surrogates, which Rust's usual parsers refuse.
const LONELY: [&str; 4] = ["\"\\ud83d\"", "\"\\ude00\\ud83d\"", "\"x\\ud800y\"", "\"\\udfff\""];

fn scalar(random: &mut Rng, lonely: bool) -> Json {
    Json::Scalar(match random.usize(..8) {
        0..4 => random.choice(SCALARS).unwrap().into(),
        4 if lonely => random.choice(LONELY).unwrap().into(),
        4 | 5 => format!("{}", random.usize(..1000)),
        _ => format!("\"{}\"", "word ".repeat(random.usize(..12))),
    })
}

pub(crate) fn value(random: &mut Rng, depth: usize, lonely: bool) -> Json {
    match if depth == 0 { 0 } else { random.usize(..7) } {
        0..3 => scalar(random, lonely),
        3 => Json::Array((0..random.usize(..12)).map(|_| value(random, depth - 1, lonely)).collect()),
        4 => {
            // An array of objects of one shape, identified by a member.
            let (name, more) = (random.choice(NAMES).unwrap(), random.choice(NAMES).unwrap());
            let element = |i: usize, random: &mut Rng| {
                let id = (name.to_owned(), Json::Scalar(format!("{}", 100 + i)));
                Json::Object(vec![id, (more.to_owned(), value(random, depth - 1, lonely))])
            };
            Json::Array((0..random.usize(..12)).map(|i| element(i, random)).collect())
        }
        _ => Json::Object(
            (0..random.usize(..8))
                .map(|_| (name(random, lonely), value(random, depth - 1, lonely)))
                .collect(),
        ),
    }
}

fn name(random: &mut Rng, lonely: bool) -> String {
    if lonely && random.usize(..20) == 0 { "\\ud83d".into() } else { random.choice(NAMES).unwrap().into() }
}

/// Makes a change at a random place.
pub(crate) fn mutate(json: &mut Json, random: &mut Rng, lonely: bool) {
    match json {
        Json::Array(elements) if !elements.is_empty() => {
            let (i, j) = (random.usize(..elements.len()), random.usize(..elements.len()));
            match random.usize(..8) {
                0 => elements.insert(i, value(random, 2, lonely)),
                1 => drop(elements.remove(i)),
                2 | 3 => {
                    let element = elements.remove(i);
                    elements.insert(j, element);
                }
                4 => elements.insert(j, elements[i].clone()),
                5 if random.usize(..5) == 0 => elements.reverse(),
                _ => mutate(&mut elements[i], random, lonely),
            }
        }
        Json::Object(members) if !members.is_empty() => {
            let (i, j) = (random.usize(..members.len()), random.usize(..members.len()));
            match random.usize(..8) {
                0 => members.push((name(random, lonely), value(random, 2, lonely))),
                1 => drop(members.remove(i)),
                2 => members[i].0 = name(random, lonely),
                3 => members.swap(i, j),
                _ => mutate(&mut members[i].1, random, lonely),
            }
        }
        other => *other = value(random, 2, lonely),
    }
}

pub(crate) fn write(json: &Json, random: &mut Rng, spaces: bool, out: &mut String) {
    let space = |random: &mut Rng, out: &mut String| {
        if spaces {
            out.push_str(random.choice(["", "", " ", "\n", "\t\r "]).unwrap());
        }
    };
    space(random, out);
    match json {
        Json::Scalar(text) => out.push_str(text),
        Json::Array(elements) => {
            out.push('[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(element, random, spaces, out);
            }
            space(random, out);
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (i, (name, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                space(random, out);
                out.push_str(&format!("\"{name}\""));
                space(random, out);
                out.push(':');
                write(value, random, spaces, out);
            }
            space(random, out);
            out.push('}');
        }
    }
    space(random, out);
}

/// Makes two versions of a document. One seed in four has unpaired surrogates.
pub(crate) fn pair(seed: u64) -> (String, String) {
    let mut random = Rng::with_seed(seed);
    let lonely = random.usize(..4) == 0;
    let mut json = value(&mut random, 5, lonely);
    let (mut old, mut new) = (String::new(), String::new());
    write(&json, &mut random, false, &mut old);
    for _ in 0..random.usize(..6) {
        mutate(&mut json, &mut random, lonely);
    }
    if random.usize(..30) == 0 {
        json = value(&mut random, 5, lonely);
    }
    let spaces = random.usize(..2) == 0;
    write(&json, &mut random, spaces, &mut new);
    (old, new)
}
