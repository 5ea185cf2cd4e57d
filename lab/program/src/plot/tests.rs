use super::*;

fn plot_of(scale: Scale, points: &[(f64, f64)], place: Place) -> String {
    let line = Line { name: "<one>".into(), number: 0, points: points.to_vec() };
    let axis = |name: &str, scale| (name.to_owned(), scale);
    let mut plot = Plot::new("", axis("across", Scale::Linear), axis("up", scale), vec![line]);
    plot.marks = vec![Mark { who: "then".into(), place }];
    svg(&plot)
}

#[test]
fn published_figures_are_drawn_or_named() {
    let check = |scale, highest: f64, place, is_drawn: bool| {
        let text = plot_of(scale, &[(1.0, 1.0), (10.0, highest)], place);
        assert!(text.contains("&lt;one&gt;") && !text.contains("<one>"), "{text}");
        assert!(text.contains("then"), "{text}");
        assert_eq!(!text.contains('→'), is_drawn, "{place:?}: {text}");
    };
    check(Scale::Linear, 90.0, Place::Point(5.0, 100.0), true);
    check(Scale::Linear, 20.0, Place::Point(5.0, 100.0), false);
    check(Scale::Linear, 90.0, Place::Point(500.0, 100.0), false);
    check(Scale::Log, 2.0, Place::Point(5.0, 100.0), true);
    check(Scale::Log, 2.0, Place::Band(100.0, 200.0), true);
    check(Scale::Linear, 90.0, Place::Across(5.0), true);
    check(Scale::Linear, 90.0, Place::Span(5.0, (50.0, 60.0)), true);
}

#[test]
fn the_judged_line_is_broadest_and_on_top_and_first_in_the_legend() {
    let lines = (0..17).map(|number| Line {
        name: format!("server-{number:02}"),
        number,
        points: vec![(1.0, 1.0), (10.0, 5.0)],
    });
    let axis = ("any".to_owned(), Scale::Linear);
    let text = svg(&Plot::new("", axis.clone(), axis, lines.collect()));
    let strokes: Vec<&str> = (text.split("<polyline ").skip(1))
        .filter(|line| line.contains("stroke-width=\"2\"") || line.contains("stroke-width=\"4\""))
        .collect();
    let broad: Vec<usize> =
        (0..strokes.len()).filter(|nth| strokes[*nth].contains("stroke-width=\"4\"")).collect();
    // One broad line is in the plot, after all others. The other is in the legend, before all others.
    assert!(broad.len() == 2 && broad[1] == broad[0] + 1, "{broad:?}: {text}");
    assert!(strokes.len() == 2 * 17 && broad[0] == 16, "{broad:?} of {}", strokes.len());
    let named: Vec<usize> =
        (0..17).map(|number| text.find(&format!("server-{number:02}</text>")).unwrap()).collect();
    assert!(named.is_sorted(), "{named:?}");
}

#[test]
fn a_server_without_figures_is_named() {
    let line = |name: &str, points| Line { name: name.to_owned(), number: 0, points };
    let lines = vec![line("one", vec![(1.0, 1.0)]), line("two", Vec::new())];
    let axis = ("any".to_owned(), Scale::Linear);
    let text = svg(&Plot::new("", axis.clone(), axis, lines));
    assert!(text.contains(">two: no valid figures<") && !text.contains("one: no"), "{text}");
}

#[test]
fn a_plot_without_points_is_empty() {
    let line = Line { name: "one".into(), number: 0, points: Vec::new() };
    let axis = ("any".to_owned(), Scale::Linear);
    assert_eq!(svg(&Plot::new("", axis.clone(), axis, vec![line])), "");
}
