//! Continues after late decisions.

use super::Protocols;
use crate::app::{Effect, HandlerScope, ToSession};
use crate::executor::Executor;
use crate::identity::Owner;
use crate::message::Envelope;
use crate::protocols::clients::Clients;
use stentor_frame::ConnId;

impl Protocols {
    /// Continues after the decisions on a connection. Returns `false` if the connection waits for a further decision.
    pub fn resume_decided(&mut self, conn: ConnId) -> bool {
        resume(&mut self.ex, &mut self.clients, conn)
    }
}

/// Continues after the decisions on a connection: with messages that have been handled up to their questions, with the feeds
/// of a first request, and with a client's CONNECT. Returns `false` if the connection waits for a further decision.
pub(crate) fn resume(ex: &mut Executor, clients: &mut Clients, conn: ConnId) -> bool {
    let all = ex.questions.take_kept(conn);
    if !all.is_empty() {
        ex.questions.forget(conn);
    }
    for (kept, decided) in all {
        let session = kept.session;
        let Some(encoding) = ex.encoding_of(session) else {
            decided.reply.into_iter().for_each(|reply| ex.emit_reply(*reply));
            continue;
        };
        let client = match ex.owner_of(session) {
            Some(Owner::Client(id)) => clients.get(id),
            Some(Owner::Connection(..) | Owner::Socket(_)) | None => None,
        };
        let namespace = client.filter(|_| encoding.envelope() == Envelope::SocketIo);
        let namespace = namespace.and_then(|client| client.namespace_of(session));
        let session = Some(session);
        let scope =
            HandlerScope { session, encoding, namespace, asker: Some(conn), ..HandlerScope::default() };
        let mut out = Vec::new();
        ex.call_app(scope, &mut out, |_, ctx| (kept.resume)(ctx, decided));
        if !out.is_empty() {
            ex.push(Effect::Session(kept.session, ToSession::Write(out)));
        }
    }
    if let Some((session, feeds)) = ex.questions.waiting.take_feeds(conn) {
        let decided = ex.questions.take_decided(conn);
        ex.resume_feeds(conn, session, feeds, decided);
    }
    if !ex.questions.waiting.is_waiting(conn)
        && let Some(client) = ex.questions.waiting.client_held_by(conn).and_then(|id| clients.get_mut(id))
    {
        let decided = ex.questions.take_decided(conn);
        client.handle_decided(ex, conn, decided);
    }
    !ex.questions.waiting.is_waiting(conn)
}
