//! Placeholder.
use crate::cli::DemoArgs;
use std::process::ExitCode;
pub(crate) fn run(_args: &DemoArgs) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
