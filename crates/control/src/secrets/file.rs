//! Reads a secret from a file: the file's text without one line break at its end. The size is limited, and
//! control characters are refused.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: u64 = 64_000;

/// Reads a secret. The error is the predicate of a sentence about the file.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error| format!("cannot be read: {error}");
    // Refuses pipes, because opening one would wait for a writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("is not a regular file".into());
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    value(bytes).map_err(Into::into)
}

fn value(bytes: Vec<u8>) -> Result<String, &'static str> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err("is larger than 64 kB");
    }
    let mut text = String::from_utf8(bytes).map_err(|_| "is not UTF-8 text")?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() {
        return Err("is empty");
    }
    if text.chars().any(char::is_control) {
        return Err("has control characters; only one line break at its end is allowed");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_line() {
        fn check(bytes: &[u8], expect: Result<&str, &str>) {
            assert_eq!(value(bytes.to_vec()).as_deref(), expect.as_ref().copied(), "{bytes:?}");
        }
        let control = Err("has control characters; only one line break at its end is allowed");
        check(b"hunter2", Ok("hunter2"));
        check(b"hunter2\n", Ok("hunter2"));
        check(b"hunter2\r\n", Ok("hunter2"));
        check(b" a b ", Ok(" a b "));
        check("p\u{e4}ss".as_bytes(), Ok("p\u{e4}ss"));
        for refused in [&b"hunter2\n\n"[..], b"a\r", b"a\nb", b"\ta", b"a\0", b"a\x7f", "a\u{85}".as_bytes()]
        {
            check(refused, control);
        }
        for empty in [&b""[..], b"\n", b"\r\n"] {
            check(empty, Err("is empty"));
        }
        check(b"\xff", Err("is not UTF-8 text"));
        check(&[b'x'; 64_000], Ok(&"x".repeat(64_000)));
        check(&[b'x'; 64_001], Err("is larger than 64 kB"));
    }

    #[test]
    fn only_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(read(&path).unwrap_err().starts_with("cannot be read: "));
        assert_eq!(read(folder.path()), Err("is not a regular file".into()));
        std::fs::write(&path, "x".repeat(1 << 20)).unwrap();
        assert_eq!(read(&path), Err("is larger than 64 kB".into()));
        std::fs::write(&path, "hunter2\n").unwrap();
        assert_eq!(read(&path), Ok("hunter2".into()));
    }
}
