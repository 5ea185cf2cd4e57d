//! Handles, tags and ids.

use super::*;
use crate::system::tests::SYSTEM;

#[test]
fn handles_and_tags() {
    for kind in [ClientKind::EngineIo, ClientKind::SockJs] {
        for (index, serial) in [(0, 0), (7, 1), (u32::MAX as usize, (1 << SERIAL_BITS) - 1)] {
            let id = ClientId::new(kind, index, serial);
            assert_eq!((id.kind(), id.index(), id.serial()), (kind, index, serial));
            assert!(id.to_bits() < 1 << 61 && ClientId::of_bits(id.to_bits()) == id);
            assert_eq!(Owner::of_tag(Owner::Client(id).to_tag()), Owner::Client(id));
        }
    }
    for owner in [
        Owner::Connection(5, Service::of_custom(7)),
        Owner::Connection(u32::MAX as usize, Service::default()),
        Owner::Socket(9),
    ] {
        assert_eq!(Owner::of_tag(owner.to_tag()), owner);
    }
}

#[test]
fn an_id_contains_its_core_and_node_and_can_be_parsed() {
    let mut sids = Sids::new(SYSTEM);
    for cores in [1, 2, 3, 7, 100, 256] {
        for n in 0..2_000 {
            let core = n % cores;
            let node = (n % 2 == 0).then_some(NodeTag((n as u32).wrapping_mul(0x0101_0101)));
            let sid = sids.draw(core, cores, node);
            assert_eq!(sid.core(cores), core);
            assert!(node.is_none_or(|node| sid.node() == node));
            let text = sid.to_string();
            assert_eq!(text.len(), 20);
            assert_eq!(Sid::parse(&text), Some(sid));
        }
    }
    for bad in ["", "__proto__", "constructor", "aaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaa=", "ää"] {
        assert_eq!(Sid::parse(bad), None, "{bad}");
    }
}

// CVE-2017-16031: predictable ids. Each bit must be set in about half of 4,000 ids. The test tolerates 10 standard deviations
// of 32 ids each, which random ids never exceed.
#[test]
fn ids_look_random() {
    let mut sids = Sids::new(SYSTEM);
    let ids: Vec<Sid> = (0..4_000).map(|_| sids.draw(0, 1, None)).collect();
    for bit in 0..Sid::BYTES * 8 {
        let ones = ids.iter().filter(|sid| sid.bytes()[bit / 8] >> (bit % 8) & 1 == 1).count();
        assert!((1_680..2_320).contains(&ones), "bit {bit}: {ones}");
    }
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
}
