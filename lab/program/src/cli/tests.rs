use super::*;

/// The arguments of `stentor lab …`, of `stentor-lab …`, and of the scripts that run them.
fn command(line: &str) -> Option<Vec<&str>> {
    let words: Vec<_> = line.split_whitespace().take_while(|word| *word != "#").collect();
    match words.as_slice() {
        ["stentor", "lab", rest @ ..] | ["stentor-lab", rest @ ..] => Some([&[NAME], rest].concat()),
        ["lab/bench", rest @ ..] => Some([&[NAME, "bench"], rest].concat()),
        ["lab/overload", rest @ ..] => Some([&[NAME, "run", "overload"], rest].concat()),
        _ => None,
    }
}

/// The other commands run in crates/stentor/tests/slow/commands.rs.
#[test]
fn commands_in_documents_are_valid() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut checked = 0;
    for page in ["benchmarks.md", "lab.md", "operate.md", "results/README.md", "sizing.md"] {
        let text = std::fs::read_to_string(docs.join(page)).unwrap();
        for words in text.lines().filter_map(command) {
            checked += 1;
            match Arguments::try_parse_from(&words) {
                Ok(_) => {}
                Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {}
                Err(error) => panic!("{page}: {words:?}: {error}"),
            }
        }
    }
    assert!(checked > 25, "only {checked} commands were found: the pages are not read right");
}
