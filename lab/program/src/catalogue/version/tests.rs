use super::*;

#[test]
fn the_first_line_is_the_version_or_why_there_is_none() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let check = |command: &[&str], expect: &str| {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(ask(&command, folder), expect, "{command:?}");
    };
    let shell = |script: &str, expect: &str| check(&["sh", "-c", script], expect);
    shell("echo; echo ' v 1.2 '; echo more", "v 1.2");
    // nginx and Java print their versions to stderr.
    shell("echo nginx/1.22.1 >&2", "nginx/1.22.1");
    shell("echo 1.2; echo careful >&2", "1.2");
    shell("grep -m1 -F [ Cargo.toml", "[workspace]");
    shell("printf 'a\\033[1mb\\377'", "a [1mb\u{fffd}");
    shell("printf x; exec sleep 0", "x");
    // The output is longer than the stored text.
    shell("yes | tr -d '\\n' | head -c 2000", &format!("{}…", "y".repeat(199)));
    check(&["stentor-nobody", "--version"], "unknown: stentor-nobody can't be run");
    shell("exit 3", "unknown: sh fails");
    shell("echo no such option >&2; exit 2", "unknown: sh fails: no such option");
    shell("true", "unknown: sh says nothing");
    check(&[], "unknown: nothing is said to be run");
}
