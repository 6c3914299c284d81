//! `clean`: says first, changes when told.

use serde_json::json;

use crate::process::{folder, run};
use crate::servers::{RedisConfig, RedisServer};

/// The declared keys, and the same keys as somebody writes them who lets them live for a year.
const DECLARED: &str = "[schema]\nname = \"shop\"\nowner = \"shop\"\n\
    [limit.calls]\nkey = \"calls:{hour}\"\nalgorithm = \"fixed_window\"\nlimit = 10\nwindow = \"1h\"\nttl = \"2h\"\n";
const CARELESS: &str = "[schema]\nname = \"shop\"\nowner = \"shop\"\n\
    [cache.calls]\nkey = \"calls:{hour_text}\"\nttl = \"8760h\"\n";

#[test]
fn what_is_over_is_shown_first_and_removed_when_told() {
    let folder = folder(&[("shop.toml", DECLARED), ("careless.toml", CARELESS)]);
    let put = run(
        folder.path(),
        &[
            "cache",
            "put",
            "calls",
            "--key",
            "hour_text=2020-01-01_00",
            "--value",
            "7",
            "--schema",
            "careless.toml",
        ],
    );
    assert_eq!(put.code, 0, "{}", put.err);
    let clean = |more: &[&str]| run(folder.path(), &[&["clean", "--schema", "shop.toml"], more].concat());
    for _ in 0..2 {
        let told = clean(&[]);
        assert_eq!(told.code, 0, "{}", told.err);
        assert!(told.out.contains("stale  limit.calls  calls:2020-01-01_00\n"), "{}", told.out);
        assert!(
            told.out.contains("put right         0\nnothing was changed: --apply does\n"),
            "{}",
            told.out
        );
    }
    let told = clean(&["--apply", "--json"]).json();
    assert_eq!((&told["applied"], &told["stale"], &told["done"]), (&json!(true), &json!(1), &json!(1)));
    let finding = &told["findings"][0];
    assert_eq!(
        finding,
        &json!({"key": "calls:2020-01-01_00", "resource": "limit.calls", "role": "limit", "what": "stale", "done": true})
    );
    assert_eq!(clean(&["--json"]).json()["examined"], 0);
}

#[test]
fn what_cannot_be_cleaned_is_said_by_the_exit_code() {
    let folder = folder(&[("shop.toml", DECLARED)]);
    let told = run(folder.path(), &["clean", "--schema", "shop.toml"]);
    assert_eq!(told.code, 3, "there is no store: {}", told.out);
    assert!(!folder.path().join("quaymaster-data").exists(), "and looking makes none");
    let memory = |more: &[&str]| {
        run(folder.path(), &[&["clean", "--schema", "shop.toml", "--store", "memory"], more].concat()).code
    };
    assert_eq!(memory(&[]), 0);
    for wrong in [
        ["--rate", "0"],
        ["--most", "0"],
        ["--from", "no cursor"],
        ["--only", "calls"],
        ["--only", "limit.call"],
        ["--only", "quota.calls"],
    ] {
        assert_eq!(memory(&wrong), 2, "{wrong:?}");
    }
}

#[test]
fn a_walk_that_ends_early_ends_with_4_and_one_that_goes_on_to_the_end_with_0() {
    let (folder, server) = (folder(&[("shop.toml", DECLARED)]), RedisServer::start(RedisConfig::default()));
    // Several pages of keys.
    let fill = "for n = 1, 2000 do redis.call('SET', 'calls:' .. n, 1) end return 1";
    assert_eq!(server.command::<i64>(&["EVAL", fill, "0"]), 1);
    let url = server.url();
    let clean = |more: &[&str]| {
        let whole = ["clean", "--schema", "shop.toml", "--store", &url, "--rate", "1000000", "--most", "1"];
        run(folder.path(), &[&whole[..], more].concat())
    };
    let told = clean(&[]);
    assert!(told.code == 4 && told.out.contains("not all was seen: go on with --from"), "{told:?}");
    let (mut from, mut examined) = (None::<String>, 0);
    loop {
        let more = from.iter().flat_map(|from| ["--from", from.as_str()]);
        let told = clean(&more.chain(["--json"]).collect::<Vec<_>>());
        let report = told.json();
        examined += report["examined"].as_u64().unwrap();
        assert_eq!(told.code, if report["next"].is_null() { 0 } else { 4 }, "{told:?}");
        match report["next"].as_str() {
            Some(next) => from = Some(next.to_owned()),
            None => break,
        }
    }
    assert!(examined >= 2000 && from.is_some(), "{examined} keys, the last from {from:?}");
}
