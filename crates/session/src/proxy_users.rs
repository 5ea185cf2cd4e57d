//! The users that an authenticating proxy (oauth2-proxy, Authelia, a gateway) names in a header of each request.
//!
//! A client that could send the header could be any user, so the rules are strict:
//!
//! 1. The other end of the socket must be in a network of the list [`ProxyUsers::from`]. No forwarded address counts, neither one
//!    in a header nor one of the PROXY protocol. A connection that another node relays counts if that node says so in its
//!    authenticated handshake.
//! 2. From any other peer, twice, or in a spelling that some servers take for the same name (`_` for `-`), the header refuses the
//!    request. The proxy doesn't remove what it doesn't know.
//! 3. With [`ProxyUsers::secret`], the proxy must prove itself in each request.
//! 4. As for a cookie, the page's origin must be the server's own or listed by name ([`Origins::vouches_for`]). This is checked by
//!    the caller.
//!
//! [`Origins::vouches_for`]: crate::origin::Origins

use crate::ports::{Networks, ProxyUser, is_named};
use std::fmt;
use stentor_wire::http1::Request;

/// Maximum length of a user's name in bytes, as in a token.
const USER_BYTES_MAX: usize = 256;

/// The headers of an authenticating proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUsers {
    /// The header with the user.
    pub user_header: Box<str>,
    /// The header with the groups of the user, separated by commas.
    pub groups_header: Option<Box<str>>,
    /// The networks of the proxies.
    pub from: Networks,
    /// A header that proves that the proxy sent the request, and its value.
    pub secret: Option<(Box<str>, Box<str>)>,
}

impl fmt::Debug for ProxyUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value of the header is a secret.
        let Self { user_header, groups_header, from, secret } = self;
        let secret = secret.as_ref().map(|(name, _)| name);
        f.debug_struct("ProxyUsers")
            .field("user_header", user_header)
            .field("groups_header", groups_header)
            .field("from", from)
            .field("secret_header", &secret)
            .finish()
    }
}

/// The reason for refusing a request with a header of an authenticating proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserFault {
    /// The other end of the socket isn't an authenticating proxy.
    Peer,
    /// A header occurs twice.
    Repeated,
    /// A header has `_` in place of `-`.
    Spelling,
    /// The header with the secret is missing or wrong.
    Secret,
    /// The user or a group isn't a text of 1 to 256 bytes without control characters.
    Malformed,
}

impl UserFault {
    /// The fault, for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Peer => "the sender's address is not in from",
            Self::Repeated => "a header is there twice",
            Self::Spelling => "a header is spelled with _",
            Self::Secret => "secret_header is missing or wrong",
            Self::Malformed => "a header has no valid text",
        }
    }
}

/// The headers of a request with one name.
#[derive(Clone, Copy, Default)]
struct Found<'r> {
    value: Option<&'r [u8]>,
    is_repeated: bool,
    is_misspelled: bool,
}

impl<'r> Found<'r> {
    fn of(request: &Request<'r>, name: &str) -> Self {
        let mut found = Self::default();
        for (other, value) in request.headers().iter() {
            if other.eq_ignore_ascii_case(name) {
                found.is_repeated |= found.value.replace(value).is_some();
            } else {
                found.is_misspelled |= is_named(other, name);
            }
        }
        found
    }

    fn is_absent(&self) -> bool {
        self.value.is_none() && !self.is_misspelled
    }
}

/// Reads a name from a header.
fn name(text: &[u8]) -> Result<&str, UserFault> {
    let text = std::str::from_utf8(text).map_err(|_| UserFault::Malformed)?.trim();
    let is_name = text.len() <= USER_BYTES_MAX && !text.contains(char::is_control);
    if is_name { Ok(text) } else { Err(UserFault::Malformed) }
}

/// Compares two texts in a time that depends on their lengths only.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |differences, (one, other)| differences | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

