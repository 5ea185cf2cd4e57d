//! Servers that take part, and their command lines.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::Options;
use crate::Error;
use crate::catalogue::{Catalogue, Known, TARGET};
use crate::generator::Protocol;
use crate::measure::ServerCommand;

/// Number of file descriptors that a process needs besides its connections.
const DESCRIPTORS_KEPT: usize = 1000;
/// Number of connections without a descriptor that Stentor holds on one core: 16 rings of 16,384 (`UringOptions`), some
/// of which are still in use when new connections arrive.
const DIRECT_MAX: usize = 255_000;
/// Maximum number of cores for Stentor if one core can't hold the connections.
const CORES_MAX: usize = 4;
/// Number of connections in each ring of the bare loop without descriptors.
const RING_CONNECTIONS: usize = 14_000;
/// Maximum number of its rings.
const RINGS_MAX: usize = 128;

/// The application that a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// Returns each message to its sender.
    Echo,
    /// Sends each message to all clients.
    Chat,
    /// Rooms of `stentor.v1`.
    Rooms,
    /// Sends each version of an upstream document to its subscribers.
    Feed,
}

impl Application {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Chat => "chat",
            Self::Rooms => "rooms",
            Self::Feed => "feed",
        }
    }
}

/// A server that takes part.
#[derive(Clone, Debug)]
pub struct Contestant {
    pub(crate) known: Known,
    program: PathBuf,
    core: usize,
    generator_core: usize,
    /// Number of cores of Stentor.
    cores: usize,
}

impl Contestant {
    /// The server called `name`.
    ///
    /// `NAME:PROTOCOL` is the same server with clients of that protocol, whatever the case's protocol is.
    pub fn find(name: &str, catalogue: &Catalogue, options: &Options) -> Result<Self, Error> {
        let known = match (&options.target, name.split_once(':')) {
            (Some(running), _) if name == TARGET => Known::running(running),
            (_, None) => catalogue.find(name)?.clone(),
            (_, Some((server, protocol))) => catalogue.find(server)?.speaking(protocol)?,
        };
        let program = match &known.peer {
            Some(peer) => peer.program(),
            None if known.running.is_some() => PathBuf::new(),
            None => {
                let program = options.placing.stentor.clone();
                program.ok_or_else(|| Error::Usage(format!("{name} needs --stentor PATH")))?
            }
        };
        let (core, generator_core) = (options.placing.server_core, options.placing.generator_core);
        Ok(Self { cores: known.cores, known, program, core, generator_core })
    }

    /// The server's name.
    pub fn name(&self) -> &str {
        &self.known.name
    }

    /// The first of these protocols that the server speaks.
    pub fn protocol(&self, mut protocols: impl Iterator<Item = Protocol>) -> Protocol {
        let spoken = || protocols.find(|protocol| self.known.admits(*protocol));
        self.known.always.or_else(spoken).unwrap_or_default()
    }

    /// The path of `protocol` for `application`; feeds are for WebSocket and Server-Sent Events.
    pub fn path(&self, application: Application, protocol: Protocol) -> &str {
        match (application, protocol) {
            (Application::Echo | Application::Chat | Application::Rooms, _) => self.known.path(protocol),
            (Application::Feed, Protocol::Sse) => "/sse/bench",
            (Application::Feed, Protocol::StentorV1) => "/ws?feed=bench",
            (Application::Feed, _) => "/ws/bench",
        }
    }

