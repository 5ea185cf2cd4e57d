//! Questions to other nodes, and their answers.

use super::codec::{Reader, Writer};
use super::{Content, FrameError, room};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Data, Key, Room};
use stentor_ports::{
    Concerned, EndedSession, FeedFetches, FeedInfo, FeedList, FeedsQuery, LinkInfo, LinkList, LinkState,
    MemberList, MembersQuery, Principal, PublicId, Recheck, RoomList, RoomsQuery, SessionApp, SessionDetails,
    SessionEvent, SessionInfo, SessionList, SessionsQuery, SubscriberCounts, Target,
};

/// A question to other nodes.
#[derive(Debug)]
pub enum Question {
    /// Applies a task to the selected sessions, or lists them.
    Sessions(Target, Task),
    /// Lists rooms.
    Rooms(RoomsQuery),
    /// Lists the members of a room.
    Members(MembersQuery),
    /// Checks identities again. From then on, the receiving node accepts no revoked identity.
    Recheck(Recheck),
    /// Applies a task to the selected sockets of an application whose code runs in workers, or lists them.
    Sockets(Arc<str>, Target, Task),
    /// Lists rooms of such an application.
    SocketRooms(Arc<str>, RoomsQuery),
    /// Lists sessions of all protocols and namespaces.
    NodeSessions(SessionsQuery),
    /// Lists the links of workers.
    Links,
    /// Lists the feed keys that a node fetches, and those with pushed documents that have subscribers there.
    Feeds(FeedsQuery),
    /// Counts the subscribers of feed keys.
    Subscribers(Vec<Key>),
}

/// The task for the selected sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Sends an event, like `Command::Emit`.
    Emit {
        /// The event's name, if it has one.
        event: Option<Arc<str>>,
        /// The content.
        data: Data,
        /// `true` if sessions that aren't ready are skipped.
        volatile: bool,
    },
    /// Joins sessions to rooms, like `Command::Join`.
    Join(Vec<Room>),
    /// Removes sessions from rooms, like `Command::Leave`.
    Leave(Vec<Room>),
    /// Ends sessions, like `Command::Disconnect`.
    Disconnect {
        /// `true` if the connection ends as well.
        close: bool,
    },
    /// Lists sessions, like `Command::Sessions`.
    List {
        /// Maximum number of listed sessions.
        limit: usize,
    },
    /// Sends an event that requests acknowledgements, like `Command::Call`. The acknowledgements follow in
    /// separate frames.
    Call {
        /// The id of the call, which these frames repeat.
        call: u64,
        /// The event's name.
        event: Arc<str>,
        /// The content.
        data: Data,
        /// Time to wait for acknowledgements.
        timeout: Duration,
    },
}

/// Longest time for which a node waits for acknowledgements on behalf of another one.
const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Number of sessions concerned.
    Concerned(Concerned),
    /// Sessions.
    Sessions(SessionList),
    /// Rooms.
    Rooms(RoomList),
    /// Members of a room.
    Members(MemberList),
    /// Links of workers.
    Links(LinkList),
    /// Feed keys.
    Feeds(FeedList),
    /// Numbers of subscribers of feed keys.
    Subscribers(SubscriberCounts),
}

impl Writer {
    pub(super) fn rooms(&mut self, rooms: &[Room]) {
        self.list(rooms.iter(), |w, room| w.text(room.name()));
    }

    pub(super) fn ids(&mut self, ids: &[PublicId]) {
        self.list(ids.iter(), |w, id| w.text(&id.to_string()));
    }

    pub(super) fn question(&mut self, question: &Question) {
        match question {
            Question::Sessions(target, task) => {
                self.u8(0);
                self.target(target);
                self.task(task);
            }
            Question::Rooms(query) => {
                self.u8(1);
                self.rooms_query(query);
            }
            Question::Members(query) => {
                self.u8(2);
                self.members_query(query);
            }
            Question::Recheck(recheck) => {
                self.u8(3);
                self.recheck(recheck);
            }
            Question::Sockets(app, target, task) => {
                self.u8(4);
                self.text(app);
                self.target(target);
                self.task(task);
            }
            Question::SocketRooms(app, query) => {
                self.u8(5);
                self.text(app);
                self.rooms_query(query);
            }
            Question::NodeSessions(SessionsQuery { search, user, issuer, address, limit }) => {
                self.u8(6);
                self.text(search);
                [user, issuer, address].into_iter().for_each(|text| self.option(text.as_deref(), Self::text));
                self.len(*limit);
            }
            Question::Links => self.u8(7),
            Question::Feeds(FeedsQuery { search, limit }) => {
                self.u8(8);
                self.text(search);
                self.len(*limit);
            }
            Question::Subscribers(keys) => {
                self.u8(9);
                self.list(keys.iter(), |w, key| w.text(key.as_str()));
            }
        }
    }

