//! The servers that can be measured: Stentor, and the peers, one folder each with a `peer.toml`.
//!
//! ```toml
//! about = "npm ws 8 with bufferutil, Node 20"      # one line for people
//! modes = ["echo", "chat", "fanout"]               # what `run --mode` knows
//! installed = "node_modules/.package-lock.json"    # what is there once it is installed; left out: nothing has to be
//! always = "tcp"                                   # speaks this whatever the others do: to show what that costs, or for want
//!                                                  # of what they speak
//! warm_up_s = 10                                   # needs so long to be as fast as it gets
//! [versions]                                       # of what matters, as the lock files have them
//! ws = "8.23.0"
//! nginx = { command = ["nginx", "-v"] }            # of one that the machine has: the first line of what that says, when the
//!                                                  # peer is described in a result
//! [protocols]                                      # what it speaks, by the generator's names, and at which path
//! websocket = "/"
//! [settings]                                       # what was chosen, for reports
//! perMessageDeflate = "off"
//! [[variants]]                                     # several servers of one folder; left out: one, called like the folder
//! name = "bare-epoll"
//! args = ["--io", "epoll"]
//! nodes = 2                                        # so many processes that share rooms by a Redis, which they are given as
//!                                                  # `--redis PORT`; left out: one
//! extra = "tls"                                    # its clients use that; it is given its files as
//!                                                  # `--certificate FILE --key FILE`
//! ```
//!
//! A field that isn't named here is an error, so that a misspelt one isn't passed over. A peer whose description isn't what it has
//! to be can't take part, and doesn't keep the others from it.

mod version;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;

use self::version::Version;
use crate::Error;
use crate::generator::Protocol;
use crate::measure::Ward;

pub(crate) use self::version::UNKNOWN;

/// The name of a peer's description.
const MANIFEST: &str = "peer.toml";
/// Beside the peers' folders, what tells people about them.
const README: &str = "README.md";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) about: String,
    pub(crate) modes: Vec<String>,
    #[serde(default)]
    versions: BTreeMap<String, Version>,
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
    installed: Option<PathBuf>,
    always: Option<Protocol>,
    #[serde(default)]
    warm_up_s: u64,
    protocols: BTreeMap<Protocol, String>,
    #[serde(default)]
    variants: Vec<Variant>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    nodes: usize,
    #[serde(default)]
    extra: Extra,
}

/// What a server does for its clients beside the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Extra {
    #[default]
    Nothing,
    Tls,
    /// nginx does it, on the same core; what that uses is counted as the server's.
    TlsByNginx,
    /// Permissions, and all clients have the same token, HS256.
    KnownToken,
    /// Each has its own.
    Hs256,
    /// The same, ES256.
    Es256,
    /// Compresses by permessage-deflate, which its clients offer.
    Deflate,
}

/// A peer's folder.
#[derive(Clone, Debug)]
pub struct Peer {
    folder: PathBuf,
    /// What it says of itself.
    pub(crate) manifest: Manifest,
    versions: OnceLock<BTreeMap<String, String>>,
}

impl Peer {
    fn read(folder: &Path) -> Result<Self, String> {
        let file = folder.join(MANIFEST);
        let wrong = |what: &str| format!("{}: {}", file.display(), what.trim_end());
        let text = fs::read_to_string(&file).map_err(|error| wrong(&error.to_string()))?;
        let manifest: Manifest = toml::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
        if let Some((name, _)) = manifest.versions.iter().find(|(_, version)| !version.is_sound()) {
            return Err(wrong(&format!("the command of the version of `{name}` is empty")));
        }
        Ok(Self { folder: folder.to_owned(), manifest, versions: OnceLock::new() })
    }

    /// Whether it can do this.
    pub fn knows(&self, mode: &str) -> bool {
        self.manifest.modes.iter().any(|known| known == mode)
    }

    /// The versions of what matters. Commands that tell them are run the first time, so it has to be installed by then; of one that
    /// can't be found out it says why.
    pub(crate) fn versions(&self) -> &BTreeMap<String, String> {
        self.versions.get_or_init(|| {
            let read = |(name, version): (&String, &Version)| (name.clone(), version.read(&self.folder));
            self.manifest.versions.iter().map(read).collect()
        })
    }

