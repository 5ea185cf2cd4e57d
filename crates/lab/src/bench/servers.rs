//! Who takes part, and how it is started.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Options;
use crate::Error;
use crate::generator::Protocol;
use crate::measure::ServerCommand;

/// What a server is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// The same bytes back.
    Echo,
    /// Each message to everybody.
    Chat,
    /// A document of an upstream to everybody, version by version; only Stentor does that.
    Feed,
}

impl Application {
    fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Chat => "chat",
            // The one that speaks `stentor.v1`.
            Self::Feed => "rooms",
        }
    }
}

/// What `--servers` knows.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// For `--servers`.
    pub name: &'static str,
    /// The folder under the peers; `None` for `stentor`.
    folder: Option<&'static str>,
    args: &'static [&'static str],
    /// What it serves.
    speaks: &'static [Protocol],
    /// Speaks this in cases of other protocols: to show what those cost.
    always: Option<Protocol>,
    /// Sends whole documents where others send what changed: to show what that spares.
    documents: bool,
    /// How long it has to be warmed up until its compiler is done, where that is longer than what the cases do.
    warms_up: Duration,
}

impl Known {
    const fn stentor(name: &'static str, args: &'static [&'static str]) -> Self {
        Self {
            name,
            folder: None,
            args,
            speaks: ALL,
            always: None,
            documents: false,
            warms_up: Duration::ZERO,
        }
    }

    /// A WebSocket server.
    const fn peer(name: &'static str, folder: &'static str, args: &'static [&'static str]) -> Self {
        let speaks = &[Protocol::WebSocket];
        Self {
            name,
            folder: Some(folder),
            args,
            speaks,
            always: None,
            documents: false,
            warms_up: Duration::ZERO,
        }
    }

    const fn speaking(self, speaks: &'static [Protocol]) -> Self {
        Self { speaks, ..self }
    }

    const fn always(self, protocol: Protocol) -> Self {
        Self { always: Some(protocol), ..self }
    }

    const fn with_documents(self) -> Self {
        Self { documents: true, ..self }
    }

    const fn warming_up(self, warms_up: Duration) -> Self {
        Self { warms_up, ..self }
    }

    /// Whether it can take part where `protocol` is spoken.
    pub fn admits(&self, protocol: Protocol) -> bool {
        self.always.is_some() || self.speaks.contains(&protocol)
    }
}

const ALL: &[Protocol] = &[
    Protocol::WebSocket,
    Protocol::EngineIo,
    Protocol::SocketIo,
    Protocol::SocketIoPolling,
    Protocol::SockJs,
    Protocol::SockJsStreaming,
    Protocol::Sse,
    Protocol::StentorV1,
];
const SOCK_JS: &[Protocol] = &[Protocol::SockJs, Protocol::SockJsStreaming];
const SOCKET_IO: &[Protocol] = &[Protocol::SocketIo, Protocol::SocketIoPolling];
const SOCKET_IO_4: &[Protocol] = &[Protocol::EngineIo, Protocol::SocketIo, Protocol::SocketIoPolling];

/// The servers.
pub const KNOWN: &[Known] = &[
    Known::stentor("stentor-epoll", &["--driver", "epoll"]),
    Known::stentor("stentor-uring", &["--driver", "io_uring"]),
    Known::stentor("stentor-epoll-ws", &["--driver", "epoll"]).always(Protocol::WebSocket),
    Known::stentor("stentor-uring-ws", &["--driver", "io_uring"]).always(Protocol::WebSocket),
    Known::stentor("stentor-epoll-documents", &["--driver", "epoll"])
        .always(Protocol::WebSocket)
        .with_documents(),
    Known::peer("bare-epoll", "bare", &["--io", "epoll"]),
    Known::peer("bare-uring", "bare", &["--io", "uring"]),
    Known::peer("bare-sendfile", "bare", &["--io", "sendfile"]),
    Known::peer("bare-direct", "bare", &["--io", "direct"]),
    Known::peer("uws-cpp", "uws-cpp", &[]),
    Known::peer("ws8", "ws8", &[]),
    Known::peer("socketio4", "socketio4", &[]).speaking(SOCKET_IO_4),
    Known::peer("socketioxide", "socketioxide", &[]).speaking(SOCKET_IO),
    Known::peer("sockjs-node", "sockjs-node", &[]).speaking(SOCK_JS),
    Known::peer("sockjs-tornado-pypy45", "sockjs-tornado-pypy45", &[])
        .speaking(SOCK_JS)
        .warming_up(Duration::from_secs(10)),
    Known::peer("tcp", "tcp", &[]).always(Protocol::Tcp),
];

