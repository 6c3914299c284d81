//! `<kind> <verb> NAME` for calls other than those of limits, and the seal key.

use serde_json::json;

use crate::process::{Said, Served, any_port, command, folder, run, said};

const SCHEMA: &str = r#"
[schema]
name = "shop"
owner = "checkout"

[cache.page]
key = "page:{id}"
ttl = "1h"

[cache.status]
key = "status:{id}"
type = "hash"
ttl = "1h"

[cache.token]
key = "token:{id}"
ttl = "1h"
sensitive = true

[dedupe.image]
key = "image:{id}"
ttl = "5m"
"#;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn call(folder: &std::path::Path, words: &[&str]) -> Said {
    let mut args = words.to_vec();
    args.extend(["--schema", "shop.toml", "--key", "id=a b"]);
    run(folder, &args)
}

#[test]
fn every_call_is_a_command_and_a_no_ends_with_1() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    let first = call(here, &["dedupe", "first", "image", "--value", "/1.jpg", "--json"]);
    assert_eq!((first.code, first.json()), (0, json!({"first": true})), "{}", first.err);
    let second = call(here, &["dedupe", "first", "image", "--value", "/2.jpg"]);
    assert_eq!((second.code, second.out.as_str()), (1, "first  no\nvalue  /1.jpg\n"));

    assert_eq!(call(here, &["cache", "get", "page"]).code, 1, "a miss");
    let put = call(here, &["cache", "put", "page", "--value", "text", "--ttl-ms", "60000"]);
    assert_eq!((put.code, put.out.as_str()), (0, "stored  yes\n"), "{}", put.err);
    assert_eq!(call(here, &["cache", "put", "page", "--value", "new", "--if-absent"]).code, 1);
    let got = call(here, &["cache", "get", "page"]);
    assert_eq!((got.code, got.out.as_str()), (0, "hit    yes\nvalue  text\n"));
    assert_eq!(call(here, &["cache", "exists", "page"]).code, 0);
    assert_eq!(call(here, &["cache", "delete", "page"]).code, 0);
    assert_eq!(call(here, &["cache", "delete", "page"]).code, 1);

    let fields = r#"{"status":"SUCCESS","amount":100000}"#;
    assert_eq!(call(here, &["cache", "put", "status", "--value", fields]).code, 0);
    let got = call(here, &["cache", "get", "status", "--json"]);
    assert_eq!(got.json(), json!({"hit": true, "value": {"amount": "100000", "status": "SUCCESS"}}));
}

#[test]
fn wrong_fields_are_told_as_the_flags_they_were() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    for (words, part) in [
        (&["cache", "put", "page"][..], "--value"),
        (&["cache", "put", "page", "--value", "v", "--ttl-ms", "0"], "--ttl-ms"),
        (&["cache", "put", "page", "--value", "v", "--ttl-ms", "3600001"], "--ttl-ms must be at most"),
        (&["cache", "put", "status", "--value", "text"], "--value must be an object"),
        (&["cache", "put", "page", "--value", "v", "--request-id", "a*"], "--request-id: 1 to 128 bytes"),
        (&["cache", "get", "pages"], "did you mean \"page\"?"),
        (&["cache", "forget", "page"], "forget"),
        (&["cache"], "Usage"),
    ] {
        let told = call(folder.path(), words);
        assert_eq!(told.code, 2, "{words:?}: {told:?}");
        assert!(told.err.contains(part), "{words:?}: {}", told.err);
    }
}

#[test]
fn fields_come_from_the_environment_too() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let mut put = command(folder.path());
    put.args(["cache", "put", "page"]);
    for (name, value) in [
        ("SCHEMA", "shop.toml"),
        ("KEY", "id=a b"),
        ("VALUE", "from the environment"),
        ("IF_ABSENT", "yes"),
        ("TTL_MS", ""),
    ] {
        put.env(format!("QUAYMASTER_{name}"), value);
    }
    assert_eq!(said(&mut put).code, 0);
    assert_eq!(said(&mut put).code, 1, "if absent");
    assert!(call(folder.path(), &["cache", "get", "page"]).out.contains("from the environment"));
}

#[test]
fn secrets_are_sealed_by_the_key_of_the_environment() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    let token = |verb: &str, more: &[&str], key: &str| {
        let mut run = command(here);
        run.args(["cache", verb, "token", "--schema", "shop.toml", "--key", "id=a"]).args(more);
        said(run.env("QUAYMASTER_SEAL_KEY", key))
    };
    let put = token("put", &["--value", "hunter2-hunter2"], KEY);
    assert_eq!((put.code, put.err.as_str()), (0, ""));
    assert_eq!(token("get", &["--json"], KEY).json()["value"], "hunter2-hunter2");
    let without = token("get", &[], "");
    assert_eq!(without.code, 1, "{without:?}");
    assert!(without.err.contains("[seal.key]"), "{}", without.err);
    let readable = token("put", &["--value", "hunter3"], "");
    assert_eq!(readable.code, 0);
    let told = readable.err.contains("cache.token") && readable.err.contains("QUAYMASTER_SEAL_KEY");
    assert!(told && !readable.err.contains("hunter3"), "{}", readable.err);
    let bad = token("get", &[], "AAEC");
    assert_eq!(bad.code, 2, "{bad:?}");
    assert!(bad.err.contains("QUAYMASTER_SEAL_KEY: seal key 1") && !bad.err.contains("AAEC"), "{}", bad.err);
}

