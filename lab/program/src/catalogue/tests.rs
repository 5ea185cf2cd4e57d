use super::*;

#[test]
fn our_peers_are_described() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
    let catalogue = Catalogue::read(&peers).unwrap();
    assert!(catalogue.unusable.is_empty() && catalogue.lacks().is_none(), "{:?}", catalogue.unusable);
    for known in &catalogue.servers {
        assert!(known.speaks().count() > 0 && !known.about.is_empty(), "{known:?}");
        if let Some(peer) = &known.peer {
            // The server has a version, or a statement of its kind.
            let versions = peer.versions().iter();
            let blank = |(_, version): &(&String, &String)| version.trim().is_empty();
            assert_eq!(versions.filter(blank).count(), 0, "{}", known.name);
            for script in ["install", "run"] {
                assert!(peer.folder.join(script).exists(), "{}", peer.folder.join(script).display());
            }
        }
    }
    assert_eq!(catalogue.find("bare-uring").unwrap().args, ["--io", "uring"]);
    assert!(catalogue.find("tcp").unwrap().admits(Protocol::SocketIo));
    assert!(!catalogue.find("ws8").unwrap().admits(Protocol::SocketIo));
    assert_eq!(catalogue.find("sockjs-tornado-pypy45").unwrap().warms_up(), Duration::from_secs(10));
    assert!(catalogue.find("ws9").unwrap_err().to_string().contains("ws8"));
    // Every folder is a peer, so none is skipped because its description is missing.
    for entry in fs::read_dir(&peers).unwrap() {
        let path = entry.unwrap().path();
        assert!(!path.is_dir() || path.join(MANIFEST).exists(), "{}", path.display());
    }
}

#[test]
fn the_command_for_a_version_runs_once() {
    let folder = std::env::temp_dir().join(format!("stentor-lab-versions-{}", std::process::id()));
    fs::create_dir_all(folder.join("one")).unwrap();
    let text = "about = \"x\"\nmodes = []\n[protocols]\n[versions]\nfixed = \"8\"\n\
                asked = { command = [\"sh\", \"-c\", \"echo . >>asked; wc -l <asked\"] }\n\
                missing = { command = [\"stentor-nobody\", \"--version\"] }";
    fs::write(folder.join("one/peer.toml"), text).unwrap();
    let catalogue = Catalogue::read(&folder).unwrap();
    // The command doesn't run before the version is needed.
    assert!(!folder.join("one/asked").exists());
    let peer = catalogue.find("one").unwrap().peer.as_ref().unwrap();
    for _ in 0..2 {
        let expect = [("asked", "1"), ("fixed", "8"), ("missing", "unknown: stentor-nobody can't be run")];
        let found: Vec<(&str, &str)> =
            peer.versions().iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
        assert_eq!(found, expect);
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_bad_description_is_told_and_the_others_are_there() {
    let folder = std::env::temp_dir().join(format!("stentor-lab-peers-{}", std::process::id()));
    let valid = "about = \"x\"\nmodes = []\n";
    for (name, text) in [("one", ""), ("two", "about = \"x\"\nmodes = []\n[protocols]\nwebsocket = \"/\"\n")]
    {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join(MANIFEST), text).unwrap();
    }
    let check = |text: &str, expect: &str| {
        fs::write(folder.join("one/peer.toml"), text).unwrap();
        let catalogue = Catalogue::read(&folder).unwrap();
        let error = catalogue.find("one").unwrap_err();
        assert!(matches!(error, Error::Server { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("one/peer.toml") && error.contains(expect), "{error}");
        assert!(catalogue.find("two").is_ok() && catalogue.lacks().is_none());
        assert_eq!(
            catalogue.peers(&[]).iter().map(|(_, found)| found.is_ok()).collect::<Vec<_>>(),
            [true, false]
        );
        // An error about one of the folder's servers must contain the reason why it is missing.
        let error = catalogue.find("one-of-one").unwrap_err().to_string();
        assert!(error.contains("no server `one-of-one`") && error.contains(expect), "{error}");
    };
    check("about = 1", "about");
    check(&format!("{valid}[protocols]\nsmoke = \"/\""), "unknown variant `smoke`");
    check(&format!("{valid}always = \"fog\"\n[protocols]"), "unknown variant `fog`");
    check(&format!("{valid}[protocols]\n[versions]\nx = 1"), "a version, or { command");
    check(&format!("{valid}[protocols]\n[versions]\nx = {{ comand = [] }}"), "a version, or { command");
    check(&format!("{valid}[protocols]\n[versions]\nx = {{ command = [] }}"), "version of `x` is empty");
    check(&format!("{valid}instal = \"x\"\n[protocols]"), "instal");
    check(&format!("{valid}[protocols]\n[[variants]]\nname = \"stentor-epoll\""), "another");
    fs::remove_dir_all(&folder).unwrap();
    let alone = Catalogue::read(&folder).unwrap();
    assert!(alone.servers.iter().all(|known| known.peer.is_none()));
    let error = alone.find("ws8").unwrap_err().to_string();
    assert!(error.contains("no peers in") && error.contains("--peers-dir"), "{error}");
}

#[test]
fn a_folder_stands_for_its_servers() {
    let catalogue = Catalogue::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers")).unwrap();
    let check = |names: &[&str], expect: &[Option<&str>]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let found = catalogue.peers(&names);
        let folders = found.iter().map(|(_, found)| found.as_ref().ok().map(|peer| peer.name()));
        assert_eq!(
            folders.collect::<Vec<_>>(),
            expect.iter().map(|name| name.map(str::to_owned)).collect::<Vec<_>>()
        );
    };
    check(&["bare-uring", "bare-epoll"], &[Some("bare")]);
    check(&["bare", "bare-epoll", "ws8"], &[Some("bare"), Some("ws8")]);
    check(&["tcp-old", "nobody", "tcp"], &[Some("tcp-old"), None, Some("tcp")]);
    check(&["stentor"], &[]);
}
