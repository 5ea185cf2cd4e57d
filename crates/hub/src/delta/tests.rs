//! Tables.
use super::*;
use super::hash::Keys;

fn differ() -> Differ { Differ::new(Options::default(), Seed([1, 2])) }

/// The operations that make `new` of `old`, one by one.
fn check(old: &str, new: &str, expect: &[&str]) {
    let pad = format!("\"{}\"", "x".repeat(2000));
    let wrap = |v: &str| format!("{{\"p\":{pad},\"d\":{v}}}");
    let (o, n) = (wrap(old), wrap(new));
    let differ = differ();
    let diff = differ.diff(&differ.parse(o.as_bytes()).unwrap(), &differ.parse(n.as_bytes()).unwrap());
    let Delta::Patch(patch) = diff.delta else { panic!("{:?}", diff) };
    assert_eq!(String::from_utf8(patch).unwrap(), format!("[{}]", expect.join(",")));
}

#[test]
fn smoke() {
    check("[1,2,3,\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]", "[0,1,2,3,\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]", &["{\"op\":\"add\",\"path\":\"/d/0\",\"value\":0}"]);
}
