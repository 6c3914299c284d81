//! What is done by mistake or turns out otherwise than it was said: folders that are shared, objects and bytes that are
//! not what they were, clients that begin again.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream;
use libtest_mimic::Trial;
use quaymaster::upload::Last;
use quaymaster_upload::complete::Ran;
use quaymaster_upload::ingest::{Incoming, Resumed, Took};
use quaymaster_upload::ledger::Claim;
use quaymaster_upload::objects::About;
use quaymaster_upload::ship::Sent;
use quaymaster_upload::sweep::Cursor;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::node::{check_done, on_both, ship_and_complete};
use crate::rig::{Document, Place, Rig, body, send_all};
use crate::seaweed::Seaweed;
use crate::trial;

const SIZE: usize = 1_300_000;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    on_both! { trials:
        an_object_that_does_not_fit_is_made_anew
        what_is_durable_stays_so_when_its_client_begins_again
        a_node_with_the_wrong_database_throws_nothing_away
        with_many_at_once_no_byte_is_lost
    }
    trials.push(trial(
        "spool::a_chunk_that_kept_its_first_name_is_not_swept",
        a_chunk_that_kept_its_first_name_is_not_swept,
    ));
    trials.push(trial(
        "store::what_a_slow_client_sends_is_staged_before_its_piece_is_full",
        what_a_slow_client_sends_is_staged,
    ));
    trials.push(trial("spool::a_shared_folder_costs_nobody_anything", a_shared_folder_costs_nobody_anything));
    trials.push(trial(
        "servers::bytes_that_changed_in_the_store_are_asked_for_again",
        bytes_that_changed_in_the_store_are_asked_for_again,
    ));
    for (name, unchecked) in [("checksums", false), ("signature", true)] {
        trials.push(trial(
            format!("servers::bytes_that_changed_in_the_spool_are_asked_for_again::{name}"),
            move || bytes_that_changed_in_the_spool_are_asked_for_again(unchecked),
        ));
    }
    trials
}

