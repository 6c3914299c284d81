//! Keys of objects below the prefix of a bucket: the same everywhere, also in rows that an older build wrote.

use libtest_mimic::Trial;
use quaymaster_upload::ledger::Step;
use quaymaster_upload::objects::Objects;
use tempfile::TempDir;

use crate::node::{check_done, ship_and_complete};
use crate::rig::{Document, Place, Rig, send_all};
use crate::seaweed::{self, Seaweed};
use crate::trial;

const SIZE: usize = 5 << 20;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("prefix::a_key_is_the_key_in_the_bucket_everywhere", a_key_is_the_key_in_the_bucket_everywhere),
        trial("prefix::uploads_of_an_older_build_go_on", uploads_of_an_older_build_go_on),
    ]
}

/// The key of an upload in the ledger, in its node, in its event and in the store; equal where they are there.
async fn key_of(rig: &Rig, id: &str) -> String {
    let ledger = rig.uploads.ledger();
    let upload = ledger.find(id).await.unwrap().unwrap();
    let node = ledger.node(&upload.node_id).await.unwrap().unwrap();
    assert_eq!(node.s3_key.as_deref(), Some(upload.object_key.as_str()));
    if let Some(event) = ledger.event_of(id).await.unwrap() {
        let payload: serde_json::Value = serde_json::from_str(&event.payload).unwrap();
        assert_eq!(payload["s3_key"], *upload.object_key);
    }
    let shown = rig.uploads.standing(id).await.unwrap().unwrap();
    assert_eq!(shown.state.key, upload.object_key);
    upload.object_key
}

async fn a_key_is_the_key_in_the_bucket_everywhere() {
    let server = Seaweed::start().await;
    let folder = TempDir::new().unwrap();
    let rig = Place::behind(folder.path(), server.address()).open().await;
    let document = Document::new("prefixed", 1, SIZE);
    let id = rig.create(&document).await;
    let key = key_of(&rig, &id).await;
    assert!(key.starts_with("files/connectors/default/"), "{key}");
    send_all(&rig, &id, &document).await;
    ship_and_complete(&rig, &id).await;
    check_done(&rig, &id, &document).await;
    assert_eq!(key_of(&rig, &id).await, key);
    // Whoever knows nothing of the prefix finds the object by that key alone.
    let bucket = Objects::open("s3://quay", &seaweed::options(server.address())).await.unwrap();
    assert_eq!(bucket.head(&key).await.unwrap().unwrap().size, document.size());
}

async fn uploads_of_an_older_build_go_on() {
    let server = Seaweed::start().await;
    let folder = TempDir::new().unwrap();
    let place = Place::behind(folder.path(), server.address());
    let (done, open) = (Document::new("done", 1, SIZE), Document::new("open", 2, SIZE));
    let (done_id, open_id) = {
        let rig = place.open().await;
        let ids = (rig.create(&done).await, rig.create(&open).await);
        send_all(&rig, &ids.0, &done).await;
        ship_and_complete(&rig, &ids.0).await;
        send_all(&rig, &ids.1, &open).await;
        assert_eq!(rig.uploads.ship_once(1).await.unwrap().len(), 1);
        // As an older build has it: the prefix is nowhere but in the bucket.
        for id in [&ids.0, &ids.1] {
            let key = key_of(&rig, id).await;
            rig.uploads.store().rekey(id, &key, key.strip_prefix("files/").unwrap()).await.unwrap();
        }
        ids
    };
    place.run("UPDATE quaymaster_uploads SET object_key = substr(object_key, 7), bare_key = 1").await;
    place.run("UPDATE nodes SET s3_key = substr(s3_key, 7)").await;

    let rig = place.open().await;
    for _ in 0..2 {
        rig.uploads.prefix_keys().await.unwrap();
        assert!(key_of(&rig, &open_id).await.starts_with("files/connectors/"));
    }
    let old = rig.uploads.ledger().find(&done_id).await.unwrap().unwrap();
    assert!(old.object_key.starts_with("files/connectors/") && old.step == Step::Done, "{old:?}");
    assert_eq!(rig.digest(&done_id).await, Some(done.sha256()));
    ship_and_complete(&rig, &open_id).await;
    check_done(&rig, &open_id, &open).await;
    assert_eq!(rig.pending().await, 0);
}
