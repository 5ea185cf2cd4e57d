//! The second server. It has no canaries, so that its process can be replaced during a round. Replacements
//! alternate: a new process takes over while the old one drains, or the old one drains and ends before a new
//! one starts. If Redis is installed, this server has the [bridge](crate::cluster).

use crate::measure::Meter;
use crate::script::Addresses;
use crate::server::{Launch, Server};
use std::net::SocketAddr;

/// The configuration of takeovers and drains. The drain window is long enough for clients to reach a draining
/// process.
const ENDS: &str = r#"
[server]
takeover_socket = "{folder}/takeover"
drain_window = "500ms"
shutdown_timeout = "1s"
"#;

/// The second server and its meter.
pub(crate) struct Second {
    meter: Meter,
    server: Server,
    bound_bytes: u64,
    pub(crate) takeovers: u64,
    pub(crate) drains: u64,
}

impl Second {
    /// Starts the server, and adds its address to `addresses`, those of the first server.
    pub(crate) fn start(launch: Launch, bound_bytes: u64, addresses: &mut Addresses) -> anyhow::Result<Self> {
        let of = |port| SocketAddr::new(addresses.public.ip(), port);
        let own = Addresses::plain(of(8010), of(8011));
        let configuration = launch.configuration.clone() + ENDS;
        let server = Server::start(&Launch { configuration, addresses: Some(own), ..launch })?;
        addresses.second = server.listen;
        let meter = Meter::start(&server, bound_bytes)?;
        Ok(Self { meter, server, bound_bytes, takeovers: 0, drains: 0 })
    }

    /// Replaces the server's process.
    pub(crate) fn replace(&mut self) -> anyhow::Result<()> {
        if self.takeovers <= self.drains {
            self.server.take_over()?;
            self.takeovers += 1;
        } else {
            self.server.drain_and_start()?;
            self.drains += 1;
        }
        self.meter.follow(&self.server);
        Ok(())
    }

    /// Returns the server's fault, if there is one. The clients' connections are closed.
    pub(crate) fn fault(&mut self) -> Option<String> {
        let (held, allowed) = (self.meter.seen().held_bytes_max, self.bound_bytes);
        let fault = self.server.fault().or_else(|| self.server.former_fault());
        fault
            .or_else(|| (held > allowed).then(|| format!("{held} bytes held, {allowed} are allowed")))
            .map(|fault| format!("the second server: {fault}"))
    }
}
