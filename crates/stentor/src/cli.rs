//! The command line.
//!
//! Only what people say often has a flag; everything else is in the configuration. Flags have no default
//! of their own where the configuration has one, so that a flag that isn't given overrides nothing.

use crate::config::Flags;
use crate::config::schema::{App, Driver, LogFormat};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Realtime push server for the Socket.IO, SockJS, WebSocket and SSE clients you already have.
#[derive(Debug, Parser)]
#[command(name = "stentor", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(ServeArgs),
    /// Publish one message to a room of a running server.
    Publish(PublishArgs),
    /// Check a configuration file and print what it changes.
    Check(CheckArgs),
    /// Check whether a server answers; for health checks of containers.
    Health(HealthArgs),
    /// Print every configuration key with its default (docs/configuration.md).
    Keys,
    /// Print a reference page.
    #[command(hide = true)]
    Reference {
        /// The page.
        page: ReferencePage,
    },
    /// Run a demo: simulated live football matches, a chat room, and a page that shows both.
    Demo(DemoArgs),
    /// Measure realtime servers: runs `stentor-lab`, which is built beside this program.
    Lab(LabArgs),
}

/// The pages that `stentor reference` prints.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReferencePage {
    /// docs/cli.md
    Cli,
    /// docs/metrics.md
    Metrics,
    /// docs/close-codes.md
    CloseCodes,
    /// docs/admin-api.md
    AdminApi,
    /// docs/openapi.json
    Openapi,
}

/// The lab is a program with a command line of its own.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    /// Arguments of `stentor-lab`; `stentor lab --help` lists its commands.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<std::ffi::OsString>,
}

/// Flags that `serve` and `demo` share.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommonArgs {
    /// The address for clients [default: 127.0.0.1:8000]. Port 0 picks a free port.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The address of the admin API [default: 127.0.0.1:8001].
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) admin: Option<SocketAddr>,
    /// Threads of the data plane [default: 0, one per core].
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<usize>,
    /// The kernel interface of the data plane [default: auto].
    #[arg(long, value_enum)]
    pub(crate) driver: Option<Driver>,
    /// The format of log lines [default: text].
    #[arg(long, value_enum)]
    pub(crate) log: Option<LogFormat>,
}

impl CommonArgs {
    pub(crate) fn flags(&self) -> Flags {
        Flags {
            listen: self.listen,
            admin: self.admin,
            cores: self.cores,
            driver: self.driver,
            log: self.log,
            app: None,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration file (TOML). `stentor keys` lists its keys.
    #[arg(long, value_name = "FILE", env = crate::config::CONFIG_VARIABLE)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// The application that handles clients' messages [default: rooms].
    #[arg(long, value_enum)]
    pub(crate) app: Option<App>,
}

impl ServeArgs {
    pub(crate) fn flags(&self) -> Flags {
        Flags { app: self.app, ..self.common.flags() }
    }
}

#[derive(Args, Debug)]
pub(crate) struct PublishArgs {
    /// The URL of the server's admin API.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8001")]
    pub(crate) admin: String,
    /// The admin token, if the server has one. Set it in the environment, where other users of the machine can't
    /// see it.
    #[arg(long, env = "STENTOR_SERVER_ADMIN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The room to publish to.
    #[arg(long, required_unless_present = "namespace")]
    pub(crate) room: Option<String>,
    /// The Socket.IO namespace of the room. Without --room: all Socket.IO clients of the namespace.
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// The name of the event.
    #[arg(long)]
    pub(crate) event: Option<String>,
    /// The message: JSON, or text if it is not valid JSON.
    pub(crate) data: String,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The configuration file (TOML).
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// The server's address for clients; `0.0.0.0` and `[::]` work too.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8000",
        env = "STENTOR_SERVER_LISTEN",
        value_parser = address
    )]
    pub(crate) listen: SocketAddr,
}

/// A name may stand for several addresses, of which a server could only listen on one.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    let expected =
        "expected an address such as 127.0.0.1:8000, 0.0.0.0:8000 or [::1]:8000; names aren't resolved";
    text.parse().map_err(|_| expected)
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Seed of the simulated matches. The same seed plays the same matches.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also serve the JSON files of this directory, in the order of their names, as versions of the feed
    /// "replay". The replay starts with the first subscriber.
    #[arg(long, value_name = "DIR")]
    pub(crate) replay: Option<PathBuf>,
    /// A node_modules folder with socket.io-client and sockjs-client, which the page needs for these transports.
    #[arg(long, value_name = "DIR")]
    pub(crate) libraries: Option<PathBuf>,
    /// Versions per second of the replay.
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "replay", value_parser = speed)]
    pub(crate) speed: f64,
}

/// Fastest replay, versions a second.
pub(crate) const SPEED_MAX: f64 = 100.0;

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed <= SPEED_MAX => Ok(speed),
        _ => Err(format!("expected versions per second, above 0 and at most {SPEED_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn valid_command_lines_are_parsed() {
        fn check(line: &str, expect: Result<(), &str>) {
            let outcome = Cli::try_parse_from(line.split(' ')).map(|_| ()).map_err(|e| e.to_string());
            match (&outcome, expect) {
                (Ok(()), Ok(())) => {}
                (Err(text), Err(part)) => assert!(text.contains(part), "{line}: {text}"),
                _ => panic!("{line}: {outcome:?}"),
            }
        }
        check("stentor serve", Ok(()));
        check(
            "stentor serve --listen 0.0.0.0:80 --admin 127.0.0.1:1 --cores 2 --driver epoll --app chat --log json",
            Ok(()),
        );
        check("stentor serve --config stentor.toml --driver io_uring", Ok(()));
        check("stentor publish --room r hello", Ok(()));
        check("stentor publish --namespace /chat hello", Ok(()));
        check("stentor publish --admin http://127.0.0.1:1 --room r --event e {}", Ok(()));
        check("stentor check stentor.toml", Ok(()));
        check("stentor keys", Ok(()));
        check("stentor reference cli", Ok(()));
        check("stentor health", Ok(()));
        check("stentor health --listen 0.0.0.0:8000", Ok(()));
        check("stentor demo --seed 7 --replay dir --speed 0.5", Ok(()));
        check("stentor demo --speed 2", Err("--replay <DIR>"));
        check(
            "stentor demo --replay d --speed 0",
            Err("expected versions per second, above 0 and at most 100"),
        );
        check("stentor demo --replay d --speed NaN", Err("expected versions per second"));
        check("stentor serve --lisen 127.0.0.1:1", Err("a similar argument exists: '--listen'"));
        check("stentor serve --driver uring", Err("[possible values: auto, io_uring, epoll]"));
        let address =
            "expected an address such as 127.0.0.1:8000, 0.0.0.0:8000 or [::1]:8000; names aren't resolved";
        for wrong in ["8001", "localhost", "localhost:8000", "127.0.0.1", "::1:", ":8000"] {
            for flag in ["serve --listen", "demo --admin", "health --listen"] {
                check(&format!("stentor {flag} {wrong}"), Err(address));
            }
        }
        check("stentor publish hello", Err("--room <ROOM>"));
    }
}
