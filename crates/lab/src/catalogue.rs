//! The servers that can be measured: Stentor, and the peers, one folder each with a `peer.toml`.
//!
//! ```toml
//! about = "npm ws 8 with bufferutil, Node 20"      # one line for people
//! modes = ["echo", "chat", "fanout"]               # what `run --mode` knows
//! install = "install"                              # the script that makes it ready; this is the default
//! run = "run"                                      # the one that serves; this is the default
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
//! ```
//!
//! A field that isn't named here is an error, so that a misspelt one isn't passed over.

mod version;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;

use self::version::Version;
use crate::Error;
use crate::generator::Protocol;

pub(crate) use self::version::UNKNOWN;

/// The name of a peer's description.
const MANIFEST: &str = "peer.toml";

/// See the module's documentation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// One line for people.
    pub about: String,
    /// What it can do.
    pub modes: Vec<String>,
    #[serde(default)]
    versions: BTreeMap<String, Version>,
    /// What was chosen.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    #[serde(default = "install_script")]
    install: PathBuf,
    #[serde(default = "run_script")]
    run: PathBuf,
    installed: Option<PathBuf>,
    always: Option<String>,
    #[serde(default)]
    warm_up_s: u64,
    protocols: BTreeMap<String, String>,
    #[serde(default)]
    variants: Vec<Variant>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    #[serde(default)]
    args: Vec<String>,
}

fn install_script() -> PathBuf {
    "install".into()
}

fn run_script() -> PathBuf {
    "run".into()
}

/// A peer's folder.
#[derive(Clone, Debug)]
pub struct Peer {
    folder: PathBuf,
    /// What it says of itself.
    pub manifest: Manifest,
    versions: OnceLock<BTreeMap<String, String>>,
}

impl Peer {
    fn read(folder: &Path) -> Result<Self, Error> {
        let file = folder.join(MANIFEST);
        let wrong = |what: String| Error::Usage(format!("{}: {what}", file.display()));
        let text = fs::read_to_string(&file).map_err(|error| wrong(error.to_string()))?;
        let manifest: Manifest = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for name in manifest.protocols.keys().chain(&manifest.always) {
            protocol(name).ok_or_else(|| wrong(format!("there is no protocol `{name}`")))?;
        }
        if let Some((name, _)) = manifest.versions.iter().find(|(_, version)| !version.is_sound()) {
            return Err(wrong(format!("the command of the version of `{name}` is empty")));
        }
        Ok(Self { folder: folder.to_owned(), manifest, versions: OnceLock::new() })
    }

    /// The versions of what matters. Commands that tell them are run the first time, so it has to be installed by then; of one that
    /// can't be found out it says why.
    pub fn versions(&self) -> &BTreeMap<String, String> {
        self.versions.get_or_init(|| {
            let read = |(name, version): (&String, &Version)| (name.clone(), version.read(&self.folder));
            self.manifest.versions.iter().map(read).collect()
        })
    }

    /// Whether it is ready to run.
    pub fn is_installed(&self) -> bool {
        self.manifest.installed.as_ref().is_none_or(|path| self.folder.join(path).exists())
    }

    /// Makes it ready to run; does nothing where it is.
    pub fn install(&self) -> Result<(), Error> {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let output = Command::new(self.folder.join(&self.manifest.install))
            .stdin(Stdio::null())
            .output()
            .map_err(Error::io("installing a peer"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Error::Server { name, what: format!("its install script failed:\n{said}") })
    }

    /// What serves.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join(&self.manifest.run)
    }
}

/// One server, as it is named on the command line.
#[derive(Clone, Debug)]
pub struct Known {
    /// For `--servers` and `--peers`.
    pub name: String,
    /// `None`: Stentor.
    pub peer: Option<Arc<Peer>>,
    /// Beside what all get.
    pub(crate) args: Vec<String>,
    /// What it serves, and at which path.
    speaks: Vec<(Protocol, String)>,
    /// Speaks this in cases of other protocols: to show what those cost.
    pub(crate) always: Option<Protocol>,
    /// Sends whole documents where others send what changed: to show what that spares.
    pub(crate) documents: bool,
}

impl Known {
    fn stentor(name: &str, driver: &str) -> Self {
        Self {
            name: name.to_owned(),
            peer: None,
            args: vec!["--driver".to_owned(), driver.to_owned()],
            speaks: STENTOR_SPEAKS.map(|protocol| (protocol, protocol.usual_path().to_owned())).to_vec(),
            always: None,
            documents: false,
        }
    }

