//! Who takes part, and how it is started.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Options;
use crate::Error;
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
            // Feeds are served beside every application.
            Self::Chat | Self::Feed => "chat",
        }
    }
}

/// (name, folder under the peers or none for `stentor`, arguments): what `--servers` knows.
pub const KNOWN: &[(&str, Option<&str>, &[&str])] = &[
    ("stentor-epoll", None, &["--driver", "epoll"]),
    ("stentor-uring", None, &["--driver", "io_uring"]),
    ("bare-epoll", Some("bare"), &["--io", "epoll"]),
    ("bare-uring", Some("bare"), &["--io", "uring"]),
    ("bare-sendfile", Some("bare"), &["--io", "sendfile"]),
    ("bare-direct", Some("bare"), &["--io", "direct"]),
    ("uws-cpp", Some("uws-cpp"), &[]),
    ("ws8", Some("ws8"), &[]),
];

/// One server that takes part.
#[derive(Clone, Debug)]
pub struct Contestant {
    name: &'static str,
    program: PathBuf,
    install: Option<PathBuf>,
    args: &'static [&'static str],
    core: usize,
}

impl Contestant {
    /// The server called `name`.
    pub fn find(name: &str, options: &Options) -> Result<Self, Error> {
        let known = KNOWN.iter().find(|(known, ..)| *known == name).ok_or_else(|| {
            let names: Vec<&str> = KNOWN.iter().map(|(name, ..)| *name).collect();
            Error::Usage(format!("there is no server `{name}`; there are {}", names.join(", ")))
        })?;
        let (name, folder, args) = *known;
        let (program, install) = match folder {
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
        Ok(Self { name, program, install, args, core: options.server_core })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What makes it ready to run, where something does.
    pub(super) fn install(&self) -> Option<impl FnOnce() -> Result<(), Error>> {
        let (name, install) = (self.name, self.install.clone()?);
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

    /// The path of its WebSocket for `application`.
    pub fn path(&self, application: Application) -> &'static str {
        match application {
            Application::Echo | Application::Chat => "/ws",
            Application::Feed => "/ws/bench",
        }
    }

    /// How it brings a document to clients of which some may not read: by a feed, which those skip versions
    /// of, where it has feeds.
    pub fn publishes_by(&self) -> Application {
        if self.install.is_none() { Application::Feed } else { Application::Chat }
    }

    /// How it is started for `application`; `config` is a configuration file of Stentor's.
    pub fn command(&self, application: Application, config: Option<&Path>) -> ServerCommand {
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
        args.extend(self.args);
        let config = config.map(|path| path.to_string_lossy());
        args.extend(config.iter().flat_map(|path| ["--config", path.as_ref()]));
        ServerCommand {
            name: self.name.to_owned(),
            program: self.program.clone(),
            args: args.into_iter().map(str::to_owned).collect(),
            core: Some(self.core),
        }
    }
}
