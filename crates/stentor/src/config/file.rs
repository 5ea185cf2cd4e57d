//! The file: TOML, walked along the table of keys.
//!
//! Bounded: [`FILE_BYTES_MAX`] bytes, [`super::schema::REPEATED_MAX`] sections of a name; nesting is bounded by the parser.

use super::nearest::nearest;
use super::schema::{Feed, REPEATED_MAX, Rule, SockJs, required};
use super::section::Section;
use super::value::Raw;
use super::{Place, Sources, sections};
use std::io::Read;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file as text, or says why not.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|e| format!("cannot be read: {e}"))?;
    let mut text = String::new();
    match file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text) {
        Ok(_) if text.len() as u64 > FILE_BYTES_MAX => Err(format!("is larger than {FILE_BYTES_MAX} bytes")),
        Ok(_) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Err("is not UTF-8 text".into()),
        Err(e) => Err(format!("cannot be read: {e}")),
    }
}

/// The file that is being read.
struct Walk<'a> {
    name: &'a str,
    text: &'a str,
}

impl Walk<'_> {
    fn place(&self, at: usize) -> Place {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        Place::Line(self.name.into(), 1 + before.iter().filter(|b| **b == b'\n').count())
    }
}

/// Sets what `text` sets, and notes what is wrong with it.
pub(super) fn apply(sources: &mut Sources, name: &str, text: &str) {
    let walk = Walk { name, text };
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            let place = error.span().map_or(Place::File(name.into()), |span| walk.place(span.start));
            sources.problem(place, format!("not TOML: {}", error.message()));
        }
        return;
    }
    for (section, value) in root.get_ref() {
        top_level(sources, &walk, section.get_ref(), section.span().start, value);
    }
}

fn top_level(sources: &mut Sources, walk: &Walk<'_>, name: &str, at: usize, value: &Spanned<DeValue<'_>>) {
    let place = walk.place(at);
    let all = sections();
    let Some(info) = all.iter().find(|info| info.name == name) else {
        let table = matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
        return sources.problem(place, if table { unknown_section(name) } else { unknown_key(name, None) });
    };
    match (value.get_ref(), info.repeated) {
        (DeValue::Table(table), false) => section(sources, walk, info.name, table),
        (DeValue::Array(items), true) if items.iter().all(|item| item.get_ref().is_table()) => {
            if items.len() > REPEATED_MAX {
                return sources
                    .problem(place, format!("{} {name}; the maximum is {REPEATED_MAX}", items.len()));
            }
            for (number, item) in items.iter().enumerate() {
                let DeValue::Table(table) = item.get_ref() else { continue };
                let at = item.span().start;
                if info.name == Feed::NAME {
                    let feed = repeated::<Feed>(sources, walk, number, at, table);
                    sources.config.feeds.push(feed);
                } else if info.name == SockJs::NAME {
                    let prefix = repeated::<SockJs>(sources, walk, number, at, table);
                    sources.config.sockjs.push(prefix);
                } else {
                    let rule = repeated::<Rule>(sources, walk, number, at, table);
                    sources.config.rules.push(rule);
                }
            }
        }
        (_, true) => {
            sources.problem(place, format!("write [[{name}]] with two brackets: the section may be repeated"))
        }
        (DeValue::Array(_), false) => {
            sources.problem(place, format!("write [{name}] with one bracket: the section can't be repeated"));
        }
        (_, false) => sources.problem(place, format!("[{name}] is a section, not a value")),
    }
}

fn section(sources: &mut Sources, walk: &Walk<'_>, section: &'static str, table: &DeTable<'_>) {
    for (key, value) in table {
        let place = walk.place(key.span().start);
        match sources.config.set(section, key.get_ref(), Raw::Toml(value.get_ref())) {
            None => sources.problem(place, unknown_key(key.get_ref(), Some(section))),
            Some(Err(text)) => sources.problem(place, format!("{} in [{section}]: {text}", key.get_ref())),
            Some(Ok(())) => {
                if let Some(known) = known_name(section, key.get_ref()) {
                    sources.places.insert((section.into(), known), place);
                }
            }
        }
    }
}

/// One of several sections of a name, the one with this number.
fn repeated<S: Section>(
    sources: &mut Sources,
    walk: &Walk<'_>,
    number: usize,
    at: usize,
    table: &DeTable<'_>,
) -> S {
    let head = walk.place(at);
    let section = format!("{}[{number}]", S::NAME);
    let mut one = S::default();
    for (key, value) in table {
        let place = walk.place(key.span().start);
        match one.set(key.get_ref(), Raw::Toml(value.get_ref())) {
            None => sources.problem(place, unknown_key(key.get_ref(), Some(S::NAME))),
            Some(Err(text)) => {
                sources.problem(place, format!("{} in [[{}]]: {text}", key.get_ref(), S::NAME));
            }
            Some(Ok(())) => {
                if let Some(known) = known_name(S::NAME, key.get_ref()) {
                    sources.places.insert((section.clone(), known), place);
                }
            }
        }
    }
    for required in required(S::NAME) {
        // What is pushed comes from nowhere.
        let is_pushed =
            || matches!(table.get("push").map(|push| push.get_ref()), Some(DeValue::Boolean(true)));
        let is_missing = !table.contains_key(*required);
        if is_missing && (*required != "url" || !is_pushed()) {
            let one = S::NAME.trim_end_matches('s');
            sources.problem(head.clone(), format!("this {one} has no {required:?}"));
        }
    }
    one
}

/// The name of a key as it is declared.
fn known_name(section: &str, key: &str) -> Option<&'static str> {
    let info = sections().into_iter().find(|info| info.name == section)?;
    info.keys.iter().find(|info| info.name == key).map(|info| info.name)
}

/// `[name]`, or `[[name]]` where there may be several.
fn bracketed(name: &str) -> String {
    let repeated = sections().iter().any(|info| info.name == name && info.repeated);
    if repeated { format!("[[{name}]]") } else { format!("[{name}]") }
}

fn unknown_section(name: &str) -> String {
    let known: Vec<_> = sections().iter().map(|info| info.name).collect();
    let hint = nearest(name, known).map(|n| format!("; did you mean {}?", bracketed(n))).unwrap_or_default();
    format!("unknown section [{name}]{hint}")
}

/// Says that there is no such key, and which one was likely meant: the nearest of the section, else one of
/// the same name elsewhere, else the nearest elsewhere.
pub(super) fn unknown_key(key: &str, section: Option<&str>) -> String {
    let all = sections();
    let names = |info: &super::SectionInfo| info.keys.iter().map(|key| key.name).collect::<Vec<_>>();
    let here = all.iter().find(|info| Some(info.name) == section).and_then(|info| nearest(key, names(info)));
    let elsewhere = || {
        let exact = all.iter().find(|info| names(info).contains(&key)).map(|info| (info, key));
        let near = || {
            let every: Vec<_> = all.iter().flat_map(names).collect();
            let best = nearest(key, every)?;
            all.iter().find(|info| names(info).contains(&best)).map(|info| (info, best))
        };
        exact
            .map(|(info, key)| (info.name, key.to_string()))
            .or_else(|| near().map(|(i, k)| (i.name, k.into())))
    };
    let hint = match here {
        Some(known) => format!("; did you mean {known:?}?"),
        None => elsewhere()
            .map(|(section, known)| format!("; did you mean {known:?} in {}?", bracketed(section)))
            .unwrap_or_default(),
    };
    match section {
        Some(section) => format!("unknown key {key:?} in {}{hint}", bracketed(section)),
        None => format!("unknown key {key:?} outside of a section{hint}"),
    }
}
