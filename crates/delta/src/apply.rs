//! Applies a JSON Patch (RFC 6902), with all six operations, to a document. For tests, tools and our own
//! clients: it builds the complete value, and is no part of the hot path.

use super::hash::{Keys, Seed};
use super::tape::{Kind, NodeId, Parsed};
use super::text::ParseError;
use super::value::{Value, string};
use stentor_json::DEPTH_MAX;

/// Limits for applying a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyLimits {
    /// Maximum number of values in the document, and in the patch, on all levels.
    pub values_max: usize,
    /// Maximum size of the document in bytes, including all values that the patch adds or copies. Removed
    /// values aren't subtracted.
    pub bytes_max: usize,
}

impl Default for ApplyLimits {
    /// Returns 2²⁰ values and 64 MiB.
    fn default() -> Self {
        Self { values_max: 1 << 20, bytes_max: 64 << 20 }
    }
}

/// Reason why a patch couldn't be applied. Numbers count the patch's operations from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The document isn't JSON or exceeds a limit.
    #[error("the document: {0}")]
    Document(ParseError),
    /// The patch isn't JSON or exceeds a limit.
    #[error("the patch: {0}")]
    Patch(ParseError),
    /// The patch isn't an array of complete RFC 6902 operations.
    #[error("operation {0} is malformed (RFC 6902)")]
    Malformed(usize),
    /// The operation's path doesn't exist: the patch is for another document.
    #[error("operation {0} has a path that does not exist")]
    Missing(usize),
    /// A `test` operation found another value: the patch is for another document.
    #[error("operation {0} found a different value")]
    Different(usize),
    /// The document became larger than [`ApplyLimits::bytes_max`] or deeper than [`DEPTH_MAX`].
    #[error("operation {0} makes the document too large")]
    TooLarge(usize),
}

/// Returns the document after the patch, without whitespace, members sorted by name.
///
/// # Errors
///
/// See [`ApplyError`]. The patch is applied completely or not at all.
pub fn apply(document: &[u8], patch: &[u8], limits: ApplyLimits) -> Result<Vec<u8>, ApplyError> {
    // Parsing makes hashes, which aren't used here.
    let keys = Keys::new(Seed([0, 0]));
    let parsed = Parsed::parse(document, &keys, limits.values_max).map_err(ApplyError::Document)?;
    let patch = Parsed::parse_patch(patch, &keys, limits.values_max).map_err(ApplyError::Patch)?;
    if patch.kind(0) != Kind::Array {
        return Err(ApplyError::Malformed(0));
    }
    let mut document =
        Patched { root: Value::read(&parsed, 0), bytes: document.len(), bytes_max: limits.bytes_max, at: 0 };
    for (at, operation) in patch.children(0).enumerate() {
        document.at = at;
        document.operation(&patch, operation)?;
    }
    let mut out = Vec::with_capacity(document.bytes.min(limits.bytes_max));
    document.root.write(&mut out);
    Ok(out)
}

struct Patched {
    root: Value,
    bytes: usize,
    bytes_max: usize,
    /// Index of the current operation.
    at: usize,
}

/// Reference tokens, from the root.
type Pointer = Vec<Box<[u8]>>;

impl Patched {
    fn operation(&mut self, patch: &Parsed<'_>, operation: NodeId) -> Result<(), ApplyError> {
        let malformed = ApplyError::Malformed(self.at);
        if patch.kind(operation) != Kind::Object {
            return Err(malformed);
        }
        let text = |name: &[u8]| {
            let member = patch.member(operation, name).filter(|&id| patch.kind(id) == Kind::String);
            member.map(|id| string(patch, id)).ok_or(malformed)
        };
        let pointer = |name| text(name).and_then(|text| pointer(&text).ok_or(malformed));
        let value = || patch.member(operation, b"value").map(|id| Value::read(patch, id)).ok_or(malformed);
        let path = pointer(b"path")?;
        match &*text(b"op")? {
            b"add" => self.add(&path, value()?),
            b"remove" => self.remove(&path).map(drop),
            b"replace" => {
                self.find(&path)?;
                let value = value()?;
                self.grow(&path, &value)?;
                *self.find(&path)? = value;
                Ok(())
            }
            b"move" => {
                let from = pointer(b"from")?;
                if path.len() > from.len() && path.starts_with(&from) {
                    return Err(malformed);
                }
                let value = self.remove(&from)?;
                self.add(&path, value)
            }
            b"copy" => {
                let value = self.find(&pointer(b"from")?)?.clone();
                self.add(&path, value)
            }
            b"test" => {
                let value = value()?;
                if *self.find(&path)? == value { Ok(()) } else { Err(ApplyError::Different(self.at)) }
            }
            _ => Err(malformed),
        }
    }

