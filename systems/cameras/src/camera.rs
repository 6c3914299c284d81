//! From a folder's name to a camera's id, and which files are images.

use std::path::{Component, Path};

/// The longest id; far below what a key may hold.
const MAX_ID_BYTES: usize = 128;

/// Enough of a file to tell what it is.
pub(crate) const MAGIC_BYTES: usize = 12;

const EXTENSIONS: [&str; 6] = ["jpg", "jpeg", "png", "gif", "webp", "bmp"];

/// The camera of a folder: `Front Door` is `front_door`.
///
/// The id becomes part of keys, so only letters, digits, `_`, `-` and `.` are let in; anything else would have
/// to be encoded, and two encodings of one camera would be two cameras.
pub(crate) fn id(folder: &str) -> Result<String, String> {
    let id = folder.split_whitespace().collect::<Vec<_>>().join("_").to_lowercase();
    if id.is_empty() || id.len() > MAX_ID_BYTES {
        return Err(format!("a camera's folder has a name of at most {MAX_ID_BYTES} bytes"));
    }
    match id.chars().find(|c| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.')) {
        Some(c) => Err(format!("a camera's folder cannot have {c:?} in its name")),
        None => Ok(id),
    }
}

/// The folder of the camera a file belongs to: the first one below the root, however deep the file lies.
pub(crate) fn folder(relative: &Path) -> Option<&str> {
    let mut parts = relative.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(folder)), Some(Component::Normal(_))) => folder.to_str(),
        _ => None,
    }
}

/// Whether a file of this name is looked at: an image by its extension, and neither hidden nor temporary. Programs
/// that rename into place write under `.name`, `name.tmp`, `name.part` or `name~` first.
pub(crate) fn is_image_name(relative: &Path) -> bool {
    let hidden = relative.components().any(|part| match part {
        Component::Normal(name) => name.as_encoded_bytes().starts_with(b"."),
        _ => true,
    });
    let extension = relative.extension().and_then(|extension| extension.to_str());
    !hidden && extension.is_some_and(|found| EXTENSIONS.iter().any(|known| found.eq_ignore_ascii_case(known)))
}

/// Whether a file begins as an image does. Its extension need not agree: cameras call a JPEG what they like.
pub(crate) fn is_image(head: &[u8]) -> bool {
    let webp = head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP");
    let begins: [&[u8]; 5] = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"BM"];
    webp || begins.iter().any(|begin| head.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_spaces_and_capitals_is_the_documented_camera() {
        assert_eq!(id("Front Door").as_deref(), Ok("front_door"));
        assert_eq!(id("  Garage  2 ").as_deref(), Ok("garage_2"));
        assert_eq!(id("Küche-1.left").as_deref(), Ok("küche-1.left"));
    }

    #[test]
    fn a_folder_that_could_spell_another_key_is_no_camera() {
        let long = "x".repeat(129);
        for name in ["", " ", "a:b", "a/b", "{a}", "a*", "a?", "[a]", "a\nb\0", "a~b", "a%20b", &long] {
            assert!(id(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_first_folder_is_the_camera_however_deep_the_file_lies() {
        assert_eq!(folder(Path::new("Front Door/2026/11/16/a.jpg")), Some("Front Door"));
        assert_eq!(folder(Path::new("a.jpg")), None);
        assert_eq!(folder(Path::new("")), None);
        assert_eq!(folder(Path::new("../x/a.jpg")), None);
    }

    #[test]
    fn hidden_temporary_and_other_files_are_not_looked_at() {
        for name in ["c/a.jpg", "c/A.JPEG", "c/d/e.png", "c/x.tmp.webp"] {
            assert!(is_image_name(Path::new(name)), "{name}");
        }
        for name in [
            "c/.a.jpg",
            ".c/a.jpg",
            "c/.d/a.jpg",
            "c/a.jpg.tmp",
            "c/a.jpg.part",
            "c/a.jpg~",
            "c/a",
            "c/a.txt",
        ] {
            assert!(!is_image_name(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn an_image_is_known_by_how_it_begins() {
        for head in [
            &b"\xff\xd8\xff\xe0\0\x10JFIF"[..],
            b"\x89PNG\r\n\x1a\n\0\0",
            b"GIF89a......",
            b"BM",
            b"RIFF....WEBP",
        ] {
            assert!(is_image(head), "{head:?}");
        }
        for head in [&b""[..], b"\xff\xd8", b"<html>", b"RIFF....WAVE", b"RIFF"] {
            assert!(!is_image(head), "{head:?}");
        }
    }
}
