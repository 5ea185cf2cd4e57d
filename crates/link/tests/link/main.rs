//! Integration tests of the application link.

#![allow(clippy::unwrap_used)] // Tests may panic.

mod hostile;
mod random;
mod vectors;

use bytes::Bytes;
use stentor_link::{Json, Message, Name, Names};

fn json(text: &str) -> Json {
    Json::new(text).unwrap()
}

fn name(text: &str) -> Name {
    text.into()
}

fn names<const N: usize>(texts: [&str; N]) -> Names {
    texts.map(name).into()
}

fn text(content: &'static str) -> Message {
    Message::Text(Bytes::from_static(content.as_bytes()))
}

fn binary(content: &'static [u8]) -> Message {
    Message::Binary(Bytes::from_static(content))
}
