//! `stentor fetch`: makes a running server fetch a feed from its API, and prints the fetch.

use crate::cli::FetchArgs;
use crate::serve::block_on;
use std::process::ExitCode;

#[allow(clippy::print_stdout, reason = "the description is the requested output")]
pub(crate) fn run(args: &FetchArgs) -> anyhow::Result<ExitCode> {
    block_on(async {
        let report = args.admin.client().fetch(&args.key).await?;
        print!("{}", report.text);
        Ok(if report.document { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
