use super::*;

#[test]
fn figures_at_axes_are_short() {
    let check = |value, expect: &str| assert_eq!(short(value), expect);
    check(0.0, "0");
    check(0.5, "0.5");
    check(0.005, "0.005");
    check(150.0, "150");
    check(2500.0, "2,500");
    check(25_000.0, "25k");
    check(1_500_000.0, "1.5M");
}

#[test]
fn percentiles_lie_by_how_few_are_beyond() {
    let ruler = Ruler::new(&Scale::Percentile, &[0.0, 50.0, 90.0, 99.0, 99.9, 100.0], &[], None, 0.0..1.0);
    let check = |percent, expect: f64| {
        assert!((ruler.place(percent) - expect).abs() < 1e-6, "{percent}: {}", ruler.place(percent));
    };
    check(0.0, 0.0);
    check(90.0, 1.0);
    check(99.0, 2.0);
    check(99.9, 3.0);
    check(100.0, 4.0);
    let labels: Vec<&str> = ruler.labels().into_iter().map(|(_, label)| label).collect();
    assert_eq!(labels, ["0", "50", "90", "99", "99.9", "max"]);
}

#[test]
fn even_axes_have_few_round_labels() {
    let check = |most, expect: &[f64]| assert_eq!(even(most).collect::<Vec<f64>>(), expect, "{most}");
    check(1.0, &[0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
    check(104.0, &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
    check(700.0, &[0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0]);
    check(720.0, &[0.0, 200.0, 400.0, 600.0]);
}
