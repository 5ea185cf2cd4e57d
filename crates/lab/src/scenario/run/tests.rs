use super::*;

#[test]
fn runs_that_begin_in_the_same_second_have_a_file_each() {
    let results = std::env::temp_dir().join(format!("stentor-lab-record-{}", std::process::id()));
    fs::create_dir_all(&results).unwrap();
    let reserved = || reserve(&results, "idle-now").unwrap();
    let first = reserved();
    assert_eq!(first, results.join("idle-now.json"));
    assert_eq!(reserved(), results.join("idle-now-2.json"));
    write_whole(&first, "{}").unwrap();
    assert_eq!(reserved(), results.join("idle-now-3.json"));
    let mut names: Vec<_> = fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["idle-now-2.draft", "idle-now-3.draft", "idle-now.json"]);
    fs::remove_dir_all(&results).unwrap();
}

#[test]
fn dates() {
    let check = |seconds, expect: &str| assert_eq!(iso_8601(seconds), expect);
    check(0, "1970-01-01T00:00:00Z");
    check(951_782_400, "2000-02-29T00:00:00Z");
    check(1_795_288_334, "2026-11-21T19:12:14Z");
    check(4_107_542_399, "2100-02-28T23:59:59Z");
    check(4_107_542_400, "2100-03-01T00:00:00Z");
}
