//! `clean`: says first, changes when told.

use serde_json::json;

use crate::process::{folder, run};

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
