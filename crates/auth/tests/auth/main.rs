//! Tests of tokens and permissions.

// Tests may panic; clippy only recognizes functions with the test attribute.
#![allow(clippy::unwrap_used)]

mod permissions;
mod tokens;
