//! Tests of secrets that change while they are in use, and of secrets that an upstream repeats.

use super::*;
use std::fs;
use std::path::PathBuf;

/// The result of a fetch whose credentials the upstream refuses.
const REFUSED: &str = "unauthorized: the upstream answered 401 to /api/k: no";

/// A file with a secret, and a fetcher that sends the secret in the header `X-Key`.
struct Rotation {
    folder: tempfile::TempDir,
    rig: Rig,
}

impl Rotation {
    async fn new(replies: Vec<Reply>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "one\n").unwrap();
        let header = format!("Key ${{file:{}}}", path.display());
        let rig = Rig::new(replies, |options| options.headers = vec![("X-Key".into(), header)]).await;
        Self { folder, rig }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Fetches once, and asserts the secrets of its requests and its result.
    async fn check(&mut self, sent: &[&str], expect: &str) {
        let happened = self.rig.fetch().await;
        assert_eq!(happened, expect);
        let heads = std::mem::take(&mut self.rig.requests.lock().heads);
        let value = |head: &String| {
            let line = head.lines().find_map(|line| line.strip_prefix("x-key: Key "));
            line.unwrap_or_default().to_owned()
        };
        assert_eq!(heads.iter().map(value).collect::<Vec<_>>(), sent);
    }
}

#[tokio::test]
async fn after_a_401_a_new_value_is_sent_once() {
    let refused = reply("401 Unauthorized", "no");
    let document = reply("200 OK", "1");
    let mut all =
        Rotation::new(vec![refused.clone(), refused.clone(), refused.clone(), document, refused]).await;
    // The file is unchanged, so the request isn't repeated.
    all.check(&["one"], REFUSED).await;
    fs::write(all.path(), "two").unwrap();
    // The file was read less than ten seconds ago, so it isn't read again.
    all.check(&["one"], REFUSED).await;
    advance(Duration::from_secs(10)).await;
    all.check(&["one", "two"], "1").await;
    fs::write(all.path(), "three").unwrap();
    all.check(&["two"], REFUSED).await;
    advance(Duration::from_secs(9)).await;
    all.check(&["two"], REFUSED).await;
    advance(Duration::from_secs(1)).await;
    // The request is repeated only once, although the repetition is refused too.
    all.check(&["two", "three"], REFUSED).await;
}

#[tokio::test]
async fn a_value_that_cannot_be_used_is_not_sent() {
    let mut all = Rotation::new(vec![reply("401 Unauthorized", "no")]).await;
    let contents = [None, Some(""), Some("a\nb"), Some("a\n\n")];
    for content in contents {
        match content {
            None => fs::remove_file(all.path()).unwrap(),
            Some(content) => fs::write(all.path(), content).unwrap(),
        }
        all.check(&["one"], REFUSED).await;
        advance(Duration::from_secs(10)).await;
    }
    fs::write(all.path(), "two").unwrap();
    all.check(&["one", "two"], REFUSED).await;
}

#[tokio::test]
async fn other_statuses_and_other_secrets_repeat_nothing() {
    for status in ["403 Forbidden", "500 Internal Server Error", "404 Not Found", "200 OK"] {
        let mut all = Rotation::new(vec![reply(status, "1")]).await;
        fs::write(all.path(), "two").unwrap();
        all.rig.fetch().await;
        assert_eq!(all.rig.requests.lock().heads.len(), 1, "{status}");
    }
    let mut rig = Rig::new(vec![reply("401 Unauthorized", "no")], |options| {
        options.headers = vec![("X-Key".into(), "one".into())];
    })
    .await;
    assert_eq!(rig.fetch().await, REFUSED);
    assert_eq!(rig.requests.lock().heads.len(), 1);
}

