//! A parsed document: its text, and a flat tape with one entry per value.
//!
//! The entries are in the order of the text; an array's or object's children follow it. An entry has the
//! position of the value's text and the hash of its complete subtree, so that equal subtrees are found
//! without descending into them. Names have no entries: in text without whitespace a name stands right before
//! its value.
//!
//! Invariants: `0 <= start < end <= text.len()` of the text without whitespace; `i < next <= nodes.len()`;
//! children lie in `i + 1..next`; at most [`DEPTH_MAX`] levels, so that code that walks a tape may recurse.

use super::hash::{Keys, Tag};
use super::number::Number;
use super::text::{self, ParseError};
use std::borrow::Cow;
use stentor_json::{DEPTH_MAX, Scalar, Visitor};

/// The name of values without one: array elements and the root.
const NAMELESS: u32 = 0x7fff_ffff;
/// Set in `name` if a later member of the object has the same name, and takes precedence.
const SHADOWED: u32 = 0x8000_0000;

/// Identifies a value: its position on the tape.
pub(crate) type NodeId = u32;

/// Size of one entry in bytes: the cost of a document per value, in addition to its text.
pub(crate) const NODE_BYTES: usize = 24;
const _: () = assert!(size_of::<Node>() == NODE_BYTES);

#[derive(Clone, Copy, Debug)]
struct Node {
    hash: u64,
    start: u32,
    end: u32,
    /// The entry after this value's last child.
    next: u32,
    /// Position of the name's opening quote, or [`NAMELESS`]; may include [`SHADOWED`].
    name: u32,
}

/// A document that is ready for a comparison. Costs `NODE_BYTES` per value, and a copy of the text if it has
/// whitespace, so drop it after the comparison.
#[derive(Debug)]
pub struct Parsed<'t> {
    text: Cow<'t, [u8]>,
    nodes: Vec<Node>,
    keys: Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Number,
    Literal,
}

impl<'t> Parsed<'t> {
    pub(crate) fn parse(text: &'t [u8], keys: &Keys, values_max: usize) -> Result<Self, ParseError> {
        Self::parse_nested(text, keys, values_max, DEPTH_MAX)
    }

    /// Parses a patch, which may be two levels deeper than the values in it.
    pub(crate) fn parse_patch(text: &'t [u8], keys: &Keys, values_max: usize) -> Result<Self, ParseError> {
        Self::parse_nested(text, keys, values_max, DEPTH_MAX + 2)
    }

    fn parse_nested(
        text: &'t [u8],
        keys: &Keys,
        values_max: usize,
        depth_max: usize,
    ) -> Result<Self, ParseError> {
        if let Err(error) = std::str::from_utf8(text) {
            return Err(stentor_json::Error::Utf8(error.valid_up_to()).into());
        }
        if text.len() >= NAMELESS as usize {
            return Err(ParseError::TooLarge);
        }
        let mut builder = Builder {
            text,
            skipped: 0,
            // One value, and one more for each comma and each opening bracket. Commas in strings make the
            // number too large; the surplus entries are never touched.
            nodes: Vec::with_capacity(values_max.min(1 + opens_and_commas(text))),
            values_max,
            keys,
            open: Vec::new(),
            members: Vec::new(),
            unescaped: Vec::new(),
        };
        let end = stentor_json::scan(text, 0, depth_max, &mut builder)?;
        let rest = stentor_json::skip_space(text, end);
        if rest < text.len() {
            return Err(stentor_json::Error::Unexpected(rest).into());
        }
        let Builder { nodes, skipped, .. } = builder;
        let skipped = skipped + (rest - end);
        let text = if skipped == 0 {
            Cow::Borrowed(text)
        } else {
            let mut minified = Vec::with_capacity(text.len() - skipped);
            stentor_json::minify_to(&mut minified, text);
            Cow::Owned(minified)
        };
        Ok(Self { text, nodes, keys: *keys })
    }

    /// Returns the text without whitespace.
    pub fn minified(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn into_minified(self) -> Cow<'t, [u8]> {
        self.text
    }

    /// Returns `true` if the original text had no whitespace.
    pub(crate) fn is_minified(&self) -> bool {
        matches!(self.text, Cow::Borrowed(_))
    }

