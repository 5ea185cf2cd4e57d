//! Inflates messages of servers (RFC 7692, without context takeover). A server may send the same bytes to all clients, so a message
//! equal to the last one of any client isn't inflated again. The comparison also audits every byte.

use stentor_wire::ws::Error;
use stentor_wire::ws::deflate::Inflater;

/// Maximum size of an inflated message in bytes.
const INFLATED_BYTES_MAX: usize = 1 << 24;

/// The last message, compressed and inflated.
#[derive(Default)]
pub(super) struct Inflated {
    compressed: Vec<u8>,
    inflater: Inflater,
}

impl Inflated {
    /// Inflates a whole message.
    pub(super) fn open(&mut self, compressed: &[u8]) -> Result<&[u8], Error> {
        if self.compressed != compressed {
            self.compressed.clear();
            self.inflater.inflate(compressed, INFLATED_BYTES_MAX)?;
            self.compressed.extend_from_slice(compressed);
        }
        Ok(self.inflater.inflated())
    }
}
