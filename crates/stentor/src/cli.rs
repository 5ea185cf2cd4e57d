//! The command line.
//!
//! Only settings that are changed often have a flag. All others are in the configuration. A flag of a
//! configuration key has no default of its own, so that an omitted flag overrides no other source. The flag's
//! help shows the key's default.

use crate::config::Flags;
use crate::config::schema::{App, Driver, LogFormat, Server};
use crate::config::section::Section;
use crate::config::setting::{Raw, Setting as _};
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use stentor_control::AdminClient;

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
    /// Check a configuration file and print its changes from the defaults, what it needs, or a client's permissions.
    Check(CheckArgs),
    /// Make a token for development, signed with a key of the configuration.
    Token(TokenArgs),
    /// Check whether a server answers; for health checks of containers.
    Health(HealthArgs),
    /// Show the status of a running server in the terminal, refreshed every two seconds.
    Top(TopArgs),
    /// Make a running server fetch a feed from its API at once, and print the request, the response and the
    /// time of the next fetch.
    Fetch(FetchArgs),
    /// Make a running server read its configuration again, and print the changes.
    Reload(AdminArgs),
    /// Print the script tag of the JavaScript client, with the address and the hash of exactly this build.
    ScriptTag(ScriptTagArgs),
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

/// Arguments of `script-tag`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScriptTagArgs {
    /// The server's address for pages, such as `https://live.example.com`. Without it, the tag is for pages of the same origin.
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
}

/// Arguments of the lab, a program with its own command line.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    /// Arguments of `stentor-lab`; `stentor lab --help` lists its commands.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<std::ffi::OsString>,
}

/// Parses the command line of this process. Ends the process if the command line is invalid or requests help.
pub(crate) fn parse() -> Cli {
    Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit())
}

fn command() -> clap::Command {
    let show_default = |arg: Arg| match (arg.get_default_values().is_empty(), default_of(&arg)) {
        (true, Some(default)) => {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help} [default: {default}]"))
        }
        _ => arg,
    };
    Cli::command().mut_subcommands(|command| command.mut_args(show_default))
}

/// Returns the default of an argument: its own default, or that of the key of `[server]` with the argument's
/// name.
pub(crate) fn default_of(arg: &Arg) -> Option<String> {
    let own: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !own.is_empty() {
        return Some(own.join(" "));
    }
    let keys = Server::default().show();
    let (_, default) = keys.into_iter().find(|(key, _)| arg.get_id() == key)?;
    Some(default.trim_matches('"').to_owned())
}

/// Flags that `serve` and `demo` share. Each has the name of its key in `[server]`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommonArgs {
    /// The address for clients. Port 0 picks a free port.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The address of the admin API.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) admin: Option<SocketAddr>,
    /// Threads of the data plane. 0: one per core.
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<usize>,
    /// The kernel interface of the data plane.
    #[arg(long, value_enum)]
    pub(crate) driver: Option<Driver>,
    /// The format of log lines.
    #[arg(long, value_enum)]
    pub(crate) log: Option<LogFormat>,
}

impl CommonArgs {
    pub(crate) fn flags(&self) -> Flags {
        vec![
            ("listen", self.listen.map(|addr| addr.to_string())),
            ("admin", self.admin.map(|addr| addr.to_string())),
            ("cores", self.cores.map(|cores| cores.to_string())),
            ("driver", self.driver.map(|driver| driver.as_str().to_owned())),
            ("log", self.log.map(|format| format.as_str().to_owned())),
        ]
    }
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration file (TOML). `stentor keys` lists its keys.
    #[arg(long, value_name = "FILE", env = crate::config::CONFIG_VARIABLE)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// The application that handles clients' messages.
    #[arg(long, value_enum)]
    pub(crate) app: Option<App>,
}

impl ServeArgs {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.common.flags();
        flags.push(("app", self.app.map(|app| app.as_str().to_owned())));
        flags
    }
}

/// The admin API of a running server.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdminArgs {
    /// The URL of the server's admin API.
    #[arg(
        long = "admin",
        value_name = "URL",
        default_value_t = format!("http://{}", Server::default().admin),
        env = "STENTOR_SERVER_ADMIN"
    )]
    url: String,
    /// The admin token, if the server has one. Set it in the environment, where other users of the machine can't
    /// see it.
    #[arg(long, env = "STENTOR_SERVER_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// File with PEM certificates to trust for `https://`, instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

impl AdminArgs {
    pub(crate) fn client(&self) -> AdminClient {
        let Self { url, token, ca_file } = self.clone();
        // An address without a scheme, as the log shows it, means `http://`.
        let url = if url.contains("://") { url } else { format!("http://{url}") };
        AdminClient { url, token, ca_file }
    }
}

#[derive(Args, Debug)]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// The room to publish to.
    #[arg(long, required_unless_present = "namespace")]
    pub(crate) room: Option<String>,
    /// The Socket.IO namespace of the room. Without --room: all Socket.IO clients of the namespace.
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// The name of the event.
    #[arg(long)]
    pub(crate) event: Option<String>,
    /// A unique text: if it is repeated within five minutes, the command publishes no message.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// The message: JSON, or text if it is not valid JSON.
    pub(crate) data: String,
}