    /// Returns the memory in bytes that the parsed document takes in addition to the original text.
    pub fn owned_bytes(&self) -> usize {
        let copy = if let Cow::Owned(copy) = &self.text { copy.capacity() } else { 0 };
        copy + self.nodes.capacity() * NODE_BYTES
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(crate) fn hash(&self, id: NodeId) -> u64 {
        self.node(id).hash
    }

    /// Returns the value's text, without whitespace.
    pub(crate) fn raw(&self, id: NodeId) -> &[u8] {
        let node = self.node(id);
        &self.text[node.start as usize..node.end as usize]
    }

    /// Returns the length of the value's text in bytes.
    pub(crate) fn len(&self, id: NodeId) -> usize {
        let node = self.node(id);
        (node.end - node.start) as usize
    }

    /// Returns the text between the quotes of a member's name.
    pub(crate) fn name(&self, id: NodeId) -> &[u8] {
        let node = self.node(id);
        // `"name":value`
        &self.text[node.name as usize + 1..node.start as usize - 2]
    }

    pub(crate) fn kind(&self, id: NodeId) -> Kind {
        match self.text[self.node(id).start as usize] {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::String,
            b't' | b'f' | b'n' => Kind::Literal,
            _ => Kind::Number,
        }
    }

    /// Iterates over the elements of an array or the members of an object, without those that a later member
    /// of the same name shadows.
    pub(crate) fn children(&self, id: NodeId) -> Children<'_> {
        Children { nodes: &self.nodes, at: id + 1, end: self.node(id).next }
    }

    /// Finds the member with this name.
    pub(crate) fn member(&self, object: NodeId, name: &[u8]) -> Option<NodeId> {
        self.children(object).find(|&id| text::equal(self.name(id), name))
    }
}

#[derive(Clone)]
pub(crate) struct Children<'p> {
    nodes: &'p [Node],
    at: NodeId,
    end: NodeId,
}

impl Iterator for Children<'_> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        while self.at < self.end {
            let id = self.at;
            let node = &self.nodes[id as usize];
            self.at = node.next;
            if node.name & SHADOWED == 0 {
                return Some(id);
            }
        }
        None
    }
}

/// Returns an upper bound for the number of values besides the first.
pub(crate) fn opens_and_commas(text: &[u8]) -> usize {
    // Counts in runs whose count fits into a byte, so that the compiler processes many bytes at once.
    let count = |run: &[u8]| {
        let counts = run.iter().map(|&byte| u8::from((byte == b',') | (byte == b'[') | (byte == b'{')));
        usize::from(counts.sum::<u8>())
    };
    text.chunks(255).map(count).sum()
}

struct Member {
    name_hash: u64,
    hash: u64,
    id: NodeId,
    /// Position of the text between the quotes in the original text.
    name: (u32, u32),
}

/// An unfinished array or object.
struct Open {
    id: NodeId,
    /// For an array: the hash of its elements so far.
    hash: u64,
    /// For an object: the start of its members, and the name of the next member.
    members: Option<(usize, Name)>,
}

#[derive(Clone, Copy)]
struct Name {
    hash: u64,
    /// Position in the text without whitespace.
    place: u32,
    /// Start of the text between the quotes in the original text.
    start: u32,
    end: u32,
}

/// Builds the tape of a text while it is scanned.
struct Builder<'t, 'k> {
    text: &'t [u8],
    /// Number of whitespace bytes so far.
    skipped: usize,
    nodes: Vec<Node>,
    values_max: usize,
    keys: &'k Keys,
    open: Vec<Open>,
    /// The members of all open objects, as a stack.
    members: Vec<Member>,
    unescaped: Vec<u8>,
}

impl Visitor for Builder<'_, '_> {
    type Error = ParseError;

    #[inline]
    fn value(&mut self, at: usize) -> Result<(), ParseError> {
        if self.nodes.len() == self.values_max {
            return Err(ParseError::TooLarge);
        }
        let start = self.place(at);
        let name = match self.open.last() {
            Some(Open { members: Some((_, name)), .. }) => name.place,
            _ => NAMELESS,
        };
        self.nodes.push(Node { hash: 0, start, end: start, next: 0, name });
        Ok(())
    }

