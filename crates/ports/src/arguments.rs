//! The arguments of events and acknowledgements.

use bytes::Bytes;
use stentor_hub::Data;

/// The arguments of a Socket.IO event or acknowledgement, as they travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// JSON texts joined by commas, perhaps none.
    pub json: &'a str,
    /// The bytes that `{"_placeholder":true,"num":N}` in `json` stands for, by number.
    pub attachments: &'a [Bytes],
}

impl Arguments<'_> {
    /// The same, to be published.
    pub fn to_data(&self) -> Data {
        let json = Bytes::copy_from_slice(self.json.as_bytes());
        Data::Arguments { json, attachments: self.attachments.into() }
    }

    /// One after the other: the text of a JSON value each.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        stentor_json::elements(self.json)
    }
}
