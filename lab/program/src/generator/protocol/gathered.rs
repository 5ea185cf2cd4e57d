//! A message that arrives in pieces but is needed as a whole.

use std::borrow::Cow;

use super::Fault;

/// Maximum size of such a message in bytes.
const WHOLE_BYTES_MAX: usize = 16 << 20;

/// Collects such messages.
#[derive(Debug, Default)]
pub(super) struct Gathered(Vec<u8>);

impl Gathered {
    /// Consumes the next bytes of a message. Returns the whole message once it `ends`.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8], ends: bool) -> Result<Option<Cow<'a, [u8]>>, Fault> {
        if self.0.len() + bytes.len() > WHOLE_BYTES_MAX {
            return Err(Fault::Answer("a message that is too long"));
        }
        if ends && self.0.is_empty() {
            return Ok(Some(Cow::Borrowed(bytes)));
        }
        self.0.extend_from_slice(bytes);
        Ok(ends.then(|| Cow::Owned(std::mem::take(&mut self.0))))
    }
}
