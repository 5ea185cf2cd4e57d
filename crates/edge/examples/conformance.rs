//! The fixture server for public conformance suites: `--profile NAME --listen 127.0.0.1:PORT`.
//!
//! It prints `ready http://ADDR` when it listens, and runs until it is killed. Profiles:
//!
//! - `websocket`: echo at `/ws`; messages up to 16 MiB, 65,536 fragments per
//!   message, permessage-deflate.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::sync::Arc;
use stentor_edge::{App, ControlPlane, DriverChoice, Limits, Node, Options};

struct NoControl;

impl ControlPlane for NoControl {
    fn wanted(&self) {}
    fn space(&self) {}
}

fn main() {
    let mut profile = String::from("websocket");
    let mut options = Options { cores: 1, ..Options::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--profile", Some(value)) => profile = value,
            ("--listen", Some(value)) => match value.parse() {
                Ok(addr) => options.listen = addr,
                Err(error) => return fail(&format!("--listen {value}: {error}")),
            },
            (other, _) => {
                return fail(&format!("unknown argument {other}; known are --profile NAME --listen ADDR"));
            }
        }
    }
    match profile.as_str() {
        "websocket" => {
            options.app = App::Echo;
            options.limits = Limits {
                message_bytes_max: 16 << 20,
                fragments_max: 65_536,
                replies_bytes_max: 64 << 20,
                ..Limits::default()
            };
        }
        other => return fail(&format!("unknown profile {other}; known is websocket")),
    }
    match Node::start(options, DriverChoice::Auto, Arc::new(NoControl), None) {
        Ok(node) => {
            println!("ready http://{}", node.started().addr);
            node.join();
        }
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) {
    eprintln!("{message}");
    std::process::exit(2);
}
