//! Writes the operations of a patch, within limits that callers set and at which they may discard output.

use super::text;

/// The output exceeds the alternative: the caller that set the limit discards it and uses the alternative.
#[derive(Debug)]
pub(crate) struct TooLong;

/// Size of an operation in bytes, without its paths and its value.
pub(crate) const ADD_BYTES: usize = br#"{"op":"add","path":"","value":},"#.len();
pub(crate) const REPLACE_BYTES: usize = br#"{"op":"replace","path":"","value":},"#.len();
pub(crate) const REMOVE_BYTES: usize = br#"{"op":"remove","path":""},"#.len();
pub(crate) const MOVE_BYTES: usize = br#"{"op":"move","from":"","path":""},"#.len();

/// An unfinished patch, and the path of the current value.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `[`, and operations, each followed by a comma.
    out: Vec<u8>,
    /// A JSON Pointer, escaped for a JSON string.
    path: Vec<u8>,
}

/// Length of a path before a token was appended.
#[derive(Clone, Copy)]
pub(crate) struct PathMark(usize);

/// A token of a path: the index of an element, or a member's name between its quotes.
#[derive(Clone, Copy)]
pub(crate) enum Token<'a> {
    Index(usize),
    Name(&'a [u8]),
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { out: vec![b'['], path: Vec::new() }
    }

    /// Returns the length of the patch so far. Limits refer to this length.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn path_len(&self) -> usize {
        self.path.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.out.last() == Some(&b',') {
            self.out.pop();
        }
        self.out.push(b']');
        self.out
    }

    pub(crate) fn push(&mut self, token: Token<'_>) -> PathMark {
        let mark = PathMark(self.path.len());
        write_token(token, &mut self.path);
        mark
    }

    pub(crate) fn mark(&self) -> PathMark {
        PathMark(self.path.len())
    }

    pub(crate) fn pop(&mut self, mark: PathMark) {
        self.path.truncate(mark.0);
    }

    /// Replaces the value at the path. In an object, `add` has the same effect in four bytes less; but
    /// `replace` states the intent, and fails if there is no value to replace.
    pub(crate) fn replace(&mut self, value: &[u8], limit: usize) -> Result<(), TooLong> {
        // PyPI jsonpatch refuses to replace a member named `-`, which it reads as the end of an array.
        let op: &[u8] = if self.path.ends_with(b"/-") { b"add" } else { b"replace" };
        let parts = [b"{\"op\":\"", op, b"\",\"path\":\"", &self.path, b"\",\"value\":", value, b"},"];
        append(&mut self.out, limit, &parts)
    }

    /// Adds a value at this token below the path.
    pub(crate) fn add(&mut self, at: Token<'_>, value: &[u8], limit: usize) -> Result<(), TooLong> {
        let mark = self.push(at);
        let parts = [b"{\"op\":\"add\",\"path\":\"", &self.path[..], b"\",\"value\":", value, b"},"];
        let written = append(&mut self.out, limit, &parts);
        self.pop(mark);
        written
    }

    pub(crate) fn remove(&mut self, at: Token<'_>, limit: usize) -> Result<(), TooLong> {
        let mark = self.push(at);
        let written = append(&mut self.out, limit, &[b"{\"op\":\"remove\",\"path\":\"", &self.path, b"\"},"]);
        self.pop(mark);
        written
    }

    /// Moves the value at one token below the path to another token.
    pub(crate) fn shift(&mut self, from: Token<'_>, to: Token<'_>, limit: usize) -> Result<(), TooLong> {
        let mark = self.push(to);
        let mut source = Vec::with_capacity(24);
        write_token(from, &mut source);
        let parts = [
            b"{\"op\":\"move\",\"from\":\"",
            &self.path[..mark.0],
            &source,
            b"\",\"path\":\"",
            &self.path,
            b"\"},",
        ];
        let written = append(&mut self.out, limit, &parts);
        self.pop(mark);
        written
    }

    /// Returns `true` if a path may contain this name. `fast-json-patch`, the most common library in
    /// browsers, refuses names that could reach a prototype: `__proto__` anywhere, and `prototype` right
    /// below `constructor`.
    pub(crate) fn may_name(&self, name: &[u8]) -> bool {
        match &*text::decoded(name) {
            b"__proto__" => false,
            b"prototype" => !self.path.ends_with(b"/constructor"),
            _ => true,
        }
    }
}

fn write_token(token: Token<'_>, path: &mut Vec<u8>) {
    path.push(b'/');
    match token {
        Token::Index(index) => {
            let mut digits = [0; 20];
            let mut at = digits.len();
            let mut rest = index;
            loop {
                at -= 1;
                digits[at] = b'0' + (rest % 10) as u8;
                rest /= 10;
                if rest == 0 {
                    break;
                }
            }
            path.extend_from_slice(&digits[at..]);
        }
        Token::Name(raw) if raw.iter().any(|byte| b"\\~/".contains(byte)) => {
            text::write_pointer_token(&text::decoded(raw), path);
        }
        Token::Name(raw) => path.extend_from_slice(raw),
    }
}

/// Appends all parts or, if they don't fit, none.
fn append(out: &mut Vec<u8>, limit: usize, parts: &[&[u8]]) -> Result<(), TooLong> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if out.len() + len > limit {
        return Err(TooLong);
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    Ok(())
}
