use super::*;
use crate::scenario::compare::tests::{kept, raw};

#[test]
fn the_verdict_comes_first_and_nothing_is_loaded() {
    let mut result = raw("0.1.0", &[4.0, 4.1], &[8.0, 8.1]);
    result["report"]["cases"][0]["servers"][0]["medians"]["cpu_per_message"] = 4.05.into();
    result["report"]["cases"][0]["servers"][0]["trials"][0]["curves"]["latency"] =
        serde_json::json!([[0.0, 1.0], [99.0, 2.0], [100.0, 9.0]]);
    result["report"]["cases"][0]["servers"][0]["trials"][0]["curves"]["of_the_future"] =
        serde_json::json!([[0.0, 1.0]]);
    let page = page(&[Kept::parse(&result.to_string()).unwrap()]);
    let (said, table) = (page.find("1 kB. stentor: CPU/message 4.05").unwrap(), page.find("<table").unwrap());
    assert!(
        said < table && page.contains("ws8: no sound run") && page.matches("<svg").count() == 1,
        "{page}"
    );
    assert!(!page.contains("http") && page.ends_with("</html>"), "{page}");
}

#[test]
fn several_results_stand_on_one_page() {
    let of = |version| kept(version, &[4.0], &[8.0]);
    let page = page(&[of("0.1.0"), of("0.2.0")]);
    assert!(
        page.contains("<h1>2 results</h1>") && page.contains("href=\"#r1\"") && page.contains("id=\"r1\"")
    );
    assert!(page.contains("stentor 0.1.0") && page.contains("stentor 0.2.0"), "{page}");
}