/// What clients of a feed are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feeds {
    Changes,
    Documents,
    Messages,
}

/// One server that takes part.
#[derive(Clone, Debug)]
pub struct Contestant {
    known: &'static Known,
    program: PathBuf,
    install: Option<PathBuf>,
    core: usize,
}

impl Contestant {
    /// The server called `name`.
    pub fn find(name: &str, options: &Options) -> Result<Self, Error> {
        let known = KNOWN.iter().find(|known| known.name == name).ok_or_else(|| {
            let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
            Error::Usage(format!("there is no server `{name}`; there are {}", names.join(", ")))
        })?;
        let (program, install) = match known.folder {
            Some(folder) => {
                let folder = options.peers.join(folder);
                if !folder.is_dir() {
                    return Err(Error::Usage(format!("{} is not there (--peers)", folder.display())));
                }
                (folder.join("run"), Some(folder.join("install")))
            }
            None => {
                let program = options.stentor.clone();
                (program.ok_or_else(|| Error::Usage(format!("{name} needs --stentor PATH")))?, None)
            }
        };
        Ok(Self { known, program, install, core: options.server_core })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.known.name
    }

    /// What makes it ready to run, where something does.
    pub(super) fn install(&self) -> Option<impl FnOnce() -> Result<(), Error>> {
        let (name, install) = (self.name(), self.install.clone()?);
        Some(move || {
            let output = Command::new(&install)
                .stdin(Stdio::null())
                .output()
                .map_err(Error::io("installing a peer"))?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(Error::Server { name: name.to_owned(), what: format!("its install script failed:\n{said}") })
        })
    }

    /// What it speaks where `protocol` is the case's.
    pub fn protocol(&self, protocol: Protocol) -> Protocol {
        self.known.always.unwrap_or(protocol)
    }

    /// How long it needs until it is as fast as it gets, where that is longer than what the cases do.
    pub fn warms_up(&self) -> Duration {
        self.known.warms_up
    }

    /// The path of `protocol` for `application`; feeds are for WebSocket and Server-Sent Events.
    pub fn path(&self, application: Application, protocol: Protocol) -> &'static str {
        match (application, protocol) {
            (Application::Echo | Application::Chat, _) => protocol.usual_path(),
            (Application::Feed, Protocol::Sse) => "/sse/bench",
            (Application::Feed, Protocol::StentorV1) => "/ws?feed=bench",
            (Application::Feed, _) => "/ws/bench",
        }
    }

    /// How it brings a document to clients of which some may not read: by a feed, which those skip versions
    /// of, where it has feeds.
    pub fn publishes_by(&self) -> Application {
        if self.install.is_none() { Application::Feed } else { Application::Chat }
    }

    /// What it is compared by where others send what changed in a document: that, whole documents, or a fan-out of plain
    /// messages.
    pub(super) fn feeds(&self) -> Feeds {
        match self.known {
            Known { documents: true, .. } => Feeds::Documents,
            Known { always: Some(_), .. } => Feeds::Messages,
            _ => Feeds::Changes,
        }
    }

    /// How it is started for `application` and clients that speak `protocol`; `config` is a configuration file of
    /// Stentor's.
    pub fn command(
        &self,
        application: Application,
        protocol: Protocol,
        config: Option<&Path>,
    ) -> ServerCommand {
        let app = application.name();
        let mut args: Vec<&str> = match self.install {
            None => vec![
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--cores",
                "1",
                "--app",
                app,
            ],
            Some(_) => vec!["--mode", app, "--port", "0"],
        };
        if self.install.is_some() && self.known.speaks.len() > 1 {
            args.extend(["--protocol", protocol.name()]);
        }
        args.extend(self.known.args);
        let config = config.map(|path| path.to_string_lossy());
        args.extend(config.iter().flat_map(|path| ["--config", path.as_ref()]));
        ServerCommand {
            name: self.name().to_owned(),
            program: self.program.clone(),
            args: args.into_iter().map(str::to_owned).collect(),
            core: Some(self.core),
        }
    }
}
