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
