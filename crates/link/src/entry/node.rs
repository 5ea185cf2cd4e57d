//! The entries that the nodes of a cluster exchange about an application.

use super::{Broadcast, Select};
use crate::codec::{Entry, Field, Reader, Sink};
use crate::error::FrameError;
use crate::value::{Json, Messages, Name};

entries! {
    /// An entry of a node for other nodes that have the same application. It is in a frame without a number.
    NodeEntry {
        /// The number of workers that take sessions at the sending node.
        1 "WORKERS" Workers {
            /// The number.
            count: u16,
            /// `true` if the receiving node answers with its own number.
            asks: bool,
            /// The number of the last broadcast that the sending node has numbered.
            last: u64,
            /// The [`Settings`](crate::Settings) of these workers. `None`: they are too long, and so not compared.
            settings: Option<Json>,
        }
        /// A broadcast of a worker of the sending node.
        2 "BROADCAST" Broadcast {
            /// The namespace.
            namespace: Name,
            /// How long a client can be recovered that misses the messages, in milliseconds. Only for messages with an offset.
            recovery_ms: u32,
            /// The number of the broadcast among those of the sending node that clients can miss, from 1. 0: it has no offset.
            number: u64,
            /// The messages and the selection.
            broadcast: Broadcast,
        }
        /// A change that a worker of the sending node makes to sockets of all nodes.
        3 "SELECT" Select {
            /// The namespace.
            namespace: Name,
            /// The change and the selection.
            select: Select,
        }
        /// A request or an answer of a worker of the sending node.
        4 "RELAY" Relay {
            /// The sending link.
            from: u32,
            /// The receiving link of the receiving node. 0: all of its workers that take sessions.
            to: u32,
            /// The namespace.
            namespace: Name,
            /// The request or the answer.
            body: Json,
            /// Arguments, in the encoding of the application.
            messages: Messages,
        }
        /// Asks for the socket of a client that has returned to the sending node.
        5 "TAKE" Take {
            /// Number of the question, for TAKEN.
            request: u32,
            /// The namespace.
            namespace: Name,
            /// The private id that the client shows.
            pid: Name,
            /// Offset of the last message that the client has received.
            offset: Name,
        }
        /// The answer to TAKE. The sending node doesn't have the socket any more.
        6 "TAKEN" Taken {
            /// Number of the question.
            request: u32,
            /// `{sid, rooms, data, had}`, where `had` has the numbers of the last broadcasts that the sending node has had: `{own, yours,
            /// others}`. `null`: the sending node doesn't have the socket, or it can't be recovered.
            socket: Json,
            /// The messages that the client has missed, of all broadcasts that the sending node has had.
            missed: Messages,
        }
    }
}
