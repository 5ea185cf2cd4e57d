//! Authentication and authorization: JSON Web Tokens, permissions and revocations. No I/O: bytes and the time
//! go in, decisions come out.
//!
//! | question | type |
//! |---|---|
//! | Is this token genuine, valid now, and meant for this server? | [`Unverified`], [`Issuer`], [`Key`] |
//! | Which keys does an issuer publish? | [`KeySet`] |
//! | May this client subscribe to this topic? | [`Permissions`] |
//! | Was the token revoked? | [`Revocations`] |
//! | Was this token verified before? | [`TokenCache`] |
//!
//! Tokens are compact JWS (RFC 7515) with JSON claims (RFC 7519), verified by `ring`. The crate
//! `jsonwebtoken` isn't used: its providers are aws-lc, a second cryptographic library, and RustCrypto's,
//! which contains `rsa` (RUSTSEC-2023-0071). With a provider of our own, it would check less than this crate
//! does: limits of size and depth, duplicate members, `crit`, `typ`.
//!
//! **Invariants.**
//!
//! - A key verifies only the algorithms of its kind: a public key never serves as a secret (RFC 8725, section
//!   2.1).
//! - A key belongs to an issuer. The same key id of another issuer is another key.
//! - Unverified parts of a token are only used to find the issuer and the key by comparison.
//! - Actions that aren't permitted are refused. A claim's value never widens a pattern: it is compared with a
//!   segment, as text.
#![forbid(unsafe_code)]

mod actions;
mod algorithm;
mod ambiguity;
mod attributes;
mod cache;
mod claims;
mod error;
mod explain;
mod issuer;
mod json;
mod key;
mod key_set;
mod material;
mod pattern;
mod permissions;
mod revocations;
mod sign;
mod spki;
mod token;
mod tree;

pub use actions::{Action, Actions, Recipients};
pub use algorithm::Algorithm;
pub use ambiguity::ambiguous_patterns;
pub use attributes::Attributes;
pub use cache::{Digest, TokenCache};
pub use claims::{Claims, GRANTS_CLAIM};
pub use error::Refused;
pub use explain::{Explanation, Reason};
pub use issuer::Issuer;
pub use key::Key;
pub use key_set::{KEY_SET_BYTES_MAX, KEYS_MAX, KeySet, KeySetError};
pub use material::KeyError;
pub use pattern::{Pattern, PatternError};
pub use permissions::{Permissions, Rule, Topic};
pub use revocations::{Full, Revocation, Revocations, TokenFacts};
pub use sign::{SignError, SigningKey};
pub use token::{TOKEN_BYTES_MAX, Unverified};
