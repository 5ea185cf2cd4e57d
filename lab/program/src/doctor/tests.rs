use super::*;

#[test]
fn siblings_are_read_from_lists() {
    let check = |list, core, expect| assert_eq!(are_siblings(list, core), expect, "{list} {core}");
    check("0", 0, true);
    check("0", 1, false);
    check("0-1", 1, true);
    check("0,4", 4, true);
    check("0,4-6", 5, true);
    check("0,4-6", 3, false);
    check("", 0, false);
    check("x-y", 0, false);
}

#[test]
fn this_machine_is_described() {
    let findings = examine(0, 0, "cubic");
    let text = findings.to_string();
    // One core for both server and generator is never suitable.
    assert!(findings.rows.iter().any(|(.., fit)| fit.is_err()) && text.contains("share a core"), "{text}");
    for told in ["CPU steal", "noise of the same work", "file descriptors", "A full run of six pairs shows"] {
        assert!(text.contains(told), "{told}: {text}");
    }
}