async fn a_shared_folder_costs_nobody_anything() {
    let folder = TempDir::new().unwrap();
    // Chunks are spooled to the folder that objects, database and store are in.
    let place = Place { spool: Some(folder.path().to_owned()), ..Place::in_folder(folder.path(), true) };
    let rig = place.open().await;
    let document = Document::new("shared", 20, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;

    let old = SystemTime::now() - Duration::from_secs(7200);
    let theirs = [folder.path().join("backups/s-monday"), folder.path().join("0".repeat(32)).join("notes")];
    for file in &theirs {
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(file, "precious").unwrap();
        fs::File::open(file).unwrap().set_modified(old).unwrap();
    }
    for _ in 0..2 {
        let _ = rig.uploads.sweep(&mut Cursor::default()).await.unwrap();
    }
    ship_and_complete(&rig, &id).await;
    let _ = rig.uploads.sweep(&mut Cursor::default()).await.unwrap();
    check_done(&rig, &id, &document).await;
    for file in &theirs {
        assert_eq!(fs::read_to_string(file).unwrap(), "precious");
    }
}

async fn an_object_that_does_not_fit_is_made_anew(place: Place) {
    let rig = place.open().await;
    let document = Document::new("misfit", 21, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    assert_eq!(rig.uploads.ship_once(10).await.unwrap(), vec![Sent::Durable; 4]);
    // Whoever asked for the object died, and the object store has made something else of the parts.
    let upload = rig.uploads.ledger().find(&id).await.unwrap().unwrap();
    let claim = rig.uploads.ledger().begin_completion(&id, "died", Duration::from_millis(1)).await.unwrap();
    assert!(matches!(claim, Claim::Ours(..)), "{claim:?}");
    let about = About { token: upload.token.clone(), ..About::default() };
    rig.uploads.objects().put_empty(&upload.object_key, &about).await.unwrap();
    let mut ran = rig.uploads.complete(&id).await.unwrap();
    while ran == Ran::Taken {
        tokio::time::sleep(Duration::from_millis(1)).await;
        ran = rig.uploads.complete(&id).await.unwrap();
    }
    assert!(matches!(&ran, Ran::Failed(reason) if reason.starts_with("misfit: ")), "{ran:?}");

    let Resumed::Open(standing) = rig.uploads.resume(&id).await.unwrap() else { panic!("it goes on") };
    assert_eq!(standing.resend, vec![0..=3]);
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
    assert_eq!(rig.pending().await, 0);
}

async fn what_is_durable_stays_so_when_its_client_begins_again(place: Place) {
    let rig = place.open().await;
    let document = Document::new("again", 22, SIZE);
    let id = rig.create(&document).await;
    for number in [3, 0] {
        assert!(Rig::received(&rig.send(&id, &document, number).await));
    }
    assert_eq!(rig.uploads.ship_once(10).await.unwrap(), vec![Sent::Durable; 2]);
    drop(rig);
    // The same ledger and objects beside an empty store; the first it hears of the upload is the same request.
    let elsewhere = TempDir::new().unwrap();
    let place = Place { store: format!("embedded:{}", elsewhere.path().display()), ..place };
    let rig = place.open().await;
    assert_eq!(rig.create(&document).await, id);
    let standing = rig.uploads.standing(&id).await.unwrap().unwrap();
    assert_eq!(standing.state.durable(), vec![0..=0, 3..=3]);
    let other = &document.chunks[1];
    let incoming = Incoming { number: 0, last: Last::No, size: Some(other.len() as u64), sha256: None };
    assert_eq!(rig.uploads.chunk(&id, &incoming, body(other)).await.unwrap(), Took::Conflict);
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn bytes_that_changed_in_the_store_are_asked_for_again() {
    let seaweed = Seaweed::start().await;
    let folder = TempDir::new().unwrap();
    let place = Place::behind(folder.path(), seaweed.address());
    let rig = place.open().await;
    let document = Document::new("spoilt", 23, 5 << 20);
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    let key = rig.keys("upload:*:chunks:*").await.remove(0);
    rig.engine.write_piece(key.as_bytes(), 3 << 20, b"spoilt", Duration::from_secs(3600)).await.unwrap();
    assert_eq!(rig.uploads.ship_once(1).await.unwrap(), vec![Sent::Missing]);
    assert_eq!(rig.uploads.standing(&id).await.unwrap().unwrap().resend, vec![0..=0]);
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect()
}

/// Told by SeaweedFS, which compares checksums but not what is signed; by ourselves without them, and in a process that
/// has not seen it compare.
async fn bytes_that_changed_in_the_spool_are_asked_for_again(unchecked: bool) {
    let seaweed = Seaweed::start().await;
    let folder = TempDir::new().unwrap();
    let spool = folder.path().join("spool");
    let place =
        Place { unchecked, spool: Some(spool.clone()), ..Place::behind(folder.path(), seaweed.address()) };
    let mut rig = place.open().await;
    let document = Document::new("spoilt", 26, 5 << 20);
    let id = rig.create(&document).await;
    for another_process in [false, true] {
        assert!(Rig::received(&rig.send(&id, &document, 0).await));
        let [chunk] = &files_of(&spool.join(&id))[..] else { panic!("one chunk, one file") };
        let file = fs::File::options().write(true).open(chunk).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"spoilt", 2 << 20).unwrap();
        if another_process {
            // It knows nothing of how the file looked.
            file.set_modified(written).unwrap();
            drop(rig);
            rig = place.open().await;
        } else {
            // The file system's clock may not have gone on since.
            file.set_modified(written + Duration::from_millis(10)).unwrap();
        }
        assert_eq!(rig.uploads.ship_once(1).await.unwrap(), vec![Sent::Missing]);
        assert_eq!(rig.uploads.standing(&id).await.unwrap().unwrap().resend, vec![0..=0]);
    }
    if unchecked {
        // By the looks of it alone it is the file that was written.
        assert!(Rig::received(&rig.send(&id, &document, 1).await));
        let [chunk] = &files_of(&spool.join(&id))[..] else { panic!("one chunk, one file") };
        let file = fs::File::options().write(true).open(chunk).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"spoilt", 2 << 20).unwrap();
        file.set_modified(written).unwrap();
        assert_eq!(rig.uploads.ship_once(1).await.unwrap(), vec![Sent::Durable]);
        return;
    }
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

/// Each takes what comes as it comes then, and none may mix it up with another's or with what came before.
async fn with_many_at_once_no_byte_is_lost(place: Place) {
    const MANY: u32 = 20;
    let rig = place.open().await;
    let others = rig.create(&Document::new("silent", 27, 4096)).await;
    let begun = Arc::new(Semaphore::new(0));
    let mut silent = JoinSet::new();
    for _ in 0..MANY {
        let (uploads, id, begun) = (rig.uploads.clone(), others.clone(), Arc::clone(&begun));
        let incoming = Incoming { number: 0, last: Last::No, size: Some(4096), sha256: None };
        let mut told = false;
        let body = stream::poll_fn(move |_| {
            if !std::mem::replace(&mut told, true) {
                begun.add_permits(1);
            }
            Poll::<Option<io::Result<Bytes>>>::Pending
        });
        silent.spawn(async move { uploads.chunk(&id, &incoming, body).await });
    }
    let _all = begun.acquire_many(MANY).await.unwrap();

    let document = Document::new("many", 28, 2_300_000);
    let id = rig.create(&document).await;
    for (number, chunk) in document.chunks.iter().enumerate() {
        let mut bytes = Bytes::copy_from_slice(chunk);
        let mut frames = Vec::new();
        for length in
            [16_384, 0, 1, 16_384, 16_383, 70_001, 1, 1 << 20, 31 << 10, (1 << 20) + 1].iter().cycle()
        {
            if bytes.is_empty() {
                break;
            }
            frames.push(io::Result::Ok(bytes.split_to(bytes.len().min(*length))));
        }
        let took = rig.uploads.chunk(&id, &document.incoming(number), stream::iter(frames)).await.unwrap();
        assert!(Rig::received(&took), "{took:?}");
    }
    silent.shutdown().await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn a_node_with_the_wrong_database_throws_nothing_away(place: Place) {
    let rig = place.open().await;
    let document = Document::new("wrong", 24, SIZE);
    let id = rig.create(&document).await;
    send_all(&rig, &id, &document).await;
    drop(rig);
    let elsewhere = TempDir::new().unwrap();
    let database = format!("sqlite:{}", elsewhere.path().join("empty.db").display());
    let wrong = Place { database, ..place.clone() }.open().await;
    for _ in 0..2 {
        let _ = wrong.uploads.sweep(&mut Cursor::default()).await.unwrap();
    }
    drop(wrong);
    let rig = place.open().await;
    assert_eq!(rig.uploads.standing(&id).await.unwrap().unwrap().state.received(), vec![0..=3]);
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn a_chunk_that_kept_its_first_name_is_not_swept() {
    let folder = TempDir::new().unwrap();
    let rig = Place::in_folder(folder.path(), true).open().await;
    let document = Document::new("named", 25, SIZE);
    let id = rig.create(&document).await;
    assert!(Rig::received(&rig.send(&id, &document, 0).await));
    // Whoever took it died before it had its new name, and the object store is away for hours.
    let old = SystemTime::now() - Duration::from_secs(7200);
    let spool = folder.path().join("spool").join(&id);
    let chunk = fs::read_dir(&spool).unwrap().next().unwrap().unwrap().path();
    let name = chunk.file_name().unwrap().to_str().unwrap().strip_prefix("c-").unwrap();
    let first = spool.join(format!("s-{name}"));
    fs::rename(&chunk, &first).unwrap();
    fs::write(spool.join("s-nobodys"), "x").unwrap();
    for file in [&first, &spool.join("s-nobodys")] {
        fs::File::open(file).unwrap().set_modified(old).unwrap();
    }
    let _ = rig.uploads.sweep(&mut Cursor::default()).await.unwrap();
    assert!(!spool.join("s-nobodys").exists());
    assert_eq!(rig.uploads.ship_once(1).await.unwrap(), vec![Sent::Durable]);
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}

async fn what_a_slow_client_sends_is_staged() {
    use futures_util::{StreamExt as _, stream};
    let folder = TempDir::new().unwrap();
    let place = Place { reservation_ms: 700, ..Place::in_folder(folder.path(), false) };
    let rig = place.open().await;
    let document = Document::new("slow", 26, SIZE);
    let id = rig.create(&document).await;
    let drips = body(&document.chunks[0]).take(1).chain(stream::pending());
    let (uploads, of, incoming) = (rig.uploads.clone(), id.clone(), document.incoming(0));
    let sending = tokio::spawn(async move { uploads.chunk(&of, &incoming, drips).await });
    // What is staged would end by itself while its client fills the first piece of a mebibyte.
    for round in 0.. {
        if !rig.keys("upload:*:staging:*").await.is_empty() {
            break;
        }
        assert!(round < 1000, "nothing is staged");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sending.abort();
    let _ = sending.await;
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
}
