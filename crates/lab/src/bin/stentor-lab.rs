//! The lab by itself: `stentor-lab bench`, `stentor-lab generate`. The `stentor` binary has it as `stentor lab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    stentor_lab::cli::main(std::env::args().skip(1), &[], &mut std::io::stdout(), &mut std::io::stderr())
}
