use super::*;
use crate::measure::ProcessMemory;

/// A run with this outcome, and with this much private memory before and after connecting.
fn ran(outcome: Outcome, private_bytes: [u64; 2]) -> Ran {
    let [before, connected] =
        private_bytes.map(|private_bytes| ProcessMemory { private_bytes, ..ProcessMemory::default() });
    Ran {
        load: LoadSpec::Ask,
        outcome,
        beside: None,
        before,
        connected,
        sockets_before_bytes: 0,
        figures: BTreeMap::new(),
        samples: Vec::new(),
        peak_resident_bytes: 0,
        processes: 1,
        started: Vec::new(),
        overload: None,
        calls: None,
        steal_share: 0.0,
        others_share: 0.0,
        frequency_mhz: None,
    }
}

/// A case of this course with this figure.
fn case(course: &str, metric: &str) -> Case {
    toml::from_str(&format!(
        "name = \"scale\"\ntitle = \"\"\nload = \"ask\"\nconnections = 1000\ncourse = {course}\nprotocols = []\n\
         metrics = [\"{metric}\"]\npairs = 1"
    ))
    .unwrap()
}

#[test]
fn deliveries_among_heartbeats_cost_what_is_measured_or_nothing_is_said() {
    let check = |used_ms: [u32; 5], is_measured: bool| {
        let span = |ms| Span {
            wall: Duration::from_millis(100),
            server_cpu: Duration::from_millis(ms),
            started_cpu: Duration::from_millis(ms / 2),
            ..Span::default()
        };
        let each = used_ms.map(|ms| span(u64::from(ms)));
        let outcome = Outcome {
            messages: 3000,
            // The span that a case of another kind would use.
            load: span(300),
            slices: [each, each, each].concat(),
            last_of_each_ns: vec![90_000_000; 3],
            ..Outcome::default()
        };
        let ran = Ran { started: vec!["redis".to_owned()], ..ran(outcome, [0, 0]) };
        let trial = judge(&case("{ rested = 0 }", "cpu_per_message"), ran, Trial::default());
        let (cost, why) = (trial.figures.get(&Metric::CpuPerMessage), trial.unmeasured.as_deref());
        let parts = trial.context.get("redis us/message");
        if is_measured {
            assert!(why.is_none() && (cost.unwrap() - 8.0).abs() < 0.01, "{cost:?} {why:?}");
            assert!((parts.unwrap() - 4.0).abs() < 0.01, "{parts:?}");
        } else {
            assert!(cost.is_none() && parts.is_none(), "{cost:?} {parts:?}");
            assert!(why.unwrap().contains("heartbeats scatter"), "{why:?}");
        }
    };
    check([8, 0, 0, 0, 0], true);
    check([8, 2, 2, 0, 2], true);
    check([8, 0, 8, 0, 0], false);
}

#[test]
fn memory_that_falls_is_no_figure() {
    let check = |private_bytes, expect: Option<f64>| {
        let outcome = Outcome { connections: 100, ..Outcome::default() };
        let trial =
            judge(&case("\"once\"", "bytes_per_connection"), ran(outcome, private_bytes), Trial::default());
        assert_eq!(trial.figures.get(&Metric::BytesPerConnection).copied(), expect);
        let why = trial.unmeasured.unwrap_or_default();
        assert_eq!(why.contains("memory per connection wasn't measured"), expect.is_none(), "{why}");
    };
    check([1_000_000, 1_040_000], Some(400.0));
    // These connections needed no further page.
    check([1_000_000, 1_000_000], Some(0.0));
    check([1_000_000, 960_000], None);
}

#[test]
fn a_doubt_about_times_leaves_other_figures_valid() {
    let mut trial = Trial {
        figures: BTreeMap::from([(Metric::CpuPerMessage, 4.0), (Metric::LatencyP99, 2.0)]),
        doubts: vec![Doubt::about_times(Cause::GeneratorLate, "lag".into())],
        ..Trial::default()
    };
    assert_eq!((trial.valid(Metric::CpuPerMessage), trial.valid(Metric::LatencyP99)), (Some(4.0), None));
    // A process that takes CPU invalidates a throughput.
    trial.figures.insert(Metric::Rate, 1000.0);
    assert_eq!(trial.valid(Metric::Rate), Some(1000.0));
    trial.doubts.extend(others_doubt(1.5));
    assert_eq!((trial.valid(Metric::Rate), trial.valid(Metric::CpuPerMessage)), (None, Some(4.0)));
    trial.doubts[0].latency_only = false;
    trial.figures.insert(Metric::Undelivered, 1.0);
    assert_eq!(trial.valid(Metric::Undelivered), Some(1.0));
    assert_eq!(trial.valid(Metric::CpuPerMessage), None);
}

#[test]
fn a_server_that_answers_nothing_is_told_from_a_slow_one() {
    let check = |expected, delivered, lost: Option<&str>, expect: Option<&str>| {
        let mut outcome = Outcome::default();
        (outcome.audit.expected, outcome.audit.delivered) = (expected, delivered);
        outcome.audit.first_loss = lost.map(str::to_owned);
        assert_eq!(unanswered(&outcome).as_deref(), expect);
    };
    check(0, 0, None, None);
    check(200, 1, None, None);
    check(200, 0, None, Some("none of 200 messages arrived"));
    check(9, 0, Some("reset"), Some("none of 9 messages arrived; connections were lost (reset)"));
}
