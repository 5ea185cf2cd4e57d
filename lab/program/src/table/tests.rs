use super::*;

#[test]
fn columns_are_aligned_and_cells_are_escaped() {
    let mut table = Table::new(["server", "p99", RATIO]);
    table.push(["<ws>", "2 µs", "<2×"]);
    table.push(["a longer name"]);
    assert_eq!(
        table.to_string(),
        "  server         p99   ratio\n  <ws>           2 µs  <2×\n  a longer name\n"
    );
    let html = table.html();
    let cell = "<th scope=\"row\">&lt;ws&gt;<td class=\"figure\">2 µs<small>&lt;2×</small>";
    assert!(html.contains(cell) && !html.contains("<th scope=\"col\">ratio"), "{html}");
}
