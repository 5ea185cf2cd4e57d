//! HELLO and its answer.

use crate::entry::{ServerEntry, WorkerEntry};
use crate::error::{Code, LinkError};
use crate::frame::{Frame, Received, Writer};
use crate::limits::{HELLO_BYTES_MAX, IDENTITY_BYTES_MAX, RECOVERY_DEFAULT, RECOVERY_MAX, VERSION};
use crate::value::Json;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::time::Duration;

/// HELLO: the identity of a worker and the settings of its application. Fields that this version doesn't have are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Hello {
    /// Versions of the protocol that the worker speaks.
    #[serde(rename = "v")]
    pub versions: Vec<u32>,
    /// Name of the worker. It stays the same when the worker's process is replaced.
    pub name: String,
    /// Id of the worker's process.
    pub instance: String,
    /// Number of the process's link, as in the last WELCOME that it has received. `None`: it has received none.
    pub link: Option<u32>,
    /// Number of the last frame that the process has received on this link. 0: none.
    #[serde(default)]
    pub received: u32,
    /// How clients' packets are encoded.
    pub parser: Parser,
    /// Options of the application's engine.
    pub options: Value,
    /// `true`: each new session waits for the worker's answer.
    #[serde(default)]
    pub asks: bool,
    /// Port of the worker's own HTTP server. `None`: there is none, or it doesn't listen yet.
    pub http: Option<u16>,
    /// `true`: the application listens to requests that Stentor refuses.
    #[serde(default)]
    pub errors: bool,
    /// Policy for messages that the worker hasn't acknowledged when it crashes. `None`: the server's configuration has it.
    pub on_crash: Option<OnCrash>,
    /// How long the application can recover a socket after the loss of its client: `recovery.maxDisconnectionDuration`, at most
    /// [`RECOVERY_MAX`], by default [`RECOVERY_DEFAULT`]. `None`: it recovers none.
    #[serde(default, rename = "recovery", deserialize_with = "recovery_ttl")]
    pub recovery_ttl: Option<Duration>,
}

fn recovery_ttl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    /// `connectionStateRecovery` of Socket.IO.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Recovery {
        /// In milliseconds. JSON has no `Infinity`, so it becomes `null`.
        max_disconnection_duration: Option<f64>,
    }
    let recovery = Option::<Recovery>::deserialize(deserializer)?;
    Ok(recovery.map(|recovery| match recovery.max_disconnection_duration {
        Some(ms) => Duration::from_secs_f64((ms / 1e3).clamp(0.0, RECOVERY_MAX.as_secs_f64())),
        None => RECOVERY_DEFAULT,
    }))
}

/// The encoding of clients' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Parser {
    /// Socket.IO's own. A packet and its attachments reach a worker together.
    Json,
    /// A custom parser. Each message is one packet.
    Opaque,
}

/// Policy for messages that a worker hasn't acknowledged when it crashes. The worker may have handled some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCrash {
    /// The sessions that have sent them are closed.
    #[default]
    Disconnect,
    /// Another worker receives them: each is handled at least once.
    Redeliver,
    /// The messages are dropped, so each is handled at most once.
    Drop,
}

/// The answer to a worker that can't have a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub code: Code,
    /// The reason, for people: one line.
    pub message: String,
}

impl Refusal {
    /// A refusal for a reason.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The frame with ERROR, after which the connection is closed.
    pub fn frame(&self) -> Frame {
        #[derive(Serialize)]
        struct Body<'a> {
            code: &'static str,
            message: &'a str,
        }
        let error = to_json(&Body { code: self.code.name(), message: &self.message });
        unnumbered(&ServerEntry::Error { error })
    }
}

impl From<&LinkError> for Refusal {
    fn from(error: &LinkError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl OnCrash {
    /// The policy, as HELLO has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disconnect => "disconnect",
            Self::Redeliver => "redeliver",
            Self::Drop => "drop",
        }
    }
}

impl Hello {
    /// Reads the first frame of a connection.
    ///
    /// # Errors
    ///
    /// If it isn't a valid HELLO, or the worker doesn't speak this version.
    pub fn read(frame: Bytes) -> Result<Self, Refusal> {
        let hello = Self::parse(frame).map_err(|error| Refusal::from(&error))?;
        if !hello.versions.contains(&VERSION) {
            let message =
                format!("the worker speaks the versions {:?}; the server speaks {VERSION}", hello.versions);
            return Err(Refusal::new(Code::Version, message));
        }
        Ok(hello)
    }

