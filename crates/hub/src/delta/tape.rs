//! A document while it is compared: its text, and a flat tape with one entry per value.
//!
//! The entries lie in the order of the text; an array's or object's children follow it. An entry says where the
//! value's text is and holds the hash of its whole subtree, so that equal subtrees are found without a look
//! inside. Names have no entries: in text without whitespace a name stands right before its value.
//!
//! Invariants: `0 <= start < end <= text.len()` of the text without whitespace; `i < next <= nodes.len()`;
//! children lie in `i + 1..next`; at most [`DEPTH_MAX`] levels, so that all who walk it may recurse.

use super::hash::{Keys, Tag};
use super::text::{self, ParseError};
use std::borrow::Cow;

/// How deep arrays and objects may be nested.
pub const DEPTH_MAX: usize = 128;

/// The name of what has none: array elements and the root.
const NAMELESS: u32 = 0x7fff_ffff;
/// Set in `name` where a later member of the object has the same name, and wins.
const SHADOWED: u32 = 0x8000_0000;

/// Names a value: its place on the tape.
pub(super) type NodeId = u32;

/// Bytes of one entry: what a document costs besides its text, per value.
pub const NODE_BYTES: usize = 24;
const _: () = assert!(size_of::<Node>() == NODE_BYTES);

#[derive(Clone, Copy, Debug)]
struct Node {
    hash: u64,
    start: u32,
    end: u32,
    /// The entry after this value's last child.
    next: u32,
    /// Where the name's opening quote is; [`NAMELESS`]; and [`SHADOWED`].
    name: u32,
}

/// A document made ready to be compared. Costs [`NODE_BYTES`] per value, and a copy of the text if it has
/// whitespace; made for one comparison, not to be kept.
#[derive(Debug)]
pub struct Parsed<'t> {
    text: Cow<'t, [u8]>,
    nodes: Vec<Node>,
    keys: Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Number,
    Literal,
}

impl<'t> Parsed<'t> {
    pub(super) fn parse(text: &'t [u8], keys: &Keys, values_max: usize) -> Result<Self, ParseError> {
        Self::parse_nested(text, keys, values_max, DEPTH_MAX)
    }

    /// A patch may be two levels deeper than the values in it.
    pub(super) fn parse_patch(text: &'t [u8], keys: &Keys, values_max: usize) -> Result<Self, ParseError> {
        Self::parse_nested(text, keys, values_max, DEPTH_MAX + 2)
    }

    fn parse_nested(
        text: &'t [u8],
        keys: &Keys,
        values_max: usize,
        depth_max: usize,
    ) -> Result<Self, ParseError> {
        if let Err(error) = std::str::from_utf8(text) {
            return Err(ParseError::Utf8(error.valid_up_to()));
        }
        if text.len() >= NAMELESS as usize {
            return Err(ParseError::TooLarge);
        }
        let mut parser = Parser {
            text,
            at: 0,
            skipped: 0,
            depth: 0,
            depth_max,
            // One value, one more with each comma and with what stands first in an array or object. Commas in
            // strings make it too many; those entries are never touched.
            nodes: Vec::with_capacity(values_max.min(1 + opens_and_commas(text))),
            values_max,
            keys,
            members: Vec::new(),
            unescaped: Vec::new(),
        };
        parser.skip_whitespace();
        parser.value(NAMELESS)?;
        parser.skip_whitespace();
        if parser.at < text.len() {
            return Err(ParseError::Unexpected(parser.at));
        }
        let Parser { nodes, skipped, .. } = parser;
        let text = if skipped == 0 { Cow::Borrowed(text) } else { Cow::Owned(minified(text, skipped)) };
        Ok(Self { text, nodes, keys: *keys })
    }

    /// The text without whitespace.
    pub fn minified(&self) -> &[u8] {
        &self.text
    }

