//! Socket.IO sockets that move between nodes, in frames.

use super::codec::{Reader, Writer};
use super::{FrameError, room};
use crate::NodeId;
use std::time::Duration;
use stentor_hub::{
    Epoch, KNOWN_MAX, Key, KeyCharset, MissedMessage, Policy, Position, Room, SubscribeOptions, Topic,
};
use stentor_ports::{
    Claimant, MOVING_BYTES_MAX, MOVING_MESSAGES_MAX, MOVING_TOPICS_MAX, MovingSocket, MovingSubscription,
    Pid, Principal, PublicId, SocketName, SocketRequest,
};

const REQUESTS: [SocketRequest; 3] = [SocketRequest::Describe, SocketRequest::Take, SocketRequest::Look];
const POLICIES: [Policy; 3] = [Policy::Latest, Policy::Queue, Policy::DropOldest];

/// A node's answer about a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAnswer {
    /// The node doesn't have the socket.
    None,
    /// The node has handed the socket over to this one.
    At(NodeId),
    /// The socket.
    Socket(Box<MovingSocket>),
}

/// A frame about a socket that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketFrame {
    /// A client has reconnected to the sender.
    Question {
        /// The id that the answer repeats.
        id: u64,
        /// The client's socket.
        name: SocketName,
        /// The request.
        request: SocketRequest,
    },
    /// The answer to a question of the receiving node.
    Answer {
        /// The id of the question.
        id: u64,
        /// The answer.
        answer: SocketAnswer,
    },
    /// To the node that a `pid` names: the sender has handed the socket over to this node.
    Moved {
        /// The socket's `pid`.
        pid: Pid,
        /// The node that has the socket.
        to: NodeId,
    },
}

impl Writer {
    pub(super) fn socket_frame(&mut self, frame: &SocketFrame) {
        match frame {
            SocketFrame::Question { id, name: SocketName { pid, namespace, last, claimant }, request } => {
                self.u8(0);
                self.u64(*id);
                self.text(&pid.to_text());
                self.text(namespace);
                self.option(*last, Self::u64);
                match claimant {
                    Claimant::Unverified => self.u8(0),
                    Claimant::Anonymous => self.u8(1),
                    Claimant::User(principal) => {
                        self.u8(2);
                        self.principal(principal);
                    }
                }
                self.u8(REQUESTS.iter().position(|known| known == request).unwrap_or_default() as u8);
            }
            SocketFrame::Answer { id, answer } => {
                self.u8(1);
                self.u64(*id);
                match answer {
                    SocketAnswer::None => self.u8(0),
                    SocketAnswer::At(node) => {
                        self.u8(1);
                        self.u64(node.0);
                    }
                    SocketAnswer::Socket(socket) => {
                        self.u8(2);
                        self.socket(socket);
                    }
                }
            }
            SocketFrame::Moved { pid, to } => {
                self.u8(2);
                self.text(&pid.to_text());
                self.u64(to.0);
            }
        }
    }

    fn principal(&mut self, Principal { issuer, subject }: &Principal) {
        self.text(issuer);
        self.text(subject);
    }

    fn socket(&mut self, socket: &MovingSocket) {
        let MovingSocket { id, principal, subscriptions, missed, known } = socket;
        self.text(&id.to_string());
        self.option(principal.as_ref(), Self::principal);
        let rooms: Vec<(&Room, &MovingSubscription)> = subscriptions
            .iter()
            .filter_map(|subscription| match &subscription.topic {
                Topic::Room(room) => Some((room, subscription)),
                Topic::Feed(_) | Topic::Presence(_) => None,
            })
            .collect();
        let feeds: Vec<(&Key, &MovingSubscription)> = subscriptions
            .iter()
            .filter_map(|subscription| match &subscription.topic {
                Topic::Feed(key) => Some((key, subscription)),
                Topic::Room(_) | Topic::Presence(_) => None,
            })
            .collect();
        let watched: Vec<&Room> = subscriptions
            .iter()
            .filter_map(|subscription| match &subscription.topic {
                Topic::Presence(room) => Some(room),
                Topic::Room(_) | Topic::Feed(_) => None,
            })
            .collect();
        // All rooms of a socket are of its namespace.
        self.text(rooms.first().map_or("/", |(room, _)| room.namespace()));
        self.list(rooms.into_iter(), |w, (room, subscription)| {
            w.text(room.name());
            w.subscription(subscription);
        });
        self.list(feeds.into_iter(), |w, (key, subscription)| {
            w.text(key.as_str());
            w.subscription(subscription);
        });
        self.list(watched.into_iter(), |w, room| w.text(room.name()));
        self.list(missed.iter(), |w, MissedMessage { id, is_direct, event, data }| {
            w.u64(*id);
            w.u8(u8::from(*is_direct));
            w.content(event.as_deref(), data, false);
        });
        self.list(known.iter(), |w, id| w.u64(*id));
    }

