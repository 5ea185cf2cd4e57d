//! The lab: `stentor-lab bench`, `stentor-lab generate`. `stentor lab` runs this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let (out, err) = (&mut std::io::stdout(), &mut std::io::stderr());
    stentor_lab::cli::main(std::env::args_os().skip(1), out, err)
}
