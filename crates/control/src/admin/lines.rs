//! Splits chunks of bytes into lines of bounded length.

use super::Refusal;
use super::body::Held;

/// Splits a stream into lines. Holds only the start of an incomplete line.
pub(super) struct Lines {
    begun: Held,
}

impl Lines {
    /// Makes a splitter that holds an incomplete line in `begun`. The limit of `begun` is the maximum length
    /// of a line.
    pub(super) fn new(begun: Held) -> Self {
        Self { begun }
    }

    /// Calls `line` with the next complete line, without its end, and removes it from `chunk`. If `chunk` has
    /// no complete line, keeps its bytes and returns `None`.
    pub(super) fn next<T>(
        &mut self,
        chunk: &mut &[u8],
        line: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Refusal> {
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let Some(end) = end else {
            self.begun.extend(part)?;
            *chunk = &[];
            return Ok(None);
        };
        *chunk = &chunk[end + 1..];
        if self.begun.len() == 0 {
            self.begun.check(part)?;
            return Ok(Some(line(part)));
        }
        self.begun.extend(part)?;
        let done = line(self.begun.whole());
        self.begun.clear();
        Ok(Some(done))
    }

    /// Returns the bytes after the last line's end.
    pub(super) fn rest(&mut self) -> &[u8] {
        self.begun.whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::publish::too_long;
    use std::sync::Arc;
    use stentor_ports::Ledger;

    fn lines(bytes_max: usize, chunks: &[&[u8]]) -> Result<Vec<String>, &'static str> {
        let begun = Held::new(&Arc::new(Ledger::new(100)), bytes_max, too_long);
        let (mut lines, mut found) = (Lines::new(begun), Vec::new());
        for mut chunk in chunks.iter().copied() {
            while let Some(line) = lines
                .next(&mut chunk, |line| String::from_utf8_lossy(line).into_owned())
                .map_err(|refusal| refusal.reason.code)?
            {
                found.push(line);
            }
        }
        found.push(format!("rest={}", String::from_utf8_lossy(lines.rest())));
        Ok(found)
    }

    #[test]
    fn lines_may_be_split_at_every_byte() {
        let text = b"one\n\ntwo three\nfour";
        let expect = Ok(["one", "", "two three", "rest=four"].map(String::from).to_vec());
        for at in 0..=text.len() {
            let (left, right) = text.split_at(at);
            assert_eq!(lines(9, &[left, right]), expect, "{at}");
            assert_eq!(lines(8, &[left, right]), Err("too_long"), "{at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(9, &bytes), expect);
        assert_eq!(lines(8, &bytes), Err("too_long"));
    }
}
