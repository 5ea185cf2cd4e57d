//! `stentor lab …` runs `stentor-lab …` from the folder of this program. The server doesn't link the lab.

use crate::cli::LabArgs;
use anyhow::{Context, bail};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The lab's program.
const PROGRAM: &str = "stentor-lab";

/// Replaces this process with the lab. Returns only on failure.
pub(crate) fn run(args: &LabArgs) -> anyhow::Result<ExitCode> {
    let program =
        std::env::current_exe().context("the path of this program is unknown")?.with_file_name(PROGRAM);
    if !program.exists() {
        bail!(
            "`stentor lab` runs {}, which isn't there; in the source tree, `lab/build` builds it",
            program.display()
        );
    }
    let error = Command::new(&program).args(&args.args).exec();
    Err(error).with_context(|| format!("{} can't be run", program.display()))
}
