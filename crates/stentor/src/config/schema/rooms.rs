//! Rooms, and actions for events in them.

use super::s;
use crate::config::section::section;
use crate::config::value::Bytes;
use std::time::Duration;

section! {
    /// Rooms: publish/subscribe channels.
    [rooms] Rooms => (edge.rooms) {
        /// Whether clients may publish with `stentor.v1`. The admin API always may.
        publish: bool;
        /// Messages kept per room for clients that reconnect. 0: none.
        history_length: usize => history.publications_max, in 0..=1_000_000;
        /// Memory for the history of one room. `stentor_room_history_bytes` has the sum of all rooms.
        history_bytes_max: Bytes => history.bytes_max, in Bytes(0)..=Bytes::mib(1024);
        /// Time that a message stays in the history.
        history_ttl: Duration => history.age_max, in s(1)..=s(7 * 24 * 3600);
        /// Rooms with presence: prefixes of their names; `""` is every room. Their members can be listed, and watched as they
        /// join and leave. Of other rooms, clients can learn the number of members.
        presence: Vec<String> => edge.rooms.presence.rooms, [restart];
        /// Listed members of a room, per node. Further members are only counted.
        presence_members_max: usize => edge.rooms.presence.members_max, in 0..=10_000, [restart];
        /// Size of the `info` shown with a member. A larger one isn't shown.
        presence_info_bytes_max: Bytes => edge.rooms.presence.info_bytes_max, in Bytes(0)..=Bytes(1_024);
        /// Time that a user stays a member after their session has ended. A user who returns in time neither leaves nor joins.
        /// 0 while memory is short (`limits.memory_bytes_max`).
        presence_grace: Duration => edge.rooms.presence.grace, in s(0)..=s(300), [restart];
        /// Name of the Socket.IO event with which clients request the members of a room and receive changes.
        presence_event: String => edge.rooms.presence.event, [restart];
    }
}

section! {
    /// Actions for an event of clients, with `--app rooms`. Write one `[[rules]]` per event; the first rule that matches
    /// applies. A rule joins, leaves, broadcasts, echoes and acknowledges, in this order. A room name is a template:
    /// `{}` is the event's first argument, `{1}` the second, `{name}` a member of the first. In a list of templates, the
    /// first that has a value applies.
    [rules] Rule => (rule) {
        /// Name of the event.
        event: String;
        /// Namespace of the event. Empty: every namespace. Clients of other protocols than Socket.IO are in `/`.
        namespace: String;
        /// Room that the client joins.
        join: Vec<String> = Vec::new() => rule.join;
        /// Room that the client leaves.
        leave: Vec<String> = Vec::new() => rule.leave;
        /// Room that receives the event. `*`: every client in the namespace.
        broadcast: Vec<String> = Vec::new() => rule.broadcast;
        /// Event name of the broadcast. Empty: the same name.
        broadcast_as: String;
        /// Whether the broadcast leaves out the sender.
        except_sender: bool;
        /// Whether the sender receives the event back.
        echo: bool;
        /// Whether the event is acknowledged, with `{"ok":true}` or the error.
        ack: bool;
    }
}
