//! The URL of a key's document: a template with parts of the key in place of placeholders.

use super::RouteError;
use super::key::is_name;
use crate::percent;
use crate::secrets::{UrlText, escape};
use hyper::Uri;
use std::fmt;
use stentor_hub::{Key, is_dot_segment, is_escape};

/// Maximum length of a URL in a message, in characters.
const SHOWN_CHARS_MAX: usize = 100;

/// A URL template: its texts, and the positions of a key's parts.
#[derive(Clone, PartialEq)]
pub(crate) struct UrlTemplate {
    /// The URL without its query, which may contain a secret.
    shown: String,
    parts: Vec<Part>,
    /// The parts with `***` in place of secrets.
    shown_parts: Vec<Part>,
}

impl fmt::Debug for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UrlTemplate({:?})", self.shown)
    }
}

#[derive(Clone, PartialEq)]
enum Part {
    Text(String),
    /// The complete key.
    Key,
    /// The value of a placeholder, by its number.
    Value {
        number: usize,
        in_query: bool,
    },
}

impl UrlTemplate {
    /// Parses a template. `names` are the key's placeholders. `Some(None)` means that the keys have a prefix,
    /// so the complete key is appended to the path. `None` means that the key's template is invalid, which
    /// has already been reported.
    pub(super) fn new(url: &UrlText, names: Option<Option<&[String]>>) -> Result<Self, RouteError> {
        parse(url, names).map_err(|text| RouteError { field: "url", text })
    }

    /// Returns the URL of this key with these `values` of its placeholders. `None` if the key has no URL.
    pub(crate) fn fill(&self, key: &Key, values: &[&str]) -> Option<Uri> {
        let url = fill_parts(&self.parts, key, values)?;
        // A `%` in the key and digits in the text after its value would form an escape for a server that
        // decodes twice.
        if key.as_str().contains('%') && percent::decode(&url).0.windows(3).any(is_escape) {
            return None;
        }
        let uri: Uri = url.parse().ok()?;
        (!has_dot_segment(uri.path())).then_some(uri)
    }

    /// Returns the text before the first placeholder, or before the key.
    pub(crate) fn begin(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// Returns `true` if the URL has the placeholder with this number.
    pub(super) fn uses(&self, placeholder: usize) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Value { number, .. } if *number == placeholder))
    }

    /// Returns the URL for messages: without the query, and with `***` in place of secrets.
    pub(crate) fn fill_shown(&self, key: &Key, values: &[&str]) -> String {
        fill_parts(&self.shown_parts, key, values).map(|url| shown(&url)).unwrap_or_default()
    }

    /// Returns the template for logs: without its query, and with `***` in place of secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn is_secure(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Text(text)) if text.starts_with("https:"))
    }

    /// Returns the part before the path: scheme and authority.
    pub(crate) fn origin(&self) -> Option<&str> {
        let Some(Part::Text(text)) = self.parts.first() else { return None };
        let host = text.find("://")? + 3;
        let end = text[host..].find(['/', '?']).map_or(text.len(), |at| host + at);
        text.get(..end)
    }

    /// Returns `true` if the part before the path contains a secret.
    pub(crate) fn has_secret_origin(&self) -> bool {
        self.shown.split('/').take(3).any(|part| part.contains("***"))
    }
}

fn fill_parts(parts: &[Part], key: &Key, values: &[&str]) -> Option<String> {
    let mut url = String::with_capacity(key.as_str().len() + 128);
    for part in parts {
        match part {
            Part::Text(text) => url.push_str(text),
            Part::Key => escape_in_path(key.as_str(), &mut url),
            Part::Value { number, in_query: false } => escape_in_path(values.get(*number)?, &mut url),
            Part::Value { number, in_query: true } => escape(values.get(*number)?, &mut url),
        }
    }
    Some(url)
}

fn parse(
    UrlText { text: url, shown: shown_url }: &UrlText,
    names: Option<Option<&[String]>>,
) -> Result<UrlTemplate, String> {
    let shown_url = shown_url.as_str();
    let wrong = |why: &str| {
        // A URL with `@` isn't shown: if it is mistyped, the password may be anywhere in it.
        if shown_url.contains('@') {
            return why.to_owned();
        }
        format!("{why}: {:?}", shown(shown_url).chars().take(SHOWN_CHARS_MAX).collect::<String>())
    };
    let pieces = pieces(url).map_err(|why| wrong(&why))?;
    let path_start = url.find("://").and_then(|at| Some(at + 3 + url.get(at + 3..)?.find(['/', '?', '#'])?));
    let path_start = path_start.unwrap_or(url.len());
    if url.contains("://") && url.find('{').is_some_and(|at| at < path_start) {
        return Err("placeholders are allowed in the path and the query only".into());
    }
    let sample: String =
        pieces.iter().map(|piece| piece.placeholder().map_or_else(|| piece.text(), |_| "x")).collect();
    let parsed: Result<Uri, _> = sample.parse();
    if let Some(why) = unescaped(&sample, parsed.is_ok()) {
        return Err(wrong(&why));
    }
    let uri = parsed.map_err(|_| wrong("this is no URL"))?;
    if url.starts_with('{') {
        return Err(wrong("this is no URL"));
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("expected a URL beginning with http:// or https://"));
    }
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err(wrong("this URL has no host"));
    };
    if authority.as_str().contains('@') {
        return Err("credentials belong in the headers, not in the URL".into());
    }
    if authority.as_str() != authority.host() && authority.port_u16().is_none() {
        return Err(wrong("the port is no number below 65,536"));
    }
    if url.contains('#') {
        return Err(wrong("a URL of an upstream can't have a fragment"));
    }
    if has_dot_segment(uri.path()) {
        return Err(wrong("the path has a segment '.' or '..'"));
    }
    let parts = |pieces: Vec<Piece<'_>>, url| match names {
        None => Ok(Vec::new()),
        Some(None) => whole_key(&pieces, url),
        Some(Some(names)) => fill_placeholders(&pieces, names),
    };
    let shown_parts = parts(self::pieces(shown_url)?, shown_url)?;
    Ok(UrlTemplate { shown: shown(shown_url), parts: parts(pieces, url)?, shown_parts })
}