    /// Writes a subscription without its topic.
    fn subscription(&mut self, subscription: &MovingSubscription) {
        let MovingSubscription { options, position, is_granted, .. } = subscription;
        let SubscribeOptions { policy, deltas, interval } = options;
        self.u8(POLICIES.iter().position(|known| known == policy).unwrap_or_default() as u8);
        self.u8(u8::from(*deltas));
        self.u64(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        self.option(*position, |w, Position { epoch, offset }| {
            w.u64(epoch.0);
            w.u64(offset);
        });
        self.u8(u8::from(*is_granted));
    }
}

/// One of several values, by its place.
fn one_of<T: Copy>(all: &[T], place: u8) -> Result<T, FrameError> {
    all.get(usize::from(place)).copied().ok_or(FrameError::Malformed)
}

impl Reader {
    pub(super) fn socket_frame(&mut self) -> Result<SocketFrame, FrameError> {
        Ok(match self.u8()? {
            0 => {
                let (id, pid) = (self.u64()?, self.pid()?);
                let everybody = Room::all_members(&self.text()?).map_err(|_| FrameError::Name)?;
                let namespace = everybody.namespace().into();
                let last = self.option(Self::u64)?;
                let claimant = match self.u8()? {
                    0 => Claimant::Unverified,
                    1 => Claimant::Anonymous,
                    2 => Claimant::User(self.principal()?),
                    _ => return Err(FrameError::Malformed),
                };
                let name = SocketName { pid, namespace, last, claimant };
                SocketFrame::Question { id, name, request: one_of(&REQUESTS, self.u8()?)? }
            }
            1 => {
                let id = self.u64()?;
                let answer = match self.u8()? {
                    0 => SocketAnswer::None,
                    1 => SocketAnswer::At(NodeId(self.u64()?)),
                    2 => SocketAnswer::Socket(Box::new(self.socket()?)),
                    _ => return Err(FrameError::Malformed),
                };
                SocketFrame::Answer { id, answer }
            }
            2 => SocketFrame::Moved { pid: self.pid()?, to: NodeId(self.u64()?) },
            _ => return Err(FrameError::Malformed),
        })
    }

    /// A key of a feed.
    pub(super) fn key(&mut self) -> Result<Key, FrameError> {
        Key::parse_as(&self.text()?, KeyCharset::Utf8).map_err(|_| FrameError::Name)
    }

    fn principal(&mut self) -> Result<Principal, FrameError> {
        Ok(Principal { issuer: self.text()?, subject: self.text()? })
    }

    fn pid(&mut self) -> Result<Pid, FrameError> {
        Pid::parse(&self.text()?).ok_or(FrameError::Malformed)
    }

    fn socket(&mut self) -> Result<MovingSocket, FrameError> {
        let id = PublicId::parse(&self.text()?).ok_or(FrameError::Malformed)?;
        let principal = self.option(Self::principal)?;
        let everybody = Room::all_members(&self.text()?).map_err(|_| FrameError::Name)?;
        let rooms = self.bounded(MOVING_TOPICS_MAX, |r| {
            let topic = Topic::Room(room(&everybody, &r.text()?)?);
            r.subscription(topic)
        })?;
        let feeds = self.bounded(MOVING_TOPICS_MAX, |r| {
            let topic = Topic::Feed(r.key()?);
            r.subscription(topic)
        })?;
        // Only clients themselves subscribe to presence, which has no options.
        let watched = self.bounded(MOVING_TOPICS_MAX, |r| {
            let topic = Topic::Presence(room(&everybody, &r.text()?)?);
            Ok(MovingSubscription { topic, options: Policy::Queue.into(), position: None, is_granted: true })
        })?;
        let mut bytes = 0;
        let missed = self.bounded(MOVING_MESSAGES_MAX, |r| {
            let (id, is_direct, content) = (r.u64()?, r.flag()?, r.content()?);
            bytes += content.data.len();
            Ok(MissedMessage { id, is_direct, event: content.event, data: content.data })
        })?;
        let known = self.bounded(KNOWN_MAX, Self::u64)?;
        let subscriptions: Vec<_> = rooms.into_iter().chain(feeds).chain(watched).collect();
        if subscriptions.len() > MOVING_TOPICS_MAX || bytes > MOVING_BYTES_MAX {
            return Err(FrameError::Malformed);
        }
        Ok(MovingSocket { id, principal, subscriptions, missed, known })
    }

    fn subscription(&mut self, topic: Topic) -> Result<MovingSubscription, FrameError> {
        let (policy, deltas) = (one_of(&POLICIES, self.u8()?)?, self.flag()?);
        let options = SubscribeOptions { policy, deltas, interval: Duration::from_nanos(self.u64()?) };
        let position = self.option(|r| Ok(Position { epoch: Epoch(r.u64()?), offset: r.u64()? }))?;
        Ok(MovingSubscription { topic, options, position, is_granted: self.flag()? })
    }

    /// A list of at most so many items.
    fn bounded<T>(
        &mut self,
        len_max: usize,
        read: impl FnMut(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let is_short = Self::new(self.rest.clone()).u32().is_ok_and(|len| len as usize <= len_max);
        if is_short { self.list(read) } else { Err(FrameError::Malformed) }
    }
}
