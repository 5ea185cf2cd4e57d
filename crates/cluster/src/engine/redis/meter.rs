//! Measures the values that a server sends, before they are stored.

/// Maximum size of a reply, and of all replies of a pipeline: a feed's log, which has a document, changes of 16 MiB,
/// and one more.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 20;
/// Maximum size of a channel's message. A node publishes up to 16 MiB.
const PUSH_BYTES_MAX: usize = 32 << 20;
/// Maximum length of a line.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Memory for a decoded value, without its bytes.
const VALUE_BYTES: usize = size_of::<redis::Value>();

/// The reason why a connection can't continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    /// The bytes aren't RESP.
    #[error("the server doesn't speak Redis's protocol")]
    Malformed,
    #[error("a reply of the server is larger than anything that a node stores")]
    TooLarge,
}

/// Measures one value, a reply or a message, while it arrives.
pub(super) struct Meter {
    /// Position where the reply's next value begins, or where the reply ends.
    at: usize,
    /// Number of values that have begun.
    values: usize,
    /// Number of values that must follow.
    missing: usize,
}

impl Default for Meter {
    fn default() -> Self {
        Self { at: 0, values: 0, missing: 1 }
    }
}

impl Meter {
    /// Returns the length of the value with which `buffer` begins. `None` if the value isn't complete: call this again
    /// with more bytes.
    ///
    /// # Errors
    /// The bytes aren't a value, or the value will be too large.
    pub(super) fn len(&mut self, buffer: &[u8]) -> Result<Option<usize>, Invalid> {
        let size_max = if buffer.first() == Some(&b'>') { PUSH_BYTES_MAX } else { REPLY_BYTES_MAX };
        while self.missing > 0 {
            let rest = buffer.get(self.at..).unwrap_or_default();
            let Some(kind) = rest.first() else { return Ok(None) };
            if !b"+-:,_#($=!*~>%|".contains(kind) {
                return Err(Invalid::Malformed);
            }
            let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") else {
                return if rest.len() > LINE_BYTES_MAX { Err(Invalid::TooLarge) } else { Ok(None) };
            };
            let (bytes, values) = following(*kind, &rest[1..end])?;
            self.at = self.at.saturating_add(end + 2).saturating_add(bytes);
            self.values += 1;
            self.missing = (self.missing - 1).saturating_add(values);
            if self.size() > size_max {
                return Err(Invalid::TooLarge);
            }
        }
        Ok((self.at <= buffer.len()).then_some(self.at))
    }

    /// Size of the decoded value, as far as it is known.
    pub(super) fn size(&self) -> usize {
        let values = self.values.saturating_add(self.missing);
        values.saturating_mul(VALUE_BYTES).saturating_add(self.at)
    }

    /// Number of bytes still to be received, as far as the lengths read so far tell.
    pub(super) fn awaited(&self, buffer: &[u8]) -> usize {
        self.at.saturating_sub(buffer.len())
    }
}

/// The bytes and the values that follow the line with which a value begins.
fn following(kind: u8, line: &[u8]) -> Result<(usize, usize), Invalid> {
    let number = || {
        let number: i64 = str::from_utf8(line).ok()?.parse().ok()?;
        // -1 stands for null.
        usize::try_from(number.max(0)).ok()
    };
    let number = || number().ok_or(Invalid::Malformed);
    Ok(match kind {
        b'$' | b'=' | b'!' if line != b"-1" => (number()?.saturating_add(2), 0),
        b'*' | b'~' | b'>' => (0, number()?),
        b'%' => (0, number()?.saturating_mul(2)),
        b'|' => (0, number()?.saturating_mul(2).saturating_add(1)),
        _ => (0, 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures input that arrives in parts.
    fn len(arriving: &[u8], part: usize) -> Result<Option<usize>, Invalid> {
        let mut meter = Meter::default();
        let mut ends = (0..arriving.len()).step_by(part).chain([arriving.len()]);
        ends.find_map(|end| meter.len(&arriving[..end]).transpose()).transpose()
    }

    #[test]
    fn a_value_is_complete_at_its_last_byte() {
        for value in [
            "+OK\r\n",
            "$-1\r\n",
            "$5\r\na\r\nbc\r\n",
            "*0\r\n",
            ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n",
            "%1\r\n+a\r\n*2\r\n:1\r\n_\r\n",
            "|1\r\n+a\r\n:1\r\n=7\r\ntxt:abc\r\n",
        ] {
            for part in 1..=value.len() {
                assert_eq!(len(&value.as_bytes()[..value.len() - 1], part), Ok(None), "{value:?} {part}");
                let more = [value, "+next\r\n"].concat();
                assert_eq!(len(more.as_bytes(), part), Ok(Some(value.len())), "{value:?} {part}");
            }
            assert!(redis::parse_redis_value(value.as_bytes()).is_ok());
        }
    }

    #[test]
    fn oversized_replies_are_refused_before_they_arrive() {
        for (start, expected) in [
            ("HTTP/1.1 400", Invalid::Malformed),
            ("$x\r\n", Invalid::Malformed),
            ("$300000000\r\n", Invalid::TooLarge),
            (">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$40000000\r\n", Invalid::TooLarge),
            ("*2\r\n*99999999\r\n", Invalid::TooLarge),
            ("%9223372036854775807\r\n", Invalid::TooLarge),
            ("|9223372036854775807\r\n", Invalid::TooLarge),
        ] {
            assert_eq!(len(start.as_bytes(), start.len()), Err(expected), "{start:?}");
        }
        assert_eq!(len(b"*2\r\n$40000000\r\n", 4), Ok(None), "a reply may be larger than a message");
        // Endless input: a line, or a value that contains two more each time.
        for endless in ["+a", "*2\r\n"] {
            assert_eq!(
                len(endless.repeat(1 << 20).as_bytes(), 1 << 16),
                Err(Invalid::TooLarge),
                "{endless:?}"
            );
        }
    }
}
