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
    let ruler = Ruler::new(&Scale::Percentile, &[0.0, 50.0, 90.0, 99.0, 99.9, 100.0], &[], None);
    let check = |percent, expect: f64| {
        assert!((ruler.place(percent) - expect).abs() < 1e-6, "{percent}: {}", ruler.place(percent));
    };
    check(0.0, 0.0);
    check(90.0, 1.0);
    check(99.0, 2.0);
    check(99.9, 3.0);
    check(100.0, 4.0);
    let places = ruler.coordinate();
    assert_eq!((places.format_ext(&2.0), places.format_ext(&4.0)), ("99".to_owned(), "max".to_owned()));
}