    fn parse(frame: Bytes) -> Result<Self, LinkError> {
        if frame.len() > HELLO_BYTES_MAX {
            return Err(LinkError::HelloBytes(frame.len()));
        }
        let mut received = Received::<WorkerEntry>::new(frame)?;
        let hello = match received.next().transpose()? {
            Some(WorkerEntry::Hello { hello }) if received.number == 0 => hello,
            Some(entry) => return Err(LinkError::Unexpected(crate::codec::Entry::name(&entry))),
            None => return Err(LinkError::Field("HELLO")),
        };
        if received.unread_bytes() > 0 {
            return Err(LinkError::Field("HELLO"));
        }
        let hello: Self = serde_json::from_str(hello.as_str()).map_err(|_| LinkError::Field("HELLO"))?;
        let is_identity = |text: &str| (1..=IDENTITY_BYTES_MAX).contains(&text.len());
        match is_identity(&hello.name) && is_identity(&hello.instance) {
            true => Ok(hello),
            false => Err(LinkError::Field("HELLO")),
        }
    }
}

/// WELCOME: the answer to HELLO.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Welcome<'a> {
    pub(crate) v: u32,
    /// Number of the link.
    pub(crate) link: u32,
    /// `true`: the link continues after a broken connection.
    pub(crate) resumed: bool,
    /// Number of the last frame that the server has received.
    pub(crate) received: u32,
    /// Number of workers that take sessions.
    pub(crate) servers: u16,
    pub(crate) window: usize,
    /// The effective options.
    pub(crate) options: &'a Value,
}

impl Welcome<'_> {
    pub(crate) fn frame(&self) -> Frame {
        unnumbered(&ServerEntry::Welcome { welcome: to_json(self) })
    }
}

fn unnumbered(entry: &ServerEntry) -> Frame {
    let mut writer = Writer::default();
    writer.entry(entry);
    writer.finish(0, 0)
}

/// The JSON text of a value with texts for keys.
fn to_json(value: &impl Serialize) -> Json {
    let text = serde_json::to_string(value).unwrap_or_default();
    Json::new(text).expect("serde writes JSON")
}

/// Settings that all workers of an application share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Options of the engine.
    pub options: Value,
    /// The encoding of packets.
    pub parser: Parser,
    /// See [`Hello::recovery_ttl`], in milliseconds.
    pub recovery_ms: Option<u64>,
}

impl Settings {
    /// The settings of a worker.
    pub fn of(hello: &Hello) -> Self {
        let recovery_ms = hello.recovery_ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        Self { options: hello.options.clone(), parser: hello.parser, recovery_ms }
    }

    /// The settings as JSON.
    pub fn to_json(&self) -> Json {
        to_json(self)
    }

    /// Reads the settings of another node's workers. `None` if the text isn't of this version.
    pub fn from_json(json: &Json) -> Option<Self> {
        serde_json::from_str(json.as_str()).ok()
    }

    /// The first difference between these settings and those of another worker, for people. `whose` names the workers that have these.
    pub fn difference(&self, other: &Self, whose: &str) -> Option<String> {
        let begin = format!("the options differ from those of {whose}:");
        if self.parser != other.parser {
            return Some(format!("{begin} one of both has a custom `parser`"));
        }
        if self.recovery_ms != other.recovery_ms {
            let shown = |ms: Option<u64>| ms.map_or("not set".to_owned(), |ms| format!("{ms} ms"));
            let (own, there) = (shown(other.recovery_ms), shown(self.recovery_ms));
            return Some(format!("{begin} `connectionStateRecovery` is {own}, and {there} there"));
        }
        if self.options == other.options {
            return None;
        }
        let all = [&other.options, &self.options].into_iter().filter_map(Value::as_object);
        let get = |settings: &Self, key: &String| settings.options.get(key).cloned();
        let mut keys = all.flat_map(|all| all.keys());
        Some(match keys.find(|key| get(self, key) != get(other, key)) {
            Some(key) => {
                let (own, there) = (shown(get(other, key)), shown(get(self, key)));
                format!("{begin} `{key}` is {own}, and {there} there")
            }
            None => format!("the options differ from those of {whose}"),
        })
    }
}

/// The text of an option, for people.
fn shown(value: Option<Value>) -> String {
    const CHARS_MAX: usize = 60;
    match value {
        None => "not set".to_owned(),
        Some(value) => value.to_string().chars().take(CHARS_MAX).collect(),
    }
}
