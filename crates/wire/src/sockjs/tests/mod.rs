//! Vectors of the runnable specification, a second implementation of the escaping, and a client against a
//! server.

mod answers;
mod client;
mod frame;
mod incoming;
mod pair;
mod route;

use super::*;