    fn link(&mut self, link: &LinkInfo) {
        let LinkInfo { node, app, link, worker, instance, state, on_crash, sessions, unacknowledged_bytes } =
            link;
        self.option(node.as_deref(), Self::text);
        [app, worker, instance].into_iter().for_each(|text| self.text(text));
        self.text(on_crash);
        self.u8(*state as u8);
        self.u32(*link);
        self.len(*sessions);
        self.len(*unacknowledged_bytes);
    }

    fn feed(&mut self, info: &FeedInfo) {
        let FeedInfo { node, key, state, document_bytes, is_subscribed, fetches } = info;
        self.option(node.as_deref(), Self::text);
        self.text(key);
        self.text(state);
        self.len(*document_bytes);
        self.u8(u8::from(*is_subscribed));
        self.option(fetches.as_ref(), |w, fetches| {
            let FeedFetches {
                upstream,
                url,
                reason,
                failures,
                took_micros,
                failing_since,
                last_success,
                next_fetch,
            } = fetches;
            w.text(upstream);
            w.option(url.as_deref(), Self::text);
            w.text(reason);
            w.u32(*failures);
            w.u64(*took_micros);
            [failing_since, last_success, next_fetch].into_iter().for_each(|time| w.option(*time, Self::u64));
        });
    }

    fn rooms_query(&mut self, RoomsQuery { namespace, prefix, after, limit }: &RoomsQuery) {
        self.text(namespace);
        self.text(prefix);
        self.text(after);
        self.len(*limit);
    }

    fn details(&mut self, details: &SessionDetails) {
        let SessionDetails {
            node,
            app,
            namespace,
            user,
            info,
            address,
            since,
            transport,
            feeds,
            timeline,
            send_buffer_bytes,
        } = details;
        self.option(node.as_deref(), Self::text);
        // A number has a meaning on its own node only.
        let app =
            app.as_ref().and_then(|app| if let SessionApp::Name(name) = app { Some(&**name) } else { None });
        self.option(app, Self::text);
        self.option(namespace.as_deref(), Self::text);
        self.option(user.as_ref(), |w, user| {
            w.text(&user.issuer);
            w.text(&user.subject);
        });
        self.option(info.as_deref(), Self::text);
        self.option(address.as_deref(), Self::text);
        self.option(*since, Self::u64);
        self.option(transport.as_deref(), Self::text);
        self.list(feeds.iter(), |w, (key, offset)| {
            w.text(key);
            w.u64(*offset);
        });
        self.timeline(timeline);
        self.len(*send_buffer_bytes);
    }

    fn ended(&mut self, EndedSession { id, protocol, address, since, ended, timeline }: &EndedSession) {
        [&**id, &**protocol, &**address].into_iter().for_each(|text| self.text(text));
        self.u64(*since);
        self.u64(*ended);
        self.timeline(timeline);
    }

    fn timeline(&mut self, events: &[SessionEvent]) {
        self.list(events.iter(), |w, SessionEvent { name, reason, count, first, last }| {
            w.text(name);
            w.text(reason);
            w.u32(*count);
            w.u64(*first);
            w.u64(*last);
        });
    }

    fn target(&mut self, target: &Target) {
        self.text(target.namespace());
        self.rooms(&target.rooms);
        self.rooms(&target.except_rooms);
        self.ids(&target.session_ids().collect::<Vec<_>>());
        self.ids(&target.except_session_ids().collect::<Vec<_>>());
    }

    fn task(&mut self, task: &Task) {
        match task {
            Task::Emit { event, data, volatile } => {
                self.u8(0);
                self.content(event.as_deref(), data, *volatile);
            }
            Task::Join(rooms) => {
                self.u8(1);
                self.rooms(rooms);
            }
            Task::Leave(rooms) => {
                self.u8(2);
                self.rooms(rooms);
            }
            Task::Disconnect { close } => {
                self.u8(3);
                self.u8(u8::from(*close));
            }
            Task::List { limit } => {
                self.u8(4);
                self.len(*limit);
            }
            Task::Call { call, event, data, timeout } => {
                self.u8(5);
                self.u64(*call);
                self.u64(timeout.as_millis() as u64);
                self.content(Some(&**event), data, false);
            }
        }
    }

