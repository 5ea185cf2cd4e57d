//! The reference pages that are generated from code: docs/cli.md and docs/metrics.md.

mod cli;
mod metrics;

use crate::cli::ReferencePage;
use std::process::ExitCode;

/// `stentor reference PAGE`.
#[allow(clippy::print_stdout, reason = "the page is what was asked for")]
pub(crate) fn run(page: ReferencePage) -> anyhow::Result<ExitCode> {
    print!("{}", markdown(page)?);
    Ok(ExitCode::SUCCESS)
}

fn markdown(page: ReferencePage) -> anyhow::Result<String> {
    match page {
        ReferencePage::Cli => Ok(cli::markdown()),
        ReferencePage::Metrics => metrics::markdown(),
    }
}

/// Text of a table's cell: one sentence, with its full stop.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.').replace('|', "\\|");
    format!("{text}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn reference_pages_are_up_to_date() {
        for page in ReferencePage::value_variants() {
            let name = page.to_possible_value().unwrap();
            let name = name.get_name();
            let path = format!("{}/../../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
            let found = std::fs::read_to_string(path).unwrap_or_default();
            assert!(
                found == markdown(*page).unwrap(),
                "docs/{name}.md is old: cargo run -p stentor -- reference {name} > docs/{name}.md"
            );
        }
    }
}
