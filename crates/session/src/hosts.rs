//! The host names of the server, which are compared with the host of a request (RFC 9110, section 7.4): its `Host`, or the host
//! that a trusted proxy states.
//!
//! The owner of a foreign page can make the page's own name resolve to this server's address (DNS rebinding). The page's
//! requests then have an `Origin` that equals their `Host`, as if they came from the server's own pages. With a list of
//! names, the server refuses them.

use crate::origin::{is_name, split_port};

/// The names of the server. If empty, any name is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<Host>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    name: String,
    /// The port. `None` allows any port.
    port: Option<u16>,
}

/// The reason why a text isn't a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a host: write a name or an address, such as \"example.com\", \"example.com:8443\", \"192.0.2.1\" or \"[::1]\""
)]
pub struct HostError(String);

impl Hosts {
    /// Reads a list of `name` or `name:port`. A name without a port allows every port.
    ///
    /// # Errors
    /// The first text that isn't a host.
    pub fn parse(texts: &[impl AsRef<str>]) -> Result<Self, HostError> {
        let host = |text: &str| {
            let (name, port) = split_port(text).filter(|(name, _)| is_name(name))?;
            Some(Host { name: name.to_ascii_lowercase(), port })
        };
        let hosts =
            texts.iter().map(AsRef::as_ref).map(|text| host(text).ok_or_else(|| HostError(text.into())));
        hosts.collect::<Result<_, _>>().map(Self)
    }

    /// Returns `true` if a request for this host may be answered.
    pub(crate) fn allow(&self, authority: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let Some((name, port)) = split_port(authority) else { return false };
        self.0
            .iter()
            .any(|host| host.name.eq_ignore_ascii_case(name) && (host.port.is_none() || host.port == port))
    }
}

#[cfg(test)]
mod tests;
