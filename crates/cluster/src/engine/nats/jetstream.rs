//! Streams of JetStream. <https://docs.nats.io/reference/reference-protocols/nats_api_reference>

use super::Shared;
use super::protocol::{self, Incoming};
use crate::engine::EngineError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::HistoryLimits;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Time for which the server remembers which messages it has stored.
const IDEMPOTENCY_TTL: Duration = Duration::from_secs(300);
/// Time for which an unused room or feed is kept.
pub(super) const IDLE_TTL: Duration = Duration::from_secs(86_400);
/// Messages of a room that the stream keeps beyond its history: parts, and those whose idempotency keys are remembered.
const MESSAGES_SPARE: i64 = 64;
/// Time after which the limits of the stream of rooms are read again. JetStream can't update a stream on the condition that it is
/// unchanged, so a node may have undone the update of another one.
const LIMITS_INTERVAL: Duration = Duration::from_secs(60);
/// The same time after an update of this node, which another node may be about to undo, and after a failed read.
const RAISED_INTERVAL: Duration = Duration::from_secs(2);
/// Number of copies in a cluster of servers.
const REPLICAS: usize = 3;
/// The header that nodes add to stored messages.
pub(super) const META: &str = "Stentor";

/// A connection on which everything is established.
pub(super) struct Session {
    /// Number of the connection in [`super::calls::Calls`].
    pub(super) connection: u64,
    /// Changes when the newest stored messages may be lost.
    pub(super) generation: String,
    pub(super) part_bytes_max: usize,
    pub(super) established_at: Instant,
    /// Notified when the connection must be replaced.
    pub(super) broken: Notify,
    /// The known limits of the stream of rooms.
    pub(super) stream_limits: Mutex<KnownLimits>,
    /// Locked while the limits of the stream of rooms are read and raised.
    pub(super) raising: tokio::sync::Mutex<()>,
}

/// Limits of each room in the stream of rooms: number of messages, and their age in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamLimits {
    messages: i64,
    age: i64,
}

impl StreamLimits {
    fn max(self, other: Self) -> Self {
        Self { messages: self.messages.max(other.messages), age: self.age.max(other.age) }
    }
}

/// The limits that the stream of rooms has at least.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownLimits {
    /// The limits that the rooms of this session need.
    needed: StreamLimits,
    /// Time at which the stream's limits are read again. `None` if they haven't been read.
    read_at: Option<Instant>,
}

impl KnownLimits {
    /// Returns `true` if the stream has had these limits.
    fn include(&self, needed: StreamLimits) -> bool {
        needed.max(self.needed) == self.needed
    }

    /// Returns `true` if the stream's limits must be read again now, and plans the read after that one.
    fn begin_read(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.read_at.is_some_and(|read_at| read_at <= now);
        if is_due {
            self.read_at = Some(now + RAISED_INTERVAL);
        }
        is_due
    }
}

/// A stream of this node's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Rooms,
    Feeds,
    Claims,
}

impl Stream {
    const ALL: [Self; 3] = [Self::Rooms, Self::Feeds, Self::Claims];

    fn kind(self) -> &'static str {
        match self {
            Self::Rooms => "rooms",
            Self::Feeds => "feeds",
            Self::Claims => "claims",
        }
    }
}

/// The message to read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    Last(&'a str),
    Sequence(u64),
}

/// A message of a stream.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) sequence: u64,
    /// Time at which the server stored the message, in nanoseconds since 1970.
    pub(super) time: u64,
    headers: Bytes,
    pub(super) payload: Bytes,
}

impl Stored {
    /// The header that the storing node has added.
    pub(super) fn meta<T: for<'a> Deserialize<'a>>(&self) -> Option<T> {
        serde_json::from_str(protocol::header(&self.headers, META)?).ok()
    }
}

/// The server's answer to storing a message.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Outcome {
    #[serde(default, rename = "seq")]
    pub(super) sequence: u64,
    /// `true` if the message was stored before, with the same idempotency key.
    #[serde(default, rename = "duplicate")]
    pub(super) is_duplicate: bool,
}

