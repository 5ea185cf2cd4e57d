//! Scripts, each of which is one step for the server.

use sha1::{Digest, Sha1};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// A script by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Append,
    History,
    Head,
    End,
    Acquire,
    Renew,
    Store,
    Load,
    Heartbeat,
    Claim,
}

/// The scripts that the server has run on a connection. Other scripts are sent with their text: a request with a script
/// that is unknown to the server must be sent twice, and others overtake it.
#[derive(Debug, Default)]
pub(super) struct KnownScripts(AtomicU16);

impl KnownScripts {
    pub(super) fn has(&self, script: Script) -> bool {
        self.0.load(Ordering::Relaxed) & 1 << script as u16 != 0
    }

    pub(super) fn add(&self, script: Script) {
        self.0.fetch_or(1 << script as u16, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, script: Script) {
        self.0.fetch_and(!(1 << script as u16), Ordering::Relaxed);
    }
}

struct Source {
    text: String,
    sha1: String,
}

/// All scripts, in the order of [`Script`].
static SOURCES: LazyLock<[Source; 10]> = LazyLock::new(|| {
    let room = include_str!("scripts/room.lua");
    [
        [room, include_str!("scripts/append.lua")].concat(),
        [room, include_str!("scripts/history.lua")].concat(),
        [room, include_str!("scripts/head.lua")].concat(),
        [room, include_str!("scripts/end.lua")].concat(),
        include_str!("scripts/acquire.lua").into(),
        include_str!("scripts/renew.lua").into(),
        include_str!("scripts/store.lua").into(),
        include_str!("scripts/load.lua").into(),
        include_str!("scripts/heartbeat.lua").into(),
        include_str!("scripts/claim.lua").into(),
    ]
    .map(|text| {
        let sha1 = Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        Source { sha1, text }
    })
});

impl Script {
    /// `true` if the script's first argument is the server's replication id.
    fn needs_replication_id(self) -> bool {
        self.is_about_room() || matches!(self, Self::Store | Self::Load)
    }

    /// `true` if the script's second argument is a new epoch.
    fn is_about_room(self) -> bool {
        matches!(self, Self::Append | Self::History | Self::Head | Self::End)
    }
}

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) script: Script,
    pub(super) keys: Vec<String>,
    pub(super) arguments: Vec<bytes::Bytes>,
}

impl Call {
    pub(super) fn new(script: Script, keys: Vec<String>) -> Self {
        Self { script, keys, arguments: Vec::new() }
    }

    pub(super) fn text(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string().into());
        self
    }

    pub(super) fn bytes(mut self, argument: bytes::Bytes) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Approximate size in memory.
    pub(super) fn size(&self) -> usize {
        let keys = self.keys.iter().map(|key| size_of_val(key) + key.len());
        let arguments = self.arguments.iter().map(|argument| size_of_val(argument) + argument.len());
        size_of::<Self>() + keys.chain(arguments).sum::<usize>()
    }

    /// The command, with the script's text if `with_text`, for a server that doesn't know it.
    pub(super) fn command(&self, replication_id: &str, with_text: bool) -> redis::Cmd {
        let source = &SOURCES[self.script as usize];
        let mut command = redis::cmd(if with_text { "EVAL" } else { "EVALSHA" });
        command.arg(if with_text { &source.text } else { &source.sha1 });
        command.arg(self.keys.len()).arg(&self.keys);
        if self.script.needs_replication_id() {
            command.arg(replication_id);
        }
        if self.script.is_about_room() {
            command.arg(fastrand::u64(1..1 << 53));
        }
        for argument in &self.arguments {
            command.arg(&argument[..]);
        }
        command
    }
}
