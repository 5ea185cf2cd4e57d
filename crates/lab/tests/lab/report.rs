//! Pages made again from results: of one that was written before there were ages, connections and the marks of a virtual machine
//! in them (November 2026), and of a folder.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes a page of a result; returns whether it was made, what was said, and the page.
fn report(result: &str) -> (bool, String, String) {
    let result = Path::new(env!("CARGO_MANIFEST_DIR")).join(result);
    // Tests run at once, each with a page of its own.
    static PAGES: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), PAGES.fetch_add(1, Ordering::Relaxed));
    let page = std::env::temp_dir().join(format!("stentor-lab-report-{process}-{number}.html"));
    let output = Command::new(env!("CARGO_BIN_EXE_stentor-lab"))
        .arg("report")
        .arg(result)
        .arg("--page")
        .arg(&page)
        .output()
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let text = fs::read_to_string(&page).unwrap_or_default();
    let _ = fs::remove_file(&page);
    (output.status.success(), said, text)
}

#[test]
fn an_old_result_still_has_a_page() {
    let (success, said, page) = report("tests/results/chat-rtt.json");
    assert!(success && said.contains(".html"), "{said}");
    let position = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    // In this order: the answer, the table, the plot with what was published, and how it was measured.
    let order = ["class=\"answer\"", "<table>", "published:", "sockjs-node, 50k", "How this was measured"];
    let found = order.map(position);
    assert!(found.is_sorted(), "{found:?}");
    assert_eq!(page.matches("<svg ").count(), 2);
    for loads in ["http", "src=", "<link", "<script", "url("] {
        assert!(!page.contains(loads), "{loads}");
    }
}

#[test]
fn a_folder_of_results_gets_its_pages_and_a_list() {
    let folder = std::env::temp_dir().join(format!("stentor-lab-folder-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results/chat-rtt.json");
    fs::copy(old, folder.join("old.json")).unwrap();
    fs::write(folder.join("broken.json"), "{").unwrap();
    let report = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stentor-lab"));
        let output = command.arg("report").arg(&folder).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (success, said) = report();
    assert!(success && said.contains("index.html") && said.contains("broken.json"), "{said}");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let (index, list) = (read("index.html"), read("README.md"));
    assert!(index.contains("href=\"old.html\"") && index.contains("class=\"answer\""), "{index}");
    assert!(read("old.html").contains("How this was measured") && read("old.svg").starts_with("<svg "));
    for part in ["\n## chat-rtt: ", "\n- ", "](old.svg)", "\n| server | deliveries/s |", "\n|---|---|"] {
        assert!(list.contains(part), "{part}: {list}");
    }
    fs::remove_file(folder.join("old.json")).unwrap();
    let (success, said) = report();
    fs::remove_dir_all(&folder).unwrap();
    assert!(!success && said.contains("there are no results in"), "{said}");
}

/// The chart of the published results shows the figures of the result beside it.
#[test]
fn the_published_chart_is_made_from_its_result() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let made = std::env::temp_dir().join(format!("stentor-lab-chart-{}.svg", std::process::id()));
    let chart = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stentor-lab"));
        command.arg("report").arg(published.join("2026-11-22/room-broadcast-quick.json"));
        let output = command.arg("--chart").arg(&made).args(arguments).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (success, said) = chart(&["--metric", "cpu_per_message"]);
    assert!(success, "{said}");
    let text = fs::read_to_string(&made).unwrap();
    fs::remove_file(&made).unwrap();
    assert_eq!(text, fs::read_to_string(published.join("2026-11-22/room-broadcast-cpu.svg")).unwrap());
    assert!(text.contains(">stentor:socketio<") && text.contains(">6.84 µs<"), "{text}");
    assert!(!text.contains("again"), "{text}");
    let (success, said) = chart(&["--metric", "clients"]);
    assert!(!success && said.contains("case room-1300 has no figures of clients"), "{said}");
    let (success, said) = chart(&["--metric", "nothing"]);
    assert!(!success && said.contains("there is no figure `nothing`"), "{said}");
    assert!(!made.exists());
}

#[test]
fn what_is_no_result_is_told() {
    let (success, said, page) = report("Cargo.toml");
    assert!(!success && said.contains("Cargo.toml: no result of a scenario") && page.is_empty(), "{said}");
}

#[test]
fn what_is_no_result_is_told_by_how() {
    let folder = std::env::temp_dir().join(format!("stentor-lab-no-results-{}", std::process::id()));
    let results = folder.join("results");
    fs::create_dir_all(&results).unwrap();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results/chat-rtt.json");
    let whole = fs::read(&old).unwrap();
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stentor-lab"));
        let output = command.args(arguments).current_dir(&folder).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), said)
    };
    let check = |bytes: &[u8], told: &str| {
        fs::write(folder.join("one.json"), bytes).unwrap();
        for arguments in
            [&["report", "one.json"][..], &["compare", "one.json", "one.json"], &["gate", "one.json"]]
        {
            let (code, said) = lab(arguments);
            assert!(code == 1 && said.contains("one.json: ") && said.contains(told), "{code}: {said}");
        }
    };
    check(&whole[..whole.len() / 2], "it ends in the middle");
    check(b"\n", "it is empty");
    check(b"{\"a\": 1}", "missing field `schema`");
    check(b"[]", "no result of a scenario");
    check(&[0xff, 0xfe, 0x00], "it isn't text");
    let newer = String::from_utf8(whole.clone()).unwrap().replacen("\"schema\": 1", "\"schema\": 99", 1);
    check(newer.as_bytes(), "this program knows 1");

    let check = |arguments: &[&str], told: &[&str]| {
        let (code, said) = lab(&[&["history"], arguments].concat());
        assert!(code == 1 && told.iter().all(|told| said.contains(told)), "{code}: {said}");
    };
    check(&[], &["there are no results in results"]);
    fs::write(results.join("broken.json"), "{").unwrap();
    check(&[], &["there are no results in results", "not read: results/broken.json: "]);
    fs::write(results.join("old.json"), &whole).unwrap();
    check(&["nobody"], &["has nobody; there are ", "sockjs-node", " of chat-rtt"]);
    check(&["--scenario", "echo"], &["no result of echo in results", " of chat-rtt"]);
    check(&["sockjs-node", "--against", "nobody"], &["has nobody (--against)"]);
    check(&["--results", "nowhere"], &["nowhere: ", "(--results)"]);
    fs::remove_dir_all(&folder).unwrap();
}
