use std::fs;

use super::*;
use crate::scenario::compare::tests::raw;

#[test]
fn versions_stand_in_the_order_of_their_results() {
    let folder = std::env::temp_dir().join(format!("stentor-lab-history-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (file, version, began, cpu) in
        [("b", "0.2.0", "2026-11-22T00:00:00Z", 3.0), ("a", "0.1.0", "2026-11-21T00:00:00Z", 4.0)]
    {
        let mut result = raw(version, &[cpu, cpu], &[8.0, 8.0]);
        result["began"] = began.into();
        fs::write(folder.join(format!("{file}.json")), result.to_string()).unwrap();
    }
    fs::write(folder.join("other.json"), "{}").unwrap();
    fs::write(folder.join("a.html"), "").unwrap();
    let question = |server: &str, metric, against: Option<&str>| Question {
        server: server.to_owned(),
        scenario: Some("fanout".to_owned()),
        metric,
        against: against.map(str::to_owned),
    };
    let history = History::read(&folder, &question("stentor", None, None)).unwrap();
    let text = history.to_string();
    let (first, second) = (text.find("stentor 0.1.0").unwrap(), text.find("stentor 0.2.0").unwrap());
    assert!(first < second && text.contains("4.00 µs") && text.contains("other.json"), "{text}");
    let page = history.page();
    assert!(
        page.contains("<svg")
            && page.contains("2026-11-22</text>")
            && page.contains("3.00 µs")
            && page.ends_with("</html>"),
        "{page}"
    );
    let ratios = History::read(&folder, &question("stentor", None, Some("ws8"))).unwrap().to_string();
    assert!(ratios.contains("CPU/message / ws8") && ratios.contains("0.38"), "{ratios}");
    let p99 = History::read(&folder, &question("ws8", Some(Metric::LatencyP99), None)).unwrap().to_string();
    assert!(p99.contains("2.000 ms") && p99.contains("ws 8"), "{p99}");
    let nobody = History::read(&folder, &question("ws9", None, None)).unwrap_err().to_string();
    assert!(nobody.contains("has ws9"), "{nobody}");
    fs::remove_dir_all(&folder).unwrap();
    assert!(
        History::read(&folder, &question("stentor", None, None))
            .unwrap_err()
            .to_string()
            .contains("--results")
    );
}
