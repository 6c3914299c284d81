//! Responses and records as plain functions.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use bytes::Bytes;
use quaymaster_store::Reply;

use super::answer::{Abandoned, Told, abandoned, begun};
use super::response::{Packed, unpack};
use crate::{Code, Seal};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

async fn there_and_back(response: &[u8], seal: &Seal, sealed: bool) -> (&'static str, usize) {
    let place = b"idem:create:T1".as_slice();
    let packed = Packed::of("op", response, sealed.then_some((seal, place))).await.unwrap();
    let (encoding, bytes) = (packed.encoding, Bytes::copy_from_slice(&packed.bytes));
    let stored = bytes.len();
    let back = unpack("op", encoding.as_bytes(), bytes.clone(), seal, place).await.unwrap();
    assert_eq!(back.as_deref(), Some(response));
    if sealed {
        let elsewhere = unpack("op", encoding.as_bytes(), bytes, seal, b"idem:create:T2").await.unwrap_err();
        assert_eq!(elsewhere.code, Code::KeyMalformed);
    }
    (encoding, stored)
}

#[tokio::test]
async fn a_response_comes_back_as_it_went_in_however_it_is_kept() {
    let seal = Seal::from_text(KEY).unwrap();
    let text = "the same words again and again, ".repeat(1000).into_bytes();
    let large = "0123456789abcdef".repeat(70_000).into_bytes();
    let noise: Vec<u8> = {
        let mut random = fastrand::Rng::with_seed(7);
        (0..5000).map(|_| random.u8(..)).collect()
    };
    for (response, sealed, encoding) in [
        (b"".as_slice(), false, "r"),
        (b"".as_slice(), true, "s"),
        (&text[..1024], false, "r"),
        (&text[..1025], false, "z"),
        (&text, true, "t"),
        (&large, false, "z"),
        (&noise, false, "r"),
        (&noise, true, "s"),
    ] {
        let (kept_as, stored) = there_and_back(response, &seal, sealed).await;
        assert_eq!(kept_as, encoding, "{} bytes", response.len());
        let most = response.len() + if sealed { 33 } else { 0 };
        assert!(stored <= most, "{} bytes became {stored}", response.len());
    }
}

#[tokio::test]
async fn a_damaged_response_is_refused_and_never_unfolds_without_bound() {
    let cut = zstd::bulk::compress(&[7; 4000], 3).unwrap();
    let bomb = zstd::bulk::compress(&vec![0; (16 << 20) + 1], 3).unwrap();
    assert!(bomb.len() < 4096);
    for bytes in [b"no zstd".to_vec(), cut[..cut.len() - 2].to_vec(), bomb] {
        let error = unpack("op", b"z", bytes.into(), &Seal::none(), b"k").await.unwrap_err();
        assert_eq!(error.code, Code::KeyMalformed);
    }
}

#[test]
fn replies_that_no_script_gives_are_errors_and_not_answers() {
    let words = |words: &[&str]| {
        Reply::Array(words.iter().map(|word| Reply::Bytes(Bytes::copy_from_slice(word.as_bytes()))).collect())
    };
    assert_eq!(begun("op", words(&["mismatch", "0", "abc"])).unwrap(), Told::Mismatch { kept: "abc".into() });
    for reply in [words(&["allowed"]), words(&["started"]), words(&["finished", "r"]), words(&[]), Reply::Nil]
    {
        assert_eq!(begun("op", reply).unwrap_err().code, Code::StoreReply);
    }
    assert_eq!(abandoned("op", words(&["lost"])).unwrap(), Some(Abandoned::Lost));
    assert_eq!(abandoned("op", words(&["finished"])).unwrap_err().code, Code::StoreReply);
    assert_eq!(abandoned("op", words(&["conflict"])).unwrap_err().code, Code::RequestReused);
}
