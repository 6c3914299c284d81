//! Small files of text that others write: what they say, and whether that may have changed.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;

use super::super::look::Look;

/// No such file is larger.
const MAX_BYTES: u64 = 1 << 20;

/// A file that changed less than this ago may change again without looking any different: some file systems have no
/// finer times.
const SETTLED: Duration = Duration::from_secs(2);

/// How a file looked before it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Absent,
    As(Look),
    /// Cannot be read, or changed too lately to be known by its looks.
    Unsure,
}

/// Whether files need not be read again.
pub(super) fn is_unchanged(before: &[Seen], now: &[Seen]) -> bool {
    before == now && !now.contains(&Seen::Unsure)
}

/// As it looks now.
pub(super) fn glance(path: &Path) -> Seen {
    let looked = opened(path).and_then(|file| Ok((Look::of(&file)?, file.metadata()?.modified()?)));
    match looked {
        Ok((look, modified)) if modified.elapsed().is_ok_and(|age| age > SETTLED) => Seen::As(look),
        Err(error) if is_absent(&error) => Seen::Absent,
        _ => Seen::Unsure,
    }
}

/// A file's text; `None` when it is not there.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match opened(path) {
        Err(error) if is_absent(&error) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.map(Some).ok_or_else(|| io::Error::other("it is not text"))
}

fn opened(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    // `/dev/null` says that there is none; a pipe might never say anything.
    if kind.is_file() || kind.is_char_device() {
        File::open(path)
    } else {
        Err(io::Error::other("it is not a file"))
    }
}

/// A home that is no folder has no files either: some services have `/dev/null` for one.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_is_no_text_of_a_sane_size_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("large"), "#".repeat((1 << 20) + 1)).unwrap();
        fs::write(at("fits"), "#".repeat(1 << 20)).unwrap();
        fs::write(at("zeros"), "[x]\n\0\0\0").unwrap();
        fs::write(at("binary"), b"[x]\n\xff\xfe\x80").unwrap();
        fs::write(at("wide"), "[x]\n".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()).unwrap();
        fs::create_dir(at("folder")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        for (name, why) in [
            ("large", "it is larger than 1 MiB"),
            ("/dev/zero", "it is larger than 1 MiB"),
            ("zeros", "it is not text"),
            ("binary", "it is not text"),
            ("wide", "it is not text"),
            ("folder", "it is not a file"),
            ("pipe", "it is not a file"),
        ] {
            assert_eq!(read(&at(name)).unwrap_err().to_string(), why, "{name}");
        }
        assert_eq!(read(&at("fits")).unwrap().unwrap().len(), 1 << 20);
        assert_eq!(read(&at("/dev/null")).unwrap().as_deref(), Some(""));
        for absent in ["not there", "fits/below"] {
            assert_eq!(read(&at(absent)).unwrap(), None);
            assert_eq!(glance(&at(absent)), Seen::Absent);
        }
        assert_eq!(glance(&at("pipe")), Seen::Unsure);
    }

    #[test]
    fn a_file_is_known_by_its_looks_once_it_has_rested() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let now = || [glance(file.path())];
        assert!(!is_unchanged(&now(), &now()), "it was written just now");
        let rested = |age| file.as_file().set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        rested(60);
        let before = now();
        assert!(is_unchanged(&before, &now()));
        rested(50);
        assert!(!is_unchanged(&before, &now()));
        fs::remove_file(file.path()).unwrap();
        assert!(!is_unchanged(&before, &now()));
        assert!(is_unchanged(&now(), &now()), "it is still not there");
    }
}
