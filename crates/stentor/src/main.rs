//! The stentor binary.
mod config;
fn main() {}
