/// Runs `size` with the words of a command line.
fn sized(line: &str) -> (i32, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = ["size"].into_iter().chain(line.split_whitespace());
    let code = super::super::main(words, &mut out, &mut err);
    out.extend(err);
    let code = if code == std::process::ExitCode::SUCCESS { 0 } else { 1 };
    (code, String::from_utf8(out).unwrap())
}

#[test]
fn a_million_clients_are_sized_with_assumptions() {
    let line = "--connections 1000000 --messages 200000/s --bytes 400 --protocol socketio --tls";
    let (code, said) = sized(line);
    assert_eq!(code, 0, "{said}");
    for told in [
        "1,000,000 connections, socketio with TLS; 200,000 messages/s of 400 B",
        "cores ",
        "memory ",
        "nodes ",
        "redis ",
        " in reserve",
        "publishing to the engine",
        "the kernel's sockets",
        "Assumptions:\n- Figures: 2026-",
        "No calibration",
        "as after a restart",
        "add one if a node may fail",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let (_, calibrated) = sized(&format!("{line} --calibration 1.3"));
    assert!(calibrated.contains("Calibration 1.30"), "{calibrated}");
    assert_ne!(calibrated.lines().nth(2), said.lines().nth(2));
}

#[test]
fn json_has_the_load_the_plan_and_the_assumptions() {
    let (code, said) = sized("--connections 1000 --messages 10/s --deliveries 500/s --json");
    assert_eq!(code, 0, "{said}");
    let value: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&value["load"]["recipients"], &value["plan"]["nodes"]), (&50.0.into(), &1.into()));
    assert!(
        value["plan"]["engine"].is_null() && value["assumptions"].as_array().unwrap().len() > 2,
        "{said}"
    );
}

#[test]
fn errors_are_for_people() {
    for (line, told) in [
        ("--connections 1000 --messages 200000", "a rate needs a unit: write 200000/s"),
        ("--connections 1000 --protocol socket-io", "did you mean `socketio`?"),
        ("--connections 1000 --engine reddis", "did you mean `redis`?"),
        ("--connections 1000 --memory-per-node 16G", "write B, kB, MB, GB"),
        ("--connections 1000 --memory-per-node 16", "at least 256MB"),
        ("--connections 1000 --cores-per-node 0", "at least 1"),
        ("--connections 1000 --reserve 50", "write 50%"),
        ("--connections 1000 --messages 1/s --recipients 2000", "more recipients than there are connections"),
        ("--connections 1000 --deliveries 5/s", "--deliveries needs --messages"),
        ("--connections 1000 --calibration fast", "a number such as 1.3"),
        ("--messages 10/s", "--connections"),
    ] {
        let (code, said) = sized(line);
        assert!(code == 1 && said.contains(told), "{line}: {said}");
    }
}

/// The outputs in the page are those of its commands.
#[test]
fn the_examples_of_the_page_are_what_is_printed() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sizing.md");
    let text = std::fs::read_to_string(page).unwrap();
    let mut checked = 0;
    for example in text.split("```sh\nstentor lab size ").skip(1) {
        let (command, rest) = example.split_once("\n```\n").unwrap();
        let line = command.replace("\\\n", " ");
        let shown = rest.split("```text\n").nth(1).and_then(|rest| rest.split("```\n").next()).unwrap();
        let (code, said) = sized(&line);
        assert_eq!(code, 0, "{said}");
        assert_eq!(shown, said, "the page shows another result of `stentor lab size {line}`");
        checked += 1;
    }
    assert!(checked >= 3, "only {checked} examples were found: the page is not read right");
}
