use super::*;

#[test]
fn columns_are_aligned_and_cells_are_escaped() {
    let mut table = Table::new(["server", "p99"]);
    table.push(["<ws>", "2 µs"]);
    table.push(["a longer name"]);
    assert_eq!(table.to_string(), "  server         p99\n  <ws>           2 µs\n  a longer name\n");
    let html = table.html();
    assert!(html.contains("<th scope=\"row\">&lt;ws&gt;<td class=\"figure\">2 µs"), "{html}");
}
