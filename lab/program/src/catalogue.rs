//! The catalogue of servers: Stentor, and the peers, each in a folder with a `peer.toml`.
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
//! Unknown fields are errors, so that misspelt ones are found. A peer with a wrong description can't take part; the other peers can.

mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use self::version::Version;
use crate::Error;
use crate::generator::Protocol;
use crate::measure::ChildGuard;

pub(crate) use self::version::is_known;

/// The mode of a peer that fetches documents.
const FEED: &str = "feed";
/// The file with a peer's description.
const MANIFEST: &str = "peer.toml";
/// The file beside the folders of the servers that lists their requirements.
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
    variants: Vec<Known>,
}

/// Additional feature of a server, besides the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Extra {
    #[default]
    Nothing,
    Tls,
    /// TLS by nginx on the same core. Its CPU and memory count as the server's.
    TlsByNginx,
    /// Permissions by tokens. All clients have the same HS256 token.
    KnownToken,
    /// Each client has its own HS256 token.
    Hs256,
    /// Each client has its own ES256 token.
    Es256,
    /// The server compresses by permessage-deflate, which its clients offer.
    Deflate,
}

/// A peer's folder.
#[derive(Clone, Debug)]
pub struct Peer {
    folder: PathBuf,
    /// The content of `peer.toml`.
    pub(crate) manifest: Manifest,
    versions: OnceLock<BTreeMap<String, String>>,
}

impl Peer {
    fn read(folder: &Path) -> Result<Self, String> {
        let file = folder.join(MANIFEST);
        let wrong = |what: &str| format!("{}: {}", file.display(), what.trim_end());
        let text = fs::read_to_string(&file).map_err(|error| wrong(&error.to_string()))?;
        let manifest: Manifest = toml::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
        if let Some((name, _)) = manifest.versions.iter().find(|(_, version)| !version.is_valid()) {
            return Err(wrong(&format!("the command of the version of `{name}` is empty")));
        }
        Ok(Self { folder: folder.to_owned(), manifest, versions: OnceLock::new() })
    }

    /// Returns `true` if the peer supports this mode.
    pub fn knows(&self, mode: &str) -> bool {
        self.manifest.modes.iter().any(|known| known == mode)
    }

    /// The versions of the relevant software. The first call runs the commands that print them, so the peer must be installed by
    /// then. A version that can't be determined has the reason as its text.
    pub(crate) fn versions(&self) -> &BTreeMap<String, String> {
        self.versions.get_or_init(|| {
            let read = |(name, version): (&String, &Version)| (name.clone(), version.read(&self.folder));
            self.manifest.versions.iter().map(read).collect()
        })
    }

    /// Returns `true` if the peer is ready to run.
    pub fn is_installed(&self) -> bool {
        self.manifest.installed.as_ref().is_none_or(|path| self.folder.join(path).exists())
    }

    /// Installs the server unless it is installed. Processes that the script starts end with this process.
    pub(crate) fn install(&self) -> Result<(), Error> {
        let failed = |what: String| Error::Server { name: self.name(), what };
        let script = self.folder.join("install");
        let unusable = |error: std::io::Error| failed(format!("{} can't be run: {error}", script.display()));
        let mut command = Command::new(&script);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let (child, _guard) = ChildGuard::spawn(&mut command).map_err(unusable)?;
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

/// Name of a server that was running already (`--target`).
pub(crate) const TARGET: &str = "target";

/// A server that is already running.
#[derive(Clone, Debug, Args)]
pub struct Running {
    /// The address of a server that runs already. `run` measures only this one if no other is named.
    #[arg(long = "target", id = "target", value_name = "HOST:PORT", required = false, value_parser = address)]
    pub address: SocketAddr,
    /// Protocol of the clients.
    #[arg(long, value_enum, default_value = "websocket", requires = "target")]
    pub protocol: Protocol,
    /// The path of the protocol [default: the protocol's usual one; sse needs one].
    #[arg(long, requires = "target")]
    pub path: Option<String>,
    /// The server's process id, to read its CPU and memory.
    #[arg(long = "server-pid", requires = "target")]
    pub pid: Option<u32>,
}

/// Parses HOST:PORT, for clap.
fn address(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = text.to_socket_addrs().map_err(|error| error.to_string())?;
    addresses.find(SocketAddr::is_ipv4).ok_or_else(|| "it has no IPv4 address".to_owned())
}

/// A server of the catalogue. An entry of `[[variants]]` has the fields that `serde` doesn't skip.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The name for `--servers` and `--peers`.
    pub name: String,
    /// The peer. `None` for Stentor, or a server that is already running.
    #[serde(skip)]
    pub peer: Option<Arc<Peer>>,
    /// Set if the server runs already and isn't started.
    #[serde(skip)]
    pub running: Option<Running>,
    /// A description in one line. An entry without a description has that of its folder.
    #[serde(default)]
    pub(crate) about: String,
    /// Additional arguments.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// Protocols with their paths.
    #[serde(skip)]
    speaks: BTreeMap<Protocol, String>,
    /// The protocol that this server always uses, also in cases of other protocols, to show the cost of that protocol.
    /// An entry without one has that of the folder.
    pub(crate) always: Option<Protocol>,
    /// Number of processes. Several processes share rooms and feeds through a Redis.
    #[serde(default)]
    pub(crate) nodes: usize,
    #[serde(default)]
    pub(crate) extra: Extra,
    /// Number of cores of Stentor. If there are several, one of them is shared with the generator.
    #[serde(default)]
    pub(crate) cores: usize,
    /// `true` if the server sends whole documents where other servers send changes, to show the savings of changes.
    #[serde(default)]
    pub(crate) documents: bool,
}

impl Known {
    pub(crate) fn running(running: &Running) -> Self {
        let path = running.path.clone().unwrap_or_else(|| running.protocol.usual_path().to_owned());
        Self {
            name: TARGET.to_owned(),
            about: "a server that was running already".to_owned(),
            always: Some(running.protocol),
            speaks: BTreeMap::from([(running.protocol, path)]),
            running: Some(running.clone()),
            nodes: 1,
            cores: 1,
            ..Self::default()
        }
    }

