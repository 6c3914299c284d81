//! Backups, and what is there after one was put back.

use std::path::{Path, PathBuf};
use std::process::Command;

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::rights::text_below;
use super::{begin, put_status, run, take};

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn data(s: &Stage) -> PathBuf {
    match s.store() {
        Store::Redis => s.redis(|server| server.folder().join("dump.rdb")),
        Store::Embedded => s.folder().join("quaymaster-data"),
    }
}

/// Takes a backup into a folder of its own, as docs/backup.md says.
fn back_up(s: &Stage) -> PathBuf {
    let backup = s.folder().join("backup");
    std::fs::create_dir(&backup).unwrap();
    match s.store() {
        Store::Redis => {
            s.raw::<()>(&["BGSAVE"]);
            let told = |field: &str| s.redis(|server| server.info("persistence", field)).unwrap();
            s.until("it is saved", || data(s).exists() && told("rdb_bgsave_in_progress") == "0");
            assert_eq!(told("rdb_last_bgsave_status"), "ok");
        }
        Store::Embedded => assert_eq!(s.stop(), 0),
    }
    copy(&data(s), &backup);
    backup
}

/// Loses everything and puts the backup back.
fn restore(s: &Stage, backup: &Path) {
    s.kill();
    let there = data(s);
    let kept = backup.join(there.file_name().unwrap());
    if s.store() == Store::Embedded {
        std::fs::remove_dir_all(&there).unwrap();
        return copy(&kept, &there);
    }
    s.redis(|server| server.kill9());
    std::fs::remove_file(&there).unwrap();
    copy(&kept, &there);
    s.redis(|server| server.restart());
}

fn create(id: &str) -> Value {
    json!({ "psp_transaction_id": id })
}

/// A backup is taken, and more happens after it.
fn backed_up(s: &Stage) -> PathBuf {
    s.settings("[server]\nshutdown_drain = \"1ms\"");
    let psp = json!({"psp_id": "PSP001"});
    run(s, "create", &create("before"), &json!("paid"));
    take(s, "psp", &psp);
    put_status(s);
    let backup = back_up(s);
    run(s, "create", &create("after"), &json!("paid"));
    assert_eq!(take(s, "psp", &psp)["used"], 2);
    backup
}

fn l285_a_backup_is_taken(s: &Stage) {
    let backup = backed_up(s);
    let text = text_below(&backup);
    assert!(
        text.contains("idem:create:before") && !text.contains("idem:create:after"),
        "it is of one moment"
    );
    assert_eq!(begin(s, "create", &create("before"), "f")["outcome"], "finished", "the store goes on");
    if s.store() == Store::Redis {
        let health = s.cli(&["health", "--json"]);
        assert_eq!(health.code, 0, "{health:?}");
    }
}

fn l293_a_backup_is_restored_and_verified(s: &Stage) {
    let backup = backed_up(s);
    restore(s, &backup);
    s.get("/readyz").expect(200);
    assert_eq!(s.cli(&["health"]).code, 0);
    let verified = s.cli(&["clean", "--json"]).json();
    for (name, count) in [("declared", 3), ("stale", 0), ("immortal", 0), ("dangling", 0), ("other_type", 0)]
    {
        assert_eq!(verified[name], count, "{name}: {verified}");
    }
    s.lives("idem:create:before", 86_400);
    let replayed = begin(s, "create", &create("before"), "f");
    assert_eq!((&replayed["outcome"], &replayed["response"]), (&json!("finished"), &json!("paid")));
    // What happened after the backup is not known, as it is said.
    assert_eq!(begin(s, "create", &create("after"), "f")["outcome"], "started");
    let used = s.get("/v1/limit/psp/peek?key.psp_id=PSP001").expect(200)["used"].clone();
    assert!(used == 1 || s.store() == Store::Embedded && used == 0, "{used}");
    // A store of another kind is seen at a glance.
    s.raw::<i64>(&["DEL", "idem:create:before"]);
    s.raw::<i64>(&["HSET", "idem:create:before", "a", "b"]);
    let other = s.cli(&["clean", "--json"]).json();
    assert_eq!(other["other_type"], 1, "{other}");
}

cases! {
    l285_a_backup_is_taken
    l293_a_backup_is_restored_and_verified
}
