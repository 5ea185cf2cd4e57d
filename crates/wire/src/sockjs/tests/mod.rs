//! Vectors of the runnable specification, an escaping written a second time, and a client against a server.

mod answers;
mod client;
mod frame;
mod incoming;
mod pair;
mod route;

use super::*;
