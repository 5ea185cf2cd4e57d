//! The entries of both directions, with their types and fields in the order of the protocol.

use crate::codec::{Entry, Field, Reader, Sink};
use crate::error::{Fault, FrameError};
use crate::value::{Change, Handle, Json, Messages, Name, Names, Namespace};

/// Declares the entries of a direction: type, name in the protocol, and fields in their order.
macro_rules! entries {
    ($(#[$of_enum:meta])* $enum:ident {
        $($(#[$of_entry:meta])* $number:literal $name:literal $entry:ident {
            $($(#[$of_field:meta])* $field:ident: $type:ty,)*
        })*
    }) => {
        $(#[$of_enum])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$of_entry])* $entry { $($(#[$of_field])* $field: $type,)* },)*
        }

        impl Entry for $enum {
            const TYPES: &'static [(u8, &'static str)] = &[$(($number, $name)),*];

            fn read(number: u8, reader: &mut Reader) -> Result<Self, FrameError> {
                match number {
                    $($number => {
                        reader.entry = $name;
                        // The fields of a struct are evaluated in the order in which they are written.
                        Ok(Self::$entry { $($field: Field::read(reader, stringify!($field))?,)* })
                    })*
                    _ => Err(FrameError::UnknownType(number)),
                }
            }

            fn write(&self, sink: &mut impl Sink) {
                match self {
                    $(Self::$entry { $($field,)* } => {
                        Field::write(&($number as u8), sink);
                        $(Field::write($field, sink);)*
                    })*
                }
            }

            fn name(&self) -> &'static str {
                match self {
                    $(Self::$entry { .. } => $name,)*
                }
            }
        }
    };
}

/// Declares a set of flags: a byte with a bit for each.
macro_rules! flags {
    ($(#[$of_struct:meta])* $vis:vis struct $name:ident { $($(#[$of_flag:meta])* $flag:ident = $bit:literal,)* }) => {
        $(#[$of_struct])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$of_flag])* $vis $flag: bool,)*
        }

        impl Field for $name {
            const BYTES_MIN: usize = 1;

            fn read(reader: &mut Reader, name: &'static str) -> Result<Self, FrameError> {
                let byte = u8::read(reader, name)?;
                match byte & !(0 $(| $bit)*) {
                    0 => Ok(Self { $($flag: byte & $bit != 0,)* }),
                    unknown => Err(reader.fault(name, Fault::Unknown(unknown))),
                }
            }

            fn write(&self, sink: &mut impl Sink) {
                let byte: u8 = 0 $(| if self.$flag { $bit } else { 0 })*;
                byte.write(sink);
            }
        }
    };
}

mod node;
pub use node::NodeEntry;

flags! {
    /// Flags of SEND.
    pub struct SendFlags {
        /// Drops the messages if others are pending for the client, or a polling client has no open poll.
        is_volatile = 1,
        /// Doesn't compress the messages.
        is_uncompressed = 2,
        /// The worker wants a RECEIPT.
        wants_receipt = 8,
    }
}

flags! {
    /// Flags of SELECT.
    pub struct SelectFlags {
        /// Selects sockets of the sending worker's sessions only.
        is_local = 4,
        /// Also ends the sessions of the sockets that are disconnected.
        closes = 32,
    }
}

flags! {
    /// Flags of BROADCAST.
    struct BroadcastFlags {
        is_volatile = 1,
        is_uncompressed = 2,
        is_local = 4,
        has_offset = 16,
    }
}

/// Messages for all sockets that are in one of the rooms, and in no excepted one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Broadcast {
    /// Drops the messages for clients that have others pending.
    pub is_volatile: bool,
    /// Doesn't compress the messages.
    pub is_uncompressed: bool,
    /// Selects sockets of the sending worker's sessions only.
    pub is_local: bool,
    /// The rooms. Empty: all sockets of the namespace.
    pub rooms: Names,
    /// Rooms whose sockets are left out.
    pub except: Names,
    /// Position in the recovery log. `None`: clients that recover don't receive the messages.
    pub offset: Option<Name>,
    /// The messages: a packet with its attachments.
    pub messages: Messages,
}

impl Field for Broadcast {
    const BYTES_MIN: usize = 7;

