use super::*;

#[test]
fn columns_are_aligned() {
    let mut table = Table::new(["server", "p99", RATIO]);
    table.push(["<ws>", "2 µs", "<2×"]);
    table.push(["a longer name"]);
    assert_eq!(
        table.to_string(),
        "  server         p99   ratio\n  <ws>           2 µs  <2×\n  a longer name\n"
    );
}
