//! The configuration file: TOML, read along the table of keys.
//!
//! Limits: [`FILE_BYTES_MAX`] bytes, and [`super::schema::REPEATED_MAX`] sections of a name. The parser
//! limits nesting.

use super::nearest::nearest;
use super::schema::{REPEATED_MAX, required};
use super::setting::Raw;
use super::{SectionInfo, SourceLocation, Sources, sections};
use std::io::Read;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file as text. The error is the predicate of a sentence about the file.
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
    fn location(&self, at: usize) -> SourceLocation {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        SourceLocation::Line(self.name.into(), 1 + before.iter().filter(|b| **b == b'\n').count())
    }
}

/// Applies the file `text` to `sources`, and records its mistakes.
pub(super) fn apply(sources: &mut Sources, name: &str, text: &str) {
    let walk = Walk { name, text };
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            let location =
                error.span().map_or(SourceLocation::File(name.into()), |span| walk.location(span.start));
            sources.problem(location, format!("not TOML: {}", error.message()));
        }
        return;
    }
    for (section, value) in root.get_ref() {
        top_level(sources, &walk, section.get_ref(), section.span().start, value);
    }
}

fn top_level(sources: &mut Sources, walk: &Walk<'_>, name: &str, at: usize, value: &Spanned<DeValue<'_>>) {
    let location = walk.location(at);
    let all = sections();
    let Some(info) = all.iter().find(|info| info.name == name) else {
        let table = matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
        return sources
            .problem(location, if table { unknown_section(name) } else { unknown_key(name, None) });
    };
    match (value.get_ref(), info.repeated) {
        (DeValue::Table(table), false) => {
            sources.locations.insert((name.into(), ""), location);
            section(sources, walk, info, name, table);
        }
        (DeValue::Array(items), true) if items.iter().all(|item| item.get_ref().is_table()) => {
            if items.len() > REPEATED_MAX {
                return sources
                    .problem(location, format!("{} {name}; the maximum is {REPEATED_MAX}", items.len()));
            }
            for (number, item) in items.iter().enumerate() {
                let DeValue::Table(table) = item.get_ref() else { continue };
                section(sources, walk, info, &format!("{name}[{number}]"), table);
                missing(sources, walk.location(item.span().start), info.name, table);
            }
        }
        (_, true) => sources
            .problem(location, format!("write [[{name}]] with two brackets: the section may be repeated")),
        (DeValue::Array(_), false) => {
            sources
                .problem(location, format!("write [{name}] with one bracket: the section can't be repeated"));
        }
        (_, false) => sources.problem(location, format!("[{name}] is a section, not a value")),
    }
}

/// Reads one section. `id` distinguishes sections of the same name.
fn section(sources: &mut Sources, walk: &Walk<'_>, info: &SectionInfo, id: &str, table: &DeTable<'_>) {
    // Returns the name of a section within this one, such as `[[cluster.socketio]]`.
    let nested = |key: &str| {
        let name = format!("{}.{key}", info.name);
        sections().iter().any(|info| info.name == name).then_some(name)
    };
    for (key, value) in table {
        if let Some(name) = nested(key.get_ref()) {
            top_level(sources, walk, &name, key.span().start, value);
        }
    }
    let Some(part) = sources.config.part(info.name) else { return };
    let target = part.next();
    let outcomes: Vec<_> = table
        .iter()
        .filter(|(key, _)| nested(key.get_ref()).is_none())
        .map(|(key, value)| (key, target.set(key.get_ref(), Raw::Toml(value.get_ref()))))
        .collect();
    for (key, outcome) in outcomes {
        let location = walk.location(key.span().start);
        match outcome {
            None => sources.problem(location, unknown_key(key.get_ref(), Some(info.name))),
            Some(Err(text)) => {
                let bracketed = info.bracketed();
                sources.problem(location, format!("{} in {bracketed}: {text}", key.get_ref()));
            }
            Some(Ok(key)) => _ = sources.locations.insert((id.into(), key), location),
        }
    }
}

/// Records the missing required keys of a repeated section.
fn missing(sources: &mut Sources, head: SourceLocation, name: &str, table: &DeTable<'_>) {
    let is_pushed = matches!(table.get("push").map(|push| push.get_ref()), Some(DeValue::Boolean(true)));
    for required in required(name) {
        // A feed with pushed documents has no URL.
        if !table.contains_key(*required) && (*required != "url" || !is_pushed) {
            let one = name.trim_end_matches('s');
            sources.problem(head.clone(), format!("this {one} has no {required:?}"));
        }
    }
}

/// Returns `[name]`, or `[[name]]` if the section may be repeated.
fn bracketed(name: &str) -> String {
    let found = sections().into_iter().find(|info| info.name == name);
    found.map_or_else(|| format!("[{name}]"), |info| info.bracketed())
}

fn unknown_section(name: &str) -> String {
    let known: Vec<_> = sections().iter().map(|info| info.name).collect();
    let hint = nearest(name, known).map(|n| format!("; did you mean {}?", bracketed(n))).unwrap_or_default();
    format!("unknown section [{name}]{hint}")
}

/// Describes an unknown key, and suggests the key that was likely meant: the nearest key of the section, or
/// else the nearest key of another section.
pub(super) fn unknown_key(key: &str, section: Option<&str>) -> String {
    let all = sections();
    let names = |info: &SectionInfo| info.keys.iter().map(|key| key.name).collect::<Vec<_>>();
    let here = all.iter().find(|info| Some(info.name) == section).and_then(|info| nearest(key, names(info)));
    let elsewhere = || {
        let known = nearest(key, all.iter().flat_map(names))?;
        let info = all.iter().find(|info| names(info).contains(&known))?;
        Some(format!("; did you mean {known:?} in {}?", info.bracketed()))
    };
    let hint = match here {
        Some(known) => format!("; did you mean {known:?}?"),
        None => elsewhere().unwrap_or_default(),
    };
    match section {
        Some(section) => format!("unknown key {key:?} in {}{hint}", bracketed(section)),
        None => format!("unknown key {key:?} outside of a section{hint}"),
    }
}