    /// Completes the server of an entry by the common values of its folder.
    fn completed(mut self, manifest: &Manifest, peer: Option<&Arc<Peer>>) -> Self {
        if self.about.is_empty() {
            self.about.clone_from(&manifest.about);
        }
        self.always = self.always.or(manifest.always);
        self.speaks.clone_from(&manifest.protocols);
        (self.nodes, self.cores) = (self.nodes.max(1), self.cores.max(1));
        Self { peer: peer.cloned(), ..self }
    }

    /// Returns `true` if the server is Stentor.
    pub(crate) fn is_stentor(&self) -> bool {
        self.peer.is_none() && self.running.is_none()
    }

    /// Returns `true` if the server fetches documents and sends their versions.
    pub(crate) fn has_feeds(&self) -> bool {
        self.peer.as_ref().map_or(self.is_stentor(), |peer| peer.knows(FEED))
    }

    /// The protocols of the server.
    pub fn speaks(&self) -> impl Iterator<Item = Protocol> {
        self.speaks.keys().copied()
    }

    /// Returns `true` if the server can take part in a case with clients of `protocol`.
    pub(crate) fn admits(&self, protocol: Protocol) -> bool {
        self.always.is_some() || self.speaks.contains_key(&protocol)
    }

    /// The same server with clients of this protocol only.
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

    /// Time until the server reaches its full speed, if longer than the warm-up of the cases.
    pub(crate) fn warms_up(&self) -> Duration {
        self.peer.as_ref().map_or(Duration::ZERO, |peer| Duration::from_secs(peer.manifest.warm_up_s))
    }
}

/// Stentor's own servers.
const STENTOR: &str = include_str!("catalogue/stentor.toml");

/// All known servers.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Stentor's servers, then the peers by name.
    pub servers: Vec<Known>,
    /// Folders with a wrong description.
    pub(crate) unusable: Vec<Unusable>,
    /// The folder of the peers.
    peers: PathBuf,
}

#[derive(Clone, Debug)]
pub(crate) struct Unusable {
    pub name: String,
    pub(crate) why: String,
}

impl Catalogue {
    /// Reads Stentor's servers and the peers of this folder.
    pub fn read(peers: &Path) -> Result<Self, Error> {
        // A mistake in the embedded text is a bug of this program.
        let own: Manifest = toml::from_str(STENTOR).map_err(|error| Error::Usage(error.to_string()))?;
        let servers = own.variants.iter().map(|entry| entry.clone().completed(&own, None)).collect();
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

    /// Adds all servers of a folder, or none.
    fn add(&mut self, folder: &Path) -> Result<(), String> {
        let peer = Arc::new(Peer::read(folder)?);
        let manifest = &peer.manifest;
        let entries = match manifest.variants.is_empty() {
            true => vec![Known { name: peer.name(), ..Known::default() }],
            false => manifest.variants.clone(),
        };
        let is_there = |name: &str| self.servers.iter().any(|known| known.name == name);
        if let Some(Known { name, .. }) = entries.iter().find(|entry| is_there(&entry.name)) {
            return Err(format!("{}: there is another `{name}`", folder.join(MANIFEST).display()));
        }
        self.servers.extend(entries.into_iter().map(|entry| entry.completed(manifest, Some(&peer))));
        Ok(())
    }

    /// The peers with these names or in the folders with these names, each once. All peers if `names` is empty. One
    /// server represents a folder of several.
    pub(crate) fn peers<'a>(&'a self, names: &'a [String]) -> Vec<(&'a str, Result<Arc<Peer>, Error>)> {
        let servers = self.servers.iter().map(|known| &known.name);
        let all = servers.chain(self.unusable.iter().map(|unusable| &unusable.name));
        let names: Vec<&String> = if names.is_empty() { all.collect() } else { names.iter().collect() };
        let mut seen = BTreeSet::new();
        let found = names.into_iter().filter_map(|name| {
            let of_folder = |known: &&Known| known.peer.as_ref().is_some_and(|peer| peer.name() == *name);
            let known = self.find(name).or_else(|error| self.servers.iter().find(of_folder).ok_or(error));
            // Stentor's own servers have no folder.
            let peer = known.map(|known| known.peer.clone()).transpose()?;
            let is_new = peer.as_ref().map_or(true, |peer| seen.insert(peer.name()));
            is_new.then_some((name.as_str(), peer))
        });
        found.collect()
    }

    /// A message if there is no peer.
    pub(crate) fn lacks(&self) -> Option<String> {
        let lacks = self.unusable.is_empty() && self.servers.iter().all(|known| known.peer.is_none());
        lacks.then(|| format!("there are no peers in {} (--peers-dir)", self.peers.display()))
    }

    /// The server with this name.
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
