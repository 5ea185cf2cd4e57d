//! The command line.
//!
//! Only what people say often has a flag; everything else is in the configuration. Flags have no default
//! of their own where the configuration has one, so that a flag that isn't given overrides nothing.

use crate::config::Flags;
use crate::config::schema::{App, Driver, LogFormat};
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Pushes live data to very many clients, over the client libraries they already have.
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
    /// Check a configuration file and say what it changes.
    Check(CheckArgs),
    /// Say whether a running server answers, as health checks of containers ask.
    Health(HealthArgs),
    /// Print every key of the configuration with its default, as docs/configuration.md has it.
    Keys,
    /// Run the server on live football matches, simulated, and a page that shows them.
    Demo(DemoArgs),
    /// Measure realtime servers: runs `stentor-lab`, which is built beside this program.
    Lab(LabArgs),
}

/// The lab is a program with a command line of its own.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    /// What follows `stentor lab`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<std::ffi::OsString>,
}

/// Flags that `serve` and `demo` share.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommonArgs {
    /// Where clients connect [default: 127.0.0.1:8000]. Port 0 picks a free one.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Where the admin API is served [default: 127.0.0.1:8001].
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) admin: Option<SocketAddr>,
    /// Threads of the data plane [default: 0, one for each core].
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<usize>,
    /// How a core talks to the kernel [default: auto].
    #[arg(long, value_enum)]
    pub(crate) driver: Option<Driver>,
    /// How log lines look [default: text].
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
    /// The configuration, TOML. docs/configuration.md lists its keys.
    #[arg(long, value_name = "FILE", env = crate::config::CONFIG_VARIABLE)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// What the server does with clients' messages [default: rooms].
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
    /// The server's admin address.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8001")]
    pub(crate) admin: String,
    /// The admin token, where the server has one. Better given in the environment, where other users of the
    /// machine don't see it.
    #[arg(long, env = "STENTOR_SERVER_ADMIN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The room to publish to.
    #[arg(long, required_unless_present = "namespace")]
    pub(crate) room: Option<String>,
    /// The Socket.IO namespace of the room. Without a room: all Socket.IO clients there.
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// The event's name.
    #[arg(long)]
    pub(crate) event: Option<String>,
    /// What to publish: JSON, or else a text.
    pub(crate) data: String,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The configuration, TOML.
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// Where clients connect. An address that means all of the machine's will do.
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
        "expected an address such as 127.0.0.1:8000, 0.0.0.0:8000 or [::1]:8000; names aren't looked up";
    text.parse().map_err(|_| expected)
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// The world of the simulated matches; the same seed plays the same matches.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also serve the JSON files of this directory, in the order of their names, as versions of the feed
    /// "replay". It begins when the feed is first wanted.
    #[arg(long, value_name = "DIR")]
    pub(crate) replay: Option<PathBuf>,
    /// A folder of npm packages (node_modules) with socket.io-client and sockjs-client, so that the page can use
    /// those transports too.
    #[arg(long, value_name = "DIR")]
    pub(crate) libraries: Option<PathBuf>,
    /// Versions a second of the replay.
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "replay", value_parser = speed)]
    pub(crate) speed: f64,
}

/// Fastest replay, versions a second.
pub(crate) const SPEED_MAX: f64 = 100.0;

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed <= SPEED_MAX => Ok(speed),
        _ => Err(format!("expected versions a second, above 0 and at most {SPEED_MAX}")),
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
    fn what_can_be_said() {
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
        check("stentor health", Ok(()));
        check("stentor health --listen 0.0.0.0:8000", Ok(()));
        check("stentor demo --seed 7 --replay dir --speed 0.5", Ok(()));
        check("stentor demo --speed 2", Err("--replay <DIR>"));
        check(
            "stentor demo --replay d --speed 0",
            Err("expected versions a second, above 0 and at most 100"),
        );
        check("stentor demo --replay d --speed NaN", Err("expected versions a second"));
        check("stentor serve --lisen 127.0.0.1:1", Err("a similar argument exists: '--listen'"));
        check("stentor serve --driver uring", Err("[possible values: auto, io_uring, epoll]"));
        let address =
            "expected an address such as 127.0.0.1:8000, 0.0.0.0:8000 or [::1]:8000; names aren't looked up";
        for wrong in ["8001", "localhost", "localhost:8000", "127.0.0.1", "::1:", ":8000"] {
            for flag in ["serve --listen", "demo --admin", "health --listen"] {
                check(&format!("stentor {flag} {wrong}"), Err(address));
            }
        }
        check("stentor publish hello", Err("--room <ROOM>"));
    }
}