    fn read(reader: &mut Reader, _: &'static str) -> Result<Self, FrameError> {
        let flags = BroadcastFlags::read(reader, "flags")?;
        Ok(Self {
            is_volatile: flags.is_volatile,
            is_uncompressed: flags.is_uncompressed,
            is_local: flags.is_local,
            rooms: Field::read(reader, "rooms")?,
            except: Field::read(reader, "except")?,
            offset: if flags.has_offset { Some(Name::read(reader, "offset")?) } else { None },
            messages: Field::read(reader, "messages")?,
        })
    }

    fn write(&self, sink: &mut impl Sink) {
        let Self { is_volatile, is_uncompressed, is_local, .. } = *self;
        let has_offset = self.offset.is_some();
        BroadcastFlags { is_volatile, is_uncompressed, is_local, has_offset }.write(sink);
        self.rooms.write(sink);
        self.except.write(sink);
        if let Some(offset) = &self.offset {
            offset.write(sink);
        }
        self.messages.write(sink);
    }
}

/// A change to all sockets that are in one of the rooms, and in no excepted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// The change.
    pub change: Change,
    /// The flags.
    pub flags: SelectFlags,
    /// The rooms. Empty: all sockets of the namespace.
    pub rooms: Names,
    /// Rooms whose sockets are left out.
    pub except: Names,
    /// The rooms that the sockets join or leave.
    pub targets: Names,
}

impl Field for Select {
    const BYTES_MIN: usize = 8;

    fn read(reader: &mut Reader, _: &'static str) -> Result<Self, FrameError> {
        Ok(Self {
            change: Field::read(reader, "change")?,
            flags: Field::read(reader, "flags")?,
            rooms: Field::read(reader, "rooms")?,
            except: Field::read(reader, "except")?,
            targets: Field::read(reader, "targets")?,
        })
    }

    fn write(&self, sink: &mut impl Sink) {
        self.change.write(sink);
        self.flags.write(sink);
        self.rooms.write(sink);
        self.except.write(sink);
        self.targets.write(sink);
    }
}

