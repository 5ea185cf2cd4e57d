//! Settings of engines and bridges. A crate of its own, so that a build without engines reads and checks them, too.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::PathBuf;

/// Maximum size of a message's content that reaches other nodes: a frame of 16 MiB, less 1 MiB for names and the signature.
pub const CONTENT_BYTES_MAX: usize = 15 << 20;
/// Start of the channels' names of `@socket.io/redis-adapter`, unless the servers are configured otherwise.
pub const REDIS_ADAPTER_PREFIX: &str = "socket.io";
/// Channel of `python-socketio`, unless the servers are configured otherwise.
pub const PYTHON_CHANNEL: &str = "socketio";

/// A certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, followed by those of its authorities if need be.
    pub certificate_file: PathBuf,
    /// The private key of the certificate.
    pub key_file: PathBuf,
}

/// The protocol between Socket.IO's servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adapter {
    /// `@socket.io/redis-adapter`, `createAdapter`.
    #[default]
    Classic,
    /// `@socket.io/redis-adapter`, `createShardedAdapter`, with Redis 7.
    Sharded,
    /// `python-socketio` from 5.14 on, `RedisManager`.
    Python,
}

impl Adapter {
    /// The default prefix of the names of channels.
    pub fn default_prefix(self) -> &'static str {
        match self {
            Self::Classic | Self::Sharded => REDIS_ADAPTER_PREFIX,
            Self::Python => PYTHON_CHANNEL,
        }
    }
}

/// The option `subscriptionMode` of `createShardedAdapter`: which rooms have a channel of their own. All servers have to agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubscriptionMode {
    /// No room: servers receive all messages of the namespace.
    Static,
    /// Rooms whose name can't be a socket's id, which has 20 characters. The default of the package.
    #[default]
    Dynamic,
    /// All rooms, including those of single sockets.
    DynamicPrivate,
}

impl SubscriptionMode {
    /// Returns `true` if a room has a channel of its own.
    pub fn has_channel(self, room: &str) -> bool {
        match self {
            Self::Static => false,
            Self::Dynamic => room.encode_utf16().count() != 20,
            Self::DynamicPrivate => true,
        }
    }
}

/// The option `parser` of `createAdapter` and of emitters: the format of messages that may have binary data. Both formats are
/// read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassicParser {
    /// The default.
    #[default]
    MessagePack,
    /// `JSON.stringify`, without binary data.
    Json,
}

/// The kind of engine that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `redis://`, `redis+sentinel://`, `redis+cluster://`, or `rediss` for TLS.
    Redis,
    /// `nats://` or `tls://`.
    Nats,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Nats => "NATS",
        })
    }
}

/// Returns `true` if a text has the form of a URL's scheme (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// The URL of an engine. It is displayed without the password in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    kind: Kind,
    url: String,
}

impl Address {
    /// Checks the scheme of a URL; an engine checks the rest when it connects.
    ///
    /// # Errors
    /// A message for people that doesn't contain the password.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The error message doesn't repeat an invalid URL, because the password may be anywhere in it.
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            return Err("expected a URL such as `redis://127.0.0.1:6379` or `nats://127.0.0.1:4222`".into());
        };
        let kind = match scheme {
            "redis" | "redis+sentinel" | "redis+cluster" | "rediss" | "rediss+sentinel"
            | "rediss+cluster" => Kind::Redis,
            "nats" | "tls" => Kind::Nats,
            other => {
                return Err(format!(
                    "there is no engine `{other}://`; expected `redis://`, `redis+sentinel://`, `redis+cluster://` or `nats://`, \
                     or, for TLS, `rediss` or `tls://`"
                ));
            }
        };
        if rest.is_empty() || rest.starts_with('/') || rest.contains(char::is_whitespace) {
            return Err(format!("the URL `{scheme}://…` names no host"));
        }
        Ok(Self { kind, url: text.into() })
    }

    /// The kind of engine that the URL names.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns `true` if the URL names a Redis Cluster.
    pub fn is_redis_cluster(&self) -> bool {
        self.scheme().ends_with("+cluster")
    }

    /// The scheme of the URL.
    pub fn scheme(&self) -> &str {
        self.url.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The servers in the URL, each with its port if the URL has one.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        hosts.split(',')
    }

    /// The whole URL, with the password.
    pub fn reveal(&self) -> &str {
        &self.url
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The query may contain a password, or be a part of a password whose `?` should have been escaped.
        let (url, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let scheme_end = url.find("://").map_or(0, |at| at + 3);
        if !query.is_empty() && !query.starts_with("sentinel_") {
            return write!(f, "{}…", &url[..scheme_end]);
        }
        match (url.split_once("://"), url.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => write!(f, "{scheme}://…@{host}")?,
            _ => f.write_str(url)?,
        }
        f.write_str(if query.is_empty() { "" } else { "?…" })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("rediss://user:pa@ss@host:1/2", "rediss://…@host:1/2"),
            ("redis://:secret@host", "redis://…@host"),
            ("redis://:sec?ret@host", "redis://…"),
            ("redis+sentinel://a,b/m?sentinel_password=pa@ss", "redis+sentinel://a,b/m?…"),
            ("rediss+sentinel://:x@a,b/m?sentinel_password=pa@ss", "rediss+sentinel://…@a,b/m?…"),
            ("nats://token@a:4222,b", "nats://…@a:4222,b"),
        ] {
            let address = Address::parse(url).map(|address| address.to_string());
            assert_eq!(address.as_deref(), Ok(shown));
        }
    }

    #[test]
    fn hosts_are_without_credentials() {
        let address = Address::parse("redis+sentinel://:p%40ss@one:1,two/name?sentinel_password=x").unwrap();
        assert_eq!(address.scheme(), "redis+sentinel");
        assert_eq!(address.hosts().collect::<Vec<_>>(), ["one:1", "two"]);
    }

    #[test]
    fn other_urls_are_refused_with_a_reason() {
        for (url, reason) in [
            ("127.0.0.1:6379", "expected a URL"),
            ("redis:hunter2@x://", "expected a URL"),
            ("redis:hunter2://x", "expected a URL"),
            ("mysql://host", "no engine `mysql://`"),
            ("redis://", "names no host"),
            ("redis:///0", "names no host"),
        ] {
            let error = Address::parse(url).err().unwrap_or_default();
            assert!(error.contains(reason) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
