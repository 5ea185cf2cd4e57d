use super::*;
use crate::scenario::compare::tests::raw;
use crate::table::RATIO;

#[test]
fn the_verdict_comes_first_and_nothing_is_loaded() {
    let mut result = raw("0.1.0", &[4.0, 4.1], &[8.0, 8.1]);
    result["report"]["cases"][0]["servers"][0]["medians"]["cpu_per_message"] = 4.05.into();
    result["report"]["cases"][0]["servers"][0]["trials"][0]["curves"]["latency"] =
        serde_json::json!([[0.0, 1.0], [99.0, 2.0], [100.0, 9.0]]);
    result["report"]["cases"][0]["servers"][0]["trials"][0]["curves"]["of_the_future"] =
        serde_json::json!([[0.0, 1.0]]);
    let page = page(&Record::parse(&result.to_string()).unwrap());
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    // The page's order: servers, answer, a chart of the decisive figure, the table, a chart of the curve, and, folded,
    // the method.
    let order = [
        "Servers: <b>stentor</b>",
        "class=\"answer\"",
        "<svg role=\"img\" aria-label=\"CPU&#x2f;message",
        "<table",
        "latency, ms over",
        "<details>",
    ];
    assert!(order.map(at).is_sorted(), "{page}");
    assert_eq!(page.matches("<svg").count(), 2, "{page}");
    assert!(!page.contains("http") && page.ends_with("</html>"), "{page}");
}

#[test]
fn cells_are_escaped_and_a_ratio_stands_below_its_figure() {
    let mut table = Table::new(["server", "p99", RATIO]);
    table.push(["<ws>", "2 µs", "<2×"]);
    table.push(["a longer name", "", ""]);
    let sections = [context! { table }];
    let page = render("sections.html", &context! { title => "<one>", sections });
    let cell = "<th scope=\"row\">&lt;ws&gt;<td class=\"figure\">2 µs<small>&lt;2×</small>";
    assert!(page.contains(cell) && !page.contains("<th scope=\"col\">ratio"), "{page}");
    assert!(page.contains("<h1>&lt;one&gt;</h1>") && page.contains("a longer name<td>\n"), "{page}");
}
