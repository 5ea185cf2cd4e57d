//! The arguments of events and acknowledgements.

use bytes::Bytes;
use stentor_hub::Data;

/// The arguments of a Socket.IO event or acknowledgement, in the form in which they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// JSON texts joined by commas, perhaps none.
    pub json: &'a str,
    /// The bytes that `{"_placeholder":true,"num":N}` in `json` stands for, by number.
    pub attachments: &'a [Bytes],
}

impl Arguments<'_> {
    /// A copy that can be published.
    pub fn to_data(&self) -> Data {
        let json = Bytes::copy_from_slice(self.json.as_bytes());
        Data::Arguments { json, attachments: self.attachments.into() }
    }

    /// Iterates over the arguments: the text of one JSON value each.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        stentor_json::elements(self.json)
    }
}
