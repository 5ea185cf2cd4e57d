//! Charging memory to the ledger and releasing it.

use super::*;

fn class(ledger: &Ledger, name: &str) -> usize {
    ledger.by_class().find(|(class, _)| *class == name).unwrap().1
}

#[test]
fn a_holding_counts_until_its_owner_is_dropped() {
    let ledger = Arc::new(Ledger::new(1_000));
    let mut holding = Holding::default();
    assert_eq!(holding.set(&ledger, Held::default()), 0);
    assert!(holding.is_empty());
    assert_eq!(holding.set(&ledger, [10, 0, 20, 0, 0, 0]), 30);
    assert_eq!((class(&ledger, "receive_buffers"), class(&ledger, "bodies")), (10, 20));
    assert_eq!(holding.set(&ledger, [0, 5, 20, 0, 0, 0]), 0);
    assert_eq!((class(&ledger, "messages"), ledger.bytes(), holding.bytes()), (5, 25, 25));
    holding.set(&ledger, Held::default());
    assert!(holding.is_empty() && ledger.bytes() == 0);
    holding.set(&ledger, [1; 6]);
    drop(holding);
    assert_eq!(ledger.bytes(), 0);
}

#[test]
fn a_report_replaces_the_previous_one() {
    let ledger = Arc::new(Ledger::new(1_000));
    let mut report = Report::new(ledger.clone());
    report.set([1, 2, 3, 4, 5, 6]);
    report.set([1, 2, 3, 4, 5, 7]);
    assert_eq!((ledger.bytes(), class(&ledger, "replies")), (22, 7));
    drop(report);
    assert_eq!(ledger.bytes(), 0);
}

#[test]
fn pressure_rises_with_held_memory() {
    let ledger = Arc::new(Ledger::new(1_000));
    let mut holding = Holding::default();
    for (bytes, pressure, excess) in [
        (900, Pressure::None, 0),
        (950, Pressure::None, 50),
        (951, Pressure::Tight, 51),
        (1_000, Pressure::Tight, 100),
        (1_001, Pressure::Full, 101),
    ] {
        holding.set(&ledger, [bytes, 0, 0, 0, 0, 0]);
        assert_eq!((ledger.pressure(), ledger.excess_bytes()), (pressure, excess), "{bytes}");
    }
}

#[test]
fn classes_are_in_the_order_of_their_numbers() {
    assert!(Class::ALL.iter().enumerate().all(|(n, class)| *class as usize == n));
}
