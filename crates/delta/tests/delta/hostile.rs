//! Documents that are made to be expensive. Costs are counted in steps, which don't depend on the machine.

use crate::{diff, differ};
use std::fmt::Write;
use stentor_delta::{ApplyLimits, DEPTH_MAX, Delta, Differ, Options, ParseError, Seed, apply};

/// Maximum steps per byte with the default options, plus the work in progress when the limit is reached.
const STEPS_PER_BYTE_MAX: u64 = 24;

fn check(name: &str, old: &str, new: &str) {
    let (delta, steps) = diff(&differ(), old, new);
    let bytes = (old.len() + new.len()) as u64;
    println!("{name:>30}: {:>6} kB, {:>6.2} steps per byte", bytes / 1000, steps as f64 / bytes as f64);
    assert!(steps < 10_000 + bytes * STEPS_PER_BYTE_MAX, "{name}: {steps} steps for {bytes} bytes");
    if let Delta::Patch(patch) = delta {
        assert!(patch.len() < new.len());
        let made = apply(old.as_bytes(), &patch, ApplyLimits::default()).unwrap();
        assert_eq!(diff(&differ(), &String::from_utf8(made).unwrap(), new).0, Delta::Unchanged, "{name}");
    }
}

/// Makes an array of about a megabyte.
fn array(count: usize, element: impl Fn(usize) -> String) -> String {
    let mut out = String::from("[");
    for i in 0..count {
        write!(out, "{}{}", if i > 0 { "," } else { "" }, element(i)).unwrap();
    }
    out + "]"
}

#[test]
fn large_arrays_take_linear_time() {
    let n = 140_000;
    let numbers = array(n, |i| format!("{}", i + 1_000_000));
    check("distinct, all changed", &numbers, &array(n, |i| format!("{}", i + 5_000_000)));
    check("reversed", &numbers, &array(n, |i| format!("{}", n - i + 1_000_000)));
    check("to nothing", &numbers, "[]");
    check("from nothing", "[]", &numbers);
    check("all equal, more", &array(500_000, |_| "0".into()), &array(499_000, |_| "0".into()));
    let n = 30_000;
    let numbers = array(n, |i| format!("{}", i + 1_000_000));
    check("shuffled", &numbers, &array(n, |i| format!("{}", i * 70_001 % n + 1_000_000)));
    check("rotated by a third", &numbers, &array(n, |i| format!("{}", (i + n / 3) % n + 1_000_000)));
    check("every second removed", &numbers, &array(n / 2, |i| format!("{}", i * 2 + 1_000_000)));
    check(
        "every tenth changed",
        &numbers,
        &array(n, |i| format!("{}", i + if i % 10 == 0 { 7_000_000 } else { 1_000_000 })),
    );
    check(
        "two values, other phase",
        &array(100_000, |i| (i % 2).to_string()),
        &array(100_000, |i| ((i + 1) % 2).to_string()),
    );
    check(
        "period 2 and 3",
        &array(100_000, |i| (i % 2).to_string()),
        &array(100_000, |i| (i % 3).to_string()),
    );
    check(
        "few values, random",
        &array(100_000, |i| (i * i / 7 % 5).to_string()),
        &array(100_000, |i| (i * i / 11 % 5).to_string()),
    );
}

#[test]
fn large_arrays_of_objects_take_linear_time() {
    let n = 10_000;
    let object = |id: usize, x: usize| format!("{{\"id\":{id},\"name\":\"n{x}\",\"x\":{x}}}");
    let old = array(n, |i| object(i, i));
    check("objects reversed", &old, &array(n, |i| object(n - i, n - i)));
    check("objects with other ids", &old, &array(n, |i| object(i + n, i)));
    check("objects all changed", &old, &array(n, |i| object(i, i + 1)));
    check("objects with equal ids", &array(n, |i| object(7, i)), &array(n, |i| object(7, i + 3)));
    let wide = |n: usize, by: usize| {
        array(n, |i| {
            let members =
                (0..60).map(|j| format!("\"m{}\":{}", (j + by) % 60, i * j + by)).collect::<Vec<_>>();
            format!("{{{}}}", members.join(","))
        })
    };
    check("wide objects, order changed", &wide(300, 0), &wide(300, 31));
    let lonely = |by: usize| array(1000, |i| format!("[{}]", array(40, |j| (j * i + by).to_string())));
    check("gaps to be aligned", &lonely(1), &lonely(2));
    let gaps = |by: usize| {
        array(2000, |i| {
            if i % 50 == 0 {
                format!("\"anchor {i}\"")
            } else {
                format!("{{\"a\":{},\"b\":{by},\"c\":0}}", i % 3 + by)
            }
        })
    };
    check("many gaps to be aligned", &gaps(1), &gaps(2));
}

