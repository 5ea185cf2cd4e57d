use super::*;

/// Characters of a bar that stand for a ratio of 1.
const BAR: f64 = 10.0;
/// Maximum length of a bar.
const BAR_MAX: usize = 13;

/// The table at the beginning of `docs/benchmarks.md`.
fn markdown() -> String {
    let mut lines = vec![
        "| work | Stentor | compared with | ratio | | goal | date | limit |".to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for row in rows() {
        let peer = row.peer.as_deref().unwrap_or_default();
        let ratio = row.ratio.map(|ratio| format!("{ratio:.2}{}", if row.differs { "*" } else { "" }));
        let interval = row.interval.map(|[low, high]| format!(" ({low:.2}–{high:.2})")).unwrap_or_default();
        let bar = row.ratio.map(bar).unwrap_or_default();
        let goal = row.goal.clone().or_else(|| row.declared().map(|goal| judged(&row, &goal)));
        let cells = [
            &row.work,
            &row.figure,
            peer,
            &(ratio.unwrap_or_default() + &interval),
            &bar,
            &goal.unwrap_or_default(),
            &row.date,
            &row.limit,
        ];
        lines.push(format!("| {} |", cells.join(" | ")).replace("|  |", "| |").replace("|  |", "| |"));
    }
    lines.join("\n") + "\n"
}

/// A bar as long as the ratio.
fn bar(ratio: f64) -> String {
    let halves = (ratio * BAR * 2.0).round() as usize;
    let blocks = "█".repeat((halves / 2).min(BAR_MAX));
    if halves % 2 == 1 { blocks + "▌" } else { blocks }
}

/// A goal, and whether the row's figure reaches it.
fn judged(row: &Row, goal: &Goal) -> String {
    let value = if goal.against.is_some() { row.ratio } else { row.measured };
    let sign = if goal.metric.larger_is_better() { "≥" } else { "≤" };
    let bound = match goal.against {
        Some(_) => format!("{sign} {:.2}", goal.bound),
        None => format!("{sign} {}", goal.metric.format(goal.bound).replace(".00", "")),
    };
    let is_open = |[low, high]: [f64; 2]| goal.against.is_some() && low <= goal.bound && goal.bound <= high;
    let reaches = value.map(|value| match goal.metric.larger_is_better() {
        true => value >= goal.bound,
        false => value <= goal.bound,
    });
    match (reaches, row.interval.is_some_and(is_open)) {
        (None, _) => bound,
        (_, true) => format!("{bound}: inconclusive"),
        (Some(true), _) => format!("{bound}: reached"),
        (Some(false), _) => format!("{bound}: missed"),
    }
}

/// `STENTOR_TABLE=update cargo test --lib rows` writes the table.
#[test]
fn the_page_has_the_table_of_the_rows() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");
    let text = std::fs::read_to_string(page).unwrap();
    let begin = text.find("| work | Stentor | compared with |").expect("the table");
    let end = begin + text[begin..].find("\n\n").unwrap() + 1;
    if std::env::var("STENTOR_TABLE").is_ok_and(|what| what == "update") {
        std::fs::write(page, format!("{}{}{}", &text[..begin], markdown(), &text[end..])).unwrap();
        return;
    }
    assert_eq!(text[begin..end], markdown(), "STENTOR_TABLE=update writes the table again");
}

#[test]
fn every_goal_is_that_of_a_case_or_names_its_measurement() {
    for row in rows() {
        assert_eq!(row.case.is_some(), row.declared().is_some(), "no case has the goal of {row:?}");
        assert_eq!(row.goal.is_some(), row.by.is_some(), "{row:?}");
        assert!(row.peer.is_some() || row.ratio.is_none(), "{row:?}");
        assert!(
            row.interval
                .is_none_or(|[low, high]| row.ratio.is_some_and(|ratio| low <= ratio && ratio <= high))
        );
        assert_eq!(row.date.len(), "2026-11-24".len(), "{row:?}");
    }
}

#[test]
fn a_bar_is_as_long_as_the_ratio() {
    assert_eq!(bar(0.05), "▌");
    assert_eq!(bar(0.34), "███▌");
    assert_eq!(bar(1.0), "█".repeat(10));
    assert_eq!(bar(2.0), "█".repeat(BAR_MAX));
}

/// A stored result of two cases.
#[test]
fn a_run_is_reported_by_work_with_goal_and_result() {
    let verdict = |metric: &str, against: Option<&str>, bound: f64, measured: Option<f64>, reached: bool| serde_json::json!({ "metric": metric, "against": against, "bound": bound, "measured": measured, "reached": reached });
    let case = |name: &str, verdicts: Vec<serde_json::Value>| serde_json::json!({ "name": name, "title": name, "metrics": ["cpu_per_message"], "servers": [], "verdicts": verdicts });
    let report: Report = serde_json::from_value(serde_json::json!({ "congestion": "cubic", "cases": [
        case("io-echo", vec![
            verdict("cpu_per_message", Some("stentor-epoll-ws"), 1.2, Some(1.1), true),
            verdict("cpu_per_message", Some("socketio4"), 0.18, Some(0.234), false),
        ]),
        case("feed-many", vec![verdict("cpu_per_message", None, 70.0, Some(61.2), true)]),
        case("topics", vec![verdict("cpu_per_message", Some("uws-cpp"), 0.9, None, false)]),
    ] }))
    .unwrap();
    let said = results(&report).to_string();
    let line_of = |work: &str| {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        said.lines().find(|line| line.contains(work)).map(words).unwrap_or_default()
    };
    for (work, told) in [
        ("Socket.IO echo", "≤ 0.18 of socketio4 0.23: MISSED io-echo"),
        ("1,000 documents of 5 kB", "≤ 70.00 µs 61.20 µs: reached feed-many"),
        ("10,000 topics", "≤ 0.90 of uws-cpp not measured topics"),
        ("fan-out, 1 kB to 2,000 WebSockets ", "≤ 0.80 of uws-cpp not run fanout-1kB"),
        ("memory of an idle feed", "≤ 6.2 kB by hand cargo test -p stentor-edge --test idle_feed_memory"),
    ] {
        assert!(line_of(work).ends_with(told), "{work}: {}", line_of(work));
    }
}