/// Returns a message about the first invalid character in `url`. If the URL is valid (`is_valid`), only
/// characters outside ASCII are invalid.
fn unescaped(url: &str, is_valid: bool) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let (host, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !host.is_ascii() {
        return Some(
            "a host with letters outside of ASCII is written in Punycode, beginning with xn--".into(),
        );
    }
    let is_wrong = |c: &char| !c.is_ascii_graphic() || (!is_valid && "\"<>\\^`|".contains(*c));
    let wrong = rest.chars().find(is_wrong)?;
    let mut escaped = String::new();
    escape(wrong.encode_utf8(&mut [0; 4]), &mut escaped);
    Some(format!("{wrong:?} in a path or a query is written {escaped}"))
}

/// A part of a template: a text, or a placeholder with its braces.
#[derive(Clone, Copy)]
enum Piece<'u> {
    Text(&'u str),
    Placeholder(&'u str),
}

impl<'u> Piece<'u> {
    fn text(self) -> &'u str {
        match self {
            Self::Text(text) | Self::Placeholder(text) => text,
        }
    }

    /// Returns the name of a placeholder. `None` for a text.
    fn placeholder(self) -> Option<&'u str> {
        match self {
            Self::Text(_) => None,
            Self::Placeholder(text) => text.get(1..text.len() - 1),
        }
    }
}

fn pieces(url: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), url);
    while let Some(at) = rest.find(['{', '}']) {
        if rest[at..].starts_with('}') {
            return Err("a } has no {".into());
        }
        let end = at + rest[at..].find('}').ok_or("a { has no }")? + 1;
        pieces.push(Piece::Text(&rest[..at]));
        pieces.push(Piece::Placeholder(&rest[at..end]));
        rest = &rest[end..];
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Makes parts with the complete key at the end of the path.
fn whole_key(pieces: &[Piece<'_>], url: &str) -> Result<Vec<Part>, String> {
    if let Some(piece) = pieces.iter().find(|piece| piece.placeholder().is_some()) {
        return Err(format!("{} means nothing without a key that has it", piece.text()));
    }
    let (path, query) = match url.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (url, String::new()),
    };
    Ok(vec![Part::Text(format!("{}/", path.trim_end_matches('/'))), Part::Key, Part::Text(query)])
}

/// Makes parts with each placeholder's value at the position of the placeholder.
fn fill_placeholders(pieces: &[Piece<'_>], names: &[String]) -> Result<Vec<Part>, String> {
    let mut in_query = false;
    let mut parts = Vec::new();
    for piece in pieces {
        let Some(name) = piece.placeholder() else {
            in_query |= piece.text().contains('?');
            parts.push(Part::Text(piece.text().into()));
            continue;
        };
        if let Some(plain) = name.strip_suffix('*').filter(|plain| names.iter().any(|known| known == plain)) {
            return Err(format!("{{{name}}} is written {{{plain}}} here, and keeps its slashes"));
        }
        match names.iter().position(|known| known == name) {
            Some(number) => parts.push(Part::Value { number, in_query }),
            None if is_name(name) => return Err(format!("the key has no {{{name}}}")),
            None => return Err(format!("the key has no {{{}}}", name.escape_debug())),
        }
    }
    Ok(parts)
}

/// Returns a URL for messages, without user information and query, which may contain secrets.
fn shown(url: &str) -> String {
    let (before, query) = match url.split_once('?') {
        Some((before, _)) => (before, "?…"),
        None => (url, ""),
    };
    let (scheme, rest) = before.split_once("://").map_or(("", before), |(scheme, rest)| (scheme, rest));
    let rest = match rest.split_once('/') {
        Some((host, path)) => format!("{}/{path}", host.rsplit('@').next().unwrap_or_default()),
        None => rest.rsplit('@').next().unwrap_or_default().into(),
    };
    let separator = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{separator}{rest}{query}")
}

/// Returns `true` if a path, decoded once, has a segment `.` or `..`. Many servers read `%2e` as a dot
/// (WHATWG URL, 4.1).
fn has_dot_segment(path: &str) -> bool {
    String::from_utf8_lossy(&percent::decode(path).0).split('/').any(is_dot_segment)
}

/// Appends `value` to a path. Escapes all characters except slashes and those of
/// [`KeyCharset::Ascii`](stentor_hub::KeyCharset::Ascii).
fn escape_in_path(value: &str, url: &mut String) {
    percent::encode(value, |byte| byte == b'/' || Key::is_plain(byte), url);
}