    /// Number of connections that one process can hold. File descriptors limit it, unless the server doesn't need them.
    pub(super) fn holds(&self) -> usize {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_KEPT);
        let without = match &self.known.peer {
            // The user who started the server has set its limits.
            None if self.known.running.is_some() => usize::MAX,
            None if self.is_on_io_uring() => DIRECT_MAX * CORES_MAX,
            Some(_) if self.is_direct_loop() => RING_CONNECTIONS * RINGS_MAX,
            _ => 0,
        };
        descriptors.max(without).max(1)
    }

    /// The same server with as many of Stentor's cores, or of the bare loop's rings, as the connections need. All run on the
    /// core to which servers are pinned.
    pub(super) fn holding(&self, connections: usize) -> Self {
        let mut server = self.clone();
        if self.known.peer.is_none() && self.is_on_io_uring() {
            server.cores = connections.div_ceil(DIRECT_MAX).clamp(1, CORES_MAX);
        }
        if self.is_direct_loop() {
            let rings = connections.div_ceil(RING_CONNECTIONS).clamp(1, RINGS_MAX);
            server.known.args.extend(["--rings".to_owned(), rings.to_string()]);
        }
        server
    }

    /// Returns `true` for the bare loop that holds connections without file descriptors.
    fn is_direct_loop(&self) -> bool {
        self.known.peer.is_some() && self.known.args.iter().any(|arg| arg == "direct")
    }

    fn is_on_io_uring(&self) -> bool {
        let driver = self.known.args.iter().skip_while(|arg| *arg != "--driver").nth(1);
        match driver {
            Some(driver) => driver == "io_uring",
            None => stentor_driver::probe().kind == stentor_driver::Kind::IoUring,
        }
    }

    /// The application by which the server publishes a document: a feed if it has one, so that slow clients skip
    /// versions. If the comparison is about a known `document`, clients of a plain protocol receive plain messages.
    pub(super) fn publishes_by(&self, document: bool) -> Application {
        let is_plain = self.known.always.is_some() && !self.known.documents;
        match self.known.has_feeds() && !(document && is_plain) {
            true => Application::Feed,
            false => Application::Chat,
        }
    }

    /// The command to start the server for `application` and clients of `protocol`. `config` is a configuration file of
    /// Stentor.
    pub fn command(
        &self,
        application: Application,
        protocol: Protocol,
        config: Option<&Path>,
    ) -> ServerCommand {
        // Stentor's feeds use its mode for `stentor.v1`.
        let app = if application == Application::Feed { Application::Rooms } else { application }.name();
        let cores = self.cores.to_string();
        let mut args: Vec<&str> = match self.known.peer {
            None => "serve --listen 127.0.0.1:0 --admin 127.0.0.1:0".split(' ').collect(),
            Some(_) => vec!["--port", "0", "--mode", application.name()],
        };
        if self.known.peer.is_none() {
            args.extend(["--cores", &cores, "--app", app]);
        }
        if self.known.peer.is_some() && self.known.speaks().count() > 1 {
            args.extend(["--protocol", protocol.name()]);
        }
        args.extend(self.known.args.iter().map(String::as_str));
        let config = config.map(|path| path.to_string_lossy());
        args.extend(config.iter().flat_map(|path| ["--config", path.as_ref()]));
        let mut command = ServerCommand {
            name: self.name().to_owned(),
            program: self.program.clone(),
            args: args.into_iter().map(str::to_owned).collect(),
            core: Some(self.core),
        };
        if self.known.cores > 1 {
            // Without this, the server would share the core of this process.
            let cores = format!("{},{}", self.core, self.generator_core);
            let program = std::mem::replace(&mut command.program, "taskset".into());
            let before = ["-c".to_owned(), cores, program.to_string_lossy().into_owned()];
            command.args.splice(..0, before);
            command.core = None;
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Effort;
    use crate::scenario::SCENARIOS;

    /// Only a case of feeds admits it, and there it fetches the documents.
    #[test]
    fn a_peer_with_feeds_takes_part_in_cases_of_feeds() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        let catalogue = Catalogue::read(&peers).unwrap();
        let options = Options::new(PathBuf::new(), peers);
        let server = Contestant::find("feeds-node", &catalogue, &options).unwrap();
        let cases = SCENARIOS.iter().flat_map(|scenario| scenario.cases(Effort::Full));
        let admitted: Vec<_> = cases.filter(|case| case.admits(&server.known)).collect();
        assert!(admitted.iter().any(|case| case.name == "feed-500x5kB"));
        for case in admitted {
            assert!(case.feed && case.document.is_some(), "{}", case.name);
            let application = case.application(&server);
            let args = server.command(application, server.protocol(case.protocols()), None).args;
            assert_eq!(args[2..], ["--mode", "feed"], "{}", case.name);
        }
    }

    #[test]
    fn the_loop_without_descriptors_has_as_many_rings_as_its_connections_fill() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        let catalogue = Catalogue::read(&peers).unwrap();
        let options = Options::new(PathBuf::new(), peers);
        let server = Contestant::find("bare-direct", &catalogue, &options).unwrap();
        assert!(server.holds() >= 1_000_000);
        for (connections, rings) in
            [(1, "1"), (14_000, "1"), (14_001, "2"), (1_000_000, "72"), (10_000_000, "128")]
        {
            let server = server.holding(connections);
            let args = server.command(Application::Chat, Protocol::WebSocket, None).args;
            assert_eq!(args[args.len() - 2..], ["--rings", rings]);
        }
    }
}
