//! Lines out of chunks of bytes, each bounded in length.

/// Cuts a stream into lines. Holds at most one line's beginning, of at most `bytes_max` bytes.
pub(super) struct Lines {
    begun: Vec<u8>,
    bytes_max: usize,
}

/// A line is longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Lines {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { begun: Vec::new(), bytes_max }
    }

    /// Calls `line` with the next whole line, without its end, and takes it off `chunk`; `None` if `chunk` ends
    /// before a line does (its rest is kept).
    pub(super) fn next<T>(
        &mut self,
        chunk: &mut &[u8],
        line: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, TooLong> {
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        if self.begun.len() + part.len() > self.bytes_max {
            return Err(TooLong);
        }
        let Some(end) = end else {
            self.begun.extend_from_slice(part);
            *chunk = &[];
            return Ok(None);
        };
        *chunk = &chunk[end + 1..];
        if self.begun.is_empty() {
            return Ok(Some(line(part)));
        }
        self.begun.extend_from_slice(part);
        let done = line(&self.begun);
        self.begun.clear();
        Ok(Some(done))
    }

    /// The bytes after the last line's end.
    pub(super) fn rest(&self) -> &[u8] {
        &self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes_max: usize, chunks: &[&[u8]]) -> Result<Vec<String>, TooLong> {
        let (mut lines, mut found) = (Lines::new(bytes_max), Vec::new());
        for mut chunk in chunks.iter().copied() {
            while let Some(line) =
                lines.next(&mut chunk, |line| String::from_utf8_lossy(line).into_owned())?
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
            assert_eq!(lines(8, &[left, right]), Err(TooLong), "{at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(9, &bytes), expect);
        assert_eq!(lines(8, &bytes), Err(TooLong));
    }
}
