//! Rooms and their members: the rules of Socket.IO events, and clients with their sessions.

use super::{Server, Ws};
use serde_json::{Value, json};
use stentor_edge::{Rule, Template};
use stentor_ports::PublicId;

/// The rooms of a rule, as one template.
pub(crate) fn template(text: &str) -> Vec<Template> {
    vec![Template::parse(text).unwrap()]
}

/// A rule for an event. The event is acknowledged.
pub(crate) fn rule(event: &str) -> Rule {
    Rule { event: event.into(), ack: true, ..Rule::default() }
}

/// A rule: sessions join the room that is the event's first argument.
pub(crate) fn joins(event: &str) -> Rule {
    Rule { join: template("{}"), ..rule(event) }
}

/// A rule: sessions leave the room that is the event's first argument.
pub(crate) fn leaves(event: &str) -> Rule {
    Rule { leave: template("{}"), ..rule(event) }
}

/// A rule: the event is broadcast to the room that is its first argument.
pub(crate) fn says(event: &str) -> Rule {
    Rule { broadcast: template("{}"), ..rule(event) }
}

/// Parses a public id in JSON.
pub(crate) fn id_of(session: &Value) -> PublicId {
    PublicId::parse(session.as_str().unwrap()).unwrap()
}

impl Server {
    /// Connects clients of `stentor.v1`, and waits for their `welcome`.
    pub(crate) fn clients(&self, count: usize) -> Vec<Ws> {
        (0..count).map(|_| self.client()).collect()
    }

    /// Connects a client of `stentor.v1`, and returns its session id from the `welcome`.
    pub(crate) fn client_and_id(&self) -> (Ws, PublicId) {
        let mut ws = self.ws("/ws");
        let id = id_of(&ws.next_json()["session"]);
        (ws, id)
    }

    /// Connects a client that is a member of a room.
    pub(crate) fn member(&self, room: &str) -> Ws {
        let mut ws = self.client();
        ws.join(room);
        ws
    }

    /// Connects at least four members of a room, and at least two on each core.
    pub(crate) fn members_on_each_core(&self, room: &str) -> Vec<Ws> {
        let mut clients = self.ws_on_each_core("/ws");
        for ws in &mut clients {
            assert_eq!(ws.next_json()["type"], "welcome");
            ws.join(room);
        }
        clients
    }
}

impl Ws {
    pub(crate) fn join(&mut self, room: &str) {
        self.ask(json!({"type": "subscribe", "room": room}));
    }

    /// Sends a message. Returns the error code of the answer, or null if the answer isn't an error.
    pub(crate) fn code_for(&mut self, message: Value) -> Value {
        self.send_json(message);
        self.next_json()["code"].take()
    }
}
