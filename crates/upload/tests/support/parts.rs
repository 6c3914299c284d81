//! Parts with known bytes, and whole objects of them.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use quaymaster_upload::Sha256;
use quaymaster_upload::ledger::Part;
use quaymaster_upload::objects::{About, Completed, MultipartId, Objects, PartBody, Source};

/// The smallest part that is not the last.
pub const MIB5: usize = 5 * 1024 * 1024;

/// Bytes that differ from seed to seed and from place to place.
pub fn bytes(seed: u64, length: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes.into()
}

pub fn about(token: &str) -> About {
    About {
        token: token.to_owned(),
        mime_type: "application/pdf".to_owned(),
        custom: vec![("name".to_owned(), "Überblick 100%.pdf".to_owned())],
    }
}

/// In three pieces, as they may come.
pub fn in_pieces(bytes: &Bytes) -> PartBody {
    let third = bytes.len() / 3;
    let pieces = vec![bytes.slice(..third), bytes.slice(third..2 * third), bytes.slice(2 * third..)];
    PartBody { size: bytes.len() as u64, digest: Sha256::of(bytes).into(), source: Source::Pieces(pieces) }
}

pub async fn send(objects: &Objects, key: &str, id: &MultipartId, number: u32, bytes: &Bytes) -> Part {
    let etag = objects.part(key, id, number, in_pieces(bytes)).await.unwrap();
    recorded(number, etag, bytes)
}

/// As the ledger would have it.
pub fn recorded(number: u32, etag: String, bytes: &Bytes) -> Part {
    Part { number, etag, size: bytes.len() as u64, digest: Sha256::of(bytes).into() }
}

pub async fn read(objects: &Objects, key: &str, range: Option<std::ops::Range<u64>>) -> Vec<u8> {
    let pieces = objects.read(key, range).await.unwrap().unwrap();
    pieces
        .try_fold(Vec::new(), async |mut all, piece| {
            all.extend_from_slice(&piece);
            Ok(all)
        })
        .await
        .unwrap()
}

pub fn done(completed: Completed) -> String {
    match completed {
        Completed::Done { etag } => etag.unwrap(),
        Completed::Unknown(error) => panic!("should be done: {error}"),
    }
}

pub fn unknown(completed: Completed) -> quaymaster_upload::Error {
    match completed {
        Completed::Unknown(error) => error,
        Completed::Done { etag } => panic!("should not be known: {etag:?}"),
    }
}