entries! {
    /// An entry that a worker writes.
    WorkerEntry {
        /// The first frame of a connection.
        1 "HELLO" Hello {
            /// Versions, name, instance, options and settings of the worker.
            hello: Json,
        }
        /// Accepts the session of an OPEN that asks. `first` and `all` are objects: a name, and a text or a list of texts. A header that
        /// isn't a valid one is left out.
        2 "ACCEPT" Accept {
            /// The session.
            handle: Handle,
            /// `{first, all}`: headers of the first response, and of every HTTP response of the session.
            headers: Json,
        }
        /// Refuses the session of an OPEN that asks. `status` is 403 if it's missing or not from 200 to 599, `headers` is like `first` of
        /// ACCEPT, and `body` is a text. Without a body, the client receives `{code, message}` as JSON, with the code 4 and the message
        /// `Forbidden` by default.
        3 "REFUSE" Refuse {
            /// The session.
            handle: Handle,
            /// `{status, code, message, headers, body}`.
            response: Json,
        }
        /// Messages for one client. Stentor sends all of them or none, and nothing in between.
        4 "SEND" Send {
            /// The session.
            handle: Handle,
            /// The flags.
            flags: SendFlags,
            /// The messages.
            messages: Messages,
        }
        /// Ends a session.
        5 "CLOSE" Close {
            /// The session.
            handle: Handle,
            /// `true`: at once. `false`: after pending messages have been sent.
            discard: bool,
        }
        /// A socket is connected, or has rooms again.
        6 "ADD" Add {
            /// The session.
            handle: Handle,
            /// The namespace.
            namespace: Namespace,
            /// The socket's id.
            id: Name,
            /// The socket's private id, by which its client recovers. Empty: there is none.
            pid: Name,
            /// The socket's rooms.
            rooms: Names,
            /// `{auth, time, issued}`, for RESUME.
            state: Json,
        }
        /// A socket is in no room any more, and broadcasts don't reach it.
        7 "DEL" Del {
            /// The session.
            handle: Handle,
            /// The namespace.
            namespace: Namespace,
        }
        /// A socket joins rooms.
        8 "JOIN" Join {
            /// The session.
            handle: Handle,
            /// The namespace.
            namespace: Namespace,
            /// The rooms.
            rooms: Names,
        }
        /// A socket leaves a room.
        9 "LEAVE" Leave {
            /// The session.
            handle: Handle,
            /// The namespace.
            namespace: Namespace,
            /// The room.
            room: Name,
        }
        /// Messages for the sockets in the rooms, or without rooms for all of the namespace. With `is_local`, only for sessions of this
        /// worker.
        10 "BROADCAST" Broadcast {
            /// The namespace.
            namespace: Namespace,
            /// The messages and the selection.
            broadcast: Broadcast,
        }
        /// A change to the sockets of rooms, of all workers.
        11 "SELECT" Select {
            /// The namespace.
            namespace: Namespace,
            /// The change and the selection.
            select: Select,
        }
        /// A request or an answer for other workers. With the link 0, each other worker that takes sessions receives it, so as many as
        /// PEERS says, without the sender. If its body has an `id`, Stentor answers for those that haven't declared the namespace: RELAYED
        /// with the body `{"k":"none","id":ID}`.
        12 "RELAY" Relay {
            /// The namespace.
            namespace: Namespace,
            /// The receiving link. 0: all others.
            link: u32,
            /// The request or the answer.
            body: Json,
            /// Arguments, in the encoding of the application.
            messages: Messages,
        }
        /// The `data` of a socket has changed. Above 64 KiB, the former data stay.
        13 "STATE" State {
            /// The session.
            handle: Handle,
            /// The namespace.
            namespace: Namespace,
            /// The data.
            data: Json,
        }
        /// A recoverable socket has lost its client. The worker acknowledges CLOSED with it, or later: a socket without PERSIST can't be
        /// recovered unless the worker crashes.
        14 "PERSIST" Persist {
            /// The namespace.
            namespace: Namespace,
            /// The socket's id.
            id: Name,
            /// The socket's private id.
            pid: Name,
            /// The socket's rooms.
            rooms: Names,
            /// The socket's `data`.
            data: Json,
        }
        /// A client shows a private id.
        15 "RESTORE" Restore {
            /// Number of the request, for RESTORED.
            request: u32,
            /// The client's session.
            handle: Handle,
            /// The namespace.
            namespace: Namespace,
            /// The private id.
            pid: Name,
            /// Offset of the last message that the client has received.
            offset: Name,
        }
        /// The application starts or stops listening to heartbeats of a session.
        16 "WATCH" Watch {
            /// The session.
            handle: Handle,
            /// `true`: Stentor sends PACKET.
            is_watched: bool,
        }
        /// The worker leaves.
        17 "BYE" Bye {
            /// `{mode}`: `handover`, `done` or `stop`.
            bye: Json,
        }
        /// Declares a namespace. The first one has the index 0. Each other one has the next index, or one of VACANT.
        18 "NSP" Nsp {
            /// The index.
            namespace: Namespace,
            /// The name, such as `/chat`.
            name: Name,
        }
        /// Settings of HELLO that have changed.
        19 "CONFIG" Config {
            /// `{asks, http, errors}`.
            config: Json,
        }
        /// Gives a socket of a session back, or, with [`Namespace::END`] and without data, the session.
        20 "RELEASED" Released {
            /// The session.
            handle: Handle,
            /// The namespace.
            namespace: Namespace,
            /// The socket's `data`.
            data: Option<Json>,
        }
        /// Makes Stentor acknowledge at once.
        21 "NOP" Nop {}
        /// The answer to RELEASE of a worker that can't give the session back: the session stays.
        22 "KEPT" Kept {
            /// The session.
            handle: Handle,
        }
        /// A namespace is gone. The name counts no more against the link's bound, and the index names no namespace any more. Stentor
        /// answers with VACANT.
        23 "GONE" Gone {
            /// The namespace.
            namespace: Namespace,
        }
    }
}