    /// Whether it is ready to run.
    pub fn is_installed(&self) -> bool {
        self.manifest.installed.as_ref().is_none_or(|path| self.folder.join(path).exists())
    }

    /// Makes it ready to run; does nothing where it is. What it starts ends with this process.
    pub(crate) fn install(&self) -> Result<(), Error> {
        let failed = |what: String| Error::Server { name: self.name(), what };
        let script = self.folder.join("install");
        let unusable = |error: std::io::Error| failed(format!("{} can't be run: {error}", script.display()));
        let mut command = Command::new(&script);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let (child, _ward) = Ward::spawn(&mut command).map_err(unusable)?;
        let output = child.wait_with_output().map_err(unusable)?;
        if output.status.success() {
            return Ok(());
        }
        let readme = self.folder.with_file_name(README);
        let needs = match readme.exists() {
            true => format!(" ({} has what such scripts need)", readme.display()),
            false => String::new(),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        Err(failed(format!("{} failed, {status}{needs}:\n{}", script.display(), said.trim_end())))
    }

    fn name(&self) -> String {
        name_of(&self.folder)
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("run")
    }
}

/// What a server is called that isn't started, but is there.
pub(crate) const TARGET: &str = "target";

/// Such a server.
#[derive(Clone, Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process, for its CPU and memory.
    pub pid: Option<u32>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where; `None`: as usual.
    pub path: Option<String>,
}

/// One server, as it is named on the command line.
#[derive(Clone, Debug)]
pub struct Known {
    /// For `--servers` and `--peers`.
    pub name: String,
    /// `None`: Stentor, or one that runs anyway.
    pub peer: Option<Arc<Peer>>,
    /// Where it runs already, and isn't started.
    pub running: Option<Running>,
    /// One line for people.
    pub(crate) about: String,
    /// Beside what all get.
    pub(crate) args: Vec<String>,
    /// What it serves, and at which path.
    speaks: BTreeMap<Protocol, String>,
    /// Speaks this in cases of other protocols: to show what those cost.
    pub(crate) always: Option<Protocol>,
    /// Its processes, which share rooms and feeds by a Redis where they are several.
    pub(crate) nodes: usize,
    pub(crate) extra: Extra,
    /// Of Stentor's, how many cores it uses; the generator has one of them, too, if they are several.
    pub(crate) cores: usize,
    /// Sends whole documents where others send what changed: to show what that spares.
    pub(crate) documents: bool,
}

impl Known {
    pub(crate) fn running(running: &Running) -> Self {
        let path = running.path.clone().unwrap_or_else(|| running.protocol.usual_path().to_owned());
        Self {
            about: "a server that was running already".to_owned(),
            args: Vec::new(),
            speaks: BTreeMap::from([(running.protocol, path)]),
            always: Some(running.protocol),
            running: Some(running.clone()),
            ..Self::stentor(TARGET, "", "")
        }
    }

    /// Whether it is this project's.
    pub(crate) fn is_stentor(&self) -> bool {
        self.peer.is_none() && self.running.is_none()
    }

    fn stentor(name: &str, driver: &str, more: &str) -> Self {
        Self {
            name: name.to_owned(),
            about: format!("Stentor{more}"),
            peer: None,
            running: None,
            args: vec!["--driver".to_owned(), driver.to_owned()],
            speaks: STENTOR_SPEAKS.map(|protocol| (protocol, protocol.usual_path().to_owned())).into(),
            always: None,
            nodes: 1,
            extra: Extra::Nothing,
            cores: 1,
            documents: false,
        }
    }

    /// What it serves.
    pub fn speaks(&self) -> impl Iterator<Item = Protocol> {
        self.speaks.keys().copied()
    }

    /// Whether it can take part where `protocol` is spoken.
    pub(crate) fn admits(&self, protocol: Protocol) -> bool {
        self.always.is_some() || self.speaks.contains_key(&protocol)
    }

