//! The second server: without canaries, so that its process may be replaced during a round. By turns, a new process takes
//! over while the old one drains, and the old one drains and ends before a new one starts. It has the [bridge](crate::cluster), if
//! there is a Redis.

use crate::measure::Meter;
use crate::script::Addresses;
use crate::server::{Launch, Server};
use std::net::SocketAddr;

/// How its processes end. The window is long enough for clients to meet a process that drains.
const ENDS: &str = r#"
[server]
takeover_socket = "{folder}/takeover"
drain_window = "500ms"
shutdown_timeout = "1s"
"#;

/// It, and what watches it.
pub(crate) struct Second {
    meter: Meter,
    server: Server,
    bound_bytes: u64,
    pub(crate) takeovers: u64,
    pub(crate) drains: u64,
}

impl Second {
    /// Starts it. `addresses`, those of the first server, learn where it is.
    pub(crate) fn start(launch: Launch, bound_bytes: u64, addresses: &mut Addresses) -> anyhow::Result<Self> {
        let of = |port| SocketAddr::new(addresses.public.ip(), port);
        let own = Addresses::plain(of(8010), of(8011));
        let configuration = launch.configuration.clone() + ENDS;
        let server = Server::start(&Launch { configuration, addresses: Some(own), ..launch })?;
        addresses.second = server.listen;
        let meter = Meter::start(&server, bound_bytes)?;
        Ok(Self { meter, server, bound_bytes, takeovers: 0, drains: 0 })
    }

    /// Replaces its process.
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

    /// Its fault, if any. What its clients had is closed.
    pub(crate) fn fault(&mut self) -> Option<String> {
        let (held, allowed) = (self.meter.seen().held_bytes_max, self.bound_bytes);
        let fault = self.server.fault().or_else(|| self.server.former_fault());
        fault
            .or_else(|| (held > allowed).then(|| format!("{held} bytes held, {allowed} are allowed")))
            .map(|fault| format!("the second server: {fault}"))
    }
}
