//! The configuration file: TOML, read along the table of keys.
//!
//! Limits: [`FILE_BYTES_MAX`] bytes, and [`super::schema::REPEATED_MAX`] sections of a name. The parser
//! limits nesting.

use super::finding::WrittenKey;
use super::nearest::nearest;
use super::schema::{REPEATED_MAX, required};
use super::setting::Raw;
use super::{SectionInfo, SourceLocation, Sources, sections};
use std::collections::BTreeSet;
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
    /// Lines with a syntax error, counted from 1. Their keys and values are unknown.
    broken_lines: BTreeSet<usize>,
}

impl Walk<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        1 + before.iter().filter(|b| **b == b'\n').count()
    }

    fn location(&self, at: usize) -> SourceLocation {
        SourceLocation::Line(self.name.into(), self.line(at))
    }

    /// Records the syntax errors of a parse, except those of lines for which an earlier parse has reported one.
    fn syntax_errors(&mut self, sources: &mut Sources, errors: Vec<toml::de::Error>) {
        let lines: Vec<_> =
            errors.iter().map(|error| error.span().map_or(1, |span| self.line(span.start))).collect();
        for (line, error) in lines.iter().zip(errors) {
            if !self.broken_lines.contains(line) {
                let location = SourceLocation::Line(self.name.into(), *line);
                sources.problem(location, format!("not TOML: {}", error.message()));
            }
        }
        self.broken_lines.extend(lines);
    }

    /// Records a mistake, unless the line has a syntax error.
    fn problem(&self, sources: &mut Sources, at: usize, text: String) {
        if !self.broken_lines.contains(&self.line(at)) {
            sources.problem(self.location(at), text);
        }
    }

    /// Returns `true` if a line of the table whose header is at `at` has a syntax error.
    fn is_broken_table(&self, at: usize) -> bool {
        let head = self.line(at);
        let body = self.text.lines().skip(head).take_while(|line| !is_header(line)).count();
        self.broken_lines.range(head..=head + body).next().is_some()
    }
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

/// Returns the text without the lines that have a syntax error. Headers are mended, because the keys below would belong to another
/// table. Lines with a delimiter of a text of several lines stay.
fn repaired(text: &str, broken_lines: &BTreeSet<usize>) -> String {
    let repair = |(n, line): (usize, &str)| match line.trim_start() {
        _ if !broken_lines.contains(&(n + 1)) || line.contains("\"\"\"") || line.contains("'''") => {
            line.to_owned()
        }
        header if header.starts_with('[') => {
            let brackets = if header.starts_with("[[") { 2 } else { 1 };
            let is_name = |char: &char| char.is_ascii_alphanumeric() || "_.-".contains(*char);
            let name: String = header[brackets..].trim_start().chars().take_while(is_name).collect();
            format!("{}{name}{}", "[".repeat(brackets), "]".repeat(brackets))
        }
        _ => String::new(),
    };
    text.lines().enumerate().map(repair).collect::<Vec<_>>().join("\n")
}

/// Applies the file `text` to `sources`, and records its mistakes. After a syntax error, reads the other lines.
pub(super) fn apply(sources: &mut Sources, name: &str, text: &str) {
    let mut walk = Walk { name, text, broken_lines: BTreeSet::new() };
    let (mut root, errors) = DeTable::parse_recoverable(text);
    walk.syntax_errors(sources, errors);
    let rest;
    if !walk.broken_lines.is_empty() {
        rest = repaired(text, &walk.broken_lines);
        let (read, errors) = DeTable::parse_recoverable(&rest);
        (root, walk.text) = (read, &rest);
        walk.syntax_errors(sources, errors);
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
        return walk.problem(
            sources,
            at,
            if table { unknown_section(name) } else { unknown_key(name, None) },
        );
    };
    match (value.get_ref(), info.repeated) {
        (DeValue::Table(table), false) => {
            sources.locations.keys.insert((name.into(), ""), location);
            section(sources, walk, info, (name, at), table);
        }
        (DeValue::Array(items), true) if items.iter().all(|item| item.get_ref().is_table()) => {
            if items.len() > REPEATED_MAX {
                let text = format!("{} {name}; the maximum is {REPEATED_MAX}", items.len());
                return walk.problem(sources, at, text);
            }
            for (number, item) in items.iter().enumerate() {
                let DeValue::Table(table) = item.get_ref() else { continue };
                section(sources, walk, info, (&format!("{name}[{number}]"), item.span().start), table);
                missing(sources, walk, item.span().start, info.name, table);
            }
        }
        // The keys are read, too.
        (DeValue::Table(table), true) => {
            let text = format!("write [[{name}]] with two brackets: the section may be repeated");
            walk.problem(sources, at, text);
            section(sources, walk, info, (&format!("{name}[0]"), at), table);
        }
        (DeValue::Array(items), false) => {
            let text = format!("write [{name}] with one bracket: the section can't be repeated");
            walk.problem(sources, at, text);
            for table in items.iter().filter_map(|item| item.get_ref().as_table()) {
                section(sources, walk, info, (name, at), table);
            }
        }
        (_, true) => {
            let text = format!("write [[{name}]] with two brackets: the section may be repeated");
            walk.problem(sources, at, text);
        }
        (_, false) => walk.problem(sources, at, format!("[{name}] is a section, not a value")),
    }
}

/// Reads one section, whose header is at `at`. `id` distinguishes sections of the same name.
fn section(
    sources: &mut Sources,
    walk: &Walk<'_>,
    info: &SectionInfo,
    (id, at): (&str, usize),
    table: &DeTable<'_>,
) {
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
    if info.repeated {
        sources.locations.keys.insert((id.into(), ""), walk.location(at));
    }
    let Some(part) = sources.config.part(info.name) else { return };
    let target = part.next();
    let outcomes: Vec<_> = table
        .iter()
        .filter(|(key, _)| nested(key.get_ref()).is_none())
        .map(|(key, value)| (key, value, target.set(key.get_ref(), Raw::Toml(value.get_ref()))))
        .collect();
    for (key, value, outcome) in outcomes {
        let (at, key) = (key.span().start, key.get_ref());
        let location = walk.location(at);
        if let Some(known) = info.keys.iter().find(|known| *known.name == **key) {
            let value = walk.text.get(value.span()).unwrap_or_default();
            let written = WrittenKey::new(id, key, value, known.secret);
            sources.locations.written.insert(location.clone(), written);
        }
        match outcome {
            None => walk.problem(sources, at, unknown_key(key, Some(info.name))),
            Some(Err(text)) => walk.problem(sources, at, format!("{key} in {}: {text}", info.bracketed())),
            Some(Ok(key)) => _ = sources.locations.keys.insert((id.into(), key), location),
        }
    }
}

/// Records the missing required keys of a repeated section.
fn missing(sources: &mut Sources, walk: &Walk<'_>, head: usize, name: &str, table: &DeTable<'_>) {
    if walk.is_broken_table(head) {
        return;
    }
    let is_pushed = matches!(table.get("push").map(|push| push.get_ref()), Some(DeValue::Boolean(true)));
    for required in required(name) {
        // A feed with pushed documents has no URL.
        if !table.contains_key(*required) && (*required != "url" || !is_pushed) {
            let one = name.trim_end_matches('s');
            walk.problem(sources, head, format!("this {one} has no {required:?}"));
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