    /// The same server, with clients that speak this and nothing else.
    pub(crate) fn speaking(&self, name: &str) -> Result<Self, Error> {
        let always = self.speaks().find(|spoken| spoken.name() == name);
        let speaks: Vec<&str> = self.speaks().map(Protocol::name).collect();
        let refused = || format!("{} doesn't speak `{name}`, but {}", self.name, speaks.join(", "));
        let always = always.ok_or_else(|| Error::Usage(refused()))?;
        let (own, about) = (&self.name, format!("{}, with clients of that protocol", self.about));
        Ok(Self { name: format!("{own}:{name}"), about, always: Some(always), ..self.clone() })
    }

    pub(crate) fn path(&self, protocol: Protocol) -> &str {
        self.speaks.get(&protocol).map_or(protocol.usual_path(), String::as_str)
    }

    /// How long it needs until it is as fast as it gets, where that is longer than what the cases do.
    pub(crate) fn warms_up(&self) -> Duration {
        self.peer.as_ref().map_or(Duration::ZERO, |peer| Duration::from_secs(peer.manifest.warm_up_s))
    }
}

const STENTOR_SPEAKS: [Protocol; 15] = [
    Protocol::WebSocket,
    Protocol::EngineIo,
    Protocol::EngineIo3,
    Protocol::SocketIo,
    Protocol::SocketIoPolling,
    Protocol::SocketIo2,
    Protocol::SocketIo2Polling,
    Protocol::SockJs,
    Protocol::SockJsStreaming,
    Protocol::Primus,
    Protocol::Primus6,
    Protocol::Sse,
    Protocol::StentorV1,
    Protocol::Rooms,
    Protocol::PublishApi,
];

/// All servers.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Stentor's first, then the peers by name.
    pub servers: Vec<Known>,
    /// Folders whose description isn't what it has to be.
    pub(crate) unusable: Vec<Unusable>,
    /// Where peers were looked for.
    peers: PathBuf,
}

#[derive(Clone, Debug)]
pub(crate) struct Unusable {
    pub name: String,
    pub(crate) why: String,
}

impl Catalogue {
    /// Stentor, and the peers of this folder.
    pub fn read(peers: &Path) -> Result<Self, Error> {
        let own = Known::stentor;
        let plain = |name, driver| Known {
            always: Some(Protocol::WebSocket),
            ..own(name, driver, ", with clients on plain WebSocket")
        };
        let extra = |name, driver, extra, more| Known { extra, ..own(name, driver, more) };
        let nodes = |name, nodes| Known {
            nodes,
            ..own(name, "epoll", ", on epoll, as several nodes with Redis between them")
        };
        let documents = "Stentor; clients of a feed get whole documents".to_owned();
        let token = ", with permissions; each client has its own token, of the algorithm in its name";
        let servers = vec![
            Known { args: Vec::new(), ..own("stentor", "", "") },
            own("stentor-epoll", "epoll", ", on epoll"),
            own("stentor-uring", "io_uring", ", on io_uring"),
            Known { cores: 2, ..own("stentor-epoll-2", "epoll", ", on epoll, on two cores") },
            plain("stentor-epoll-ws", "epoll"),
            plain("stentor-uring-ws", "io_uring"),
            Known { documents: true, about: documents, ..plain("stentor-epoll-documents", "epoll") },
            extra("stentor-epoll-tls", "epoll", Extra::Tls, ", on epoll, over TLS"),
            extra("stentor-uring-tls", "io_uring", Extra::Tls, ", on io_uring, over TLS"),
            extra(
                "stentor-epoll-nginx-tls",
                "epoll",
                Extra::TlsByNginx,
                ", on epoll, behind nginx, which does TLS",
            ),
            extra(
                "stentor-epoll-auth",
                "epoll",
                Extra::KnownToken,
                ", with permissions; clients have the same token",
            ),
            extra("stentor-epoll-hs256", "epoll", Extra::Hs256, token),
            extra("stentor-epoll-es256", "epoll", Extra::Es256, token),
            extra("stentor-epoll-deflate", "epoll", Extra::Deflate, ", on epoll, with permessage-deflate"),
            nodes("stentor-epoll-2nodes", 2),
            nodes("stentor-epoll-3nodes", 3),
        ];
        let mut catalogue = Self { servers, unusable: Vec::new(), peers: peers.to_owned() };
        let unreadable =
            |error: std::io::Error| Error::Usage(format!("{}: {error} (--peers-dir)", peers.display()));
        let mut folders = Vec::new();
        if peers.exists() {
            for entry in fs::read_dir(peers).map_err(unreadable)? {
                let folder = entry.map_err(unreadable)?.path();
                if folder.join(MANIFEST).exists() {
                    folders.push(folder);
                }
            }
        }
        folders.sort();
        for folder in folders {
            if let Err(why) = catalogue.add(&folder) {
                catalogue.unusable.push(Unusable { name: name_of(&folder), why });
            }
        }
        Ok(catalogue)
    }

