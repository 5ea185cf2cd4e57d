//! The standard's examples, every split, and round trips.

mod decode;
mod position;
mod write;

use super::*;
use std::time::Duration;

/// A decoded element that owns its text.
#[derive(Debug, Clone, PartialEq)]
enum Observed {
    Event { event: String, data: String, id: String },
    Comment(String),
    Retry(Duration),
}

impl From<Decoded<'_>> for Observed {
    fn from(decoded: Decoded<'_>) -> Observed {
        match decoded {
            Decoded::Event { event, data, id } => seen(event, data, id),
            Decoded::Comment(text) => Observed::Comment(text.to_owned()),
            Decoded::Retry(delay) => Observed::Retry(delay),
        }
    }
}

fn seen(event: &str, data: &str, id: &str) -> Observed {
    Observed::Event { event: event.to_owned(), data: data.to_owned(), id: id.to_owned() }
}

/// Decodes the pieces of a stream. Returns the elements, the error that ends it, and the last id.
fn decode<'b>(
    event_bytes_max: usize,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Vec<Observed>, Option<Error>, String) {
    let mut decoder = Decoder::new(event_bytes_max);
    let mut all = Vec::new();
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() {
            match decoder.receive(&piece[at..]) {
                Ok(received) => {
                    assert!(received.consumed > 0 && received.consumed <= piece.len() - at);
                    at += received.consumed;
                    all.extend(received.decoded.map(Observed::from));
                }
                Err(error) => return (all, Some(error), decoder.last_event_id().to_owned()),
            }
        }
    }
    (all, None, decoder.last_event_id().to_owned())
}
