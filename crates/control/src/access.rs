//! Decides requests of clients by permissions.

use stentor_auth::{Action, Attributes, Permissions, Topic};
use stentor_ports::Access;

/// Returns `true` if permissions allow a client's request. `attributes` is `None` for an anonymous client.
pub(crate) fn allows(permissions: &Permissions, attributes: Option<&Attributes>, access: Access<'_>) -> bool {
    let (action, topic) = match access {
        Access::Connect { namespace } => return permissions.allows_namespace(attributes, namespace),
        Access::Subscribe(topic) => (Action::Subscribe, topic_of(topic)),
        Access::Presence(topic) => (Action::Presence, topic_of(topic)),
        Access::History(topic) => (Action::History, topic_of(topic)),
        Access::Publish(room) => (Action::Publish, room_of(room)),
    };
    permissions.allows(attributes, action, topic)
}

fn room_of(room: &stentor_hub::Room) -> Topic<'_> {
    Topic::Room { namespace: room.namespace(), name: room.name() }
}

fn topic_of(topic: &stentor_hub::Topic) -> Topic<'_> {
    match topic {
        stentor_hub::Topic::Feed(key) => Topic::Feed(key.as_str()),
        stentor_hub::Topic::Room(room) | stentor_hub::Topic::Presence(room) => room_of(room),
    }
}
