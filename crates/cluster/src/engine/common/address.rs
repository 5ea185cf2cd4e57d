//! Addresses in the URLs of engines: `[user[:password]@]host[:port][,host[:port]…]`.

use std::fmt;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Endpoint {
    /// Parses `host[:port]`. A host that has colons is in brackets.
    fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Some(default_port), |port| port.parse().ok())?;
        let is_valid = !host.is_empty() && !host.contains(['/', '?', '#', ' ', '@']);
        is_valid.then(|| Self { host: host.into(), port })
    }

    /// Parses endpoints with commas between them.
    pub(crate) fn parse_list(text: &str, default_port: u16) -> Option<Vec<Self>> {
        text.split(',').map(|endpoint| Self::parse(endpoint, default_port)).collect()
    }
}

/// A user and a password. Without a password, `user` may be a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Option<String>,
}

impl Login {
    /// Parses `user[:password]`, in both of which `%XX` is decoded.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(percent_decoded(password)?)),
            None => (text, None),
        };
        Some(Self { user: percent_decoded(user)?, password })
    }
}

/// Decodes `%XX`.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}
