//! The fixture server for public conformance suites: `--profile NAME --listen 127.0.0.1:PORT`.
//!
//! It prints `ready http://ADDR` when it listens, and runs until it is killed. Profiles:
//!
//! - `websocket`: echo at `/ws` and `/`; messages up to 16 MiB, 65,537 fragments per
//!   message, permessage-deflate.
//! - `protocol`: the suites of the Engine.IO and Socket.IO protocols ([`protocol`]), which expect short heartbeats.
//! - `protocol-patient`: as `protocol`, with the usual heartbeats, so that a slow machine fails no test of other
//!   features.
//! - `protocol-pings`: as `protocol`, with frequent heartbeats, and a minute to answer each.
//! - `engineio-client`, `engineio3-client`: the suites of Engine.IO's clients ([`engineio`]).
//! - `socketio-client`: the suites of Socket.IO's clients ([`socketio`]).
//! - `sockjs`: the runnable specification of SockJS, and its client's suite ([`sockjs`]).
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod engineio;
mod protocol;
mod socketio;
mod sockjs;

use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{
    App, AppFactory, ControlPlane, DriverChoice, Heartbeat, Limits, Node, Options, Origins, Recovery,
};

struct NoControl;

impl ControlPlane for NoControl {
    fn interest_changed(&self) {}
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
            ("--cores", Some(value)) => match value.parse() {
                Ok(cores) => options.cores = cores,
                Err(error) => return fail(&format!("--cores {value}: {error}")),
            },
            (other, _) => {
                return fail(&format!(
                    "unknown argument {other}; known are --profile NAME --listen ADDR --cores N"
                ));
            }
        }
    }
    let every_origin = Origins::parse(&["*"]).unwrap_or_default();
    let heartbeat = |interval, timeout| Heartbeat {
        interval: Duration::from_millis(interval),
        timeout: Duration::from_millis(timeout),
    };
    let app: Option<AppFactory> = match profile.as_str() {
        "websocket" => {
            options.app = App::Echo;
            options.limits = Limits {
                message_bytes_max: 16 << 20,
                // Autobahn's 9.3.1 ends 65,536 fragments with an empty one.
                fragments_max: 65_537,
                replies_bytes_max: 64 << 20,
                ..Limits::default()
            };
            None
        }
        "protocol" => {
            options.heartbeat = heartbeat(300, 200);
            options.origins = every_origin;
            options.engine.connect_timeout = Duration::from_millis(1_000);
            options.engine.open_delay = protocol::PAUSE;
            Some(Arc::new(|_| Box::new(protocol::Protocol::default())))
        }
        "protocol-patient" | "protocol-pings" => {
            let interval = if profile == "protocol-pings" { 300 } else { 25_000 };
            options.heartbeat = heartbeat(interval, 60_000);
            options.origins = every_origin;
            options.engine.open_delay = protocol::PAUSE;
            Some(Arc::new(|_| Box::new(protocol::Protocol::default())))
        }
        "engineio-client" => {
            options.heartbeat = heartbeat(500, 20_000);
            options.origins = every_origin;
            options.limits.message_bytes_max = 100;
            Some(Arc::new(|_| Box::new(engineio::Client { utf8: engineio::UTF8 })))
        }
        "engineio3-client" => {
            options.heartbeat = heartbeat(500, 20_000);
            options.origins = every_origin;
            Some(Arc::new(|_| Box::new(engineio::Client { utf8: engineio::UTF8_OF_3 })))
        }
        "socketio-client" => {
            options.heartbeat = heartbeat(2_000, 20_000);
            options.origins = every_origin;
            options.engine.recovery = Some(Recovery::default());
            Some(Arc::new(|_| Box::new(socketio::Client::default())))
        }
        "sockjs" => {
            options.origins = every_origin;
            options.sockjs = sockjs::prefixes();
            Some(Arc::new(|_| Box::new(sockjs::Services::default())))
        }
        other => {
            return fail(&format!(
                "unknown profile {other}; known are websocket, protocol, protocol-patient, protocol-pings, \
                 engineio-client, engineio3-client, socketio-client, sockjs"
            ));
        }
    };
    match Node::start(options, DriverChoice::Auto, Arc::new(NoControl), app) {
        Ok(node) => {
            println!("ready http://{}", node.started().addr);
            if let Err(error) = node.join() {
                fail(&error.to_string());
            }
        }
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) {
    eprintln!("{message}");
    std::process::exit(2);
}