    /// What it serves.
    pub fn speaks(&self) -> impl Iterator<Item = Protocol> {
        self.speaks.iter().map(|(protocol, _)| *protocol)
    }

    /// Whether it can take part where `protocol` is spoken.
    pub fn admits(&self, protocol: Protocol) -> bool {
        self.always.is_some() || self.speaks().any(|spoken| spoken == protocol)
    }

    /// The same server, with clients that speak this and nothing else.
    pub(crate) fn speaking(&self, name: &str) -> Result<Self, Error> {
        let always = protocol(name).filter(|protocol| self.speaks().any(|spoken| spoken == *protocol));
        let always = always.ok_or_else(|| Error::Usage(format!("{} doesn't speak `{name}`", self.name)))?;
        Ok(Self { name: format!("{}:{name}", self.name), always: Some(always), ..self.clone() })
    }

    /// The path that it serves `protocol` at.
    pub(crate) fn path(&self, protocol: Protocol) -> &str {
        let found = self.speaks.iter().find(|(spoken, _)| *spoken == protocol);
        found.map_or(protocol.usual_path(), |(_, path)| path)
    }

    /// How long it needs until it is as fast as it gets, where that is longer than what the cases do.
    pub(crate) fn warms_up(&self) -> Duration {
        self.peer.as_ref().map_or(Duration::ZERO, |peer| Duration::from_secs(peer.manifest.warm_up_s))
    }

    /// One line for people.
    pub fn about(&self) -> &str {
        match &self.peer {
            Some(peer) => &peer.manifest.about,
            None if self.documents => "this program; clients of a feed get whole documents",
            None if self.always == Some(Protocol::WebSocket) => {
                "this program, with clients on plain WebSocket"
            }
            None if self.always.is_some() => "this program, with clients of the protocol in its name",
            None => "this program",
        }
    }
}

const STENTOR_SPEAKS: [Protocol; 13] = [
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
];

/// All servers.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Stentor's first, then the peers by name.
    pub servers: Vec<Known>,
}

impl Catalogue {
    /// Stentor, and the peers of this folder.
    ///
    /// # Errors
    /// If one of the peers' descriptions isn't what this module says. A folder that isn't there has no peers.
    pub fn read(peers: &Path) -> Result<Self, Error> {
        let plain =
            |name, driver| Known { always: Some(Protocol::WebSocket), ..Known::stentor(name, driver) };
        let mut servers = vec![
            Known { args: Vec::new(), ..Known::stentor("stentor", "") },
            Known::stentor("stentor-epoll", "epoll"),
            Known::stentor("stentor-uring", "io_uring"),
            plain("stentor-epoll-ws", "epoll"),
            plain("stentor-uring-ws", "io_uring"),
            Known { documents: true, ..plain("stentor-epoll-documents", "epoll") },
        ];
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
            let peer = Arc::new(Peer::read(&folder)?);
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let manifest = &peer.manifest;
            let speaks: Vec<(Protocol, String)> = manifest
                .protocols
                .iter()
                .filter_map(|(name, path)| Some((protocol(name)?, path.clone())))
                .collect();
            let variants = match manifest.variants.is_empty() {
                true => vec![Variant { name, args: Vec::new() }],
                false => manifest.variants.clone(),
            };
            for Variant { name, args } in variants {
                if servers.iter().any(|known| known.name == name) {
                    let file = folder.join(MANIFEST);
                    return Err(Error::Usage(format!("{}: there is another `{name}`", file.display())));
                }
                let (peer, speaks) = (Some(Arc::clone(&peer)), speaks.clone());
                let always = manifest.always.as_deref().and_then(protocol);
                servers.push(Known { name, peer, args, speaks, always, documents: false });
            }
        }
        Ok(Self { servers })
    }

    /// The folders of these peers, each once; all, where none is named.
    pub fn peers(&self, names: &[String]) -> Result<Vec<(&str, Arc<Peer>)>, Error> {
        let chosen: Vec<&Known> = match names.is_empty() {
            true => self.servers.iter().collect(),
            false => names.iter().map(|name| self.find(name)).collect::<Result<_, _>>()?,
        };
        let mut peers: Vec<(&str, Arc<Peer>)> = Vec::new();
        for known in chosen {
            if let Some(peer) = &known.peer
                && !peers.iter().any(|(_, there)| Arc::ptr_eq(there, peer))
            {
                peers.push((&known.name, Arc::clone(peer)));
            }
        }
        Ok(peers)
    }

    /// The server of this name.
    pub fn find(&self, name: &str) -> Result<&Known, Error> {
        self.servers.iter().find(|known| known.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.servers.iter().map(|known| known.name.as_str()).collect();
            Error::Usage(format!(
                "there is no server `{name}`; there are {} (--peers-dir names their folder)",
                names.join(", ")
            ))
        })
    }
}