    fn find(&mut self, path: &[Box<[u8]>]) -> Result<&mut Value, ApplyError> {
        let missing = ApplyError::Missing(self.at);
        path.iter().try_fold(&mut self.root, |value, token| match value {
            Value::Object(members) => members.get_mut(token).ok_or(missing),
            Value::Array(elements) => index(token).and_then(|i| elements.get_mut(i)).ok_or(missing),
            _ => Err(missing),
        })
    }

    fn add(&mut self, path: &[Box<[u8]>], value: Value) -> Result<(), ApplyError> {
        let missing = ApplyError::Missing(self.at);
        self.grow(path, &value)?;
        let Some((last, parent)) = path.split_last() else {
            self.root = value;
            return Ok(());
        };
        match self.find(parent)? {
            Value::Object(members) => drop(members.insert(last.clone(), value)),
            Value::Array(elements) => {
                let end = elements.len();
                let place = if **last == *b"-" { Some(end) } else { index(last) };
                elements.insert(place.filter(|&place| place <= end).ok_or(missing)?, value);
            }
            _ => return Err(missing),
        }
        Ok(())
    }

    fn remove(&mut self, path: &[Box<[u8]>]) -> Result<Value, ApplyError> {
        let missing = ApplyError::Missing(self.at);
        let Some((last, parent)) = path.split_last() else {
            return Ok(std::mem::replace(&mut self.root, Value::Literal((*b"null").into())));
        };
        match self.find(parent)? {
            Value::Object(members) => members.remove(last).ok_or(missing),
            Value::Array(elements) => {
                let place = index(last).filter(|&place| place < elements.len()).ok_or(missing)?;
                Ok(elements.remove(place))
            }
            _ => Err(missing),
        }
    }

    /// Counts a value that is about to be inserted.
    fn grow(&mut self, path: &[Box<[u8]>], value: &Value) -> Result<(), ApplyError> {
        let (bytes, depth) = value.size();
        self.bytes += bytes + path.last().map_or(0, |name| name.len());
        if self.bytes > self.bytes_max || path.len() + depth > DEPTH_MAX {
            return Err(ApplyError::TooLarge(self.at));
        }
        Ok(())
    }
}

/// Reads a JSON Pointer (RFC 6901).
fn pointer(text: &[u8]) -> Option<Pointer> {
    let mut tokens = text.split(|&byte| byte == b'/');
    // The text before the first slash must be empty.
    tokens.next().filter(|first| first.is_empty())?;
    tokens.map(unescaped).collect()
}

fn unescaped(token: &[u8]) -> Option<Box<[u8]>> {
    let mut out = Vec::with_capacity(token.len());
    let mut bytes = token.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match (byte, byte == b'~') {
            (_, false) => byte,
            (_, true) => match bytes.next()? {
                b'0' => b'~',
                b'1' => b'/',
                _ => return None,
            },
        });
    }
    Some(out.into())
}

/// Reads an array index as RFC 6901, section 4 requires: digits without leading zeros.
fn index(token: &[u8]) -> Option<usize> {
    if token.is_empty() || !token.iter().all(u8::is_ascii_digit) || (token.len() > 1 && token[0] == b'0') {
        return None;
    }
    std::str::from_utf8(token).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
