//! Patch sizes for 125 versions of a real document, if they are available.

use crate::{diff, differ};
use flate2::{Compression, write::DeflateEncoder};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use stentor_delta::Delta;

fn deflated(bytes: &[u8]) -> usize {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap().len()
}

#[test]
fn recorded_versions_cost_little() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/worldcup-2026");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: the recorded documents are not here");
        return;
    };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    assert!(files.len() > 100, "{} recorded documents", files.len());
    let differ = differ();
    let minified = |file: &std::path::PathBuf| {
        let text = std::fs::read(file).unwrap();
        String::from_utf8(differ.parse(&text).unwrap().minified().to_vec()).unwrap()
    };
    let versions: Vec<String> = files.iter().map(minified).collect();
    let [mut whole, mut whole_deflated, mut patches, mut patches_deflated, mut theirs, mut steps] = [0; 6];
    let mut updates = 0;
    for pair in versions.windows(2) {
        let [old, new] = pair else { continue };
        whole += new.len();
        whole_deflated += deflated(new.as_bytes());
        let (mut before, after): (Value, Value) =
            (serde_json::from_str(old).unwrap(), serde_json::from_str(new).unwrap());
        theirs += serde_json::to_string(&json_patch::diff(&before, &after)).unwrap().len();
        let (delta, spent) = diff(&differ, old, new);
        steps += spent as usize;
        let update = differ.update(Some(old.as_bytes()), new.as_bytes()).unwrap();
        assert_eq!(update.text, new.as_bytes());
        if let Delta::Patch(patch) = update.diff.delta {
            updates += patch.len();
            let mut made = before.clone();
            json_patch::patch(&mut made, &serde_json::from_slice::<json_patch::Patch>(&patch).unwrap())
                .unwrap();
            assert_eq!(made, after);
        } else {
            assert_eq!((update.diff.delta, &before), (Delta::Unchanged, &after));
        }
        match delta {
            Delta::Unchanged => assert_eq!(before, after),
            Delta::Patch(patch) => {
                patches += patch.len();
                patches_deflated += deflated(&patch);
                json_patch::patch(&mut before, &serde_json::from_slice::<json_patch::Patch>(&patch).unwrap())
                    .unwrap();
                assert_eq!(before, after);
            }
            Delta::Snapshot => panic!("a snapshot between {} and {} bytes", old.len(), new.len()),
        }
    }
    let line = |what: &str, bytes: usize| {
        println!("{what:<28} {bytes:>9} bytes  {:>7.3} %", bytes as f64 * 100.0 / whole as f64);
    };
    println!("versions 2 to {}, {:.3} steps per byte", versions.len(), steps as f64 / (2.0 * whole as f64));
    line("snapshots, minified", whole);
    line("snapshots, deflated", whole_deflated);
    line("patches of json-patch's diff", theirs);
    line("patches", patches);
    line("patches of updates", updates);
    line("patches, deflated", patches_deflated);
    assert!(updates <= patches, "{updates} bytes of patches without parsing, {patches} with it");
    assert!(patches * 1000 <= whole * 12, "{patches} bytes of patches for {whole} of documents");
}
