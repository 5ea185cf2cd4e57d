//! The stentor binary: command line, configuration, and the wiring of the two planes.
//!
//! [`cli`] defines the commands, [`config`] reads the configuration, [`wiring`] starts the planes, [`serve`] runs them until a
//! signal comes ([`lifecycle`]), with the client's [`library`] for browsers;
//! [`mod@reference`] prints the pages that are generated from code;
//! [`demo`] runs them with the upstream and the page of `stentor-demo`.

#[cfg(not(target_os = "linux"))]
compile_error!("Stentor runs on Linux only; elsewhere, use WSL2 or a container.");

mod build_info;
mod check;
mod cli;
#[cfg_attr(not(feature = "engines"), path = "cluster/absent.rs")]
mod cluster;
mod config;
mod demo;
mod fetch;
mod health;
mod lab;
mod library;
mod lifecycle;
mod links;
mod logging;
mod machine;
mod own_thread;
mod port_holder;
mod publish;
mod reference;
mod reload;
mod request_reload;
mod serve;
mod service_manager;
mod takeover;
mod token;
mod top;
mod wiring;

use std::process::ExitCode;

fn main() -> ExitCode {
    stentor_driver::allocator::return_freed_pages_at_once();
    let result = match cli::parse().command {
        cli::Command::Serve(args) => serve::run(&args),
        cli::Command::Publish(args) => publish::run(&args),
        cli::Command::Check(args) => check::run(&args),
        cli::Command::Token(args) => token::run(&args),
        cli::Command::ScriptTag(args) => Ok(library::print_tag(&args)),
        cli::Command::Keys => check::keys(),
        cli::Command::Reference { page } => reference::run(page),
        cli::Command::Health(args) => health::run(&args),
        cli::Command::Top(args) => top::run(&args),
        cli::Command::Fetch(args) => fetch::run(&args),
        cli::Command::Reload(args) => request_reload::run(&args),
        cli::Command::Demo(args) => demo::run(&args),
        cli::Command::Lab(args) => lab::run(&args),
    };
    result.unwrap_or_else(|error| {
        print_error(&error);
        ExitCode::FAILURE
    })
}

/// Frames and messages are allocated on one core and freed on another, which glibc's arenas handle badly.
/// mimalloc runs without huge pages: each of 15,000 idle connections takes 173 bytes instead of 490 (glibc:
/// 363).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Prints an error. Mistakes in a configuration are printed without a prefix, one per line in the format of
/// compilers, so that editors find the location.
#[allow(clippy::print_stderr, reason = "errors go to standard error")]
fn print_error(error: &anyhow::Error) {
    if error.is::<config::Problems>() {
        eprintln!("{error}");
    } else {
        eprintln!("error: {error:#}");
    }
}
