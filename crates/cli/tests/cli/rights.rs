//! Users of a Redis who lack something: a command that changes is refused before it has done half of it.

use std::collections::BTreeMap;

use crate::process::{folder, run};
use crate::servers::{RedisConfig, RedisServer};

const SCHEMA: &str = "[schema]\nname = \"shop\"\nowner = \"shop\"\n\
    [idempotency.pay]\nkey = \"idem:{id}\"\nttl = \"1h\"\n\
    [lock.account]\nkey = \"lock:{account}\"\nttl = \"1m\"\n\
    [guard.pay]\nidempotency = \"pay\"\nlock = \"account\"\n\
    [dedupe.seen]\nkey = \"seen:{id}\"\nttl = \"1h\"\n";

/// Every key with what it holds.
fn keyspace(server: &RedisServer) -> BTreeMap<String, Vec<u8>> {
    let keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.into_iter()
        .map(|key| {
            let held = server.command(&["DUMP", &key]);
            (key, held)
        })
        .collect()
}

#[test]
fn a_command_whose_user_lacks_del_ends_with_3_and_changes_nothing() {
    let (folder, server) = (folder(&[("shop.toml", SCHEMA)]), RedisServer::start(RedisConfig::default()));
    let may = |rules: &[&str]| server.command::<()>(&[&["ACL", "SETUSER", "svc"], rules].concat());
    may(&["on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("redis://svc:pw@{}", server.address());
    let quaymaster = |args: &[&str]| {
        run(folder.path(), &[args, &["--schema", "shop.toml", "--store", &url, "--json"]].concat())
    };
    let keys = ["--key", "id=1", "--key", "account=a"];
    let entered = quaymaster(&[&["guard", "enter", "pay"], &keys[..]].concat());
    assert_eq!(entered.code, 0, "{}", entered.err);
    let token = entered.json()["token"].as_str().unwrap().to_owned();
    let leave = [&["guard", "leave", "pay", "--token", &token, "--response", "1"], &keys[..]].concat();

    may(&["-del"]);
    let before = keyspace(&server);
    assert!(before.contains_key("lock:a"), "{before:?}");
    let refused = quaymaster(&leave);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(
        refused.err.contains("may not run DEL") && refused.err.contains("ACL SETUSER svc +del"),
        "{}",
        refused.err
    );
    assert_eq!(keyspace(&server), before);
    // Other resources need less.
    let told = quaymaster(&["dedupe", "first", "seen", "--key", "id=1"]);
    assert_eq!(told.code, 0, "{}", told.err);

    may(&["+del"]);
    let left = quaymaster(&leave);
    assert_eq!(left.code, 0, "{}", left.err);
    assert!(!keyspace(&server).contains_key("lock:a"));
}
