//! Fields of entries: reading and writing.

use crate::error::{Fault, FrameError};
use crate::value::{Change, Handle, Json, Message, Messages, Name, Namespace};
use bytes::{Buf, Bytes};

/// An entry of one direction of the link.
pub trait Entry: Sized {
    /// The types of this direction, with their names.
    const TYPES: &'static [(u8, &'static str)];

    /// Reads the fields of an entry of type `number`.
    ///
    /// # Errors
    ///
    /// If the version of the link doesn't have the type, or a field is malformed.
    #[doc(hidden)]
    fn read(number: u8, reader: &mut Reader) -> Result<Self, FrameError>;

    /// Writes the type and the fields.
    #[doc(hidden)]
    fn write(&self, sink: &mut impl Sink);

    /// The name of the type.
    fn name(&self) -> &'static str;

    /// `true` if the entry is in numbered frames. HELLO, WELCOME and ERROR are in frames without a number.
    fn is_numbered(&self) -> bool {
        !matches!(self.name(), "HELLO" | "WELCOME" | "ERROR")
    }

    /// Length when written, in bytes.
    fn encoded_len(&self) -> usize {
        let mut length = Length(0);
        self.write(&mut length);
        length.0
    }
}

/// A destination of fields.
#[doc(hidden)]
pub trait Sink {
    /// Appends bytes, which are copied.
    fn bytes(&mut self, bytes: &[u8]);
    /// Appends a message's content, which may be shared.
    fn content(&mut self, content: &Bytes);
}

/// Counts bytes.
struct Length(usize);

impl Sink for Length {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn content(&mut self, content: &Bytes) {
        self.0 += content.len();
    }
}

/// A type of fields.
pub(crate) trait Field: Sized {
    /// Minimum length of a field when written, in bytes. At least 1.
    const BYTES_MIN: usize;

    fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError>;

    fn write(&self, sink: &mut impl Sink);
}

/// Reads the entries of a frame.
#[doc(hidden)]
pub struct Reader {
    pub(crate) rest: Bytes,
    /// Name of the current entry.
    pub(crate) entry: &'static str,
}

impl Reader {
    /// The error of a field of the current entry.
    pub(crate) fn fault(&self, field: &'static str, fault: Fault) -> FrameError {
        FrameError::Malformed { entry: self.entry, field, fault }
    }

    fn take(&mut self, len: usize, field: &'static str) -> Result<Bytes, FrameError> {
        match len <= self.rest.len() {
            true => Ok(self.rest.split_to(len)),
            false => Err(self.fault(field, Fault::Cut)),
        }
    }

    fn text(&mut self, len: usize, field: &'static str) -> Result<Box<str>, FrameError> {
        let bytes = self.rest.get(..len).ok_or_else(|| self.fault(field, Fault::Cut))?;
        let text = simdutf8::basic::from_utf8(bytes).map_err(|_| self.fault(field, Fault::NotUtf8))?.into();
        self.rest.advance(len);
        Ok(text)
    }

    /// Reads the items of a list, whose count is bounded by the bytes that are left.
    fn items<T: Field, L: FromIterator<T>>(
        &mut self,
        count: usize,
        field: &'static str,
    ) -> Result<L, FrameError> {
        if count > self.rest.len() / T::BYTES_MIN {
            return Err(self.fault(field, Fault::Cut));
        }
        (0..count).map(|_| T::read(self, field)).collect()
    }
}

/// Writes a length or a count of 16 bits. Callers keep to the bounds of the types: a longer list is a bug.
fn write_u16(sink: &mut impl Sink, value: usize) {
    let value = u16::try_from(value).expect("names and lists are bounded");
    sink.bytes(&value.to_le_bytes());
}

/// Writes a length or a count of 32 bits.
fn write_u32(sink: &mut impl Sink, value: usize) {
    let value = u32::try_from(value).expect("entries are bounded");
    sink.bytes(&value.to_le_bytes());
}

/// Integers of fixed length, little endian.
macro_rules! integers {
    ($($integer:ty: $read:ident;)+) => {$(
        impl Field for $integer {
            const BYTES_MIN: usize = size_of::<$integer>();

            fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
                reader.rest.$read().map_err(|_| reader.fault(name, Fault::Cut))
            }

            fn write(&self, sink: &mut impl Sink) {
                sink.bytes(&self.to_le_bytes());
            }
        }
    )+};
}

