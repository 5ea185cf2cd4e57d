//! Commands of the control plane for sessions of a shared namespace. This node carries them out first, and then the other
//! servers.

use super::Bridge;
use super::namespace::{Namespace, event};
use super::protocol::Published;
use crate::metrics::count;
use crate::socketio::{
    LIST_MAX, RemoteSession, RequestBody, ResponseBody, Selection, SessionDetails, Target as Asked, WireError,
};
use crate::surveys::SURVEY_TIMEOUT;
use redis::{Pipeline, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use stentor_hub::{Room, Rooms};
use stentor_ports::{Command, Concerned, Done, RoomList, RoomsQuery, SessionInfo, SessionList, Target};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Maximum number of waiting questions.
pub(super) const QUESTIONS_MAX: usize = 1_024;
/// Maximum number of servers to wait for. Redis counts all subscribers.
const SERVERS_MAX: usize = 1_024;
/// Maximum number of sessions, and rooms of sessions, in the answers to a question.
const NAMES_MAX: usize = 10 * LIST_MAX;
/// Name for servers that didn't answer, which have no names of their own.
const MISSING: &str = "socketio";

/// A question about the sessions of other servers.
pub(super) struct Question {
    namespace: Arc<Namespace>,
    selection: Selection,
    /// Receives the sessions, and the number of servers that haven't answered.
    finish: Box<dyn FnOnce(Vec<SessionInfo>, usize) + Send>,
}

impl Bridge {
    /// Returns the command for this node alone. When it has been carried out, it asks the other servers. If it is refused, no
    /// server does anything.
    pub(super) fn then_ask(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        target: &Target,
        command: Command,
    ) -> Command {
        let (bridge, namespace) = (self.clone(), namespace.clone());
        match command {
            // The broker sends messages for the members of rooms.
            Command::Emit { event: name, data, volatile, done } => {
                let Some(selection) = sessions_only(target) else {
                    return Command::Emit { event: name, data, volatile, done };
                };
                let event = event(name.clone(), &data);
                let done = Done::new(move |result| {
                    if result.is_ok() && bridge.emit(&namespace, selection, event, volatile).is_err() {
                        // The message is dropped, because the caller doesn't wait for room.
                        count(&bridge.counters.not_sent);
                    }
                    done.answer(result);
                });
                Command::Emit { event: name, data, volatile, done }
            }
            Command::Join { rooms, done } => {
                let body = selection(target).map(|selection| RequestBody::Join {
                    target: Asked::Selection(selection),
                    rooms: names(&rooms),
                });
                Command::Join { rooms, done: bridge.then_tell(namespace, body, done) }
            }
            Command::Leave { rooms, done } => {
                let body = selection(target).map(|selection| RequestBody::Leave {
                    target: Asked::Selection(selection),
                    rooms: names(&rooms),
                });
                Command::Leave { rooms, done: bridge.then_tell(namespace, body, done) }
            }
            Command::Disconnect { close, done } => {
                let body = selection(target)
                    .map(|selection| RequestBody::Disconnect { target: Asked::Selection(selection), close });
                Command::Disconnect { close, done: bridge.then_tell(namespace, body, done) }
            }
            // The command calls only sessions of this node.
            Command::Call { .. } => command,
            Command::Sessions { limit, done } => {
                let Some(selection) = selection(target) else { return Command::Sessions { limit, done } };
                let done = Done::new(move |result: Result<SessionList, _>| {
                    let mut list = match result {
                        Ok(list) => list,
                        Err(error) => return done.answer(Err(error)),
                    };
                    bridge.ask(namespace, selection, move |sessions, missing| {
                        let count = sessions.len();
                        list.merge(SessionList::new(sessions, count), limit);
                        list.missing_nodes.extend(vec![MISSING.to_owned(); missing]);
                        done.answer(Ok(list));
                    });
                });
                Command::Sessions { limit, done }
            }
        }
    }

    /// Returns a callback for a list of this node's rooms, which adds the rooms of sessions on other servers.
    pub(super) fn then_list_rooms(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        query: &RoomsQuery,
        done: Done<RoomList>,
    ) -> Done<RoomList> {
        let (bridge, namespace, query) = (self.clone(), namespace.clone(), query.clone());
        Done::new(move |result: Result<RoomList, _>| {
            let mut list = match result {
                Ok(list) => list,
                Err(error) => return done.answer(Err(error)),
            };
            bridge.ask(namespace, Selection::default(), move |sessions, missing| {
                list.merge(rooms_of(sessions, &query), query.limit);
                list.missing_nodes.extend(vec![MISSING.to_owned(); missing]);
                done.answer(Ok(list));
            });
        })
    }

    /// Returns a callback that requests the same action from the other servers once this node has carried it out.
    fn then_tell(
        self: Arc<Self>,
        namespace: Arc<Namespace>,
        body: Option<RequestBody>,
        done: Done<Concerned>,
    ) -> Done<Concerned> {
        Done::new(move |result| {
            if let (Ok(_), Some(body)) = (&result, body) {
                count(&self.counters.requests_sent);
                self.publish_all_now(namespace.protocol.request(None, body));
            }
            done.answer(result);
        })
    }

    /// Publishes a request or an answer, if there is room for it.
    pub(super) fn publish_now(&self, published: Result<Published, WireError>) -> bool {
        let is_sent = match published {
            Ok((channel, payload)) => self.publisher.push(channel, payload),
            Err(error) => {
                tracing::warn!(%error, prefix = self.options.prefix, "a message can't be sent to Socket.IO's servers");
                false
            }
        };
        if !is_sent {
            count(&self.counters.not_sent);
        }
        is_sent
    }

    fn publish_all_now(&self, published: Result<Vec<Published>, WireError>) -> bool {
        match published {
            // Publishes each message, even if there is no room for another one.
            Ok(messages) => {
                let unsent = messages.into_iter().filter(|message| !self.publish_now(Ok(message.clone())));
                unsent.count() == 0
            }
            Err(error) => self.publish_now(Err(error)),
        }
    }

    /// Asks the other servers for their sessions.
    fn ask(
        &self,
        namespace: Arc<Namespace>,
        selection: Selection,
        finish: impl FnOnce(Vec<SessionInfo>, usize) + Send + 'static,
    ) {
        if namespace.protocol.count_servers().is_none() {
            return finish(Vec::new(), 0);
        }
        count(&self.counters.requests_sent);
        let question = Question { namespace, selection, finish: Box::new(finish) };
        if let Err(refused) = self.questions.0.try_send(question) {
            (refused.into_inner().finish)(Vec::new(), 1);
        }
    }

    /// Asks all questions, for as long as the node runs.
    pub(super) async fn ask_all(self: Arc<Self>) {
        let questions = self.questions.1.lock().take();
        let Some(mut questions) = questions else { return };
        let mut asked = JoinSet::new();
        loop {
            tokio::select! {
                question = questions.recv() => match question {
                    Some(Question { namespace, selection, finish }) => {
                        let bridge = self.clone();
                        asked.spawn(async move {
                            let (sessions, missing) = bridge.fetch(&namespace, selection).await;
                            if missing > 0 {
                                count(&bridge.counters.requests_incomplete);
                            }
                            finish(sessions, missing);
                        });
                    }
                    None => return,
                },
                Some(_) = asked.join_next() => {}
            }
        }
    }

    /// Returns the sessions of the other servers, and the number of servers that haven't answered.
    async fn fetch(&self, namespace: &Namespace, selection: Selection) -> (Vec<SessionInfo>, usize) {
        let deadline = Instant::now() + SURVEY_TIMEOUT;
        let (mut sessions, mut names_left) = (Vec::new(), NAMES_MAX);
        let Ok(Some(mut servers)) = timeout_at(deadline, self.other_servers(namespace)).await else {
            return (sessions, 1);
        };
        let Some(mut waiting) = self.pending.begin().filter(|_| servers > 0) else {
            return (sessions, servers);
        };
        let request = namespace.protocol.request(Some(&waiting.id), RequestBody::Fetch(selection));
        if !self.publish_all_now(request) {
            return (sessions, servers);
        }
        while servers > 0
            && let Ok(Some(body)) = timeout_at(deadline, waiting.answers.recv()).await
        {
            // A server beyond the limit counts as one that didn't answer.
            if let ResponseBody::Sessions(found) = body
                && add_sessions(&mut sessions, &mut names_left, found)
            {
                servers -= 1;
            }
        }
        (sessions, servers)
    }

    /// The number of other servers, according to Redis.
    async fn other_servers(&self, namespace: &Namespace) -> Option<usize> {
        let [command, of, channel] = namespace.protocol.count_servers()?;
        let mut pipeline = Pipeline::new();
        pipeline.cmd(command).arg(of).arg(channel);
        if self.server.is_cluster() && !self.is_spread() {
            // Each node of Redis counts its own subscribers.
            return servers_besides_this(self.server.ask_each(&pipeline).await.ok()?);
        }
        let link = self.shards.of(channel)?.sender()?;
        servers_besides_this([Some(link.send(&pipeline).await.ok()?.pop()?)])
    }
}

/// Questions that wait to be asked.
pub(super) type Questions = (mpsc::Sender<Question>, parking_lot::Mutex<Option<mpsc::Receiver<Question>>>);

fn names(rooms: &Rooms) -> Vec<Arc<str>> {
    rooms.iter().map(|room| room.name().into()).collect()
}

/// The selection of a target's sessions. `None` if there are none, which a selection can't express.
fn selection(target: &Target) -> Option<Selection> {
    let name = |room: &Room| Arc::from(room.name());
    if target.except_rooms.contains(&target.everybody) {
        return None;
    }
    let except = target.except_rooms.iter().map(name);
    let except = except.chain(target.except_session_ids().map(|id| id.to_string().into())).collect();
    if target.rooms.contains(&target.everybody) {
        return Some(Selection { rooms: Vec::new(), except });
    }
    let rooms = target.rooms.iter().map(name);
    let rooms: Vec<_> = rooms.chain(target.session_ids().map(|id| id.to_string().into())).collect();
    (!rooms.is_empty()).then_some(Selection { rooms, except })
}

/// The sessions that a target names, if any, unless they are members of its rooms.
fn sessions_only(target: &Target) -> Option<Selection> {
    let Selection { mut except, .. } = selection(target)?;
    let rooms: Vec<Arc<str>> = target.session_ids().map(|id| id.to_string().into()).collect();
    if rooms.is_empty() || target.rooms.contains(&target.everybody) {
        return None;
    }
    except.extend(target.rooms.iter().map(|room| Arc::from(room.name())));
    Some(Selection { rooms, except })
}

fn session_info(RemoteSession { id, details }: RemoteSession) -> SessionInfo {
    let rooms = details.map_or(Vec::new(), |SessionDetails { rooms, .. }| rooms);
    let rooms = rooms.into_iter().filter(|room| *room != id).map(|room| room.to_string()).collect();
    SessionInfo {
        id: id.to_string(),
        protocol: "socketio".into(),
        rooms,
        handshake: None,
        details: Default::default(),
    }
}

/// Number of servers without this one, according to the nodes of Redis. A node that doesn't answer counts as one
/// server. `None` if a reply is invalid.
fn servers_besides_this(replies: impl IntoIterator<Item = Option<Value>>) -> Option<usize> {
    let mut servers = 0_usize;
    for reply in replies {
        let count = match reply {
            Some(Value::Map(pairs)) => pairs.into_iter().next()?.1,
            Some(Value::Array(items)) => items.into_iter().nth(1)?,
            Some(_) => return None,
            None => Value::Int(1),
        };
        let Value::Int(count) = count else { return None };
        servers = servers.saturating_add(usize::try_from(count).ok()?);
    }
    Some(servers.checked_sub(1)?.min(SERVERS_MAX))
}

/// Adds the sessions of one server. Returns `false` if there is no room for them.
fn add_sessions(sessions: &mut Vec<SessionInfo>, names_left: &mut usize, found: Vec<RemoteSession>) -> bool {
    let found: Vec<SessionInfo> = found.into_iter().map(session_info).collect();
    let names = found.iter().map(|session| 1 + session.rooms.len()).sum();
    let Some(left) = names_left.checked_sub(names) else { return false };
    *names_left = left;
    sessions.extend(found);
    true
}

/// The rooms of sessions that a query selects.
fn rooms_of(sessions: Vec<SessionInfo>, query: &RoomsQuery) -> RoomList {
    let mut rooms: BTreeMap<String, usize> = BTreeMap::new();
    for room in sessions.into_iter().flat_map(|session| session.rooms) {
        if room.starts_with(&query.prefix) && room > query.after {
            *rooms.entry(room).or_default() += 1;
        }
    }
    RoomList { rooms: rooms.into_iter().collect(), ..RoomList::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_ports::PublicId;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    /// In the servers' protocol, a selection without rooms stands for all sockets.
    #[test]
    fn a_target_without_sessions_is_never_all_of_them() -> Result<(), Box<dyn std::error::Error>> {
        let id = PublicId::parse("AAAAAAAAAAAAAAAAAAAA").ok_or("not an id")?;
        let none = Target::of("/")?;
        assert_eq!(selection(&none), None);
        assert_eq!(selection(&none.clone().except_room("a")?), None);
        let all = none.clone().everybody();
        assert_eq!(selection(&all), Some(Selection::default()));
        assert_eq!(
            selection(&all.clone().room("a")?.session(id)),
            Some(Selection::default()),
            "a is among them"
        );
        let nobody = Target::of_rooms(all.everybody.clone(), vec![], vec![all.everybody.clone()]);
        assert_eq!(selection(&nobody.session(id)), None);
        let several = none.room("a")?.session(id).except_room("b")?;
        let expected = Selection { rooms: names(&["a", "AAAAAAAAAAAAAAAAAAAA"]), except: names(&["b"]) };
        assert_eq!(selection(&several), Some(expected));
        // The members of the room receive the message through the room.
        let expected = Selection { rooms: names(&["AAAAAAAAAAAAAAAAAAAA"]), except: names(&["b", "a"]) };
        assert_eq!(sessions_only(&several), Some(expected));
        assert_eq!(sessions_only(&all.session(id)), None);
        Ok(())
    }

    #[test]
    fn no_more_servers_are_waited_for_than_there_may_be() {
        let reply = |count| Some(Value::Array(vec![Value::Nil, Value::Int(count)]));
        let cases = [(3, Some(2)), (1, Some(0)), (0, None), (i64::MIN, None), (i64::MAX, Some(SERVERS_MAX))];
        for (count, expected) in cases {
            assert_eq!(servers_besides_this([reply(count)]), expected, "{count}");
        }
        assert_eq!(servers_besides_this([reply(1), reply(2), None]), Some(3));
        assert_eq!(
            servers_besides_this([reply(i64::MAX), reply(i64::MAX), reply(i64::MAX)]),
            Some(SERVERS_MAX)
        );
        assert_eq!(servers_besides_this([reply(1), Some(Value::Nil)]), None);
    }

    #[test]
    fn answers_beyond_the_limit_are_left_out() {
        let session = |id: &str| RemoteSession {
            id: id.into(),
            details: Some(SessionDetails {
                handshake: "{}".into(),
                rooms: names(&["a", "b"]),
                data: "{}".into(),
            }),
        };
        let (mut sessions, mut names_left) = (Vec::new(), 7);
        assert!(add_sessions(&mut sessions, &mut names_left, vec![session("1"), session("2")]));
        assert!(!add_sessions(&mut sessions, &mut names_left, vec![session("3")]));
        assert_eq!((sessions.len(), names_left), (2, 1));
    }

    #[test]
    fn rooms_are_counted_as_a_query_asks() {
        let session = |id: &str, rooms: &[&str]| RemoteSession {
            id: id.into(),
            details: Some(SessionDetails { handshake: "{}".into(), rooms: names(rooms), data: "{}".into() }),
        };
        let sessions =
            [session("1", &["1", "ab", "ac", "b"]), session("2", &["2", "ac"])].map(session_info).to_vec();
        let query = RoomsQuery { namespace: "/".into(), prefix: "a".into(), after: "aa".into(), limit: 10 };
        assert_eq!(rooms_of(sessions, &query).rooms, [("ab".into(), 1), ("ac".into(), 2)]);
    }
}