    /// Adds the servers of a folder, all or none.
    fn add(&mut self, folder: &Path) -> Result<(), String> {
        let peer = Arc::new(Peer::read(folder)?);
        let manifest = &peer.manifest;
        let variants = match manifest.variants.is_empty() {
            true => vec![Variant { name: peer.name(), ..Variant::default() }],
            false => manifest.variants.clone(),
        };
        let is_there = |name: &str| self.servers.iter().any(|known| known.name == name);
        if let Some(Variant { name, .. }) = variants.iter().find(|variant| is_there(&variant.name)) {
            return Err(format!("{}: there is another `{name}`", folder.join(MANIFEST).display()));
        }
        for Variant { name, args, nodes, extra } in variants {
            self.servers.push(Known {
                about: manifest.about.clone(),
                peer: Some(Arc::clone(&peer)),
                args,
                speaks: manifest.protocols.clone(),
                always: manifest.always,
                nodes: nodes.max(1),
                extra,
                ..Known::stentor(&name, "", "")
            });
        }
        Ok(())
    }

    /// The peers of these names, which may be those of folders, each once; all, where none is named. One of several servers in a
    /// folder stands for the folder.
    pub(crate) fn peers<'a>(&'a self, names: &'a [String]) -> Vec<(&'a str, Result<Arc<Peer>, Error>)> {
        let servers = self.servers.iter().filter(|known| known.peer.is_some()).map(|known| &known.name);
        let all = servers.chain(self.unusable.iter().map(|unusable| &unusable.name));
        let names: Vec<&String> = if names.is_empty() { all.collect() } else { names.iter().collect() };
        let mut peers: Vec<(&str, Result<Arc<Peer>, Error>)> = Vec::new();
        for name in names {
            let of_folder = |known: &&Known| known.peer.as_ref().is_some_and(|peer| peer.name() == *name);
            let folder = || self.servers.iter().find(of_folder)?.peer.clone();
            let found = match self.find(name) {
                Ok(known) => known.peer.clone().map(Ok),
                Err(error) => Some(folder().ok_or(error)),
            };
            let Some(found) = found else { continue };
            let same = |other: &Arc<Peer>| found.as_ref().is_ok_and(|peer| Arc::ptr_eq(other, peer));
            if !peers.iter().any(|(_, there)| there.as_ref().is_ok_and(same)) {
                peers.push((name, found));
            }
        }
        peers
    }

    /// Where there is no peer, a line that says so.
    pub(crate) fn lacks(&self) -> Option<String> {
        let lacks = self.unusable.is_empty() && self.servers.iter().all(|known| known.peer.is_none());
        lacks.then(|| format!("there are no peers in {} (--peers-dir)", self.peers.display()))
    }

    /// The server of this name.
    pub fn find(&self, name: &str) -> Result<&Known, Error> {
        if let Some(known) = self.servers.iter().find(|known| known.name == name) {
            return Ok(known);
        }
        if let Some(unusable) = self.unusable.iter().find(|unusable| unusable.name == name) {
            return Err(Error::Server { name: name.to_owned(), what: unusable.why.clone() });
        }
        let names: Vec<&str> = self.servers.iter().map(|known| known.name.as_str()).collect();
        let lacks = self.lacks().unwrap_or_else(|| "--peers-dir names their folder".to_owned());
        let near = crate::suggestion(name, &names);
        let mut what = format!("there is no server `{name}`; there are {}{near}; {lacks}", names.join(", "));
        for unusable in &self.unusable {
            what += &format!("\nnot usable: {}", unusable.why);
        }
        Err(Error::Usage(what))
    }
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
