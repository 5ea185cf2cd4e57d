//! The reference pages in `docs` that are generated from code.

mod admin_api;
mod cli;
mod close_codes;
mod metrics;

use crate::cli::ReferencePage;
use std::process::ExitCode;

/// Runs `stentor reference PAGE`.
#[allow(clippy::print_stdout, reason = "the page is the requested output")]
pub(crate) fn run(page: ReferencePage) -> anyhow::Result<ExitCode> {
    print!("{}", text(page)?);
    Ok(ExitCode::SUCCESS)
}

fn text(page: ReferencePage) -> anyhow::Result<String> {
    match page {
        ReferencePage::Cli => Ok(cli::markdown()),
        ReferencePage::Metrics => metrics::markdown(),
        ReferencePage::CloseCodes => Ok(close_codes::markdown()),
        ReferencePage::AdminApi => Ok(admin_api::markdown()),
        ReferencePage::Openapi => Ok(format!("{:#}\n", stentor_control::openapi())),
    }
}

/// Returns a text as a table cell: one sentence with its full stop.
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
        let mut commands = Vec::new();
        for page in ReferencePage::value_variants() {
            let name = page.to_possible_value().unwrap();
            let name = name.get_name();
            let extension = if matches!(page, ReferencePage::Openapi) { "json" } else { "md" };
            let path = format!("{}/../../docs/{name}.{extension}", env!("CARGO_MANIFEST_DIR"));
            if std::fs::read_to_string(path).unwrap_or_default() != text(*page).unwrap() {
                commands.push(format!("cargo run -p stentor -- reference {name} > docs/{name}.{extension}"));
            }
        }
        assert!(commands.is_empty(), "some pages are old: {}", commands.join("; "));
    }
}