#[tokio::test]
async fn a_password_is_sent_renewed_and_masked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    fs::write(&path, "hunter1").unwrap();
    // The second response contains the password, and the third one the header's value.
    let replies = ["no", "no hunter2", "no cmVhZGVyOmh1bnRlcjI="].map(|body| reply("401 Unauthorized", body));
    let text = format!("reader:${{file:{}}}", path.display());
    let mut rig = Rig::new(replies.to_vec(), |options| options.basic_auth = text).await;
    fs::write(&path, "hunter2").unwrap();
    assert_eq!(rig.fetch().await, format!("{REFUSED} ***"));
    assert_eq!(rig.fetch().await, format!("{REFUSED} ***"));
    let heads = rig.requests.lock().heads.clone();
    let sent =
        heads.iter().filter_map(|head| head.lines().find_map(|line| line.strip_prefix("authorization: ")));
    // base64 of `reader:hunter1` and `reader:hunter2`.
    let [one, two] = ["Basic cmVhZGVyOmh1bnRlcjE=", "Basic cmVhZGVyOmh1bnRlcjI="];
    assert_eq!(sent.collect::<Vec<_>>(), [one, two, two]);
}

/// After its file has changed, a secret in the URL's host takes effect with the next fetch, which connects to
/// the new host.
#[tokio::test]
async fn the_host_of_a_url_can_change() {
    let other = Rig::new(vec![reply("200 OK", "2")], |_| {}).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base");
    let mut rig = Rig::new(vec![reply("200 OK", "1")], |options| {
        fs::write(&path, &options.url).unwrap();
        options.url = format!("${{file:{}}}/v1", path.display());
    })
    .await;
    assert_eq!(rig.fetch().await, "1");
    let base = |rig: &Rig| rig.requests.lock().heads[0].clone();
    assert!(base(&rig).starts_with("GET /api/v1/k HTTP/1.1"), "{}", base(&rig));
    fs::write(&path, format!("{}/other/", other.url)).unwrap();
    rig.secrets.reread();
    assert_eq!(rig.fetch().await, "2");
    assert!(base(&other).starts_with("GET /api/other/v1/k HTTP/1.1"), "{}", base(&other));
    // A change from `http` to `https` takes effect only with a reload, which loads the trusted certificates.
    fs::write(&path, "https://127.0.0.1:1").unwrap();
    rig.secrets.reread();
    assert_eq!(rig.fetch().await, "same");
}

/// If an upstream's response contains a secret of the request, no message contains it.
#[tokio::test]
async fn no_message_has_a_secret_that_the_upstream_repeats() {
    let long = format!("hunter2-{}", "x".repeat(8000));
    let secret = "hunter2-hunter2";
    for (name, value, answer) in [
        ("a body", secret, reply("401 Unauthorized", format!("<p>no {secret} http://h/a?k={secret}</p>"))),
        ("a JSON body", secret, reply("403 Forbidden", format!("{{\"key\":\"{secret}\"}}"))),
        ("a cut body", &long, reply("422 Unprocessable", &long)),
        (
            "a body that is cut in a secret",
            secret,
            reply("400 Bad Request", format!("{}{secret}", " ".repeat(4090))),
        ),
        ("a missing document", secret, reply("404 Not Found", secret)),
        ("a redirect", secret, reply(&format!("302 Found|location: http://{secret}.example/"), "")),
        ("a coding", secret, reply(&format!("200 OK|content-encoding: {secret}"), "1")),
        ("a cut coding", secret, reply(&format!("200 OK|content-encoding: {}{secret}", "z".repeat(58)), "1")),
        ("a type", secret, reply(&format!("200 OK|content-type: text/{secret}"), "<")),
        ("no JSON", secret, reply("200 OK", secret)),
        ("no HTTP", secret, raw(secret)),
    ] {
        let secrets = Secrets::new([("KEY".into(), value.into())], &Secrets::default());
        let headers = vec![("X-Key".into(), "${KEY}".into())];
        let mut rig = Rig::with_secrets(vec![answer], secrets, |options| options.headers = headers).await;
        let happened = rig.fetch().await;
        assert!(!happened.contains("hunt"), "{name}: {happened}");
    }
}
