//! A disk that takes no more.

use super::child::{Orders, numbers, start};
use super::*;

#[tokio::test]
async fn a_disk_that_fails_stops_the_store_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).await.close().await.unwrap();
    // The child's files may grow to one megabyte; a write beyond fails as on a full disk.
    let said = start(Orders::Fill, dir.path(), Some("trap '' XFSZ; ulimit -f 2048")).end();
    let acknowledged = numbers(&said, "ack");
    assert!(acknowledged.len() > 10, "{said:?}");
    assert!(said["failed"][0].starts_with("store.disk the journal could not be written"), "{said:?}");
    assert_eq!(said["again"], ["store.disk", "store.disk"], "reads would show what is not safe");

    let store = open(dir.path()).await;
    for n in &acknowledged {
        assert!(store.key_facts(format!("fill:{n}").as_bytes()).await.unwrap().is_some(), "fill:{n} is gone");
    }
    let beyond = format!("fill:{}", acknowledged.len() + 1);
    assert_eq!(store.key_facts(beyond.as_bytes()).await.unwrap(), None);
    store.run(call(&SET, &["after"], &["v"])).await.unwrap();
}