#[derive(Deserialize)]
struct ApiError {
    code: u16,
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

const NOT_FOUND: u32 = 10_037;
/// The second code is that of servers that are storing another message on the subject.
const WRONG_LAST_SEQUENCE: [u32; 2] = [10_071, 10_164];
const STREAM_NOT_FOUND: u32 = 10_059;
const NAME_IN_USE: u32 = 10_058;
const SUBJECTS_OVERLAP: u32 = 10_065;
/// No leader, an unavailable server or stream, a copy that is being stored, or too many requests.
const TEMPORARY: [u32; 6] = [10_007, 10_009, 10_118, 10_158, 10_167, 10_194];
/// No storage, no memory, or the maximum of the account or the stream.
const FULL: [u32; 4] = [10_023, 10_028, 10_047, 10_077];

impl From<ApiError> for EngineError {
    fn from(error: ApiError) -> Self {
        let reason: Arc<str> = format!("JetStream: {}", error.description).into();
        let is_temporary =
            (error.code == 503 && !FULL.contains(&error.err_code)) || TEMPORARY.contains(&error.err_code);
        if is_temporary || error.err_code == STREAM_NOT_FOUND {
            Self::Unavailable(reason)
        } else {
            Self::Refused(reason)
        }
    }
}

pub(super) fn unexpected() -> EngineError {
    EngineError::Refused("JetStream has other data under this name".into())
}

impl Shared {
    /// Makes a request to the server or to JetStream.
    async fn call(
        &self,
        session: &Session,
        subject: &str,
        headers: &str,
        payload: &[&[u8]],
    ) -> Result<Incoming, EngineError> {
        let answer = self.calls.call(session.connection, subject, headers, payload).await;
        let answer = answer.map_err(|_| EngineError::connection_lost())?;
        if answer.status() == Some(503) {
            // A stream or JetStream is missing. A new connection creates the streams.
            session.broken.notify_one();
            return Err(EngineError::Unavailable("JetStream doesn't answer".into()));
        }
        Ok(answer)
    }

    /// Sends a request to JetStream's API and returns its answer, which is JSON.
    async fn ask(&self, session: &Session, what: &str, stream: Option<Stream>, question: &Value) -> Asked {
        let name = stream.map(|stream| format!(".{}", self.names.stream(stream.kind()))).unwrap_or_default();
        let question = question.to_string();
        let answer = self.call(session, &format!("$JS.API.{what}{name}"), "", &[question.as_bytes()]).await?;
        Ok(answer.payload)
    }