integers! {
    u8: try_get_u8;
    u16: try_get_u16_le;
    u32: try_get_u32_le;
    u64: try_get_u64_le;
}

impl Field for bool {
    const BYTES_MIN: usize = 1;

    fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
        match u8::read(reader, name)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(reader.fault(name, Fault::Unknown(value))),
        }
    }

    fn write(&self, sink: &mut impl Sink) {
        u8::from(*self).write(sink);
    }
}

/// Numbers with a type of their own.
macro_rules! numbers {
    ($($number:ident: $integer:ty;)+) => {$(
        impl Field for $number {
            const BYTES_MIN: usize = <$integer>::BYTES_MIN;

            fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
                <$integer>::read(reader, name).map(Self)
            }

            fn write(&self, sink: &mut impl Sink) {
                self.0.write(sink);
            }
        }
    )+};
}

numbers! {
    Handle: u32;
    Namespace: u16;
}

impl Field for Change {
    const BYTES_MIN: usize = 1;

    fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
        match u8::read(reader, name)? {
            0 => Ok(Self::Join),
            1 => Ok(Self::Leave),
            2 => Ok(Self::Disconnect),
            value => Err(reader.fault(name, Fault::Unknown(value))),
        }
    }

    fn write(&self, sink: &mut impl Sink) {
        let number: u8 = match self {
            Self::Join => 0,
            Self::Leave => 1,
            Self::Disconnect => 2,
        };
        number.write(sink);
    }
}

impl Field for Name {
    const BYTES_MIN: usize = 2;

    fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
        let len = u16::read(reader, name)?;
        reader.text(usize::from(len), name)
    }

    fn write(&self, sink: &mut impl Sink) {
        write_u16(sink, self.len());
        sink.bytes(self.as_bytes());
    }
}

impl Field for Json {
    const BYTES_MIN: usize = 5;

    fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
        let len = u32::read(reader, name)? as usize;
        let text = reader.text(len, name)?;
        // Clients choose the depth of `auth` and `data`, so a deep text isn't the worker's mistake: it reads as `null`.
        let is_deep = matches!(stentor_json::check(&text), Err(stentor_json::Error::TooDeep(_)));
        let text = if is_deep { "null".into() } else { text };
        Self::new(text).ok_or_else(|| reader.fault(name, Fault::NotJson))
    }

    fn write(&self, sink: &mut impl Sink) {
        write_u32(sink, self.as_str().len());
        sink.bytes(self.as_str().as_bytes());
    }
}

/// A JSON text that may be left out: its length is then 0.
impl Field for Option<Json> {
    const BYTES_MIN: usize = 4;

    fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
        if reader.rest.starts_with(&[0; 4]) {
            reader.rest.advance(4);
            return Ok(None);
        }
        Json::read(reader, name).map(Some)
    }

    fn write(&self, sink: &mut impl Sink) {
        match self {
            Some(json) => json.write(sink),
            None => 0_u32.write(sink),
        }
    }
}

impl Field for Message {
    const BYTES_MIN: usize = 4;

    fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
        let word = u32::read(reader, name)?;
        let data = reader.take((word >> 1) as usize, name)?;
        if word & 1 == 1 {
            return Ok(Self::Binary(data));
        }
        match simdutf8::basic::from_utf8(&data) {
            Ok(_) => Ok(Self::Text(data)),
            Err(_) => Err(reader.fault(name, Fault::NotUtf8)),
        }
    }

    fn write(&self, sink: &mut impl Sink) {
        let is_binary = usize::from(matches!(self, Self::Binary(_)));
        write_u32(sink, self.data().len() << 1 | is_binary);
        sink.content(self.data());
    }
}

/// Lists, which begin with the number of their items.
macro_rules! lists {
    ($($list:ty: $count:ty, $write_count:ident;)+) => {$(
        impl Field for $list {
            const BYTES_MIN: usize = <$count>::BYTES_MIN;

            fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
                let count = <$count>::read(reader, name)?;
                reader.items(count as usize, name)
            }

            fn write(&self, sink: &mut impl Sink) {
                $write_count(sink, self.len());
                self.iter().for_each(|item| item.write(sink));
            }
        }
    )+};
}

lists! {
    Messages: u16, write_u16;
    Vec<Name>: u16, write_u16;
    Vec<Handle>: u32, write_u32;
}
