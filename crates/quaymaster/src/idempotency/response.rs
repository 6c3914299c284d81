//! What a response becomes in its record, and back: compressed when that helps, sealed when it is sensitive.

use std::borrow::Cow;

use bytes::Bytes;

use crate::{Code, Error, Result, Seal};

/// Responses up to this size are kept as they are: compressing them saves nothing worth its time.
const COMPRESS_OVER: usize = 1024;

/// Compressing more than this would hold up the runtime's thread noticeably.
const INLINE: usize = 256 * 1024;

/// What the schema allows `max_response` to be at most, and so the most a record of ours unfolds to. Not the
/// resource's own bound: that may have been lowered since.
const UNFOLDS_TO: usize = 16 << 20;

/// A response as its record keeps it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packed<'a> {
    /// The record's word: `-` nothing, `r` raw, `z` zstd, `s` sealed, `t` zstd and sealed.
    pub(crate) encoding: &'static str,
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl<'a> Packed<'a> {
    /// No response.
    pub(crate) const NONE: Packed<'static> = Packed { encoding: "-", bytes: Cow::Borrowed(&[]) };

    /// Whether a replay gives a response.
    pub(crate) fn is_kept(&self) -> bool {
        self.encoding != "-"
    }

    /// Compresses `response` if that makes it smaller, and seals it for `place` if there is one.
    pub(super) async fn of(
        op: &'static str,
        response: &'a [u8],
        seal: Option<(&Seal, &[u8])>,
    ) -> Result<Packed<'a>> {
        let smaller = if response.len() <= COMPRESS_OVER {
            None
        } else if response.len() <= INLINE {
            compress(response)
        } else {
            let owned = response.to_vec();
            // Without a result the response is kept as it is.
            tokio::task::spawn_blocking(move || compress(&owned)).await.unwrap_or(None)
        };
        let compressed = smaller.is_some();
        let bytes = smaller.map_or(Cow::Borrowed(response), Cow::Owned);
        let Some((seal, place)) = seal else {
            return Ok(Packed { encoding: if compressed { "z" } else { "r" }, bytes });
        };
        let Some(sealed) = seal.seal(place, &bytes) else {
            return Err(Error::new(
                op,
                Code::Internal,
                "the response could not be sealed; it is not kept in clear",
            ));
        };
        Ok(Packed { encoding: if compressed { "t" } else { "s" }, bytes: Cow::Owned(sealed) })
    }
}

fn compress(response: &[u8]) -> Option<Vec<u8>> {
    let out = zstd::bulk::compress(response, zstd::DEFAULT_COMPRESSION_LEVEL).ok()?;
    (out.len() < response.len()).then_some(out)
}

/// The response that `encoding` says `bytes` are.
pub(super) async fn unpack(
    op: &'static str,
    encoding: &[u8],
    bytes: Bytes,
    seal: &Seal,
    place: &[u8],
) -> Result<Option<Bytes>> {
    let sealed = matches!(encoding, b"s" | b"t");
    let compressed = matches!(encoding, b"z" | b"t");
    if encoding == b"-" {
        return Ok(None);
    }
    let bytes = if sealed { Bytes::from(seal.open(op, place, &bytes)?) } else { bytes };
    if !compressed {
        return Ok(Some(bytes));
    }
    let unfolded = if bytes.len() <= INLINE {
        unfold(&bytes)
    } else {
        tokio::task::spawn_blocking(move || unfold(&bytes)).await.unwrap_or(None)
    };
    match unfolded {
        Some(response) => Ok(Some(Bytes::from(response))),
        None => Err(Error::new(
            op,
            Code::KeyMalformed,
            "the response in the record is cut short, or no zstd of ours",
        )),
    }
}

fn unfold(bytes: &[u8]) -> Option<Vec<u8>> {
    zstd::bulk::decompress(bytes, UNFOLDS_TO).ok()
}
