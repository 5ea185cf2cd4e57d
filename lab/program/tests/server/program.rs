//! The fake server as a program that the lab starts: `fake-server MODE FAULT EVERY`. A signal ends it.

#![allow(clippy::print_stdout, reason = "the address is printed")]
#![allow(clippy::unwrap_used, reason = "only tests start it")]

#[path = "mod.rs"]
mod server;

use server::{Fault, Server};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [mode, fault, every] = &*arguments else { panic!("{arguments:?} isn't MODE FAULT EVERY") };
    let server = Server::start_with(mode != "echo", Fault::named(fault), every.parse().unwrap());
    println!("ready http://{}", server.address);
    loop {
        std::thread::park();
    }
}