#[test]
fn large_objects_take_linear_time() {
    let n = 30_000;
    let object = |name: &dyn Fn(usize) -> String, value: &dyn Fn(usize) -> String| {
        let members = (0..n).map(|i| format!("\"{}\":{}", name(i), value(i))).collect::<Vec<_>>();
        format!("{{{}}}", members.join(","))
    };
    let number = |i: usize| i.to_string();
    let old = object(&|i| format!("name{i}"), &number);
    check("members reversed", &old, &object(&|i| format!("name{}", n - 1 - i), &|i| (n - 1 - i).to_string()));
    check("members renamed", &old, &object(&|i| format!("other{i}"), &number));
    check("members changed", &old, &object(&|i| format!("name{i}"), &|i| (i + 1).to_string()));
    check("one name", &object(&|_| "a".into(), &number), &object(&|_| "a".into(), &|i| (i + 1).to_string()));
    check(
        "escaped names",
        &object(&|i| format!("\\u0061{i}"), &number),
        &object(&|i| format!("\\u0061{}", n - i), &number),
    );
    let prefix = "p".repeat(5000);
    let long = |n: usize, by: usize| {
        let members = (0..n).map(|i| format!("\"{prefix}{}\":{i}", (i + by) % n)).collect::<Vec<_>>();
        format!("{{{}}}", members.join(","))
    };
    check("long names", &long(200, 0), &long(200, 77));
}

#[test]
fn long_paths_are_not_repeated_without_limit() {
    let name = "n".repeat(300_000);
    let document = |by: usize| format!("{{\"{name}\":{}}}", array(50_000, |i| (i * by).to_string()));
    check("long path", &document(1), &document(2));
    let deep = |by: usize| {
        let open = (0..100).map(|i| format!("{{\"{i}{}\":", "d".repeat(5000))).collect::<String>();
        format!("{open}{}{}", array(20_000, |i| (i * by).to_string()), "}".repeat(100))
    };
    check("long deep path", &deep(1), &deep(2));
}

#[test]
fn deep_documents_are_refused_or_served() {
    for open in ["[", "{\"a\":", "[[],"] {
        let text = open.repeat(100_000);
        assert!(matches!(
            differ().parse(text.as_bytes()),
            Err(ParseError::NotJson(stentor_json::Error::TooDeep(_)))
        ));
        let refused = apply(text.as_bytes(), b"[]", ApplyLimits::default());
        assert!(refused.is_err());
    }
    let deep = |inner: &str, pad: usize| {
        let element = format!("\"{}\",", "x".repeat(pad));
        let open = format!("[{element}").repeat(DEPTH_MAX - 1);
        format!("{open}{inner}{}", "]".repeat(DEPTH_MAX - 1))
    };
    check("deep, changed at the end", &deep("[1]", 50), &deep("[2]", 50));
    check("deep, changed everywhere", &deep("[1]", 50), &deep("[2]", 51));
    check("deep and bare", &deep("[1]", 0), &deep("[2]", 0));
    let wide = |by: usize| deep(&array(50_000, |i| (i * by).to_string()), 3);
    check("deep and wide", &wide(1), &wide(3));
    // The value in the patch has the maximum depth below the root of a document.
    let below = |inner: &str| format!("{{\"x\":\"{}\",\"a\":{inner}}}", "x".repeat(900));
    let nested = "[".repeat(DEPTH_MAX - 1) + &"]".repeat(DEPTH_MAX - 1);
    check("a deep value comes", &below("[1]"), &below(&nested));
    check("a deep value goes", &below(&nested), &below("[1]"));
}

#[test]
fn without_work_left_patches_are_longer_and_correct() {
    // With almost no work allowed, the patch is longer, and still correct.
    let options = Options { steps_per_byte: 0, patch_percent_max: 200, ..Options::default() };
    let poor = Differ::new(options, Seed([5, 6]));
    let list = |by: usize| format!("{{\"a\":1,\"list\":{}}}", array(100_000, |i| (i * by).to_string()));
    let (delta, steps) = diff(&poor, &list(1), &list(2));
    assert!(matches!(&delta, Delta::Patch(patch) if patch.starts_with(b"[{\"op\":\"replace\"")), "{steps}");
    assert!(steps < 1_000_000, "{steps}");
}

#[test]
fn too_many_values_are_refused() {
    let few = Differ::new(Options { values_max: 100, ..Options::default() }, Seed([1, 2]));
    let text = array(100, |i| i.to_string());
    assert_eq!(few.parse(text.as_bytes()).map(|_| ()), Err(ParseError::TooLarge));
    assert!(few.parse(array(99, |i| i.to_string()).as_bytes()).is_ok());
}

#[test]
fn memory_follows_the_text() {
    // The densest possible text: a value per two bytes.
    for (text, factor_max) in
        [(array(100_000, |_| "0".into()), 18), (array(20_000, |i| format!("\"element {i}\"")), 3)]
    {
        let parsed = differ();
        let parsed = parsed.parse(text.as_bytes()).unwrap();
        assert!(
            parsed.owned_bytes() <= factor_max * text.len(),
            "{} of {}",
            parsed.owned_bytes(),
            text.len()
        );
    }
}
