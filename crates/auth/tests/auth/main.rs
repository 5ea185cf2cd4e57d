//! Tokens and permissions.

// Tests may panic; clippy knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod permissions;
mod tokens;
