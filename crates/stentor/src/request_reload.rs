//! `stentor reload`: makes a running server read its configuration again, and prints the changes.

use crate::cli::AdminArgs;
use std::process::ExitCode;
use stentor_control::ReloadReport;

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "the report is the requested output")]
pub(crate) fn run(admin: &AdminArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(admin.client().reload())?;
    print!("{}", text(&report));
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the report as text, with one line per key.
fn text(report: &ReloadReport) -> String {
    let ReloadReport { applied, restart_needed, .. } = report;
    if applied.is_empty() && restart_needed.is_empty() {
        return "No key has changed. Certificates and other files were read again.\n".into();
    }
    let lines = |title: &str, keys: &[String]| -> String {
        keys.iter().map(|key| format!("{title}: {key}\n")).collect()
    };
    lines("applied", applied) + &lines("restart needed", restart_needed)
}
