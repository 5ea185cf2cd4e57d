//! Writes the operations of a patch, inside limits that callers set and may take back to.

use super::text;

/// What was to be written is longer than the alternative: whoever set the limit goes back and takes that.
#[derive(Debug)]
pub(crate) struct TooLong;

/// The bytes that an operation takes besides its paths and its value.
pub(crate) const ADD_BYTES: usize = br#"{"op":"add","path":"","value":},"#.len();
pub(crate) const REPLACE_BYTES: usize = br#"{"op":"replace","path":"","value":},"#.len();
pub(crate) const REMOVE_BYTES: usize = br#"{"op":"remove","path":""},"#.len();
pub(crate) const MOVE_BYTES: usize = br#"{"op":"move","from":"","path":""},"#.len();

/// A patch in the making, and the path of the value that is being looked at.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `[`, and operations, each with a comma behind it.
    out: Vec<u8>,
    /// A JSON Pointer as it stands between a string's quotes.
    path: Vec<u8>,
}

/// Where a path ended before a token was appended.
#[derive(Clone, Copy)]
pub(crate) struct PathMark(usize);

/// A token of a path: the place of an element, or a member's name between its quotes.
#[derive(Clone, Copy)]
pub(crate) enum Token<'a> {
    Index(usize),
    Name(&'a [u8]),
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { out: vec![b'['], path: Vec::new() }
    }

    /// Length of the patch so far. Limits are compared with this.
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

    /// The value at the path becomes this. In an object `add` would say the same in four bytes less; but `replace`
    /// says what happened, and fails where there is nothing to replace.
    pub(crate) fn replace(&mut self, value: &[u8], limit: usize) -> Result<(), TooLong> {
        // PyPI jsonpatch refuses to replace a member called `-`, as if it were the end of an array.
        let op: &[u8] = if self.path.ends_with(b"/-") { b"add" } else { b"replace" };
        let parts = [b"{\"op\":\"", op, b"\",\"path\":\"", &self.path, b"\",\"value\":", value, b"},"];
        append(&mut self.out, limit, &parts)
    }

    /// A value is put in at this token below the path.
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

    /// What is at one token below the path goes to another.
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

    /// Whether the path may be used. `fast-json-patch`, which most browsers would use, refuses what could reach a
    /// prototype: `__proto__` anywhere, and `prototype` right below `constructor`.
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

/// Nothing is written where not all fits.
fn append(out: &mut Vec<u8>, limit: usize, parts: &[&[u8]]) -> Result<(), TooLong> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if out.len() + len > limit {
        return Err(TooLong);
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    Ok(())
}
