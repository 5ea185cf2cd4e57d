use super::*;

fn versions() -> Versions {
    let document = Document::new(Shape { bytes: 500, changes: 2 });
    Versions { pace: None, document, answered: None, greeted: false, kept: VecDeque::new() }
}

#[test]
fn the_newest_version_that_is_due_is_answered_once() {
    let mut versions = versions();
    let ms = |ms: u64| 1_000_000_000 + ms * 1_000_000;
    let mut check = |at_ns: u64, expect: Option<u64>| {
        let answered = versions
            .answer(at_ns)
            .ok()
            .map(|text| Head::read(&text[crate::document::HEAD_AT..crate::document::BODY_AT]).unwrap());
        assert_eq!(answered.map(|head| head.sequence), expect, "at {at_ns}");
        assert!(answered.is_none_or(|head| head.intended_ns <= at_ns));
        versions.pace = Some(Pace { first: 0, base_ns: ms(0), rate_hz: 10.0 });
    };
    check(ms(0), Some(0)); // What there was before; its head says nothing yet.
    check(ms(1), Some(0));
    check(ms(99), None);
    check(ms(101), Some(1));
    check(ms(150), None);
    // Nobody asked for a while.
    check(ms(555), Some(5));
    check(ms(599), None);
    check(ms(600), Some(6));
}

#[test]
fn numbers_go_on_when_the_rate_changes() {
    let api = Api::start(Shape { bytes: 500, changes: 2 }).unwrap();
    let mut stream = TcpStream::connect(api.address()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut numbers = Vec::new();
    for nth in 0..20 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        if nth % 5 == 0 {
            api.set_rate_hz(200.0 + f64::from(nth));
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim_end().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        std::io::Read::read_exact(&mut reader, &mut body).unwrap();
        let head = Head::read(&body[crate::document::HEAD_AT..crate::document::BODY_AT]).unwrap();
        if nth > 0 {
            assert_eq!(api.version(head.sequence).as_deref(), Some(&body[..]));
            numbers.push(head.sequence);
        }
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}