#[test]
fn readable_secrets_are_warned_about_at_start_and_by_health_or_refused() {
    let folder = folder(&[
        ("shop.toml", SCHEMA),
        ("strict.toml", "schemas = [\"shop.toml\"]\n[store]\nrequire_seal_key = true\n"),
    ]);
    let served = Served::start(folder.path(), &["--store", "memory", "--schema", "shop.toml"]);
    assert_eq!(served.ask("GET", "/healthz", "").0, 200);
    let told = served.stop().err;
    assert!(told.contains("cache.token") && told.contains("QUAYMASTER_SEAL_KEY"), "{told}");
    let health = run(folder.path(), &["health", "--store", "memory", "--schema", "shop.toml", "--json"]);
    assert_eq!(health.code, 0, "{health:?}");
    assert!(health.json()["warnings"][0].as_str().unwrap().contains("cache.token"), "{}", health.out);
    let plain = run(folder.path(), &["health", "--store", "memory", "--schema", "shop.toml"]);
    assert!(plain.out.contains("warning") && plain.out.contains("cache.token"), "{}", plain.out);

    let strict = ["--config", "strict.toml", "--store", "memory"];
    let listen = any_port();
    let serve = [&["serve", "--listen", &listen][..], &strict].concat();
    let put = [&["cache", "put", "page", "--key", "id=a", "--value", "v"][..], &strict].concat();
    for args in [&serve, &put] {
        let refused = run(folder.path(), args);
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{refused:?}");
        assert!(
            refused.err.contains("store.require_seal_key") && refused.err.contains("cache.token"),
            "{refused:?}"
        );
    }
    let served = Served::spawn(command(folder.path()).args(&serve).env("QUAYMASTER_SEAL_KEY", KEY));
    let status: serde_json::Value = serde_json::from_str(&served.ask("GET", "/v1/status", "").1).unwrap();
    assert_eq!(status["warnings"], json!([]));
    assert!(!served.stop().err.contains("cache.token"));
}

#[test]
fn a_readable_secret_is_not_believed_where_a_seal_key_is_required() {
    let folder = folder(&[
        ("shop.toml", SCHEMA),
        ("strict.toml", "schemas = [\"shop.toml\"]\n[store]\nrequire_seal_key = true\n"),
    ]);
    let token = |words: &[&str], key: &str| {
        let mut command = command(folder.path());
        command.env("QUAYMASTER_SEAL_KEY", key).args(["cache", words[0], "token", "--key", "id=a"]);
        said(command.args(&words[1..]))
    };
    let (loose, strict) = (["--schema", "shop.toml"], ["--config", "strict.toml"]);
    assert_eq!(token(&[&["put", "--value", "forged"][..], &loose].concat(), "").code, 0);
    assert_eq!(token(&[&["get"][..], &loose].concat(), KEY).out, "hit    yes\nvalue  forged\n");
    let missed = token(&[&["get"][..], &strict].concat(), KEY);
    assert_eq!((missed.code, missed.out.as_str()), (1, "hit  no\n"), "{missed:?}");
    assert_eq!(token(&[&["put", "--value", "ours"][..], &strict].concat(), KEY).code, 0);
    assert_eq!(token(&[&["get"][..], &strict].concat(), KEY).out, "hit    yes\nvalue  ours\n");
}

#[test]
fn values_may_begin_with_a_hyphen() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    let put = call(here, &["cache", "put", "page", "--value", "-1"]);
    assert_eq!((put.code, put.out.as_str()), (0, "stored  yes\n"), "{}", put.err);
    let got = call(here, &["cache", "get", "page", "--json"]);
    assert_eq!(got.json(), json!({"hit": true, "value": "-1"}));
    let words =
        ["dedupe", "first", "image", "--schema", "shop.toml", "--key", "id=-a", "--request-id", "-abc"];
    let first = run(here, &words);
    assert_eq!(first.code, 0, "{}", first.err);
}

#[test]
fn help_says_what_each_verb_does() {
    let folder = folder(&[]);
    for (kind, verb) in [("guard", "enter"), ("lock", "acquire"), ("cache", "get")] {
        let list = run(folder.path(), &[kind, "--help"]);
        assert_eq!(list.code, 0, "{}", list.err);
        assert!(!list.out.contains("Which schema on which store"), "{}", list.out);
        let line = list.out.lines().find(|line| line.trim_start().starts_with(verb)).unwrap().trim();
        let about = line.trim_start_matches(verb).trim();
        let own = run(folder.path(), &[kind, verb, "--help"]);
        assert!(!about.is_empty() && own.out.starts_with(about), "{line:?}: {}", own.out);
    }
}