    /// How many values there are, the root and all below it.
    pub fn values(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes that this costs besides the text it was made from.
    pub fn owned_bytes(&self) -> usize {
        let copy = if let Cow::Owned(copy) = &self.text { copy.capacity() } else { 0 };
        copy + self.nodes.capacity() * NODE_BYTES
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn hash(&self, id: NodeId) -> u64 {
        self.node(id).hash
    }

    /// The value's text, without whitespace.
    pub(super) fn raw(&self, id: NodeId) -> &[u8] {
        let node = self.node(id);
        &self.text[node.start as usize..node.end as usize]
    }

    /// Length of the value's text in bytes.
    pub(super) fn len(&self, id: NodeId) -> usize {
        let node = self.node(id);
        (node.end - node.start) as usize
    }

    /// What stands between the quotes of a member's name.
    pub(super) fn name(&self, id: NodeId) -> &[u8] {
        let node = self.node(id);
        // `"name":value`
        &self.text[node.name as usize + 1..node.start as usize - 2]
    }

    pub(super) fn kind(&self, id: NodeId) -> Kind {
        match self.text[self.node(id).start as usize] {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::String,
            b't' | b'f' | b'n' => Kind::Literal,
            _ => Kind::Number,
        }
    }

    /// The elements of an array or the members of an object, but for those that a later member of the same name
    /// hides.
    pub(super) fn children(&self, id: NodeId) -> Children<'_> {
        Children { nodes: &self.nodes, at: id + 1, end: self.node(id).next }
    }

    /// The member of this name.
    pub(super) fn member(&self, object: NodeId, name: &[u8]) -> Option<NodeId> {
        self.children(object).find(|&id| text::equal(self.name(id), name))
    }
}

#[derive(Clone)]
pub(super) struct Children<'p> {
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

/// Takes the whitespace out of a text that was parsed.
fn minified(text: &[u8], skipped: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() - skipped);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let end = match byte {
            b' ' | b'\n' | b'\r' | b'\t' => {
                at += 1;
                continue;
            }
            b'"' => text::string_end(text, at).map_or(text.len(), |(end, _)| end),
            _ => at + 1,
        };
        out.extend_from_slice(&text[at..end]);
        at = end;
    }
    out
}

fn opens_and_commas(text: &[u8]) -> usize {
    // In runs that a byte can count, so that the compiler does many at once.
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
    /// Between the quotes, in the text as it came.
    name: (u32, u32),
}

struct Parser<'t, 'k> {
    text: &'t [u8],
    at: usize,
    /// Bytes of whitespace before `at`.
    skipped: usize,
    depth: usize,
    depth_max: usize,
    nodes: Vec<Node>,
    values_max: usize,
    keys: &'k Keys,
    /// The members of all open objects, a stack.
    members: Vec<Member>,
    unescaped: Vec<u8>,
}

