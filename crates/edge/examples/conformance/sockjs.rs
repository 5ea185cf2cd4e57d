//! Profile `sockjs`: a service per prefix, all in one application.

use bytes::Bytes;
use std::collections::HashMap;
use std::time::Duration;
use stentor_edge::{Application, Context, Envelope, Message, Page, SockJs};
use stentor_hub::{Data, Emit, Policy, Room, SessionId};
use stentor_wire::http1::Request;

const TICK: Duration = Duration::from_secs(1);
/// Delay of the second piece of `/streaming.txt`.
const PIECE_DELAY: Duration = Duration::from_millis(250);

/// The prefixes of the services.
pub(crate) fn prefixes() -> Vec<SockJs> {
    vec![
        SockJs { response_bytes_max: 4096, ..SockJs::at("/echo") },
        SockJs { websocket: false, ..SockJs::at("/disabled_websocket_echo") },
        SockJs { jsessionid: true, ..SockJs::at("/cookie_needed_echo") },
        SockJs::at("/close"),
        SockJs::at("/ticker"),
        SockJs::at("/amplify"),
        SockJs::at("/broadcast"),
    ]
}

#[derive(Default)]
pub(crate) struct Services {
    /// Sessions that receive a tick, by the timer's token.
    ticked: HashMap<u64, SessionId>,
    timers: u64,
}

fn everybody() -> Option<Room> {
    Room::plain("broadcast").ok()
}

impl Services {
    fn tick_later(&mut self, ctx: &mut Context<'_>, session: SessionId) {
        self.timers += 1;
        self.ticked.insert(self.timers, session);
        ctx.after(TICK, self.timers);
    }
}

impl Application for Services {
    fn page(&mut self, _ctx: &mut Context<'_>, request: &Request<'_>) -> Option<Page> {
        let mut body = vec![b'a'; 2048];
        body.push(b'\n');
        let (status, later) = match request.path() {
            "/simple.txt" => {
                body.extend_from_slice(b"b\n");
                (200, Vec::new())
            }
            "/streaming.txt" => (200, vec![(PIECE_DELAY, Bytes::from_static(b"b\n"))]),
            // The suite expects an empty body for unknown paths.
            _ => {
                body.clear();
                (404, Vec::new())
            }
        };
        let headers = vec![("Access-Control-Allow-Origin".to_owned(), "*".to_owned())];
        Some(Page { status, content_type: "text/plain".to_owned(), headers, body: body.into(), later })
    }

    fn opened(&mut self, ctx: &mut Context<'_>, session: SessionId, _envelope: Envelope) {
        match ctx.prefix() {
            Some("/close") => ctx.close_with(session, 3000, "Go away!"),
            Some("/ticker") => self.tick_later(ctx, session),
            Some("/broadcast") => {
                if let Some(room) = everybody() {
                    // Joining fails if the maximum number of topics is reached. The session then receives no messages.
                    let _ = ctx.join(session, &room, Policy::Queue);
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        match (ctx.prefix(), message) {
            (Some("/amplify"), Message::Text(text)) => {
                let n = text.trim().parse::<f64>().map_or(0, |n| n as u32);
                let n = if (1..19).contains(&n) { n } else { 1 };
                ctx.send(session, Message::Text(&"x".repeat(1 << n)));
            }
            (Some("/broadcast"), Message::Text(text)) => {
                if let Some(room) = everybody() {
                    let _ = ctx.publish(
                        &room,
                        None,
                        Data::Text(Bytes::copy_from_slice(text.as_bytes())),
                        Emit::default(),
                    );
                }
            }
            (Some("/ticker" | "/close"), _) => {}
            (_, echoed) => ctx.send(session, echoed),
        }
    }

    fn closed(&mut self, _ctx: &mut Context<'_>, session: SessionId) {
        self.ticked.retain(|_, ticked| *ticked != session);
    }

    fn timer(&mut self, ctx: &mut Context<'_>, token: u64) {
        if let Some(session) = self.ticked.remove(&token) {
            ctx.send(session, Message::Text("tick!"));
            self.tick_later(ctx, session);
        }
    }
}
