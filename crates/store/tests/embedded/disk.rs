//! A disk that takes no more, and a folder that goes away.

use std::fs;
use std::time::Duration;

use quaymaster_store::Code;

use super::child::{Orders, numbers, start};
use super::*;

#[tokio::test]
async fn a_disk_that_fails_stops_the_store_until_it_has_space_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).await.close().await.unwrap();
    // The child's files may grow to one megabyte; a write beyond fails as on a full disk.
    let said = start(Orders::Fill, dir.path(), Some("trap '' XFSZ; ulimit -S -f 2048")).end();
    let acknowledged = numbers(&said, "ack");
    assert!(acknowledged.len() > 10, "{said:?}");
    assert!(said["failed"][0].starts_with("store.disk the journal could not be written"), "{said:?}");
    assert_eq!(said["connected"], ["false"]);
    assert_eq!(said["again"], ["store.folder"; 5], "answers would show what is not safe");
    assert_eq!(
        (&said["recovered"][..], &said["heard"][..]),
        (&["true".to_owned()][..], &["after".to_owned()][..])
    );

    let store = open(dir.path()).await;
    for n in &acknowledged {
        assert!(store.key_facts(format!("fill:{n}").as_bytes()).await.unwrap().is_some(), "fill:{n} is gone");
    }
    let beyond = format!("fill:{}", acknowledged.len() + 1);
    assert_eq!(store.key_facts(beyond.as_bytes()).await.unwrap(), None);
    assert_eq!(int(&store, &GET, &["recovered"]).await.unwrap(), 1, "the store went on by itself");
    store.run(call(&SET, &["after"], &["v"])).await.unwrap();
}

#[tokio::test]
async fn an_owner_whose_disk_fails_makes_way_for_a_process_that_can_write() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).await.close().await.unwrap();
    let mut child = start(Orders::FillAndYield, dir.path(), Some("trap '' XFSZ; ulimit -f 2048"));
    child.hear("waiting");
    let store = open(dir.path()).await;
    let heard = tokio::task::spawn_blocking(move || (child.hear("recovered"), child.end()));
    let (recovered, said) = tokio::time::timeout(Duration::from_secs(60), heard).await.unwrap().unwrap();
    assert_eq!((recovered.as_str(), mode(&store).await.as_str()), ("attached", "owner"), "{said:?}");
    assert_eq!(int(&store, &GET, &["recovered"]).await.unwrap(), 1);
    for n in numbers(&said, "ack") {
        assert!(store.key_facts(format!("fill:{n}").as_bytes()).await.unwrap().is_some(), "fill:{n} is gone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_whose_folder_was_replaced_stops_and_leaves_the_new_one_alone() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let old = open(&dir).await;
    assert_eq!(int(&old, &INCR, &["n"]).await.unwrap(), 1);
    fs::remove_dir_all(&dir).unwrap();
    let new = open(&dir).await;
    assert_eq!(mode(&new).await, "owner");
    // Found out within a second or so; from then on there is one owner.
    let attached = async {
        while !old.deployment().await.is_ok_and(|facts| facts.mode == "attached") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), attached).await.unwrap();
    assert_eq!(int(&new, &INCR, &["n"]).await.unwrap(), 1);
    assert_eq!(int(&old, &INCR, &["n"]).await.unwrap(), 2);
}

#[tokio::test]
async fn a_folder_that_is_none_is_called_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = EmbeddedStore::open(&path, EmbeddedOptions::default()).await.unwrap_err();
        assert_eq!(error.code, Code::StoreFolder);
        assert!(error.detail.contains("is a file, not a folder"), "{error}");
    }
}
