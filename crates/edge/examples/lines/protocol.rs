//! `JOIN room`, `LEAVE room` and `SAY room text` from a client; `room text` to it, and `OK …` or `ERROR …` as an answer.

use bytes::Bytes;
use std::borrow::Cow;
use stentor_edge::{Application, Context, CustomProtocol, Message};
use stentor_hub::{Body, Data, Emit, Policy, Room, SessionId, Topic};

/// The protocol, at `/lines`.
pub(crate) fn protocol() -> CustomProtocol {
    CustomProtocol { path: "/lines".to_owned(), app: |_core| Box::new(Lines), encode }
}

/// Handles the messages of a core's clients.
struct Lines;

impl Application for Lines {
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        let done = match message {
            Message::Text(line) => handle(ctx, session, line),
            Message::Binary(_) => Err("a line is text".into()),
        };
        let answer = done.map_or_else(|why| format!("ERROR {why}"), |what| format!("OK {what}"));
        ctx.send(session, Message::Text(&answer));
    }
}

fn handle<'a>(
    ctx: &mut Context<'_>,
    session: SessionId,
    line: &'a str,
) -> Result<&'a str, Cow<'static, str>> {
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let room = Room::plain(name).map_err(|error| error.to_string())?;
    match command {
        "JOIN" => {
            ctx.subscribe(session, &Topic::Room(room), Policy::Queue, None)
                .map_err(|error| error.into_denial().message)?;
        }
        "LEAVE" => {
            ctx.unsubscribe(session, &Topic::Room(room));
        }
        "SAY" => {
            let text = Data::Text(Bytes::copy_from_slice(text.as_bytes()));
            ctx.publish(&room, None, text, Emit::default()).map_err(|error| error.into_denial().message)?;
        }
        _ => return Err(format!("unknown command {command}").into()),
    }
    Ok(command)
}

/// A publication as a line. Documents of feeds have no place in this protocol.
fn encode(body: &Body) -> Option<Data> {
    let Body::Message { room, data, .. } = body else { return None };
    let text = match data {
        Data::Text(text) | Data::Json(text) | Data::Arguments { json: text, .. } => text,
        Data::Binary(_) => return None,
    };
    Some(Data::Text([room.name().as_bytes(), b" ", text].concat().into()))
}