impl Parser<'_, '_> {
    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
            self.skipped += 1;
        }
    }

    fn peek(&self) -> Result<u8, ParseError> {
        self.text.get(self.at).copied().ok_or(ParseError::Incomplete)
    }

    /// Where `at` is in the text without whitespace. Below 2³¹, as the text is.
    fn place(&self) -> u32 {
        (self.at - self.skipped) as u32
    }

    /// Reads the value at `at`; gives its hash.
    fn value(&mut self, name: u32) -> Result<u64, ParseError> {
        let id = self.nodes.len();
        if id == self.values_max {
            return Err(ParseError::TooLarge);
        }
        let start = self.place();
        self.nodes.push(Node { hash: 0, start, end: start, next: 0, name });
        let hash = match self.peek()? {
            b'{' => self.nested(Self::object)?,
            b'[' => self.nested(Self::array)?,
            b'"' => self.string()?.0,
            b't' => self.literal(b"true", Tag::True)?,
            b'f' => self.literal(b"false", Tag::False)?,
            b'n' => self.literal(b"null", Tag::Null)?,
            b'-' | b'0'..=b'9' => {
                let end = text::number_end(self.text, self.at)?;
                let number = text::number(&self.text[self.at..end]);
                self.at = end;
                self.keys.number(number)
            }
            _ => return Err(ParseError::Unexpected(self.at)),
        };
        let (end, next) = (self.place(), self.nodes.len() as u32);
        let node = &mut self.nodes[id];
        (node.hash, node.end, node.next) = (hash, end, next);
        Ok(hash)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<u64, ParseError>) -> Result<u64, ParseError> {
        if self.depth == self.depth_max {
            return Err(ParseError::TooDeep(self.at));
        }
        self.depth += 1;
        self.at += 1;
        let hash = read(self)?;
        self.depth -= 1;
        Ok(hash)
    }

    fn array(&mut self) -> Result<u64, ParseError> {
        let mut hash = self.keys.tag(Tag::Array);
        self.skip_whitespace();
        if self.peek()? == b']' {
            self.at += 1;
            return Ok(hash);
        }
        loop {
            self.skip_whitespace();
            let element = self.value(NAMELESS)?;
            hash = self.keys.chain(hash, element);
            if self.is_closed(b']')? {
                return Ok(hash);
            }
        }
    }

    fn object(&mut self) -> Result<u64, ParseError> {
        let from = self.members.len();
        self.skip_whitespace();
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(self.keys.tag(Tag::Object));
        }
        loop {
            self.skip_whitespace();
            let (place, at) = (self.place(), self.at);
            if self.peek()? != b'"' {
                return Err(ParseError::Unexpected(at));
            }
            let (name_hash, end) = self.string()?;
            self.skip_whitespace();
            if self.peek()? != b':' {
                return Err(ParseError::Unexpected(self.at));
            }
            self.at += 1;
            self.skip_whitespace();
            let id = self.nodes.len() as NodeId;
            let hash = self.value(place)?;
            self.members.push(Member { name_hash, hash, id, name: (at as u32 + 1, end as u32 - 1) });
            if self.is_closed(b'}')? {
                return Ok(self.close_object(from));
            }
        }
    }

    /// Whether the array or object ends here; else a comma was read.
    fn is_closed(&mut self, close: u8) -> Result<bool, ParseError> {
        self.skip_whitespace();
        match self.peek()? {
            b',' => {
                self.at += 1;
                Ok(false)
            }
            byte if byte == close => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(ParseError::Unexpected(self.at)),
        }
    }

    /// The hash of the members from `from` on, whatever their order; marks those that later ones hide.
    fn close_object(&mut self, from: usize) -> u64 {
        let text = self.text;
        let name = |member: &Member| &text[member.name.0 as usize..member.name.1 as usize];
        let members = &mut self.members[from..];
        // Of equal hashes the names decide, so that hidden members are neighbours under any hash.
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

    /// Reads a string; gives its hash and the offset after it.
    fn string(&mut self) -> Result<(u64, usize), ParseError> {
        let (end, escaped) = text::string_end(self.text, self.at)?;
        let raw = &self.text[self.at + 1..end - 1];
        self.at = end;
        if !escaped {
            return Ok((self.keys.string(raw), end));
        }
        self.unescaped.clear();
        text::decode(raw, &mut self.unescaped);
        Ok((self.keys.string(&self.unescaped), end))
    }

    fn literal(&mut self, word: &[u8], tag: Tag) -> Result<u64, ParseError> {
        for (i, byte) in word.iter().enumerate() {
            match self.text.get(self.at + i) {
                None => return Err(ParseError::Incomplete),
                Some(found) if found == byte => {}
                Some(_) => return Err(ParseError::Unexpected(self.at + i)),
            }
        }
        self.at += word.len();
        Ok(self.keys.tag(tag))
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::Seed;
    use super::*;

    fn parse(text: &str) -> Result<Parsed<'_>, ParseError> {
        Parsed::parse(text.as_bytes(), &Keys::new(Seed([1, 2])), 1000)
    }

    #[test]
    fn what_is_equal_to_javascript_has_one_hash() {
        let check = |a: &str, b: &str, expect: bool| {
            let (first, second) = (parse(a).unwrap(), parse(b).unwrap());
            assert_eq!(first.hash(0) == second.hash(0), expect, "{a} {b}");
        };
        check("1", "1.0", true);
        check("0", "-0", true);
        check("100", "1e2", true);
        check("9007199254740993", "9007199254740992", true);
        check("1e999", "2e999", true);
        check("1", "\"1\"", false);
        check("[]", "{}", false);
        check("[[]]", "[]", false);
        check("[[],1]", "[[1]]", false);
        check("[1,2]", "[2,1]", false);
        check("{\"a\":1,\"b\":2}", " { \"b\" : 2 ,\n\"a\" : 1 } ", true);
        check("{\"a\":1,\"b\":2}", "{\"a\":2,\"b\":1}", false);
        check("{\"a\":0,\"a\":1}", "{\"\\u0061\":1}", true);
        check("{\"a\":1,\"a\":1,\"a\":1}", "{\"a\":1}", true);
        check("{\"a\":{\"b\":1}}", "{\"a\":{},\"b\":1}", false);
        check("\"\\ud83d\\ude00\"", "\"😀\"", true);
        check("\"\\ud83d\"", "\"\\udc00\"", false);
        check("\"a\"", "\"a\\u0000\"", false);
        check("null", "false", false);
    }

    #[test]
    fn the_tape_tells_where_everything_is() {
        let parsed = parse(" { \"a\" : [ 1 , { } ] , \"b\" : 2, \"a\":\"x \" }").unwrap();
        assert_eq!(parsed.minified(), b"{\"a\":[1,{}],\"b\":2,\"a\":\"x \"}");
        let members: Vec<_> = parsed.children(0).map(|id| (parsed.name(id), parsed.raw(id))).collect();
        assert_eq!(members, [(&b"b"[..], &b"2"[..]), (b"a", b"\"x \"")]);
        assert_eq!(
            (parsed.kind(1), parsed.raw(1), parsed.children(1).count()),
            (Kind::Array, &b"[1,{}]"[..], 2)
        );
        assert_eq!(parsed.values(), 6);
    }

    #[test]
    fn what_is_not_json_is_refused() {
        let check = |text: &str, expect| assert_eq!(parse(text).map(|_| ()), Err(expect), "{text}");
        check("", ParseError::Incomplete);
        check(" ", ParseError::Incomplete);
        check("[1", ParseError::Incomplete);
        check("[1,]", ParseError::Unexpected(3));
        check("[1 2]", ParseError::Unexpected(3));
        check("1 2", ParseError::Unexpected(2));
        check("01", ParseError::Unexpected(1));
        check("{\"a\"}", ParseError::Unexpected(4));
        check("{a:1}", ParseError::Unexpected(1));
        check("{\"a\":1,}", ParseError::Unexpected(7));
        check("{\"a\":1]", ParseError::Unexpected(6));
        check("nul", ParseError::Incomplete);
        check("nult", ParseError::Unexpected(3));
        check("'a'", ParseError::Unexpected(0));
        check(&"[".repeat(DEPTH_MAX + 1), ParseError::TooDeep(DEPTH_MAX));
        check(&"[".repeat(100_000), ParseError::TooDeep(DEPTH_MAX));
        check(&"{\"a\":".repeat(100_000), ParseError::TooDeep(DEPTH_MAX * 5));
        check(&format!("[{}1]", "1,".repeat(999)), ParseError::TooLarge);
        let deep = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
        assert!(parse(&deep).is_ok());
        let keys = Keys::new(Seed([1, 2]));
        assert_eq!(Parsed::parse(b"\"\xff\"", &keys, 9).map(|_| ()), Err(ParseError::Utf8(1)));
    }
}