impl ProxyUsers {
    /// The names of the headers.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        let secret = self.secret.iter().map(|(name, _)| &**name);
        std::iter::once(&*self.user_header).chain(self.groups_header.as_deref()).chain(secret)
    }

    /// Returns `true` if an application may see this header of a request: never the secret, and the user only if `has_user`.
    pub(crate) fn shows(&self, header: &str, has_user: bool) -> bool {
        let mut hidden = self.headers().filter(|name| is_named(header, name));
        let is_secret = |name: &str| self.secret.as_ref().is_some_and(|(secret, _)| **secret == *name);
        hidden.all(|name| has_user && !is_secret(name))
    }

    /// Returns the user of a request. `is_gateway` is `true` if the other end of the socket is in [`Self::from`], and `now` the Unix
    /// time in seconds. `None` if the proxy names no user.
    ///
    /// # Errors
    /// The request must be refused.
    pub(crate) fn user_of(
        &self,
        request: &Request<'_>,
        is_gateway: bool,
        now: u64,
    ) -> Result<Option<ProxyUser>, UserFault> {
        let user = Found::of(request, &self.user_header);
        let groups = self.groups_header.as_ref().map(|name| Found::of(request, name)).unwrap_or_default();
        if user.is_absent() && groups.is_absent() {
            return Ok(None);
        }
        if !is_gateway {
            return Err(UserFault::Peer);
        }
        if user.is_misspelled || groups.is_misspelled {
            return Err(UserFault::Spelling);
        }
        if user.is_repeated || groups.is_repeated {
            return Err(UserFault::Repeated);
        }
        if let Some((name, secret)) = &self.secret {
            let found = Found::of(request, name);
            let is_right = found.value.is_some_and(|value| is_same(value.trim_ascii(), secret.as_bytes()));
            if found.is_repeated || !is_right {
                return Err(UserFault::Secret);
            }
        }
        let subject = name(user.value.unwrap_or_default())?;
        let groups = groups.value.unwrap_or_default().split(|byte| *byte == b',').map(name);
        let groups = groups.filter(|group| *group != Ok("")).map(|group| group.map(Box::from));
        let groups = groups.collect::<Result<Vec<Box<str>>, UserFault>>()?;
        Ok((!subject.is_empty()).then(|| ProxyUser { subject: subject.into(), groups, issued_at: now }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_wire::http1::{Limits, parse_request};

    const SECRET: &str = "0123456789abcdef";

    fn users(secret: bool) -> ProxyUsers {
        ProxyUsers {
            user_header: "X-Forwarded-User".into(),
            groups_header: Some("X-Forwarded-Groups".into()),
            from: Networks::parse(&["10.0.0.0/8"]).unwrap(),
            secret: secret.then(|| ("X-Proxy-Secret".into(), SECRET.into())),
        }
    }

    /// The user and the groups that a request with these headers names, or its fault.
    fn read(users: &ProxyUsers, is_gateway: bool, headers: &[&str]) -> Result<String, UserFault> {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        // Each character is a byte.
        let head: Vec<u8> =
            format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").chars().map(|c| c as u8).collect();
        let request = parse_request(&head, &Limits::default()).unwrap();
        let user = users.user_of(&request, is_gateway, 7)?;
        assert!(user.as_ref().is_none_or(|user| user.issued_at == 7));
        Ok(user.map_or("-".into(), |user| format!("{} {:?}", user.subject, user.groups)))
    }

    /// The table of attacks: headers of a client that reach the server by, or beside, an authenticating proxy.
    #[test]
    fn only_the_proxy_names_users() {
        use UserFault::{Malformed, Peer, Repeated, Secret, Spelling};
        let own = "X-Forwarded-User: ann";
        let secret = "X-Proxy-Secret: 0123456789abcdef";
        let long = format!("X-Forwarded-User: {}", "a".repeat(257));
        for (has_secret, is_gateway, headers, expect) in [
            // The proxy itself.
            (false, true, &[own][..], Ok("ann []")),
            (false, true, &[own, "x-forwarded-groups: a, b ,,c"], Ok(r#"ann ["a", "b", "c"]"#)),
            (false, true, &["X-FORWARDED-USER:  J\u{c3}\u{bc}rgen, cn=x  "], Ok("J\u{fc}rgen, cn=x []")),
            (true, true, &[own, secret], Ok("ann []")),
            // Without a user.
            (false, true, &[], Ok("-")),
            (true, true, &[secret], Ok("-")),
            (false, true, &["X-Forwarded-User:"], Ok("-")),
            (false, true, &["X-Forwarded-Groups: admin"], Ok("-")),
            (false, false, &[], Ok("-")),
            // Similar headers are ignored, whichever peer sends them.
            (false, false, &["X-Forwarded-Users: ann", "Forwarded-User: ann", secret], Ok("-")),
            // The header of any other peer is refused, even if the peer knows the secret.
            (false, false, &[own], Err(Peer)),
            (true, false, &[own, secret], Err(Peer)),
            (false, false, &["X-Forwarded-User:"], Err(Peer)),
            (false, false, &["X-Forwarded-Groups: admin"], Err(Peer)),
            (false, false, &["X_Forwarded_User: ann"], Err(Peer)),
            // The request has a header of the client in addition to the proxy's header.
            (false, true, &[own, own], Err(Repeated)),
            (false, true, &["X-Forwarded-User: eve", "x-forwarded-user: ann"], Err(Repeated)),
            (false, true, &[own, "X-Forwarded-Groups: a", "X-Forwarded-Groups: admin"], Err(Repeated)),
            (false, true, &["X_Forwarded_User: eve"], Err(Spelling)),
            (false, true, &[own, "X-Forwarded_User: eve"], Err(Spelling)),
            (false, true, &[own, "x_forwarded-groups: admin"], Err(Spelling)),
            // Another process at the proxy's address.
            (true, true, &[own], Err(Secret)),
            (true, true, &[own, "X-Proxy-Secret:"], Err(Secret)),
            (true, true, &[own, "X-Proxy-Secret: 0123456789abcdeF"], Err(Secret)),
            (true, true, &[own, "X-Proxy-Secret: 0123456789abcde"], Err(Secret)),
            (true, true, &[own, secret, secret], Err(Secret)),
            (true, true, &[own, "X_Proxy_Secret: 0123456789abcdef"], Err(Secret)),
            (true, true, &["X-Forwarded-Groups: admin"], Err(Secret)),
            // Texts that no user has.
            (false, true, &["X-Forwarded-User: \u{ff}"], Err(Malformed)),
            (false, true, &["X-Forwarded-User: a\tb"], Err(Malformed)),
            (false, true, &[&long], Err(Malformed)),
            (false, true, &[own, "X-Forwarded-Groups: a,\u{ff}"], Err(Malformed)),
        ] {
            let seen = read(&users(has_secret), is_gateway, headers);
            assert_eq!(
                seen.as_deref().map_err(|fault| *fault),
                expect,
                "{has_secret} {is_gateway} {headers:?}"
            );
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?}", users(true));
        assert!(shown.contains("X-Proxy-Secret") && !shown.contains(SECRET), "{shown}");
    }
}
