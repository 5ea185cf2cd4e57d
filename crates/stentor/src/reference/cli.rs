//! docs/cli.md, generated from the definition of the command line.

use super::sentence;
use crate::cli::{Cli, default_of};
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const HEAD: &str = "\
# Command line

<!-- Generated from crates/stentor/src/cli.rs; a test compares. To generate it again:
     cargo run -p stentor -- reference cli > docs/cli.md -->

`stentor COMMAND --help` prints the flags of a command, `stentor --version` the version. A flag takes precedence over an
environment variable, which takes precedence over the [configuration](configuration.md) file.

| command | what it does |
|---|---|
";

pub(super) fn markdown() -> String {
    let mut cli = Cli::command();
    cli.build();
    let commands = || cli.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    let mut page = String::from(HEAD);
    for command in commands() {
        let name = command.get_name();
        // Writing to a string can't fail.
        _ = writeln!(page, "| [`stentor {name}`](#stentor-{name}) | {} |", about(command));
    }
    for command in commands() {
        _ = write_command(&mut page, command);
    }
    page
}

fn about(command: &Command) -> String {
    sentence(&command.get_about().map(ToString::to_string).unwrap_or_default())
}

fn write_command(page: &mut String, command: &Command) -> std::fmt::Result {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    writeln!(page, "\n## `stentor {}`\n\n{}\n", command.get_name(), about(command))?;
    writeln!(page, "```text\n{usage}\n```")?;
    let mut args = command.get_arguments().filter(|arg| arg.get_id() != "help").peekable();
    if args.peek().is_some() {
        writeln!(page, "\n| argument | default | meaning |\n|---|---|---|")?;
    }
    for arg in args {
        write_argument(page, arg)?;
    }
    Ok(())
}

fn write_argument(page: &mut String, arg: &Arg) -> std::fmt::Result {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let default = match default_of(arg) {
        _ if arg.is_required_set() => "required".into(),
        Some(default) => format!("`{default}`"),
        None => String::new(),
    };
    write!(page, "| `{arg}` | {default} | {}", sentence(&help))?;
    let values: Vec<_> = arg.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
    if !values.is_empty() {
        write!(page, " Values: {}.", values.join(", "))?;
    }
    if let Some(variable) = arg.get_env() {
        write!(page, " Environment variable: `{}`.", variable.to_string_lossy())?;
    }
    writeln!(page, " |")
}
