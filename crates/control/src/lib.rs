//! The control plane: feeds, admin API, metrics.

mod error;
mod json;
mod options;
pub mod schedule;
