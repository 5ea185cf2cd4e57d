//! Looks up properties of the hub's sessions in the protocols: namespace, encoding, public id.

use super::Protocols;
use super::tasks::TIMELINE_STEPS;
use crate::identity::{Owner, Sid};
use crate::message::Envelope;
use crate::ports::{Named, SessionDetails, SessionEvent, SessionInfo, SessionList, Target};
use stentor_hub::SessionId;

impl Protocols {
    /// The protocol of a session; `None` while its client is disconnected.
    pub fn protocol_of(&self, session: SessionId) -> Option<&'static str> {
        match self.ex.owner_of(session)? {
            Owner::Socket(_) => None,
            Owner::Connection(..) | Owner::Client(_) => self.ex.encoding_of(session)?.protocol(),
        }
    }

    /// The namespace of a session, suspended or not.
    pub fn namespace_of(&self, session: SessionId) -> Option<&str> {
        let owner = Owner::of_tag(self.ex.hub.tag(session)?);
        if let Owner::Socket(slot) = owner {
            let socket = self.ex.recovery.get(slot).filter(|socket| socket.session == session);
            return socket.map(|socket| socket.room.namespace());
        }
        match self.ex.owner_of(session)? {
            Owner::Client(id) => self.clients.get(id)?.namespace_of(session),
            Owner::Connection(..) => Some("/"),
            Owner::Socket(_) => None,
        }
    }

    /// The public id of a session.
    pub fn id_of(&self, session: SessionId) -> String {
        let client = self.ex.owner_of(session).and_then(Owner::client).and_then(|id| self.clients.get(id));
        let own = client.and_then(|client| client.id_of(session));
        own.unwrap_or_else(|| self.ex.public_id(session).to_string())
    }

    /// A session's entry in a list, with at most about `bytes_max` bytes of names of rooms.
    pub fn describe(&self, session: SessionId, protocol: &'static str, bytes_max: usize) -> SessionInfo {
        let mut bytes = 0;
        let rooms = self.ex.hub.rooms_of(session).filter(|room| !room.is_all_members());
        let rooms = rooms.map(|room| room.name().to_owned()).take_while(|name| {
            bytes += name.len();
            bytes <= bytes_max
        });
        let client = self.ex.owner_of(session).and_then(Owner::client).and_then(|id| self.clients.get(id));
        let handshake = client.and_then(|client| client.handshake()).map(Into::into);
        let transport = client.map(|client| client.state().transport.name().into());
        let details = SessionDetails { transport, ..self.ex.details(session) };
        SessionInfo {
            id: self.id_of(session),
            protocol: protocol.into(),
            rooms: rooms.collect(),
            handshake,
            details,
        }
    }

    /// The feeds of a session, with the offset of the newest version of each that its client may have. At most about `bytes_max`
    /// bytes of keys.
    pub fn feeds_of(&self, session: SessionId, bytes_max: usize) -> Vec<(Box<str>, u64)> {
        let mut bytes = 0;
        let positions = self.ex.hub.feed_positions(session).into_iter();
        let feeds = positions.map(|(key, position)| (Box::from(key.as_str()), position.offset));
        feeds
            .take_while(|(key, _): &(Box<str>, u64)| {
                bytes += key.len() + size_of::<u64>();
                bytes <= bytes_max
            })
            .collect()
    }

    /// The events of a session, oldest first.
    pub fn timeline_of(&self, session: SessionId) -> Vec<SessionEvent> {
        self.ex.timeline_of(session)
    }

    /// Adds those of the sessions to a list that have ended lately. Returns the number of steps.
    pub fn list_ended(&mut self, sessions: &[SessionId], list: &mut SessionList) -> usize {
        let closed = sessions.iter().filter(|session| self.ex.hub.tag(**session).is_none());
        let closed: Vec<SessionId> = closed.copied().collect();
        if closed.is_empty() {
            return 0;
        }
        self.ex.note_drops();
        let ended = self.ex.ended_of(closed);
        let steps = (1 + ended.len()) * TIMELINE_STEPS;
        list.ended.extend(ended);
        steps
    }

    /// Reports this turn's events of sessions and topics to the application behind the server.
    pub fn report_notices(&mut self) {
        for session in self.ex.take_opened() {
            if let Some(protocol) = self.protocol_of(session) {
                let namespace = self.namespace_of(session).unwrap_or("/").to_owned();
                self.ex.report_begin(session, protocol, &namespace);
            }
        }
        self.ex.report_attendance();
    }

    /// The envelope of a session. `None` while its client is disconnected.
    pub fn envelope_of(&self, session: SessionId) -> Option<Envelope> {
        self.ex.owner_of(session)?;
        Some(self.ex.encoding_of(session)?.envelope())
    }

    /// Looks up the ids in a target that are the `sid`s of clients of this core.
    pub fn look_up(&self, target: &mut Target) {
        for named in target.sessions.iter_mut().chain(&mut target.except_sessions) {
            let Named::Id(id) = *named else { continue };
            let Some(sid) = Sid::parse(&id.to_string()) else { continue };
            if sid.core(self.ex.shared.cores) == self.ex.context.core {
                let session = self.session_of_client(sid, target.everybody.namespace());
                *named = session
                    .map_or(Named::Unknown(id), |session| Named::Session(self.ex.context.core, session));
            }
        }
    }

    /// The session of a client in a namespace.
    fn session_of_client(&self, sid: Sid, namespace: &str) -> Option<SessionId> {
        self.clients.find(sid)?.session_in(namespace)
    }
}
