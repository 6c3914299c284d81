//! Every promise of an object store, on local disk and on a real S3 gateway.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/servers.rs"]
mod servers;
mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use quaymaster_upload::ledger::Part;
use quaymaster_upload::objects::{
    Abort, Completed, MultipartId, Objects, ObjectsOptions, PartBody, Source, Then,
};
use quaymaster_upload::{Sha256, Trouble};
use support::parts::{MIB5, about, bytes, done, in_pieces, read, recorded, send};
use support::seaweed::{self, Seaweed};

#[tokio::test(flavor = "multi_thread")]
async fn the_local_store_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}", folder.path().join("objects").display());
    let objects = Objects::open(&url, &ObjectsOptions::default()).await.unwrap();
    promises(&objects).await;
    let url = format!("file://{}", folder.path().join("objects").display());
    let again = Objects::open(&url, &ObjectsOptions::default()).await.unwrap();
    assert!(again.head("a/whole.pb").await.unwrap().is_some(), "both spellings are one folder");
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_keeps_every_promise() {
    let server = Seaweed::start().await;
    let objects = Objects::open("s3://quay", &seaweed::options(server.address())).await.unwrap();
    promises(&objects).await;
    let below =
        Objects::open("s3://quay/under/a prefix/", &seaweed::options(server.address())).await.unwrap();
    assert_eq!((objects.prefix(), below.prefix()), ("", "under/a prefix/"));
    // Whoever makes a key puts the prefix in front of it; the object store adds nothing.
    let key = format!("{}whole.pb", below.prefix());
    below.put_empty(&key, &about("ours")).await.unwrap();
    assert!(objects.head(&key).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_tells_pending_uploads_page_by_page() {
    const UPLOADS: usize = 1_030;
    let server = Seaweed::start().await;
    let objects = Objects::open("s3://quay/p", &seaweed::options(server.address())).await.unwrap();
    let begun: BTreeSet<_> = stream::iter(0..UPLOADS)
        .map(|n| {
            let objects = &objects;
            // Two of each key: the id decides too.
            async move { objects.begin(&format!("many/{}", n / 2), &about("ours")).await.unwrap() }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    assert_eq!(begun.len(), UPLOADS);
    let (mut found, mut after, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let page = objects.pending("many/", after.as_ref()).await.unwrap();
        pages += 1;
        for upload in page.uploads {
            assert!(upload.key.starts_with("many/") && upload.initiated_ms.is_some(), "{upload:?}");
            assert!(found.insert(upload.id), "told twice");
        }
        after = page.next;
        if after.is_none() || pages > 10 {
            break;
        }
    }
    assert_eq!((pages, found == begun), (2, true), "{} of {UPLOADS}", found.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_takes_keys_from_a_shared_file_and_those_that_replace_them() {
    let server = Seaweed::start().await;
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    let keys = |secret: &str| {
        let text = format!("[quay]\naws_access_key_id = quay\naws_secret_access_key = {secret}\n");
        std::fs::write(home.path().join(".aws/credentials"), text).unwrap();
    };
    let variables = [("HOME", home.path().to_str().unwrap()), ("AWS_PROFILE", "quay")];
    let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = ObjectsOptions {
        credentials: None,
        environment: Some(environment),
        ..seaweed::options(server.address())
    };
    let error = Objects::open("s3://quay", &options).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Never, "a profile that is not there: {error}");

    keys("wrong");
    let objects = Objects::open("s3://quay", &options).await.unwrap();
    let error = objects.put_empty("a/keys.pb", &about("ours")).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Credentials, "{error}");
    keys(seaweed::SECRET);
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = objects.put_empty("a/keys.pb", &about("ours")).await {
        assert_eq!(error.trouble(), Trouble::Credentials, "{error}");
        assert!(Instant::now() < deadline, "the right keys are not seen: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(objects.head("a/keys.pb").await.unwrap().unwrap().token.as_deref(), Some("ours"));
    assert!(!format!("{options:?} {objects:?}").contains(seaweed::SECRET), "no secret is shown");
}

async fn promises(objects: &Objects) {
    parts_become_the_object(objects).await;
    bytes_unlike_their_digest_are_no_part(objects).await;
    wrong_lists_of_parts_are_refused(objects).await;
    what_is_called_off_is_gone(objects).await;
    an_empty_object_is_an_object(objects).await;
    unusable_keys_and_numbers_are_refused(objects).await;
}

async fn parts_become_the_object(objects: &Objects) {
    let key = "a/whole.pb";
    assert_eq!(objects.head(key).await.unwrap(), None);
    assert!(objects.read(key, None).await.unwrap().is_none());
    let id = objects.begin(key, &about("ours")).await.unwrap();
    // Two with the same bytes, sent out of order, one of them twice, one as a stream and one from a file.
    let (same, end) = (bytes(1, MIB5), bytes(2, 12_345));
    let third = send(objects, key, &id, 3, &end).await;
    let pieces = [same.slice(..100), same.slice(100..)].map(Ok);
    let streamed = PartBody {
        size: MIB5 as u64,
        digest: Sha256::of(&same).into(),
        source: Source::Stream(stream::iter(pieces).boxed()),
    };
    let first = recorded(1, objects.part(key, &id, 1, streamed).await.unwrap(), &same);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &same).unwrap();
    for _ in 0..2 {
        let source = Source::File(file.path().to_owned(), Then::Keep);
        let body = PartBody { size: MIB5 as u64, digest: Sha256::of(&same).into(), source };
        let second = objects.part(key, &id, 2, body).await.unwrap();
        assert_eq!(second, first.etag, "the same bytes have the same ETag here");
    }
    assert_eq!(objects.head(key).await.unwrap(), None, "nothing is there before it is whole");
    let parts = [first.clone(), recorded(2, first.etag, &same), third];
    let etag = done(objects.complete(key, &id, &parts).await.unwrap());

    let head = objects.head(key).await.unwrap().unwrap();
    assert_eq!(head.size, 2 * MIB5 as u64 + 12_345);
    assert_eq!(head.token.as_deref(), Some("ours"));
    assert_eq!(head.mime_type.as_deref(), Some("application/pdf"));
    assert_eq!(head.etag.unwrap().trim_matches('"'), etag.trim_matches('"'));
    let whole = [&same[..], &same[..], &end[..]].concat();
    assert!(read(objects, key, None).await == whole);
    let size = whole.len() as u64;
    for range in [0..1, 100..200, MIB5 as u64 - 5..MIB5 as u64 + 5, size - 1..size, 7..7, 0..size] {
        let wanted = &whole[range.start as usize..range.end as usize];
        assert!(read(objects, key, Some(range.clone())).await == wanted, "{range:?}");
    }

    // Again: on some stores it is done once more, on others unknown; the object stays what it is.
    if let Completed::Unknown(error) = objects.complete(key, &id, &parts).await.unwrap() {
        assert_eq!(error.said(), Some("NoSuchUpload"));
    }
    assert_eq!(objects.head(key).await.unwrap().unwrap().token.as_deref(), Some("ours"));
    assert!(objects.pending("a/", None).await.unwrap().uploads.is_empty());
}

async fn bytes_unlike_their_digest_are_no_part(objects: &Objects) {
    let key = "a/digest.pb";
    let id = objects.begin(key, &about("ours")).await.unwrap();
    let right = bytes(3, 70_000);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes(4, 70_000)).unwrap();
    let wrong = [
        Source::Pieces(vec![bytes(4, 70_000)]),
        Source::Pieces(vec![right.slice(..69_999)]),
        Source::Pieces(vec![right.clone(), Bytes::from_static(b"x")]),
        Source::File(file.path().to_owned(), Then::Keep),
        Source::Stream(stream::iter([Ok(right.slice(..5)), Err(std::io::Error::other("cut"))]).boxed()),
    ];
    for source in wrong {
        let body = PartBody { size: 70_000, digest: Sha256::of(&right).into(), source };
        let said = format!("{body:?}");
        let error = objects.part(key, &id, 1, body).await.expect_err(&said);
        assert_eq!(error.trouble(), Trouble::Passing, "{said}: {error}");
    }
    let part = send(objects, key, &id, 1, &right).await;
    done(objects.complete(key, &id, &[part]).await.unwrap());
    assert!(read(objects, key, None).await == right);
}

async fn wrong_lists_of_parts_are_refused(objects: &Objects) {
    let key = "a/lists.pb";
    let id = objects.begin(key, &about("ours")).await.unwrap();
    let (large, small) = (bytes(5, MIB5), bytes(6, 100));
    let first = send(objects, key, &id, 1, &large).await;
    let second = send(objects, key, &id, 2, &small).await;
    let of_second = |etag: &str| [first.clone(), recorded(2, etag.to_owned(), &small)];
    let lists: [&[Part]; 6] = [
        &[],
        std::slice::from_ref(&second),
        &[second.clone(), first.clone()],
        &[first.clone(), first.clone()],
        &of_second(&first.etag),
        &of_second("\"../../etc/passwd\""),
    ];
    for list in lists {
        let error = objects.complete(key, &id, list).await.expect_err(&format!("{list:?}"));
        assert_eq!(error.trouble(), Trouble::Never, "{list:?}: {error}");
    }
    assert_eq!(objects.head(key).await.unwrap(), None);
    done(objects.complete(key, &id, &[first, second]).await.unwrap());
}

async fn what_is_called_off_is_gone(objects: &Objects) {
    let (kept, gone) = ("pending/kept.pb", "pending/gone.pb");
    let keep = objects.begin(kept, &about("ours")).await.unwrap();
    let id = objects.begin(gone, &about("ours")).await.unwrap();
    let part = send(objects, gone, &id, 1, &bytes(7, 100)).await;
    let found = async |prefix: &str| {
        let page = objects.pending(prefix, None).await.unwrap();
        assert_eq!(page.next, None);
        let mut found: Vec<_> = page.uploads.into_iter().map(|found| (found.key, found.id)).collect();
        found.sort();
        found
    };
    let both = [(gone.to_owned(), id.clone()), (kept.to_owned(), keep.clone())];
    assert_eq!(found("pending/").await, both);
    assert_eq!(found("pending/k").await, both[1..]);
    assert_eq!(objects.abort(gone, &id).await.unwrap(), Abort::Done);
    assert_eq!(found("pending/").await, both[1..]);
    // Again it is gone, or done again; never an error.
    let _ = objects.abort(gone, &id).await.unwrap();
    let error = objects.part(gone, &id, 2, in_pieces(&bytes(7, 100))).await.unwrap_err();
    assert_eq!((error.trouble(), error.said()), (Trouble::Never, Some("NoSuchUpload")), "{error}");
    match objects.complete(gone, &id, &[part]).await.unwrap() {
        Completed::Unknown(error) => assert_eq!(error.said(), Some("NoSuchUpload")),
        Completed::Done { .. } => panic!("nothing is left to complete"),
    }
    assert_eq!(objects.head(gone).await.unwrap(), None);
    assert_eq!(objects.abort(kept, &keep).await.unwrap(), Abort::Done);
    assert_eq!(found("pending/").await, []);
}

async fn an_empty_object_is_an_object(objects: &Objects) {
    for _ in 0..2 {
        objects.put_empty("a/empty.pb", &about("ours")).await.unwrap();
        let head = objects.head("a/empty.pb").await.unwrap().unwrap();
        assert_eq!((head.size, head.token.as_deref()), (0, Some("ours")));
        assert!(read(objects, "a/empty.pb", None).await.is_empty());
    }
    assert!(objects.pending("a/", None).await.unwrap().uploads.is_empty());
}

async fn unusable_keys_and_numbers_are_refused(objects: &Objects) {
    let id = MultipartId::new("../../objects/a");
    for key in ["", "../up", "/root", "a/../../b", "a\0b", "a//b"] {
        assert_eq!(objects.begin(key, &about("t")).await.unwrap_err().said(), Some("key"), "{key:?}");
        assert_eq!(objects.head(key).await.unwrap_err().said(), Some("key"), "{key:?}");
        assert_eq!(objects.abort(key, &id).await.unwrap_err().said(), Some("key"), "{key:?}");
    }
    let id = objects.begin("a/numbers.pb", &about("t")).await.unwrap();
    for number in [0, 10_001] {
        let error = objects.part("a/numbers.pb", &id, number, in_pieces(&bytes(8, 9))).await.unwrap_err();
        assert_eq!(error.trouble(), Trouble::Never);
    }
    assert_eq!(objects.abort("a/numbers.pb", &id).await.unwrap(), Abort::Done);
}

#[tokio::test]
async fn an_unusable_place_is_refused() {
    for url in ["", "objects", "file:", "s3:", "s3://", "s3:///key", "s3://b ucket", "s3://b/../c", "ftp://x"]
    {
        let error = Objects::open(url, &ObjectsOptions::default()).await.expect_err(url);
        assert_eq!(error.trouble(), Trouble::Never, "{url}: {error}");
    }
}