    pub(super) async fn read(
        &self,
        session: &Session,
        stream: Stream,
        which: Which<'_>,
    ) -> Result<Option<Stored>, EngineError> {
        #[derive(Deserialize)]
        struct Answer<'a> {
            error: Option<ApiError>,
            #[serde(borrow)]
            message: Option<Message<'a>>,
        }
        #[derive(Deserialize)]
        struct Message<'a> {
            seq: u64,
            #[serde(borrow, default)]
            hdrs: Cow<'a, str>,
            #[serde(borrow, default)]
            data: Cow<'a, str>,
            #[serde(borrow)]
            time: Cow<'a, str>,
        }
        let question = match which {
            Which::Last(subject) => json!({ "last_by_subj": subject }),
            Which::Sequence(sequence) => json!({ "seq": sequence }),
        };
        let answer = self.ask(session, "STREAM.MSG.GET", Some(stream), &question).await?;
        match serde_json::from_slice(&answer).map_err(|_| unexpected())? {
            Answer { error: Some(ApiError { err_code: NOT_FOUND, .. }), .. } => Ok(None),
            Answer { error: Some(error), .. } => Err(failed(session, error)),
            Answer { message: Some(Message { seq, hdrs, data, time }), .. } => {
                let decode = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| unexpected());
                let time = nanoseconds(&time).ok_or_else(unexpected)?;
                let (headers, payload) = (decode(&hdrs)?.into(), decode(&data)?.into());
                Ok(Some(Stored { sequence: seq, time, headers, payload }))
            }
            Answer { message: None, .. } => Err(unexpected()),
        }
    }

    /// Stores a message, if the newest message on its subject is `expected` (zero if there is none). Returns `None` if
    /// another message was stored first.
    pub(super) async fn store(
        &self,
        session: &Session,
        subject: &str,
        expected: Option<u64>,
        idempotency_key: Option<&str>,
        meta: &str,
        payload: &[&[u8]],
    ) -> Result<Option<Outcome>, EngineError> {
        #[derive(Deserialize)]
        struct Answer {
            error: Option<ApiError>,
            #[serde(flatten)]
            outcome: Outcome,
        }
        let mut headers = format!("{META}: {meta}\r\n");
        if let Some(expected) = expected {
            headers += &format!("Nats-Expected-Last-Subject-Sequence: {expected}\r\n");
        }
        if let Some(key) = idempotency_key {
            headers += &format!("Nats-Msg-Id: {key}\r\n");
        }
        let answer = self.call(session, subject, &headers, payload).await?;
        match serde_json::from_slice(&answer.payload).map_err(|_| unexpected())? {
            Answer { error: Some(error), .. } if WRONG_LAST_SEQUENCE.contains(&error.err_code) => Ok(None),
            Answer { error: Some(error), .. } => Err(failed(session, error)),
            Answer { outcome: Outcome { sequence: 0, .. }, .. } => {
                Err(EngineError::Unavailable("JetStream is storing the message".into()))
            }
            Answer { outcome, .. } => Ok(Some(outcome)),
        }
    }

    /// Deletes an unneeded message, without waiting for the answer.
    pub(super) fn delete(&self, session: &Session, stream: Stream, sequence: u64) {
        // Erasing would overwrite the message, but it has no secrets.
        self.tell(session, "STREAM.MSG.DELETE", stream, &json!({ "seq": sequence, "no_erase": true }));
    }

    /// Deletes the messages on a subject before the sequence `before`, without waiting for the answer.
    pub(super) fn purge(&self, session: &Session, stream: Stream, subject: &str, before: u64) {
        self.tell(session, "STREAM.PURGE", stream, &json!({ "filter": subject, "seq": before }));
    }

    /// Makes a request to JetStream, and ignores the answer.
    fn tell(&self, session: &Session, what: &str, stream: Stream, question: &Value) {
        let subject = format!("$JS.API.{what}.{}", self.names.stream(stream.kind()));
        let payload = question.to_string();
        drop(self.calls.call(session.connection, &subject, "", &[payload.as_bytes()]));
    }

    /// Raises the limits of the stream of rooms to those that a room needs. If the stream has had these limits, the request doesn't
    /// wait: a task reads the limits again from time to time.
    pub(super) async fn raise_limits(
        self: &Arc<Self>,
        session: &Arc<Session>,
        limits: &HistoryLimits,
    ) -> Result<(), EngineError> {
        let needed = StreamLimits {
            messages: i64::try_from(limits.publications_max)
                .unwrap_or(i64::MAX)
                .saturating_add(MESSAGES_SPARE),
            age: i64::try_from(limits.age_max.saturating_add(IDLE_TTL).as_nanos()).unwrap_or(i64::MAX),
        };
        if !session.stream_limits.lock().include(needed) {
            let _turn = session.raising.lock().await;
            // Another room may have raised the limits meanwhile.
            let is_raised = session.stream_limits.lock().include(needed);
            return if is_raised { Ok(()) } else { self.restore_limits(session, needed).await };
        }
        if session.stream_limits.lock().begin_read() {
            let (shared, session) = (self.clone(), session.clone());
            tokio::spawn(async move {
                let restored = timeout(RAISED_INTERVAL, async {
                    let _turn = session.raising.lock().await;
                    shared.restore_limits(&session, needed).await
                });
                let unanswered = || Err(EngineError::Unavailable("JetStream doesn't answer".into()));
                if let Err(error) = restored.await.unwrap_or_else(|_| unanswered()) {
                    tracing::warn!(%error, "the limits of the stream of rooms can't be read");
                }
            });
        }
        Ok(())
    }

    /// Reads the limits of the stream of rooms, and raises them to these limits and those that earlier rooms need. Called while
    /// [`Session::raising`] is locked.
    async fn restore_limits(&self, session: &Session, needed: StreamLimits) -> Result<(), EngineError> {
        #[derive(Deserialize)]
        struct Answer {
            error: Option<ApiError>,
            config: Option<Map<String, Value>>,
        }
        let needed = needed.max(session.stream_limits.lock().needed);
        let ask = async |what, question: &Value| {
            let answer = self.ask(session, what, Some(Stream::Rooms), question).await?;
            match serde_json::from_slice(&answer).map_err(|_| unexpected())? {
                Answer { error: Some(error), .. } => Err(failed(session, error)),
                Answer { config, .. } => config.ok_or_else(unexpected),
            }
        };
        let mut config = ask("STREAM.INFO", &Value::Null).await?;
        let field = |name: &str| {
            config.get(name).and_then(Value::as_i64).filter(|limit| *limit > 0).unwrap_or(i64::MAX)
        };
        let has = StreamLimits { messages: field("max_msgs_per_subject"), age: field("max_age") };
        let (limits, mut interval) = (needed.max(has), LIMITS_INTERVAL);
        if limits != has {
            let limit = |limit: i64, unlimited: i64| if limit == i64::MAX { unlimited } else { limit };
            config.insert("max_msgs_per_subject".into(), limit(limits.messages, -1).into());
            config.insert("max_age".into(), limit(limits.age, 0).into());
            ask("STREAM.UPDATE", &config.into()).await?;
            interval = RAISED_INTERVAL;
        }
        *session.stream_limits.lock() = KnownLimits { needed, read_at: Some(Instant::now() + interval) };
        Ok(())
    }

    /// Creates the missing streams.
    pub(super) async fn make_streams(&self, session: &Session, is_cluster: bool) -> Result<(), EngineError> {
        #[derive(Deserialize)]
        struct Answer {
            error: Option<ApiError>,
        }
        let answer = self.ask(session, "INFO", None, &Value::Null).await?;
        if let Answer { error: Some(error) } = serde_json::from_slice(&answer).map_err(|_| unexpected())? {
            return Err(error.into());
        }
        for stream in Stream::ALL {
            let mut config = json!({
                "name": self.names.stream(stream.kind()),
                "retention": "limits",
                "discard": "old",
                "storage": "file",
                "num_replicas": if is_cluster { REPLICAS } else { 1 },
                "max_consumers": -1,
                "max_msgs": -1,
                "max_bytes": -1,
                "duplicate_window": nanoseconds_of(IDEMPOTENCY_TTL),
            });
            let republish = |kind: &str| json!({ "src": self.names.subject(&format!("{kind}.>")), "dest": self.names.subject(&format!("live.{kind}.>")) });
            let own = match stream {
                Stream::Rooms => json!({
                    "subjects": [self.names.subject("room.>")],
                    "republish": republish("room"),
                    "max_msgs_per_subject": 256,
                    "max_age": nanoseconds_of(IDLE_TTL * 2),
                }),
                Stream::Feeds => json!({
                    "subjects": [self.names.subject("feed.>"), self.names.subject("base.>")],
                    "republish": republish("feed"),
                    "max_age": nanoseconds_of(IDLE_TTL * 2),
                }),
                Stream::Claims => json!({
                    "subjects": [self.names.subject("claim.>")],
                    "max_msgs_per_subject": 1,
                    "max_age": nanoseconds_of(IDLE_TTL),
                }),
            };
            if let (Some(config), Value::Object(own)) = (config.as_object_mut(), own) {
                config.extend(own);
            }
            let ask = async |what, question| {
                let answer = self.ask(session, what, Some(stream), question).await?;
                let Answer { error } = serde_json::from_slice(&answer).map_err(|_| unexpected())?;
                Ok::<_, EngineError>(error)
            };
            match ask("STREAM.CREATE", &config).await? {
                // The stream exists with other limits: nodes have raised them, or an operator has changed them.
                None | Some(ApiError { err_code: NAME_IN_USE, .. }) => {}
                // If another node creates the stream at this moment, its own subjects can be those that overlap.
                Some(error) if error.err_code == SUBJECTS_OVERLAP => {
                    if ask("STREAM.INFO", &Value::Null).await?.is_some() {
                        return Err(error.into());
                    }
                }
                Some(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

type Asked = Result<Bytes, EngineError>;

fn failed(session: &Session, error: ApiError) -> EngineError {
    if error.err_code == STREAM_NOT_FOUND {
        session.broken.notify_one();
    }
    error.into()
}

fn nanoseconds_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A time such as `2026-11-23T06:47:06.716378048Z`, in nanoseconds since 1970.
fn nanoseconds(time: &str) -> Option<u64> {
    let (date, time) = time.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by| -> Option<[u64; 3]> {
        let numbers: Option<Vec<u64>> = text.split(by).map(|number| number.parse().ok()).collect();
        numbers?.try_into().ok()
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    let is_valid = (1970..=2500).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_valid || hour > 23 || minute > 59 || second > 60 || fraction.len() > 9 {
        return None;
    }
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719_469;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000_000 + format!("{fraction:0<9}").parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (time, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:00.5Z", Some(951_825_600_500_000_000)),
            ("2026-11-23T06:47:06.716378048Z", Some(1_795_416_426_716_378_048)),
            ("2026-11-23 06:47:06Z", None),
            ("2026-13-23T06:47:06Z", None),
            ("2026-11-23T06:47:06.7163780481Z", None),
        ] {
            assert_eq!(nanoseconds(time), expected, "{time}");
        }
    }
}
