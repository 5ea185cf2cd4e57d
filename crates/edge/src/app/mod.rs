//! Applications: what a server does with its sessions.
//!
//! One value of an [`Application`] lives on each core; its handlers run on that core's thread and return at
//! once (no futures, no locks). It acts through a [`Context`].
//!
//! A *plain* session sends and gets messages: over WebSocket, Engine.IO or SockJS. A Socket.IO client has a session in each
//! namespace that it is connected to, which sends and gets events.

mod actions;
mod at_once;
mod chat;
mod context;
mod echo;
mod effect;
mod identities;
mod limited;
mod outlet;
mod presence;
mod publish;
mod questions;
mod refused;
mod rooms;
mod rules;
mod scalar;

pub use chat::Chat;
pub use echo::Echo;
pub use refused::{NotPublished, NotSubscribed};
pub use rooms::RoomsApp;

pub use crate::message::{Arguments, Envelope, Message};
pub use context::Context;

pub(crate) use actions::{Acks, Sent, Waiter};
pub(crate) use at_once::{AT_ONCE_BYTES_MAX, take_at_once, take_before_leave};
pub(crate) use context::{CoreContext, ENVELOPE_BYTES, HandlerScope, asking, public_id};
pub(crate) use effect::{Alarm, Effect, Effects, PollAnswer, ToClient, ToConnection, ToSession};
pub(crate) use identities::{ClientIdentity, Due, Identities, is_same_principal, renews};
pub(crate) use limited::Limited;
pub(crate) use outlet::Outlet;
pub(crate) use presence::{PresenceReply, error_reply, members_reply, write_notice};
pub(crate) use publish::Answer;
pub(crate) use questions::{Feeds, Questions, Refused};

use crate::ports::Denial;
use crate::rule::Rooms;
use bytes::Bytes;
use std::time::Duration;
use stentor_frame::ConnId;
use stentor_hub::{Notice, SessionId};
use stentor_wire::http1::Request;

/// Where the acknowledgement of an event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack(pub(crate) u64);

/// An event as it came from a Socket.IO client.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its name.
    pub name: &'a str,
    /// What came with it.
    pub arguments: Arguments<'a>,
    /// The client wants to hear that it was dealt with: [`Context::ack`].
    pub ack: Option<Ack>,
}

/// A Socket.IO client that wants to connect to a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The Engine.IO session's id: the same as in [`Context::client`] when its request was accepted.
    pub client: &'a str,
    /// Which namespace, `/` or what begins with it.
    pub namespace: &'a str,
    /// What the client says of itself: the text of a JSON object.
    pub auth: &'a str,
    /// The namespace's own query (clients of Engine.IO 3 only).
    pub query: &'a str,
    /// The client has come back, has its rooms, and has been sent what it missed.
    pub recovered: bool,
}

/// The answer to [`Hello`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Welcome.
    #[default]
    Accept,
    /// There is no such namespace.
    Unknown,
    /// Not welcome.
    Refuse {
        /// Why.
        message: String,
        /// More of it: the text of a JSON value.
        data: Option<String>,
    },
}

/// A request whose answer is [`Connect::Pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(crate) ConnId);

/// The answer to a client that wants to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connect {
    /// Welcome.
    #[default]
    Accept,
    /// Welcome, with these headers in the first answer.
    AcceptWith(Vec<(String, String)>),
    /// [`Context::admit`] will say it, within `limits.request_timeout`.
    Pending,
    /// Not welcome.
    Refuse {
        /// An HTTP status, 400–599.
        status: u16,
        /// Why, for people.
        message: String,
    },
}

/// An answer of the application's own to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// An HTTP status.
    pub status: u16,
    /// The media type.
    pub content_type: String,
    /// Other headers.
    pub headers: Vec<(String, String)>,
    /// The content, or what of it there is at once.
    pub body: Bytes,
    /// More of it, each piece so long after the one before. The answer is chunked then.
    pub later: Vec<(Duration, Bytes)>,
}

/// What a server does with its sessions. All handlers run on the core that owns the session.
pub trait Application {
    /// How publications reach plain sessions that don't ask for something else.
    fn envelope(&self) -> Envelope {
        Envelope::Raw
    }

    /// Somebody asks (GET) for a path that is none of the server's own. Without an answer it is 404.
    fn page(&mut self, _ctx: &mut Context<'_>, _request: &Request<'_>) -> Option<Page> {
        None
    }

    /// A client wants to connect.
    fn connect(&mut self, _ctx: &mut Context<'_>, _request: &Request<'_>) -> Connect {
        Connect::Accept
    }

    /// A Socket.IO client wants to connect to a namespace. There is only the main one unless the application says so.
    /// One that comes back to a node of several cores may have been moved to this one after another one's `connect` and
    /// that one's [`Application::client_disconnected`]. One that comes back before its loss was noticed is asked about before `closed` and
    /// `client_disconnected` are said of its connection of before.
    fn connect_namespace(&mut self, _ctx: &mut Context<'_>, hello: &Hello<'_>) -> Admission {
        if hello.namespace == "/" { Admission::Accept } else { Admission::Unknown }
    }

    /// A Socket.IO client has connected to a namespace, and been notified; `id` is its socket's. One that is `recovered` is in the
    /// rooms that it was in, whatever it says of itself now.
    fn joined(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _hello: &Hello<'_>, _id: &str) {}

    /// A Socket.IO client has sent an event. It is called again as [`Self::message`] is.
    fn event(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _event: &Event<'_>) {}

    /// A client has answered an event of [`Context::emit_with_ack`], or not in time.
    fn acked(
        &mut self,
        _ctx: &mut Context<'_>,
        _session: SessionId,
        _token: u64,
        _answer: Option<Arguments<'_>>,
    ) {
    }

    /// An Engine.IO client has gone, with all of its sessions.
    fn client_disconnected(&mut self, _ctx: &mut Context<'_>, _client: &str) {}

    /// A plain session has begun.
    fn opened(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _envelope: Envelope) {}

    /// A client has sent a message. If it waits for a permission ([`Context::awaits_decision`]), this is called again with
    /// the same message when the decision is there: ask before you act, and don't answer before you know.
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>);

    /// A message is above one of the limits of its session (`[session_limits]`), and isn't handled: its client is to be told.
    fn refuse_message(
        &mut self,
        _ctx: &mut Context<'_>,
        _session: SessionId,
        _message: Message<'_>,
        _denial: &Denial,
    ) {
    }

    /// The same of an event. By default, the acknowledgement that it asks for says so.
    fn refuse_event(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        event: &Event<'_>,
        denial: &Denial,
    ) {
        if let Some(ack) = event.ack {
            ctx.ack(session, ack, Arguments { json: &rules::failed(denial), attachments: &[] });
        }
    }

    /// Something has happened to a subscription of a session.
    fn notice(&mut self, _ctx: &mut Context<'_>, _notice: &Notice) {}

    /// A session has ended.
    fn closed(&mut self, _ctx: &mut Context<'_>, _session: SessionId) {}

    /// The options have changed; these are those of rooms.
    fn configure(&mut self, _rooms: &Rooms) {}

    /// A timer of [`Context::after`] has fired.
    fn timer(&mut self, _ctx: &mut Context<'_>, _token: u64) {}
}
