use std::path::Path;

use super::*;
use crate::catalogue::Catalogue;

#[test]
fn targets_name_what_there_is() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers");
    let catalogue = Catalogue::read(&peers).unwrap();
    let admits = |case: &Case, server: &str| case.admits(catalogue.find(server).unwrap());
    for case in [Pace::Full, Pace::Fast, Pace::Quick].into_iter().flat_map(cases) {
        for target in &case.targets {
            assert!(case.metrics.contains(&target.metric), "{}: {:?}", case.name, target.metric);
            if let Some(against) = target.against {
                assert!(case.again, "{}", case.name);
                assert!(admits(&case, against), "{}: {against}", case.name);
                assert!(case.usual.contains(&against), "{}: {against}", case.name);
            }
        }
        for server in &case.usual {
            assert!(admits(&case, server), "{}: {server}", case.name);
        }
    }
}
