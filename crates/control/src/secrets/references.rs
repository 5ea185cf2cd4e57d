//! Texts with references to secrets: `${NAME}` or `${file:/path}`.

use std::fmt;
use std::path::Path;

/// A reference to a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// `${NAME}`.
    Variable(&'a str),
    /// `${file:/path}`.
    File(&'a Path),
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "the environment variable {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

/// A part of a text.
pub(super) enum Piece<'a> {
    Text(&'a str),
    Reference(Reference<'a>),
}

/// Splits a text into texts and references. Returns an error for an invalid reference.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = Result<Piece<'_>, &'static str>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.filter(|text| !text.is_empty())?;
        let Some(after) = text.strip_prefix("${") else {
            let end = text.find("${").unwrap_or(text.len());
            rest = text.get(end..);
            return Some(Ok(Piece::Text(&text[..end])));
        };
        let Some((name, more)) = after.split_once('}') else {
            rest = None;
            return Some(Err("has a ${ without a }"));
        };
        rest = Some(more);
        Some(reference(name).map(Piece::Reference))
    })
}

/// Parses the reference between `${` and `}`.
fn reference(name: &str) -> Result<Reference<'_>, &'static str> {
    if let Some(path) = name.strip_prefix("file:").map(Path::new) {
        return if path.is_absolute() {
            Ok(Reference::File(path))
        } else {
            Err("has a ${file:…} without an absolute path")
        };
    }
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_name && name.bytes().next().is_some_and(|b| !b.is_ascii_digit()) {
        Ok(Reference::Variable(name))
    } else {
        Err("has a ${…} that is not a valid variable name")
    }
}

/// Returns the references of a text.
///
/// # Errors
/// Returns the mistake, as the predicate of a sentence about the text.
pub fn references(text: &str) -> Result<Vec<Reference<'_>>, &'static str> {
    let references = pieces(text).filter_map(|piece| match piece {
        Ok(Piece::Text(_)) => None,
        Ok(Piece::Reference(reference)) => Some(Ok(reference)),
        Err(wrong) => Some(Err(wrong)),
    });
    references.collect()
}

/// Returns a text without its references.
pub fn literal(text: &str) -> String {
    let texts = pieces(text).filter_map(|piece| match piece {
        Ok(Piece::Text(text)) => Some(text),
        _ => None,
    });
    texts.collect()
}
