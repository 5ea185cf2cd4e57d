//! Authentication and permissions of clients.

use super::{HOUR, s};
use crate::config::keys::{AlgorithmName, IssuerKeys};
use crate::config::section::section;
use crate::config::setting::choice;
use crate::config::value::{Bytes, HeaderName, Token};
use std::time::Duration;

choice! {
    /// Clients without a token.
    Anonymous {
        /// Clients without a token are refused.
        Refuse = "refuse",
        /// Clients without a token connect, with the permissions that have `to = "anyone"`.
        Allow = "allow",
    }
}

choice! {
    /// The clients that a permission is for.
    To {
        /// Clients with a token.
        Users = "users",
        /// All clients, including those without a token.
        Anyone = "anyone",
    }
}

section! {
    /// Authentication by JSON Web Tokens. Clients only have the permissions of `[[permissions]]` and their
    /// tokens: docs/permissions.md. Without this section, every client is anonymous and may subscribe to
    /// everything.
    [auth] Auth => (auth) {
        /// Whether clients without a token are accepted.
        anonymous: Anonymous = Anonymous::Refuse;
        /// Maximum time by which an issuer's clock may be ahead of the server's. It applies to `nbf` and
        /// `iat`. `exp` is exact.
        leeway: Duration, in s(0)..=s(300), [restart];
        /// Maximum validity of a token, from `iat` to `exp`. Tokens that are valid for longer are refused.
        /// Revocations are kept for this time.
        token_lifetime_max: Duration, in s(60)..=s(365 * 24 * 3600), [restart];
        /// Name of a cookie that carries a token. The server reads it only if the request's `Origin` is its own or listed in
        /// `origins.allow`. Empty: none.
        cookie: String => edge.tokens.cookie, [restart];
        /// Time before the expiry of its token at which a client is asked for a new one; at most half of the
        /// token's remaining time.
        renewal_lead: Duration => edge.tokens.renewal_lead, in s(0)..=HOUR, [restart];
        /// Time between two fetches of an issuer's keys. A token with an unknown key causes a fetch earlier, at most every 30 s.
        jwks_refresh_interval: Duration, in s(30)..=s(24 * 3600), [restart];
        /// File with PEM certificates to trust for `jwks_url`. Empty: the system's certificates.
        ca_file: String, [restart];
        /// Memory for verified tokens, so that clients which reconnect cost little CPU time. When exceeded,
        /// the least recently used tokens are verified again.
        token_cache_bytes_max: Bytes, in Bytes(0)..=Bytes::mib(65_536), [restart];
        /// Revocations that the server keeps. Further ones are refused by the admin API.
        revocations_max: usize, in 1..=10_000_000, [restart];
    }
}

section! {
    /// Users that an authenticating proxy names in a header, such as oauth2-proxy or Authelia: docs/permissions.md. Their issuer is
    /// `proxy`, and their claims are `sub` and `groups`. As for `auth.cookie`, the header counts only from pages of the server's own origin or
    /// of one that `origins.allow` lists by name.
    [auth.proxy] AuthProxy => (auth) {
        /// The header in which the proxy names the user, such as `X-Forwarded-User`. The proxy must overwrite it. From an address that isn't in
        /// `from`, twice, or with `_` for `-`, it refuses the request with 401. Without it, `auth.anonymous` decides. Empty: no proxy names
        /// users.
        user_header: HeaderName = HeaderName::default(), [restart];
        /// The header with the user's groups, separated by commas: the claim `groups`. It is refused in the same way. Empty: none.
        groups_header: HeaderName = HeaderName::default(), [restart];
        /// Required: addresses and networks of the proxies, such as `10.0.0.7`. The address of the connection itself counts, never a
        /// forwarded one; `proxies.trusted` has no effect.
        from: Vec<String> = Vec::new(), [restart];
        /// Recommended: the header in which the proxy sends `secret` with each request. Otherwise, each process at an address in
        /// `from` can name any user. Empty: none.
        secret_header: HeaderName = HeaderName::default(), [restart];
        /// The value of `secret_header`; at least 16 bytes. Set it in the environment, not in the file.
        secret: Token = Token::default(), [restart];
        /// Time after which a session ends with 4505, so that its client returns through the proxy.
        lifetime: Duration = s(900), in s(1)..=s(24 * 3600), [restart];
    }
}

section! {
    /// An issuer of tokens, with `jwks_url` or `keys`. Write one `[[auth.issuers]]` per issuer.
    [auth.issuers] Issuer => (issuer) {
        /// The claim `iss` of its tokens, exactly.
        issuer: String => issuer.name;
        /// Value that the claim `aud` of its tokens must equal or contain. Required with `jwks_url`, because the issuer makes tokens
        /// for other services as well. Empty: its tokens have no `aud`.
        audience: String => issuer.audience;
        /// Accepted algorithms of its signatures: `HS256`, `HS384`, `HS512`, `RS256`, `RS384`, `RS512`,
        /// `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`.
        algorithms: Vec<AlgorithmName> => issuer.algorithms;
        /// URL of its public keys (a JWK Set): `https://`, or `http://` on this machine.
        jwks_url: String => issuer.jwks_url;
        /// Its keys, several for rotation: `{ kid = "k1", secret = "${JWT_SECRET}" }`, `{ kid = "k2", public_key_file = "key.pem" }` or
        /// `{ public_key = "-----BEGIN PUBLIC KEY-----…" }`. `kid` may be omitted. `${NAME}` stands for a variable of the
        /// environment, `${file:/path}` for the content of a file.
        keys: IssuerKeys => issuer.keys;
    }
}

section! {
    /// Permissions of clients for topics. Write one `[[permissions]]` per rule; rules add up. In a pattern,
    /// `/` and `:` separate segments, `*` matches one segment, `**` at the end matches the rest, and
    /// `{claim}` matches the value of a claim of the client's token, such as `{sub}` or `{org.id}`.
    [permissions] Permission => (permission) {
        /// Patterns of feeds and of rooms; with `namespace`, of rooms.
        topics: Vec<String> = Vec::new();
        /// Patterns of feeds.
        feeds: Vec<String> = Vec::new();
        /// Patterns of rooms.
        rooms: Vec<String> = Vec::new();
        /// Namespace of the rooms. Empty: `/`.
        namespace: String = String::new();
        /// Allowed actions: `subscribe`, `publish`, `presence` (list the members of rooms), `history` (receive earlier messages).
        allow: Vec<String> = Vec::new();
        /// The clients to which the rule applies.
        to: To = To::Users;
    }
}