    pub(super) fn answer(&mut self, answer: &Answered) {
        match answer {
            Answered::Concerned(Concerned { sessions, refused, .. }) => {
                self.u8(0);
                self.len(*sessions);
                self.len(*refused);
            }
            Answered::Sessions(list) => {
                self.u8(1);
                self.len(list.count);
                self.list(list.sessions.iter(), |w, SessionInfo { id, protocol, rooms, details, .. }| {
                    w.text(id);
                    w.text(protocol);
                    w.list(rooms.iter(), |w, room| w.text(room));
                    w.details(details);
                });
                self.list(list.ended.iter(), Self::ended);
            }
            Answered::Rooms(RoomList { rooms, truncated, .. }) => {
                self.u8(2);
                self.u8(u8::from(*truncated));
                self.list(rooms.iter(), |w, (name, sessions)| {
                    w.text(name);
                    w.len(*sessions);
                });
            }
            Answered::Members(list) => {
                self.u8(3);
                self.member_list(list);
            }
            Answered::Links(LinkList { links, .. }) => {
                self.u8(4);
                self.list(links.iter(), Self::link);
            }
            Answered::Feeds(FeedList { feeds, count, .. }) => {
                self.u8(5);
                self.len(*count);
                self.list(feeds.iter(), Self::feed);
            }
            Answered::Subscribers(SubscriberCounts { counts, .. }) => {
                self.u8(6);
                self.list(counts.iter(), |w, count| w.len(*count));
            }
        }
    }
}

impl Reader {
    fn number(&mut self) -> Result<usize, FrameError> {
        self.u32().map(|number| number as usize)
    }

    pub(super) fn rooms(&mut self, everybody: &Room) -> Result<Vec<Room>, FrameError> {
        self.list(|r| room(everybody, &r.text()?))
    }

    pub(super) fn ids(&mut self) -> Result<Vec<PublicId>, FrameError> {
        self.list(|r| PublicId::parse(&r.text()?).ok_or(FrameError::Malformed))
    }

    fn string(&mut self) -> Result<String, FrameError> {
        self.text().map(|text| text.as_ref().to_owned())
    }

    pub(super) fn question(&mut self) -> Result<Question, FrameError> {
        Ok(match self.u8()? {
            0 => {
                let target = self.target()?;
                let task = self.task(&target.everybody)?;
                Question::Sessions(target, task)
            }
            1 => Question::Rooms(self.rooms_query()?),
            2 => Question::Members(self.members_query()?),
            3 => Question::Recheck(self.recheck()?),
            4 => {
                let (app, target) = (self.text()?, self.target()?);
                let task = self.task(&target.everybody)?;
                Question::Sockets(app, target, task)
            }
            5 => Question::SocketRooms(self.text()?, self.rooms_query()?),
            6 => Question::NodeSessions(SessionsQuery {
                search: self.string()?,
                user: self.option(Self::string)?,
                issuer: self.option(Self::string)?,
                address: self.option(Self::string)?,
                limit: self.number()?,
            }),
            7 => Question::Links,
            8 => Question::Feeds(FeedsQuery { search: self.string()?, limit: self.number()? }),
            9 => Question::Subscribers(self.list(Self::key)?),
            _ => return Err(FrameError::Malformed),
        })
    }

    fn rooms_query(&mut self) -> Result<RoomsQuery, FrameError> {
        let (namespace, prefix, after) = (self.string()?, self.string()?, self.string()?);
        Ok(RoomsQuery { namespace, prefix, after, limit: self.number()? })
    }

    fn target(&mut self) -> Result<Target, FrameError> {
        let everybody = Room::all_members(&self.text()?).map_err(|_| FrameError::Name)?;
        let (rooms, except_rooms) = (self.rooms(&everybody)?, self.rooms(&everybody)?);
        let target = Target::of_rooms(everybody, rooms, except_rooms);
        let target = self.ids()?.into_iter().fold(target, Target::session);
        Ok(self.ids()?.into_iter().fold(target, Target::except_session))
    }

    fn task(&mut self, everybody: &Room) -> Result<Task, FrameError> {
        Ok(match self.u8()? {
            0 => {
                let Content { event, data, volatile } = self.content()?;
                Task::Emit { event, data, volatile }
            }
            1 => Task::Join(self.rooms(everybody)?),
            2 => Task::Leave(self.rooms(everybody)?),
            3 => Task::Disconnect { close: self.flag()? },
            4 => Task::List { limit: self.number()? },
            5 => {
                let (call, timeout) = (self.u64()?, Duration::from_millis(self.u64()?).min(CALL_TIMEOUT_MAX));
                let Content { event, data, .. } = self.content()?;
                Task::Call { call, event: event.ok_or(FrameError::Malformed)?, data, timeout }
            }
            _ => return Err(FrameError::Malformed),
        })
    }

