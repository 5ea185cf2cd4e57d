//! Pages made again from results: from an old result, and from a folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fakes::{self, Folder};

/// A result of November 2026, written before results contained ages, connections and the figures of a virtual machine.
fn old() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results/chat-rtt.json")
}

#[test]
fn an_old_result_still_has_a_page() {
    let folder = Folder::new("report");
    let page = folder.path("page.html");
    let (code, said) =
        fakes::said(fakes::lab().arg("report").arg(old()).arg("--page").arg(&page).output().unwrap());
    assert!(code == 0 && said.contains(".html"), "{said}");
    let page = fs::read_to_string(page).unwrap();
    let position = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    // The page's order: the answer, the table, the plot with the published figures, and the method.
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
    let folder = Folder::new("folder");
    fs::copy(old(), folder.path("old.json")).unwrap();
    fs::write(folder.path("broken.json"), "{").unwrap();
    let report = || fakes::said(fakes::lab().arg("report").arg(folder.path("")).output().unwrap());
    let (code, said) = report();
    assert!(code == 0 && said.contains("index.html") && said.contains("broken.json"), "{said}");
    let read = |name: &str| fs::read_to_string(folder.path(name)).unwrap();
    let (index, list) = (read("index.html"), read("README.md"));
    assert!(index.contains("href=\"old.html\"") && index.contains("class=\"answer\""), "{index}");
    assert!(read("old.html").contains("How this was measured") && read("old.svg").starts_with("<svg "));
    for part in ["\n## chat-rtt: ", "\n- ", "](old.svg)", "\n| server | deliveries/s |", "\n|---|---|"] {
        assert!(list.contains(part), "{part}: {list}");
    }
    fs::remove_file(folder.path("old.json")).unwrap();
    let (code, said) = report();
    assert!(code == 1 && said.contains("there are no results in"), "{said}");
}

/// The chart of the published results shows the figures of the result beside it.
#[test]
fn the_published_chart_is_made_from_its_result() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/2026-11-24");
    let folder = Folder::new("chart");
    let made = folder.path("made.svg");
    let chart = |metric: &str| {
        let mut command = fakes::lab();
        command.arg("report").arg(published.join("room-broadcast-20261124T030532Z.json"));
        fakes::said(command.arg("--chart").arg(&made).args(["--metric", metric]).output().unwrap())
    };
    let (code, said) = chart("last_receiver");
    assert_eq!(code, 0, "{said}");
    let text = fs::read_to_string(&made).unwrap();
    fs::remove_file(&made).unwrap();
    assert_eq!(text, fs::read_to_string(published.join("room-broadcast-20261124T030532Z.svg")).unwrap());
    assert!(text.contains(">stentor:socketio<") && text.contains(">7.246 ms<"), "{text}");
    assert!(!text.contains("again"), "{text}");
    for (metric, code, told) in [
        ("clients", 1, "case room-1300 has no figures of clients"),
        ("nothing", 2, "there is no figure `nothing`"),
    ] {
        let (found, said) = chart(metric);
        assert!(found == code && said.contains(told), "{found}: {said}");
    }
    assert!(!made.exists());
}

#[test]
fn files_that_are_no_results_are_reported() {
    let folder = Folder::new("no-results");
    let results = folder.path("results");
    fs::create_dir_all(&results).unwrap();
    let whole = fs::read(old()).unwrap();
    let lab = |arguments: &[&str]| {
        fakes::said(fakes::lab().args(arguments).current_dir(folder.path("")).output().unwrap())
    };
    let check = |bytes: &[u8], told: &str| {
        fs::write(folder.path("one.json"), bytes).unwrap();
        for arguments in
            [&["report", "one.json"][..], &["compare", "one.json", "one.json"], &["gate", "one.json"]]
        {
            let (code, said) = lab(arguments);
            assert!(code == 1 && said.contains("one.json: ") && said.contains(told), "{code}: {said}");
        }
        assert!(!folder.path("one.html").exists(), "{told}");
    };
    check(&whole[..whole.len() / 2], "it ends in the middle");
    check(b"\n", "it is empty");
    check(b"{\"a\": 1}", "missing field `schema`");
    check(b"[package]", "no result of a scenario");
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
}
