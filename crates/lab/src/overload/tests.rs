use super::*;

/// A run in which everything is as it should be.
fn sound() -> Report {
    let phases: Vec<Phase> = OFFERED
        .into_iter()
        .enumerate()
        .map(|(nth, multiple)| Phase {
            multiple,
            offered_hz: multiple * 3.0,
            from_s: nth as f64 * 10.0,
            to_s: nth as f64 * 10.0 + 10.0,
            delivered_hz: 100.0,
            skipped_share: if multiple > 1.0 { 0.5 } else { 0.0 },
            age_p50_ms: if multiple > 1.0 { 900.0 } else { 300.0 },
            age_p99_ms: 1000.0,
            age_max_ms: 1000.0,
            server_share: 0.9,
            server_bytes_max: 40_000_000,
            server_bytes: 39_000_000,
            kernel_bytes_max: 1_000_000_000,
        })
        .collect();
    let samples = (0..200)
        .map(|nth| Sample {
            at_s: f64::from(nth) / 4.0,
            phase: nth as usize / 40,
            age_p50_ms: f64::from(nth),
            age_p99_ms: 2.0 * f64::from(nth),
            age_max_ms: 410.0,
            delivered_hz: 34_000.0,
            skipped: 1,
            open: 100,
            server_share: 0.5,
            server_bytes: 40_000_000,
            kernel_bytes: 1_000_000_000,
        })
        .collect();
    Report {
        clients: 100,
        document_bytes: 165_000,
        capacity_hz: 3.0,
        phases,
        samples,
        lost: 0,
        first_loss: None,
        compared: 10,
        wrong: Vec::new(),
    }
}

#[test]
fn what_should_not_be_is_told() {
    fn check(change: fn(&mut Report), expect: &[&str]) {
        let mut report = sound();
        change(&mut report);
        assert_eq!(report.faults(), expect);
        assert_eq!(report.to_string().matches("FAULT").count(), expect.len());
    }
    check(|_| {}, &[]);
    check(
        |report| (report.lost, report.first_loss) = (2, Some("it was closed with Some(4501)".into())),
        &["2 clients were disconnected; the first: it was closed with Some(4501)"],
    );
    check(|report| report.wrong.push("client 1: no newer version".into()), &["client 1: no newer version"]);
    check(
        |report| report.phases[3].server_bytes_max = 61_000_000,
        &["the server's memory grew from 40.0 to 61.0 MB at 10 ×"],
    );
    check(|report| report.phases[1].skipped_share = 0.0, &[]);
    check(|report| report.phases[2].skipped_share = 0.0, &["no version was skipped at 5 ×"]);
    // A version's time is 667 ms.
    check(|report| report.phases[4].age_p50_ms = 1110.0, &[]);
    check(|report| report.phases[4].age_p50_ms = 1120.0, &["the age is 1120 ms in the end, and was 300"]);
}

#[test]
fn it_is_drawn_within_its_frame() {
    let svg = plot(&sound());
    // The lines, and their signs in the legend.
    assert_eq!(svg.matches(r#"stroke-width="2" points"#).count(), 2 * 6, "{svg}");
    assert_eq!(svg.matches(" ×\n").count(), OFFERED.len());
    assert!(svg.contains("100 clients, a document of 165 kB; nobody was disconnected"));
    let number = |text: &str| text.split('"').next().unwrap().parse::<f64>().unwrap();
    let (width, height) =
        (number(svg.split(" width=\"").nth(1).unwrap()), number(svg.split(" height=\"").nth(1).unwrap()));
    for (attribute, most) in [(" x=\"", width), (" y=\"", height)] {
        for value in svg.split(attribute).skip(1).map(number) {
            assert!((0.0..=most).contains(&value), "{attribute}{value}");
        }
    }
    for points in svg.split("points=\"").skip(1) {
        for point in points.split('"').next().unwrap().split_whitespace() {
            let (across, up) = point.split_once(',').unwrap();
            assert!((0.0..=width).contains(&across.parse::<f64>().unwrap()), "{point}");
            assert!((0.0..=height).contains(&up.parse::<f64>().unwrap()), "{point}");
        }
    }
}
