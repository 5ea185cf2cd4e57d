//! Authentication and authorization: JSON Web Tokens, permissions and revocations. The crate does no I/O:
//! bytes and the time go in, decisions come out.
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
//! `jsonwebtoken` isn't used: its cryptographic providers are aws-lc, a second cryptographic library, and
//! RustCrypto, which contains `rsa` (RUSTSEC-2023-0071). With a custom provider, it would still lack checks
//! that this crate has: limits of size and depth, duplicate members, `crit`, `typ`.
//!
//! **Invariants.**
//!
//! - A key verifies only the algorithms of its kind: a public key never serves as a secret (RFC 8725, section
//!   2.1).
//! - A key belongs to an issuer. Keys of two issuers with the same key id are different keys.
//! - Unverified parts of a token are used only to find the issuer and the key by comparison.
//! - Actions that aren't permitted are refused. A claim's value never widens a pattern, because it is
//!   compared with a segment as text.
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