#[derive(Args, Debug)]
pub(crate) struct FetchArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// The feed. Exits with 1 if its API answers without a document.
    pub(crate) key: String,
}

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the status once and exit.
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The configuration file (TOML).
    pub(crate) file: PathBuf,
    /// Print a client's permissions for this feed or room, and the rules that grant them.
    pub(crate) topic: Option<String>,
    /// The claims of the client's token, as JSON: `{"sub":"42"}`. Without it, the client is anonymous.
    #[arg(long = "as", value_name = "CLAIMS", requires = "topic")]
    pub(crate) claims: Option<String>,
    /// The Socket.IO namespace of the room.
    #[arg(long, value_name = "NAME", default_value = "/", requires = "topic")]
    pub(crate) namespace: String,
    /// Fetch this feed once from its API, and print the request, the response and the time of the next fetch. Secrets come from the
    /// environment that the file names. Exits with 1 if there is no document.
    #[arg(long, value_name = "KEY", conflicts_with = "topic")]
    pub(crate) fetch: Option<String>,
    /// Try each upstream, hook, issuer of tokens, engine and certificate once, all at the same time, and print what came back. Secrets
    /// come from the environment that the file names. Exits with 1 if an attempt fails.
    #[arg(long, conflicts_with_all = ["topic", "fetch"])]
    pub(crate) connect: bool,
    /// Print the result as JSON, which docs/operate.md describes.
    #[arg(long, conflicts_with_all = ["topic", "fetch"])]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TokenArgs {
    /// The configuration file (TOML). Secrets come from the environment that it names.
    #[arg(long, value_name = "FILE", env = crate::config::CONFIG_VARIABLE)]
    pub(crate) config: PathBuf,
    /// The user: the claim `sub`.
    #[arg(long)]
    pub(crate) sub: String,
    /// Validity of the token, such as 30s, 15min or 1h.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// A further claim. The value is parsed as JSON if it is valid JSON, otherwise it is a text.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    pub(crate) claims: Vec<(String, serde_json::Value)>,
    /// The issuer, if the configuration has several.
    #[arg(long)]
    pub(crate) issuer: Option<String>,
    /// The issuer's private key for ES256 (PEM, PKCS #8). Without it, a secret of the configuration signs.
    #[arg(long, value_name = "FILE")]
    pub(crate) private_key: Option<PathBuf>,
    /// The id of the private key.
    #[arg(long, requires = "private_key")]
    pub(crate) kid: Option<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    Duration::read(Raw::Text(text))
}

fn claim(text: &str) -> Result<(String, serde_json::Value), &'static str> {
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// The server's address for clients; `0.0.0.0` and `[::]` work too.
    #[arg(
        long,
        value_name = "ADDR",
        default_value_t = Server::default().listen,
        env = "STENTOR_SERVER_LISTEN",
        value_parser = address
    )]
    pub(crate) listen: SocketAddr,
}

/// Parses an address. Host names aren't accepted, because a name may have several addresses, and a server
/// listens on one.
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
    /// When the simulated matches began, in seconds since 1970. Nodes with the same seed and kickoff play the same
    /// matches. Without it, they begin now.
    #[arg(long, value_name = "TIME")]
    pub(crate) kickoff: Option<u64>,
    /// Also serve the JSON files of this directory, in the order of their names, as versions of the feed
    /// "replay". The replay starts with the first subscriber.
    #[arg(long, value_name = "DIR")]
    pub(crate) replay: Option<PathBuf>,
    /// A node_modules folder with socket.io-client and sockjs-client, which the page needs for these transports. With Node, socket.io and
    /// @stentor/socket.io in it, the page also has a chat whose handlers run in a worker.
    #[arg(long, value_name = "DIR")]
    pub(crate) libraries: Option<PathBuf>,
    /// The documentation that `make docs` builds, with a menu and a search. Without it, the page links to plain pages.
    #[arg(long, value_name = "DIR")]
    pub(crate) docs: Option<PathBuf>,
    /// Versions per second of the replay.
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "replay", value_parser = speed)]
    pub(crate) speed: f64,
}

/// Maximum speed of a replay, in versions per second.
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

    #[test]
    fn help_shows_the_defaults_of_the_configuration() {
        let mut command = command();
        command.clone().debug_assert();
        for (name, default) in
            [("serve", "rooms"), ("serve", "127.0.0.1:8000"), ("demo", "127.0.0.1:8001"), ("demo", "auto")]
        {
            let help = command.find_subcommand_mut(name).unwrap().render_help().to_string();
            assert_eq!(help.matches(&format!("[default: {default}]")).count(), 1, "{help}");
        }
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
        check("stentor check stentor.toml user/42 --as {}", Ok(()));
        check("stentor check stentor.toml --as {}", Err("<TOPIC>"));
        check("stentor check stentor.toml --fetch scores/1", Ok(()));
        check("stentor check stentor.toml user/42 --fetch scores/1", Err("cannot be used with"));
        check("stentor check stentor.toml --connect --json", Ok(()));
        check("stentor check stentor.toml user/42 --json", Err("cannot be used with"));
        check("stentor token --config a --sub 42 --ttl 15min --claim a=b --claim c={}", Ok(()));
        check("stentor token --config a", Err("--sub <SUB>"));
        check("stentor token --config a --sub 42 --ttl 15", Err("expected a duration"));
        check("stentor token --config a --sub 42 --claim a", Err("expected NAME=VALUE"));
        check("stentor keys", Ok(()));
        check("stentor reference cli", Ok(()));
        check("stentor top --once --admin http://127.0.0.1:1", Ok(()));
        check("stentor fetch scores/1 --admin http://127.0.0.1:1", Ok(()));
        check("stentor fetch", Err("<KEY>"));
        check("stentor reload --admin https://127.0.0.1:1 --ca-file ca.pem", Ok(()));
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
