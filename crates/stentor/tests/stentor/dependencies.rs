//! Tests of `scripts/check-dependencies`: the dependencies follow deny.toml, and the script reports every
//! broken rule.

use crate::pages::root;
use std::process::Command;

/// Runs the script with these rules. Returns its report.
fn checked(rules: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deny.toml");
    std::fs::write(&path, rules).unwrap();
    let output = Command::new(root().join("scripts/check-dependencies")).arg(path).output().unwrap();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.success(), reported.is_empty(), "{reported}");
    reported
}

#[test]
fn a_dependency_that_breaks_a_rule_is_reported() {
    let rules = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    assert_eq!(checked(&rules), "");
    let check = |rule: &str, other: &str, expect: &str| {
        assert!(rules.contains(rule), "{rule}");
        let reported = checked(&rules.replace(rule, other));
        assert!(reported.contains(expect), "{expect:?} is not in {reported:?}");
    };
    check("    \"ISC\",\n", "", ": the license 'ISC' is not allowed");
    // The crate needs both licenses, and only one of them is allowed.
    check("    \"Unicode-3.0\",\n", "", ": the license '(MIT OR Apache-2.0) AND Unicode-3.0' is not allowed");
    check("\"openssl-sys\"", "\"tokio\"", ": the crate is banned");
    check(
        "rust-lang/",
        "someone/",
        ": the source registry+https://github.com/rust-lang/crates.io-index is not allowed",
    );
    check("multiple-versions = \"warn\"", "multiple-versions = \"deny\"", ": there are 2 versions: ");
    // The script refuses rules that only cargo-deny supports.
    check(
        "unknown-git = \"deny\"",
        "unknown-git = \"warn\"",
        "[sources] unknown-git = 'warn' in deny.toml is not supported",
    );
    check("[bans]", "[bans]\nskip = []", "[bans] skip = [] in deny.toml is not supported");
}
