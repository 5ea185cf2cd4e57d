//! Tests that a protocol is named only in its own files and in few others.

use super::{code, folders};
use crate::pages::files;
use std::collections::BTreeSet;

/// For each protocol, the maximum number of files of production code that name it: of all files, and of files
/// that aren't the protocol's own.
const NAMED_MAX: [(&str, usize, usize); 2] = [("primus", 5, 3), ("sockjs", 18, 10)];

/// Returns `true` if a file belongs to a protocol: the file or one of its folders has the protocol's name.
fn is_own(path: &str, name: &str) -> bool {
    path.trim_end_matches(".rs").split('/').any(|part| part == name)
}

/// Returns the code without declarations of modules and re-exports, which need no limit.
fn without_declarations(code: &str) -> String {
    let mut kept = String::new();
    let mut in_export = false;
    for line in code.lines() {
        let begins_export = line.starts_with("pub use ");
        let is_module = line.ends_with(';')
            && line.trim_end_matches(';').rsplit_once("mod ").is_some_and(|(before, _)| {
                before.is_empty() || before.trim_end() == "pub" || before.trim_end() == "pub(crate)"
            });
        if !(begins_export || in_export || is_module) {
            kept.push_str(line);
            kept.push('\n');
        }
        in_export = (begins_export || in_export) && !line.ends_with(';');
    }
    kept
}

#[test]
fn declarations_are_left_out() {
    let code = "pub use a::{\n    Primus,\n};\nmod primus;\npub(crate) mod primus;\nlet primus = 1;\n";
    assert_eq!(without_declarations(code), "let primus = 1;\n");
}

#[test]
fn few_files_name_a_protocol() {
    for (name, all_max, others_max) in NAMED_MAX {
        let mut naming = BTreeSet::new();
        for (krate, folder) in folders().into_iter().filter(|(krate, _)| krate != "lab") {
            let source = folder.join("src");
            for path in files(&source, "rs") {
                let local = path.strip_prefix(&source).unwrap().to_str().unwrap().to_owned();
                let is_test = local.split('/').any(|part| part.trim_end_matches(".rs") == "tests");
                if !is_test && without_declarations(&code(&path)).to_lowercase().contains(name) {
                    naming.insert(format!("{krate}/{local}"));
                }
            }
        }
        let others: Vec<&String> = naming.iter().filter(|path| !is_own(path, name)).collect();
        assert!(
            others.len() <= others_max,
            "{name} is named in {} files besides its own: {others:#?}",
            others.len()
        );
        assert!(naming.len() <= all_max, "{name} is named in {} files: {naming:#?}", naming.len());
    }
}