    #[inline]
    fn scalar(&mut self, scalar: Scalar, start: usize, end: usize) {
        let hash = match scalar {
            Scalar::Null => self.keys.tag(Tag::Null),
            Scalar::False => self.keys.tag(Tag::False),
            Scalar::True => self.keys.tag(Tag::True),
            Scalar::Number => self.keys.number(&Number::of(&self.text[start..end])),
            Scalar::String { is_escaped } => self.string(start, end, is_escaped),
        };
        self.finish(self.nodes.len() as NodeId - 1, hash, end);
    }

    #[inline]
    fn open(&mut self, is_object: bool) {
        let id = self.nodes.len() as NodeId - 1;
        let members = is_object.then_some((self.members.len(), Name { hash: 0, place: 0, start: 0, end: 0 }));
        self.open.push(Open { id, hash: self.keys.tag(Tag::Array), members });
    }

    #[inline]
    fn close(&mut self, end: usize) {
        let Some(Open { id, hash, members }) = self.open.pop() else { return };
        let hash = members.map_or(hash, |(from, _)| self.close_object(from));
        self.finish(id, hash, end);
    }

    #[inline]
    fn name(&mut self, start: usize, end: usize, is_escaped: bool) {
        let hash = self.string(start, end, is_escaped);
        let name = Name { hash, place: self.place(start), start: start as u32 + 1, end: end as u32 - 1 };
        if let Some(Open { members: Some((_, last)), .. }) = self.open.last_mut() {
            *last = name;
        }
    }

    #[inline]
    fn space(&mut self, bytes: usize) {
        self.skipped += bytes;
    }
}

impl Builder<'_, '_> {
    /// Maps `at` to its position in the text without whitespace. Below 2³¹, like the text's length.
    fn place(&self, at: usize) -> u32 {
        (at - self.skipped) as u32
    }

    /// Records a value's hash and end, and adds it to its parent.
    #[inline]
    fn finish(&mut self, id: NodeId, hash: u64, end: usize) {
        let (end, next) = (self.place(end), self.nodes.len() as NodeId);
        if let Some(node) = self.nodes.get_mut(id as usize) {
            (node.hash, node.end, node.next) = (hash, end, next);
        }
        match self.open.last_mut() {
            Some(Open { members: Some((_, name)), .. }) => {
                self.members.push(Member { name_hash: name.hash, hash, id, name: (name.start, name.end) });
            }
            Some(array) => array.hash = self.keys.chain(array.hash, hash),
            None => {}
        }
    }

    /// Returns the hash of the string `text[start..end]`, quotes included.
    #[inline]
    fn string(&mut self, start: usize, end: usize, is_escaped: bool) -> u64 {
        let raw = &self.text[start + 1..end - 1];
        if !is_escaped {
            return self.keys.string(raw);
        }
        self.unescaped.clear();
        stentor_json::unescape_to_wtf8(&mut self.unescaped, raw);
        self.keys.string(&self.unescaped)
    }

    /// Returns the hash of the members from `from` on, independent of their order, and marks shadowed
    /// members.
    fn close_object(&mut self, from: usize) -> u64 {
        if self.members.len() == from {
            return self.keys.tag(Tag::Object);
        }
        let text = self.text;
        let name = |member: &Member| &text[member.name.0 as usize..member.name.1 as usize];
        let members = &mut self.members[from..];
        // Names break ties between equal hashes, so that duplicate members are neighbors under any hash.
        members.sort_unstable_by(|a, b| {
            let names = || text::compare(name(a), name(b));
            a.name_hash.cmp(&b.name_hash).then_with(names).then(a.id.cmp(&b.id))
        });
        let mut hash = self.keys.tag(Tag::Object);
        for (i, member) in members.iter().enumerate() {
            match members.get(i + 1) {
                Some(next) if next.name_hash == member.name_hash && text::equal(name(next), name(member)) => {
                    self.nodes[member.id as usize].name |= SHADOWED;
                }
                _ => hash = hash.wrapping_add(self.keys.member(member.name_hash, member.hash)),
            }
        }
        self.members.truncate(from);
        self.keys.chain(self.keys.tag(Tag::Object), hash)
    }
}

#[cfg(test)]
mod tests;
