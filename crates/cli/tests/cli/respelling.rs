//! `respell`, and the stores that are refused until it has run.

use redis::Commands as _;
use serde_json::json;

use crate::process::{Served, any_port, folder, run};
use crate::servers::{RedisConfig, RedisServer};

const SHOP: &str = "[schema]\nname = \"shop\"\nowner = \"shop\"\nprefix = \"shop:\"\n\
    [lock.door]\nkey = \"door:{id}\"\nttl = \"1m\"\n\
    [queue.jobs]\nmax_size = 9\npush = { url = \"http://127.0.0.1:9/\" }\n";

fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.sort_unstable();
    keys
}

#[test]
fn a_redis_with_old_names_is_refused_until_they_are_respelled() {
    let (folder, server) = (folder(&[("shop.toml", SHOP)]), RedisServer::start(RedisConfig::default()));
    let url = server.url();
    let with =
        |args: &[&str]| run(folder.path(), &[args, &["--schema", "shop.toml", "--store", &url]].concat());
    let old = ["{shop:door:a}:fence", "{shop:jobs}:meta"];
    let _: i64 = server.command(&["HSET", old[1], "sequence", "7"]);
    let _: String = server.command(&["SET", old[0], "5", "PX", "600000"]);
    let _: String = server.command(&["SET", "{other}:fence", "5"]);
    let listen = any_port();
    let calls: [&[&str]; 4] = [
        &["serve", "--listen", &listen],
        &["worker"],
        &["lock", "acquire", "door", "--key", "id=a"],
        &["queue", "push", "jobs", "--payload", "1"],
    ];
    for call in calls {
        let told = with(call);
        assert_eq!(told.code, 3, "{call:?}: {told:?}");
        for part in ["store.names", old[1], "shop:{shop:jobs}:meta", "quaymaster respell --apply"] {
            assert!(told.err.contains(part), "{call:?}: {part}: {}", told.err);
        }
    }
    for json in [&[][..], &["--json"]] {
        let health = with(&[&["health"], json].concat());
        assert!(health.code == 3 && health.out.contains("unsafe"), "what serve would do: {health:?}");
        for part in ["store.names", old[1], "quaymaster respell --apply"] {
            assert!(health.out.contains(part), "{part}: {health:?}");
        }
    }
    let looked = with(&["respell"]);
    assert_eq!(looked.code, 1, "{looked:?}");
    for part in
        ["old    {shop:door:a}:fence  shop:{shop:door:a}:fence", "old names  2", "nothing was changed"]
    {
        assert!(looked.out.contains(part), "{part}: {}", looked.out);
    }
    assert_eq!(keys(&server), ["{other}:fence", old[0], old[1]], "looking changes nothing");

    // A server that still runs.
    let client = redis::Client::open(url.as_str()).unwrap();
    let mut running = client.get_connection().unwrap();
    let _: String =
        redis::cmd("CLIENT").arg("SETNAME").arg("quaymaster:queue:1").query(&mut running).unwrap();
    let refused = with(&["respell", "--apply"]);
    assert!(refused.code == 3 && refused.err.contains("quaymaster:queue:1"), "{refused:?}");
    assert!(refused.err.contains("nothing was renamed"), "{refused:?}");
    let _: i64 = running.exists(old[0]).unwrap();
    drop(running);
    while server.client_names().iter().any(|name| name == "quaymaster:queue:1") {
        std::thread::yield_now();
    }

    let done = with(&["respell", "--apply", "--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    let told = done.json();
    assert_eq!((&told["renamed"], &told["taken"], &told["complete"]), (&json!(2), &json!(0), &json!(true)));
    assert_eq!((&told["applied"], &told["other_processes"]), (&json!(true), &json!([])));
    assert_eq!(keys(&server), ["shop:{shop:door:a}:fence", "shop:{shop:jobs}:meta", "{other}:fence"]);
    let left: i64 = server.command(&["PTTL", "shop:{shop:door:a}:fence"]);
    assert!((1..=600_000).contains(&left), "{left}");
    assert_eq!(with(&["respell", "--apply"]).code, 0, "once more is nothing");
    assert_eq!(with(&["health"]).code, 0);
    let served = Served::start(folder.path(), &["--schema", "shop.toml", "--store", &url]);
    assert_eq!(served.ask("GET", "/readyz", "").0, 200);
}

#[test]
fn a_name_that_is_taken_and_a_store_that_does_not_say_who_is_there_are_told() {
    let (folder, server) = (folder(&[("shop.toml", SHOP)]), RedisServer::start(RedisConfig::default()));
    for key in ["{shop:door:a}:fence", "shop:{shop:door:a}:fence"] {
        let _: String = server.command(&["SET", key, key]);
    }
    let _: String =
        server.command(&["ACL", "SETUSER", "plain", "on", ">word", "~*", "&*", "+@all", "-client|list"]);
    let url = server.url().replace("redis://", "redis://plain:word@");
    let told = run(folder.path(), &["respell", "--apply", "--schema", "shop.toml", "--store", &url]);
    assert_eq!(told.code, 1, "{told:?}");
    for part in ["taken, left alone  {shop:door:a}:fence", "delete one", "does not say who is connected"] {
        assert!(told.out.contains(part), "{part}: {}", told.out);
    }
    assert_eq!(server.command::<String>(&["GET", "{shop:door:a}:fence"]), "{shop:door:a}:fence");
    assert_eq!(server.command::<String>(&["GET", "shop:{shop:door:a}:fence"]), "shop:{shop:door:a}:fence");
}

#[test]
fn a_data_folder_needs_no_respelling() {
    let folder = folder(&[("shop.toml", SHOP)]);
    let with = |args: &[&str]| run(folder.path(), &[args, &["--schema", "shop.toml"]].concat());
    assert_eq!(with(&["respell"]).code, 3, "there is nothing yet, and looking makes nothing");
    assert_eq!(with(&["lock", "acquire", "door", "--key", "id=a"]).code, 0);
    let told = with(&["respell"]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.out.contains("converted whenever it is opened"), "{}", told.out);
    assert_eq!(with(&["explain", "shop:{shop:door:a}:fence"]).code, 0);
    assert_eq!(with(&["explain", "{shop:door:a}:fence"]).code, 1, "nobody's name any more");
}
