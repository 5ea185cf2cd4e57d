//! Who clients are, and what they may do.

use super::{HOUR, s};
use crate::config::keys::{AlgorithmName, IssuerKeys};
use crate::config::section::section;
use crate::config::setting::choice;
use crate::config::value::Bytes;
use std::time::Duration;

choice! {
    /// Clients without a token.
    Anonymous {
        /// They are refused.
        Refuse = "refuse",
        /// They connect, and may do what permissions with `to = "anyone"` allow.
        Allow = "allow",
    }
}

choice! {
    /// The clients that a permission is for.
    To {
        /// Clients with a token.
        Users = "users",
        /// Clients without a token, too.
        Anyone = "anyone",
    }
}

section! {
    /// Clients prove who they are by JSON Web Tokens, and may do only what `[[permissions]]` and their tokens allow:
    /// docs/permissions.md. Without this section, every client is anonymous and may subscribe to everything.
    [auth] Auth => (auth) {
        /// Whether clients without a token are accepted.
        anonymous: Anonymous = Anonymous::Refuse;
        /// How far an issuer's clock may be ahead of the server's. It applies to `nbf` and `iat`. `exp` is exact.
        leeway: Duration, in s(0)..=s(300), [restart];
        /// How long a token may be valid, from `iat` to `exp`. Tokens that are valid for longer are refused. Revocations are kept for as
        /// long.
        token_lifetime_max: Duration, in s(60)..=s(365 * 24 * 3600), [restart];
        /// Name of a cookie that carries a token. The server reads it only if the request's `Origin` is its own or listed in
        /// `origins.allow`. Empty: none.
        cookie: String => edge.tokens.cookie, [restart];
        /// How long before its token expires a client is asked for a new one; at most half of the time that the token has left.
        renewal_lead: Duration => edge.tokens.renewal_lead, in s(0)..=HOUR, [restart];
        /// Time between two fetches of an issuer's keys. A token with an unknown key causes a fetch earlier, at most every 30 s.
        jwks_refresh_interval: Duration, in s(30)..=s(24 * 3600), [restart];
        /// File with PEM certificates to trust for `jwks_url`. Empty: the system's certificates.
        ca_file: String, [restart];
        /// Memory for tokens that were verified, so that clients which reconnect cost little. When exceeded, the tokens that were not
        /// used for longest are verified again.
        token_cache_bytes_max: Bytes, in Bytes(0)..=Bytes::mib(65_536), [restart];
        /// Revocations that the server keeps. Further ones are refused by the admin API.
        revocations_max: usize, in 1..=10_000_000, [restart];
    }
}

section! {
    /// An issuer of tokens, with `jwks_url` or `keys`. Write one `[[auth.issuers]]` per issuer.
    [auth.issuers] Issuer => (issuer) {
        /// The claim `iss` of its tokens, exactly.
        issuer: String => issuer.name;
        /// What the claim `aud` of its tokens has to be or to contain. Required with `jwks_url`, because the issuer makes tokens for
        /// others as well. Empty: its tokens have no `aud`.
        audience: String => issuer.audience;
        /// Algorithms that its tokens may be signed with: `HS256`, `HS384`, `HS512`, `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`,
        /// `ES256`, `ES384`, `EdDSA`.
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
    /// Something that clients may do with some topics. Write one `[[permissions]]` per rule; rules add up. In a pattern, `/` and `:`
    /// separate segments, `*` stands for one segment, `**` at the end for the rest, and `{claim}` for the value of a claim of the
    /// client's token, such as `{sub}` or `{org.id}`.
    [permissions] Permission => (permission) {
        /// Patterns of feeds and of rooms; with `namespace`, of rooms.
        topics: Vec<String> = Vec::new();
        /// Patterns of feeds.
        feeds: Vec<String> = Vec::new();
        /// Patterns of rooms.
        rooms: Vec<String> = Vec::new();
        /// Namespace of the rooms. Empty: `/`.
        namespace: String = String::new();
        /// What is allowed: `subscribe`, `publish`, `presence` (list the members of rooms), `history` (receive earlier messages).
        allow: Vec<String> = Vec::new();
        /// Which clients.
        to: To = To::Users;
    }
}
