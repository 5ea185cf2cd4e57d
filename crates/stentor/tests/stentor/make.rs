//! Tests of `make run`: the ports that it passes on, and its message without a recent Rust.

use crate::pages::root;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn the_ports_can_be_chosen() {
    let check = |arguments: &[&str], expect: &str| {
        let mut make = Command::new("make");
        make.args(["--dry-run", "run"]).args(arguments).current_dir(root());
        for inherited in ["PORT", "ADMIN_PORT", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
            make.env_remove(inherited);
        }
        let printed = String::from_utf8(make.output().unwrap().stdout).unwrap();
        assert!(printed.contains(expect), "{printed}");
    };
    check(&[], "--listen 127.0.0.1:8000 --admin 127.0.0.1:8001");
    check(&["PORT=9000"], "--listen 127.0.0.1:9000 --admin 127.0.0.1:9001");
    check(&["PORT=9000", "ADMIN_PORT=7"], "--listen 127.0.0.1:9000 --admin 127.0.0.1:7");
}

/// Returns the message for this output of `rustc --version`. `None` means that rustc is missing. The message
/// is empty if rustc is recent enough.
fn checked(version: Option<&str>) -> String {
    let dir = tempfile::tempdir().unwrap();
    for tool in ["sed", "dirname", "cut", "sort", "head"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{tool}"), dir.path().join(tool)).unwrap();
    }
    if let Some(version) = version {
        let rustc = dir.path().join("rustc");
        std::fs::write(&rustc, format!("#!/bin/sh\necho 'rustc {version}'\n")).unwrap();
        std::fs::set_permissions(&rustc, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("/bin/sh");
    let output =
        command.arg("scripts/check-rust").current_dir(root()).env("PATH", dir.path()).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.success(), line.is_empty(), "{line}");
    line
}

#[test]
fn an_old_or_missing_rust_is_reported_with_a_remedy() {
    for version in ["1.91.0 (abc 2025-10-28)", "1.100.0-nightly (abc 2027-01-01)", "2.0.0"] {
        assert_eq!(checked(Some(version)), "");
    }
    let old = checked(Some("1.90.0 (abc 2025-09-14)"));
    assert!(
        old.starts_with("Stentor needs Rust 1.91 or newer, and rustc is 1.90.0: ")
            && old.contains("rustup update"),
        "{old}"
    );
    let missing = checked(None);
    assert!(missing.contains("rustc isn't installed") && missing.contains("https://rustup.rs"), "{missing}");
}
