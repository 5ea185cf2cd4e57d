use super::*;

fn samples(resident: &[u64]) -> Vec<Sample> {
    resident
        .iter()
        .map(|resident_bytes| Sample {
            resident_bytes: *resident_bytes,
            memfd_bytes: 0,
            kernel_bytes: *resident_bytes,
        })
        .collect()
}

#[test]
fn growth_is_seen_and_flatness_too() {
    assert_eq!(growth_percent_per_10_s(&samples(&[1, 5, 9, 9, 9, 9, 9, 9])), 0.0);
    assert_eq!(growth_percent_per_10_s(&samples(&[])), 0.0);
    // Each quarter has 4 samples (1 s). From 100 to 111 MB, minus the ignored 1 MB, is 10 % in 1 s, so 100 % in 10 s.
    let rising: Vec<u64> = [80, 90, 100, 111].iter().flat_map(|level| [*level * 1_000_000; 4]).collect();
    let growth = growth_percent_per_10_s(&samples(&rising));
    assert!((growth - 100.0).abs() < 1e-9, "{growth}");
}

#[test]
fn kernel_memory_is_read_between_bursts() {
    assert_eq!(held_kernel_bytes(&samples(&[0, 3, 50, 20, 60, 21])), 20);
    assert_eq!(held_kernel_bytes(&[]), 0);
}
