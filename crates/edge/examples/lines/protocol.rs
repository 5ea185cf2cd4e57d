//! Clients send `JOIN room`, `LEAVE room` and `SAY room text`. They receive `room text`, and `OK …` or `ERROR …` as
//! answers.

use bytes::Bytes;
use std::borrow::Cow;
use stentor_edge::{Application, Context, CustomProtocol, Message};
use stentor_hub::{Body, Data, Emit, Policy, Room, SessionId, Topic};
use stentor_ports::Denial;

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
        match done {
            Ok(Some(what)) => ctx.send(session, Message::Text(&format!("OK {what}"))),
            // The client is answered when the server knows whether it may join.
            Ok(None) => {}
            Err(why) => refuse(ctx, session, &why),
        }
    }
}

fn refuse(ctx: &mut Context<'_>, session: SessionId, why: &str) {
    ctx.send(session, Message::Text(&format!("ERROR {why}")));
}

/// Handles a line. Returns the command to confirm now.
fn handle<'a>(
    ctx: &mut Context<'_>,
    session: SessionId,
    line: &'a str,
) -> Result<Option<&'a str>, Cow<'static, str>> {
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let room = Room::plain(name).map_err(|error| error.to_string())?;
    match command {
        "JOIN" => {
            let answer = |ctx: &mut Context<'_>, session, joined: Result<(), Denial>| match joined {
                Ok(()) => ctx.send(session, Message::Text("OK JOIN")),
                Err(denial) => refuse(ctx, session, &denial.message),
            };
            ctx.subscribe(session, &Topic::Room(room), Policy::Queue, None, answer);
            return Ok(None);
        }
        "LEAVE" => {
            ctx.unsubscribe(session, &Topic::Room(room));
        }
        "SAY" => {
            let text = Data::Text(Bytes::copy_from_slice(text.as_bytes()));
            ctx.publish(&room, None, text, Emit::default()).map_err(|denial| denial.message)?;
        }
        _ => return Err(format!("unknown command {command}").into()),
    }
    Ok(Some(command))
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