/// The protocol of this name.
fn protocol(name: &str) -> Option<Protocol> {
    Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_peers_are_described() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers");
        let catalogue = Catalogue::read(&peers).unwrap();
        for known in &catalogue.servers {
            assert!(known.speaks().count() > 0 && !known.about().is_empty(), "{known:?}");
            if let Some(peer) = &known.peer {
                // One is there, or it says of what kind it would be.
                let versions = peer.versions().iter();
                let blank = |(_, version): &(&String, &String)| version.trim().is_empty();
                assert_eq!(versions.filter(blank).count(), 0, "{}", known.name);
                for script in [&peer.manifest.install, &peer.manifest.run] {
                    assert!(peer.folder.join(script).exists(), "{}", peer.folder.join(script).display());
                }
            }
        }
        assert_eq!(catalogue.find("bare-uring").unwrap().args, ["--io", "uring"]);
        assert!(catalogue.find("tcp").unwrap().admits(Protocol::SocketIo));
        assert!(!catalogue.find("ws8").unwrap().admits(Protocol::SocketIo));
        assert_eq!(catalogue.find("sockjs-tornado-pypy45").unwrap().warms_up(), Duration::from_secs(10));
        assert!(catalogue.find("ws9").unwrap_err().to_string().contains("ws8"));
        // Every folder is one, so that none is passed over for want of a description.
        for entry in fs::read_dir(&peers).unwrap() {
            let path = entry.unwrap().path();
            assert!(!path.is_dir() || path.join(MANIFEST).exists(), "{}", path.display());
        }
    }

    #[test]
    fn a_command_tells_a_version_once() {
        let folder = std::env::temp_dir().join(format!("stentor-lab-versions-{}", std::process::id()));
        fs::create_dir_all(folder.join("one")).unwrap();
        let text = "about = \"x\"\nmodes = []\n[protocols]\n[versions]\nfixed = \"8\"\n\
                    asked = { command = [\"sh\", \"-c\", \"echo . >>asked; wc -l <asked\"] }\n\
                    missing = { command = [\"stentor-nobody\", \"--version\"] }";
        fs::write(folder.join("one/peer.toml"), text).unwrap();
        let catalogue = Catalogue::read(&folder).unwrap();
        // Nobody is asked before it is to be known.
        assert!(!folder.join("one/asked").exists());
        let peer = catalogue.find("one").unwrap().peer.as_ref().unwrap();
        for _ in 0..2 {
            let expect =
                [("asked", "1"), ("fixed", "8"), ("missing", "unknown: stentor-nobody can't be run")];
            let found: Vec<(&str, &str)> =
                peer.versions().iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
            assert_eq!(found, expect);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_bad_description_is_told() {
        let folder = std::env::temp_dir().join(format!("stentor-lab-peers-{}", std::process::id()));
        let check = |text: &str, expect: &str| {
            fs::create_dir_all(folder.join("one")).unwrap();
            fs::write(folder.join("one/peer.toml"), text).unwrap();
            let error = Catalogue::read(&folder).unwrap_err().to_string();
            assert!(error.contains("one/peer.toml") && error.contains(expect), "{error}");
        };
        let sound = "about = \"x\"\nmodes = []\n";
        check("about = 1", "about");
        check(&format!("{sound}[protocols]\nsmoke = \"/\""), "no protocol `smoke`");
        check(&format!("{sound}always = \"fog\"\n[protocols]"), "no protocol `fog`");
        check(&format!("{sound}[protocols]\n[versions]\nx = 1"), "a version, or { command");
        check(&format!("{sound}[protocols]\n[versions]\nx = {{ comand = [] }}"), "a version, or { command");
        check(&format!("{sound}[protocols]\n[versions]\nx = {{ command = [] }}"), "version of `x` is empty");
        check(&format!("{sound}instal = \"x\"\n[protocols]"), "instal");
        check(&format!("{sound}[protocols]\n[[variants]]\nname = \"stentor-epoll\""), "another");
        fs::remove_dir_all(&folder).unwrap();
        let alone = Catalogue::read(&folder).unwrap();
        assert!(alone.servers.iter().all(|known| known.peer.is_none()));
        assert!(alone.find("ws8").unwrap_err().to_string().contains("--peers-dir"));
    }
}