    pub(super) fn answer(&mut self) -> Result<Answered, FrameError> {
        Ok(match self.u8()? {
            0 => {
                let (sessions, refused) = (self.number()?, self.number()?);
                Answered::Concerned(Concerned { sessions, refused, ..Concerned::default() })
            }
            1 => {
                let count = self.number()?;
                let list = SessionList::new(self.list(Self::session)?, count);
                Answered::Sessions(SessionList { ended: self.list(Self::ended)?, ..list })
            }
            2 => {
                let truncated = self.flag()?;
                let rooms = self.list(|r| Ok((r.string()?, r.number()?)))?;
                Answered::Rooms(RoomList { rooms, truncated, ..RoomList::default() })
            }
            3 => Answered::Members(self.member_list()?),
            4 => Answered::Links(LinkList::new(self.list(Self::link)?)),
            5 => {
                let count = self.number()?;
                Answered::Feeds(FeedList::new(self.list(Self::feed)?, count))
            }
            6 => {
                let counts = self.list(Self::number)?;
                Answered::Subscribers(SubscriberCounts { counts, missing_nodes: Vec::new() })
            }
            _ => return Err(FrameError::Malformed),
        })
    }

    fn link(&mut self) -> Result<LinkInfo, FrameError> {
        let node = self.option(Self::text)?;
        let (app, worker, instance) = (self.text()?, self.text()?, self.text()?);
        let on_crash = Cow::Owned(self.string()?);
        let state = *LinkState::ALL.get(usize::from(self.u8()?)).ok_or(FrameError::Malformed)?;
        let (link, sessions, unacknowledged_bytes) = (self.u32()?, self.number()?, self.number()?);
        Ok(LinkInfo { node, app, link, worker, instance, state, on_crash, sessions, unacknowledged_bytes })
    }

    fn feed(&mut self) -> Result<FeedInfo, FrameError> {
        Ok(FeedInfo {
            node: self.option(Self::text)?,
            key: self.text()?,
            state: Cow::Owned(self.string()?),
            document_bytes: self.number()?,
            is_subscribed: self.flag()?,
            fetches: self.option(|r| {
                Ok(FeedFetches {
                    upstream: r.string()?,
                    url: r.option(Self::string)?,
                    reason: r.string()?,
                    failures: r.u32()?,
                    took_micros: r.u64()?,
                    failing_since: r.option(Self::u64)?,
                    last_success: r.option(Self::u64)?,
                    next_fetch: r.option(Self::u64)?,
                })
            })?,
        })
    }

    fn session(&mut self) -> Result<SessionInfo, FrameError> {
        let (id, protocol) = (self.string()?, Cow::Owned(self.string()?));
        let rooms = self.list(Self::string)?;
        Ok(SessionInfo { id, protocol, rooms, handshake: None, details: self.details()? })
    }

    fn details(&mut self) -> Result<SessionDetails, FrameError> {
        Ok(SessionDetails {
            node: self.option(|r| Ok((*r.text()?).into()))?,
            app: self.option(|r| Ok(SessionApp::Name(r.text()?)))?,
            namespace: self.option(|r| Ok((*r.text()?).into()))?,
            user: self.option(|r| Ok(Principal { issuer: r.text()?, subject: r.text()? }))?,
            info: self.option(Self::text)?,
            address: self.option(Self::string)?,
            since: self.option(Self::u64)?,
            transport: self.option(Self::string)?.map(Cow::Owned),
            feeds: self.list(|r| Ok(((*r.text()?).into(), r.u64()?)))?,
            timeline: self.list(Self::event)?,
            send_buffer_bytes: self.number()?,
        })
    }

    fn ended(&mut self) -> Result<EndedSession, FrameError> {
        Ok(EndedSession {
            id: self.string()?,
            protocol: Cow::Owned(self.string()?),
            address: self.string()?,
            since: self.u64()?,
            ended: self.u64()?,
            timeline: self.list(Self::event)?,
        })
    }

    fn event(&mut self) -> Result<SessionEvent, FrameError> {
        let (name, reason) = (Cow::Owned(self.string()?), Cow::Owned(self.string()?));
        Ok(SessionEvent { name, reason, count: self.u32()?, first: self.u64()?, last: self.u64()? })
    }
}
