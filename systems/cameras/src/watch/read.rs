//! Reads a file once, piece by piece: is it an image, and which.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use ring::digest::{Context, SHA256};
use rustix::fs::OFlags;

use super::stamp::Stamp;
use crate::camera;

/// Memory for one file, whatever its size.
const PIECE_BYTES: usize = 64 << 10;

/// What a file turned out to be.
#[derive(Debug)]
pub(crate) enum Found {
    /// An image, by its SHA-256.
    Image([u8; 32]),
    /// Something else under an image's name.
    NoImage,
    /// It changed while it was read, or is not the version that was meant: it is waited for again.
    Changed,
    /// It is not there any more.
    Gone,
}

/// Reads the version of the file that has this stamp.
pub(crate) fn read(path: &Path, stamp: Stamp) -> std::io::Result<Found> {
    // Neither through a link to elsewhere nor, should the file have become a pipe, for ever.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Gone),
        Err(error) => return Err(error),
    };
    if !is(&file, stamp)? {
        return Ok(Found::Changed);
    }
    let mut digest = Context::new(&SHA256);
    let mut piece = vec![0; PIECE_BYTES];
    let mut head = Vec::new();
    loop {
        let length = match file.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&piece[..length]);
        if head.len() < camera::MAGIC_BYTES {
            let rest = camera::MAGIC_BYTES - head.len();
            head.extend_from_slice(&piece[..length.min(rest)]);
        }
    }
    if !is(&file, stamp)? {
        return Ok(Found::Changed);
    }
    if !camera::is_image(&head) {
        return Ok(Found::NoImage);
    }
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(digest.finish().as_ref());
    Ok(Found::Image(sha256))
}

fn is(file: &File, stamp: Stamp) -> std::io::Result<bool> {
    let metadata = file.metadata()?;
    Ok(metadata.is_file() && Stamp::of(&metadata) == stamp)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::item::hex;

    fn found(path: &Path) -> Found {
        read(path, Stamp::read(path).unwrap().unwrap()).unwrap()
    }

    #[test]
    fn an_image_is_known_by_its_sha256() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        // Longer than two pieces, so that the pieces are joined right.
        let bytes = [b"\xff\xd8\xff".as_slice(), &vec![7; PIECE_BYTES * 2 + 5]].concat();
        std::fs::write(&path, &bytes).unwrap();
        let Found::Image(sha256) = found(&path) else { panic!("not an image") };
        assert_eq!(&sha256, ring::digest::digest(&SHA256, &bytes).as_ref());
        assert_eq!(hex(&sha256).len(), 64);
    }

    #[test]
    fn what_only_has_an_images_name_is_no_image() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        std::fs::write(&path, "<html>").unwrap();
        assert!(matches!(found(&path), Found::NoImage));
    }

    #[test]
    fn another_version_than_the_one_meant_is_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        std::fs::write(&path, "GIF89a").unwrap();
        let stamp = Stamp::read(&path).unwrap().unwrap();
        std::fs::write(&path, "GIF89a and more").unwrap();
        assert!(matches!(read(&path, stamp).unwrap(), Found::Changed));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(read(&path, stamp).unwrap(), Found::Gone));
    }

    #[test]
    fn links_are_not_followed_and_pipes_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, pipe) =
            (folder.path().join("a"), folder.path().join("b.jpg"), folder.path().join("c.jpg"));
        std::fs::write(&file, "GIF89a").unwrap();
        let stamp = Stamp::read(&file).unwrap().unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(Stamp::read(&link).unwrap(), None);
        assert!(read(&link, stamp).is_err());
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        assert_eq!(Stamp::read(&pipe).unwrap(), None);
        assert!(matches!(read(&pipe, stamp).unwrap(), Found::Changed));
    }
}
