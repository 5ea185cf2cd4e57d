//! Integration tests of the application link.

#![allow(clippy::unwrap_used)] // Tests may panic.

mod application;
mod changes;
mod hostile;
mod links;
mod moves;
mod random;
mod simulation;
mod vectors;
mod workers;

use bytes::Bytes;
use stentor_link::{Json, Message, Name, Names, WorkerEntry, Writer};

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

/// A text of at least `len` bytes that begins with a number.
fn text_of(number: u64, len: usize) -> Bytes {
    format!("{number} {}", ".".repeat(len)).into()
}

/// The number in a message of [`text_of`].
fn number_in(message: &Message) -> u64 {
    let text = str::from_utf8(message.data()).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// A frame with the HELLO of a process that has a link, and has received frames up to `received` there.
fn hello_frame(instance: &str, (link, received): (Option<u32>, u32), on_crash: &str) -> Bytes {
    let link = link.map_or("null".to_owned(), |link| link.to_string());
    let hello = format!(
        r#"{{"v":[1],"name":"worker","instance":"{instance}","link":{link},"received":{received},"parser":"json","options":{{"path":"/a"}},"on_crash":"{on_crash}"}}"#
    );
    let mut writer = Writer::default();
    writer.entry(&WorkerEntry::Hello { hello: json(&hello) });
    writer.finish(0, 0).to_bytes()
}
