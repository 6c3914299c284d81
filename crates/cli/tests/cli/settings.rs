//! `quaymaster.toml`: what it decides, and everything that can be wrong with it.

use serde_json::json;

use crate::process::{SCHEMA, Served, command, folder, run, said};

#[test]
fn the_file_of_the_folder_is_read_and_paths_are_meant_from_it() {
    let toml = "schemas = [\"shop.toml\"]\n[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"embedded\"\ndata_dir = \"data\"\ndurability = \"everysec\"\n";
    let folder = folder(&[("quaymaster.toml", toml), ("shop.toml", SCHEMA)]);
    let served = Served::spawn(command(folder.path()).arg("serve"));
    assert!(served.line.contains("data, schemas: shop)"), "{}", served.line);
    assert_eq!(served.take("/v1/limit/orders/take", r#"{"key":{"customer":"a"}}"#)["used"], 1);
    let status: serde_json::Value = serde_json::from_str(&served.ask("GET", "/v1/status", "").1).unwrap();
    assert_eq!(status["store"]["persistence"], "everysec");
    assert_eq!(served.stop().code, 0);
    let elsewhere = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("quaymaster.toml");
    let told = run(
        elsewhere.path(),
        &["limit", "peek", "orders", "--key", "customer=a", "--json", "--config", config.to_str().unwrap()],
    );
    assert_eq!((told.code, &told.json()["used"]), (0, &json!(1)), "{}", told.err);
    let flag = run(
        folder.path(),
        &["limit", "peek", "orders", "--key", "customer=a", "--json", "--store", "memory"],
    );
    assert_eq!(flag.json()["used"], 0, "a flag wins over the file");
}

#[test]
fn every_problem_is_told_at_once_with_its_line() {
    let toml = r#"schema = ["a"]
[server]
listn = "x"
max_body_bytes = "3 bags"
max_json_depth = 5000
request_timeout = 7
tokens = [{ env = "NOT_SET" }, "plain"]
[store]
url = "redis://user:hunter2@db"
password = "hunter2"
durability = "sometimes"
[store.pools.ratelimt]
size = 0
[store.pools.cache]
size = 0
[thresholds]
memory = 1.5
"#;
    let folder = folder(&[("quaymaster.toml", toml)]);
    let told = run(folder.path(), &["health"]);
    assert_eq!(told.code, 2, "{told:?}");
    for (line, part) in [
        (1, "did you mean `schemas`?"),
        (3, "did you mean `listen`?"),
        (4, "server.max_body_bytes"),
        (5, "server.max_json_depth"),
        (6, "server.request_timeout"),
        (7, "NOT_SET"),
        (7, "server.tokens"),
        (9, "store.url"),
        (10, "store.password"),
        (11, "store.durability"),
        (12, "did you mean `ratelimit`?"),
        (15, "store.pools.cache.size"),
        (17, "thresholds.memory"),
    ] {
        let place = format!("quaymaster.toml:{line}:");
        let lines: Vec<&str> = told.err.lines().collect();
        let found = lines.windows(2).any(|pair| pair[0].contains(&place) && pair.join(" ").contains(part));
        assert!(
            found || lines.last().is_some_and(|last| last.contains(&place) && last.contains(part)),
            "{place} {part}: {}",
            told.err
        );
    }
    assert!(!told.err.contains("hunter2"), "{}", told.err);
}

#[test]
fn broken_toml_is_told_with_its_line() {
    let folder = folder(&[("quaymaster.toml", "[server]\nlisten = = \"x\"\n")]);
    let told = run(folder.path(), &["health"]);
    assert_eq!(told.code, 2);
    assert!(told.err.contains("quaymaster.toml:2:"), "{}", told.err);
}

#[test]
fn secrets_come_from_the_environment() {
    let toml = "[server]\nlisten = \"127.0.0.1:0\"\ntokens = [{ env = \"TOKEN\" }]\n[store]\nurl = { env = \"STORE_URL\", default = \"memory\" }\n";
    let folder = folder(&[("quaymaster.toml", toml)]);
    let served = Served::spawn(command(folder.path()).arg("serve").env("TOKEN", "0123456789abcdef"));
    assert_eq!(served.ask("GET", "/metrics", "").0, 401);
    assert_eq!(served.ask("GET", "/healthz", "").0, 200);
    assert_eq!(served.stop().code, 0);
    let short = said(command(folder.path()).args(["serve"]).env("TOKEN", "hunter2"));
    assert_eq!(short.code, 2);
    assert!(short.err.contains("shorter than 16") && !short.err.contains("hunter2"), "{}", short.err);
}
