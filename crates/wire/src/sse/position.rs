//! Event ids: the client's position in each feed of its stream.
//!
//! A browser repeats only the last id, so each id contains all feeds:
//!
//! ```text
//! id    = entry *( ";" entry )
//! entry = key "!" epoch "!" offset        ; epoch and offset in hexadecimal
//! ```
//!
//! In a key, characters other than `[A-Za-z0-9._~@:=+,/-]` are percent-encoded. An entry takes about 12 bytes
//! in addition to its key.
//!
//! An id is a hint and never trusted: a malformed id has no positions, and a feed without a position starts
//! with a snapshot. Entries that don't fit are left out, because a feed without an entry also begins with a
//! snapshot.

use super::write::write_field;
use crate::http1::percent_decode;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximum length of an id in bytes: half of the space that common proxies allow for all headers of a
/// request.
pub const ID_BYTES_MAX: usize = 4096;
/// Maximum number of positions in one id.
pub const POSITIONS_MAX: usize = 64;
/// Maximum length of a key in bytes, before percent-encoding.
pub const KEY_BYTES_MAX: usize = 256;

/// A client's position in a feed: the last publication that it received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position<'k> {
    /// The feed's key.
    pub key: Cow<'k, str>,
    /// The feed's epoch.
    pub epoch: u64,
    /// The publication's offset.
    pub offset: u64,
}

/// Appends the line that sets the id to these positions, or no line without positions. Positions beyond
/// [`POSITIONS_MAX`] or [`ID_BYTES_MAX`] are left out, so pass the most important ones first. Invalid keys
/// are left out too.
pub fn write_position_id<'k>(out: &mut Vec<u8>, positions: impl IntoIterator<Item = Position<'k>>) {
    let mut id = String::new();
    let mut count = 0;
    for Position { key, epoch, offset } in positions {
        if count == POSITIONS_MAX {
            break;
        }
        if !is_key(&key) {
            continue;
        }
        let before = id.len();
        let separator = if count == 0 { "" } else { ";" };
        id.push_str(separator);
        write_key(&mut id, &key);
        // Writing to a string can't fail.
        let _ = write!(id, "!{epoch:x}!{offset:x}");
        if id.len() > ID_BYTES_MAX {
            id.truncate(before);
        } else {
            count += 1;
        }
    }
    if count > 0 {
        write_field(out, b"id: ", &id);
    }
}

/// The positions in a `Last-Event-ID` header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Positions<'k> {
    /// A well-formed id, or empty.
    id: &'k str,
}

impl<'k> Positions<'k> {
    /// Reads an id. An id in another format has no positions.
    pub fn parse(id: &'k str) -> Self {
        let sound = id.len() <= ID_BYTES_MAX
            && id.split(';').count() <= POSITIONS_MAX
            && id.split(';').all(|entry| parse_entry(entry).is_some());
        Positions { id: if sound { id } else { "" } }
    }

    /// Iterates over all positions.
    pub fn iter(&self) -> impl Iterator<Item = Position<'k>> + use<'k> {
        self.id.split(';').filter_map(parse_entry)
    }

    /// Returns the first position in this feed.
    pub fn of(&self, key: &str) -> Option<Position<'k>> {
        self.iter().find(|position| position.key == key)
    }
}

fn parse_entry(entry: &str) -> Option<Position<'_>> {
    // A client may leave a `!` in a key unencoded.
    let (rest, offset) = entry.rsplit_once('!')?;
    let (key, epoch) = rest.rsplit_once('!')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let sound = key.bytes().all(|byte| byte.is_ascii_graphic()) && digits(epoch) && digits(offset);
    let (epoch, offset) = (u64::from_str_radix(epoch, 16).ok()?, u64::from_str_radix(offset, 16).ok()?);
    let key = percent_decode(key).ok().filter(|key| sound && is_key(key))?;
    Some(Position { key, epoch, offset })
}

fn write_key(id: &mut String, key: &str) {
    if key.bytes().all(is_plain) {
        return id.push_str(key);
    }
    for byte in key.bytes() {
        if is_plain(byte) {
            id.push(char::from(byte));
        } else {
            let _ = write!(id, "%{byte:02X}");
        }
    }
}

/// Returns `true` if a key has a valid length. The lookup of the key checks its characters.
fn is_key(key: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len())
}

/// Returns `true` if this character isn't percent-encoded.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._~@:=+,-/".contains(&byte)
}