entries! {
    /// An entry that Stentor writes.
    ServerEntry {
        /// Makes the worker acknowledge at once.
        21 "NOP" Nop {}
        /// The answer to HELLO.
        64 "WELCOME" Welcome {
            /// `{v, link, resumed, received, servers, window, options}`.
            welcome: Json,
        }
        /// A new session. The handshake is `{sid, protocol, method, url, httpVersion, headers, query, address, port, localAddress,
        /// localPort, encrypted, transport}`. `headers` is an object with names in lower case; the values of a repeated header are joined as
        /// Node joins them. `query` is an object; a repeated parameter is a list.
        65 "OPEN" Open {
            /// The session.
            handle: Handle,
            /// `true`: the client's request waits for ACCEPT or REFUSE.
            ask: bool,
            /// The session's id, its protocol, and the client's request.
            handshake: Json,
        }
        /// Messages of a client: a packet with its attachments.
        66 "MESSAGE" Message {
            /// The session.
            handle: Handle,
            /// The messages.
            messages: Messages,
        }
        /// A session has changed its transport.
        67 "UPGRADE" Upgrade {
            /// The session.
            handle: Handle,
            /// The new transport.
            transport: Name,
        }
        /// A session has ended.
        68 "CLOSED" Closed {
            /// The session.
            handle: Handle,
            /// The reason, as Engine.IO names it, such as `transport close`.
            reason: Name,
            /// Details of an error.
            description: Option<Json>,
        }
        /// A session that another process had: the handshake with the current `transport`, and `{upgraded, sockets: [{nsp, id, pid,
        /// rooms, data, …}]}`, where `…` are the fields of `state` in ADD, and `nsp` is the name. `data` is `{}` if none was written.
        /// With `disconnected: true`, another worker has disconnected the socket: the worker notifies its client, and writes DEL.
        69 "RESUME" Resume {
            /// The session.
            handle: Handle,
            /// The handshake, and the session's sockets with their rooms and data.
            session: Json,
        }
        /// Receipt of a SEND that wanted one: its messages have been sent to the client.
        70 "RECEIPT" Receipt {
            /// The session.
            handle: Handle,
        }
        /// A request or an answer of another worker.
        71 "RELAYED" Relayed {
            /// The namespace.
            namespace: Namespace,
            /// The sending link.
            link: u32,
            /// The request or the answer.
            body: Json,
            /// Arguments, in the encoding of the application.
            messages: Messages,
        }
        /// Another worker has changed the rooms of these sockets.
        72 "MEMBERS" Members {
            /// The namespace.
            namespace: Namespace,
            /// [`Change::Join`] or [`Change::Leave`].
            change: Change,
            /// The sessions of the sockets.
            handles: Vec<Handle>,
            /// The rooms.
            rooms: Names,
        }
        /// Another worker disconnects these sockets.
        73 "KICK" Kick {
            /// The namespace.
            namespace: Namespace,
            /// `true`: their sessions end, too.
            closes: bool,
            /// The sessions of the sockets.
            handles: Vec<Handle>,
        }
        /// The number of workers that take sessions.
        74 "PEERS" Peers {
            /// The number, including the receiver.
            count: u16,
        }
        /// The answer to RESTORE.
        75 "RESTORED" Restored {
            /// Number of the request.
            request: u32,
            /// `{sid, rooms, data}`. `null`: the socket can't be recovered.
            socket: Json,
        }
        /// A watched session has received a packet without a message.
        76 "PACKET" Packet {
            /// The session.
            handle: Handle,
            /// The packet's type, such as `pong`.
            kind: Name,
        }
        /// The link ends.
        78 "ERROR" Error {
            /// `{code, message}`.
            error: Json,
        }
        /// A client doesn't read, or reads again.
        79 "PRESSURE" Pressure {
            /// The session.
            handle: Handle,
            /// `true`: the client doesn't read.
            is_on: bool,
        }
        /// The answer to BYE `handover`: no further messages follow.
        80 "DRAINED" Drained {}
        /// The session moves to another worker: give it back with RELEASED, or answer with KEPT.
        81 "RELEASE" Release {
            /// The session.
            handle: Handle,
        }
        /// A client's request was refused before any worker was asked. Only for a worker whose HELLO or CONFIG has `errors`.
        82 "CONN_ERROR" ConnError {
            /// `{code, message, context, req}`.
            error: Json,
        }
        /// The answer to GONE: no later entry has this index, so NSP may give it to another namespace.
        83 "VACANT" Vacant {
            /// The index.
            namespace: Namespace,
        }
    }
}
