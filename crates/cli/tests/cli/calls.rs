//! `<kind> <verb> NAME` for calls other than those of limits, and the seal key.

use serde_json::json;

use crate::process::{Said, Served, any_port, command, folder, run, said, said_after};

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
        (
            &["cache", "put", "page", "--value", "v", "--request-id", "a*"],
            "--request-id: 1 to 128 characters",
        ),
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
fn settings_come_from_the_environment_and_fields_of_a_call_do_not() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let mut put = command(folder.path());
    put.args(["cache", "put", "page", "--key", "id=a b", "--value", "typed"]);
    for (name, value) in
        [("SCHEMA", "shop.toml"), ("VALUE", "left behind"), ("IF_ABSENT", "yes"), ("TTL_MS", "1")]
    {
        put.env(format!("QUAYMASTER_{name}"), value);
    }
    assert_eq!(said(&mut put).code, 0);
    assert_eq!(said(&mut put).code, 0, "IF_ABSENT says nothing");
    assert!(call(folder.path(), &["cache", "get", "page"]).out.contains("typed"));
}

#[test]
fn json_comes_from_files_and_standard_input_and_what_only_begins_like_it_is_refused() {
    let folder = folder(&[("shop.toml", SCHEMA), ("value.json", "{\"b\": 1,  \"a\": 2}\n")]);
    let here = folder.path();
    let put = |value: &str| call(here, &["cache", "put", "page", "--value", value]);
    assert_eq!(put("@value.json").code, 0);
    assert!(
        call(here, &["cache", "get", "page"]).out.contains(r#"{"b": 1,  "a": 2}"#),
        "as it is in the file"
    );
    let mut typed = command(here);
    typed.args(["cache", "put", "page", "--schema", "shop.toml", "--key", "id=a b", "--value", "-"]);
    assert_eq!(said_after(&mut typed, "[1, 2]\n").code, 0);
    assert!(call(here, &["cache", "get", "page"]).out.contains("[1, 2]"));
    for wrong in ["{\"a\": 1", "[1,", "\"open", "@nowhere.json"] {
        let refused = put(wrong);
        assert!(refused.code == 2 && refused.err.contains("--value"), "{wrong}: {refused:?}");
    }
    typed.args(["--if-absent"]);
    let empty = said_after(&mut typed, "\n");
    assert!(empty.code == 2 && empty.err.contains("nothing in standard input"), "{empty:?}");
    assert_eq!(put("plain text").code, 0);
    assert!(
        call(here, &["cache", "get", "page"]).out.contains("plain text"),
        "the refused ones changed nothing"
    );
}

#[test]
fn errors_are_problem_documents_where_json_is_asked_for() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let refused =
        call(folder.path(), &["cache", "put", "page", "--value", "1", "--ttl-ms", "999999999999", "--json"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let problem = refused.json();
    assert_eq!(
        (&problem["code"], &problem["field"]),
        (&json!("resource.mismatch"), &json!("--ttl-ms")),
        "{problem}"
    );
    let unknown = call(folder.path(), &["cache", "get", "pag", "--json"]).json();
    assert_eq!(unknown["code"], "resource.unknown", "{unknown}");
    for (words, field, part) in [
        (&["cache", "put", "page", "--value", "{bad"][..], json!("--value"), "--value: it begins like JSON"),
        (&["cache", "put", "page", "--value", "1", "--ttl-ms", "x"], json!("--ttl-ms"), "invalid digit"),
        (&["cache", "put", "page"], json!("--value"), "--value <JSON>"),
        (&["cache", "put", "page", "--valeu", "1"], json!("--valeu"), "'--value'"),
    ] {
        let misused = call(folder.path(), &[words, &["--json"]].concat());
        let problem = misused.json();
        assert_eq!((misused.code, &problem["code"]), (2, &json!("request.invalid")), "{misused:?}");
        assert_eq!(problem["field"], field, "{problem}");
        assert!(problem["detail"].to_string().contains(part), "{problem}");
        assert!(
            !misused.err.contains("Usage: quaymaster [OPTIONS]"),
            "another command's usage: {}",
            misused.err
        );
    }
}

#[test]
fn usage_errors_are_problem_documents_too() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    std::fs::create_dir(here.join("dir")).unwrap();
    std::fs::write(here.join("latin.txt"), b"gr\xfc\xdfe").unwrap();
    let put = ["cache", "put", "page"];
    for (words, field, part) in [
        (&["--value", "@missing"][..], Some("--value"), "--value: cannot read missing"),
        (&["--value", "@dir"], Some("--value"), "--value: cannot read dir"),
        (&["--value", "@latin.txt"], Some("--value"), "UTF-8"),
        (&["--value", "{bad"], Some("--value"), "begins like JSON"),
        (&["--value", "1", "--ttl-ms", "0"], Some("--ttl-ms"), "--ttl-ms"),
        (&["--value", "1", "--ttl-ms", "x"], Some("--ttl-ms"), "--ttl-ms"),
        (&["--value", "1", "--tl-ms", "1"], Some("--tl-ms"), "unexpected argument '--tl-ms'"),
        (&[], Some("--value"), "--value"),
    ] {
        let refused = call(here, &[&put, words, &["--json"]].concat());
        assert_eq!(refused.code, 2, "{words:?}: {refused:?}");
        let problem = refused.json();
        assert_eq!((problem["code"].as_str(), problem["field"].as_str()), (Some("request.invalid"), field));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(part) && !detail.contains("Usage"), "{words:?}: {detail}");
        assert!(refused.err.contains(part), "{words:?}: {}", refused.err);
        assert!(!refused.err.contains("quaymaster [OPTIONS] <COMMAND>"), "{}", refused.err);
    }
    let mut by_variable = command(here);
    by_variable.args(["limit", "take", "x", "--cost", "0"]).env("QUAYMASTER_JSON", "yes");
    assert_eq!(said(&mut by_variable).json()["field"], "--cost");
    let help = run(here, &["cache", "put", "--help", "--json"]);
    assert!(help.code == 0 && help.out.contains("Usage: quaymaster cache put"), "{help:?}");
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let folder =
        folder(&[("shop.toml", SCHEMA), ("bom.json", "\u{feff}{\"a\": 1}\n"), ("bad.json", "\u{feff}{bad")]);
    let here = folder.path();
    let put = call(here, &["cache", "put", "status", "--value", "@bom.json"]);
    assert_eq!((put.code, put.out.as_str()), (0, "stored  yes\n"), "an object: {}", put.err);
    let bad = call(here, &["cache", "put", "page", "--value", "@bad.json"]);
    assert!(bad.code == 2 && bad.err.contains("begins like JSON"), "{bad:?}");
}

#[test]
fn keys_and_parts_of_fields_are_told_as_the_flags_they_were() {
    let schema = format!("{SCHEMA}\n[stats.web]\nkey = \"web:\"\n");
    let folder = folder(&[("shop.toml", &schema)]);
    let told = |words: &[&str]| {
        let said =
            run(folder.path(), &[words, &["--schema", "shop.toml", "--store", "memory", "--json"]].concat());
        assert_eq!(said.code, 2, "{said:?}");
        said.json()["field"].as_str().map(str::to_owned)
    };
    assert_eq!(told(&["cache", "get", "page", "--key", "id=a*"]).as_deref(), Some("--key id"));
    assert_eq!(told(&["cache", "get", "page", "--key", "id=a", "--key", "x=b"]).as_deref(), Some("--key x"));
    assert_eq!(told(&["cache", "get", "page"]).as_deref(), Some("--key id"));
    let request = r#"[{"instance": "0", "method": "GET", "path": "/", "status": "x", "duration_ms": 1}]"#;
    let part = told(&["stats", "record", "web", "--requests", request]);
    assert_eq!(part.as_deref(), Some("--requests[0].status"));
}

#[test]
fn secrets_are_sealed_by_the_key_of_the_environment() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let here = folder.path();
    let token = |verb: &str, more: &[&str], key: &str| {
        let mut run = command(here);
        run.args(["cache", verb, "token", "--store", "embedded", "--schema", "shop.toml", "--key", "id=a"])
            .args(more);
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

#[test]
fn a_store_that_nobody_named_is_told_on_standard_error() {
    let folder = folder(&[("shop.toml", SCHEMA), ("named.toml", "[store]\nurl = \"memory\"\n")]);
    let told = |dir: &str| {
        format!("store: embedded in {dir} (chosen by default; --store or QUAYMASTER_STORE names another)\n")
    };
    let first =
        |more: &[&str]| call(folder.path(), &[&["dedupe", "first", "image", "--json"], more].concat());
    let here = first(&[]);
    assert_eq!((here.code, here.json(), here.err), (0, json!({"first": true}), told("./quaymaster-data")));
    let miss = call(folder.path(), &["cache", "get", "page"]);
    assert_eq!((miss.code, miss.out.as_str(), miss.err), (1, "hit  no\n", told("./quaymaster-data")));
    let elsewhere = first(&["--data-dir", "elsewhere"]);
    assert_eq!((elsewhere.code, elsewhere.err), (0, told("elsewhere")));

    for named in [&["--store", "memory"][..], &["--store", "embedded"], &["--config", "named.toml"]] {
        assert_eq!(first(named).err, "", "{named:?}");
    }
    let mut set = command(folder.path());
    set.args(["cache", "get", "page", "--schema", "shop.toml", "--key", "id=a"]);
    assert_eq!(said(set.env("QUAYMASTER_STORE", "memory")).err, "");
    let served = Served::start(folder.path(), &["--store", "memory", "--schema", "shop.toml"]);
    let server = format!("http://{}", served.address);
    let asked = run(folder.path(), &["cache", "get", "page", "--key", "id=a", "--server", &server]);
    assert_eq!((asked.code, asked.err.as_str()), (1, ""));
    for other in [&["health"][..], &["explain", "image:a"], &["clean"]] {
        assert!(!run(folder.path(), other).err.contains("chosen by default"), "{other:?}");
    }
}

#[test]
fn a_running_server_answers_and_nothing_is_opened_here() {
    let (there, here) = (folder(&[("shop.toml", SCHEMA)]), folder(&[]));
    let served = Served::start(there.path(), &["--store", "memory", "--schema", "shop.toml"]);
    let url = format!("http://{}", served.address);
    let ask = |words: &[&str]| {
        let mut args = words.to_vec();
        args.extend(["--server", &url]);
        run(here.path(), &args)
    };
    let put = ask(&["cache", "put", "page", "--key", "id=a b/ü", "--value", r#"{"b": 1,  "a": 2}"#]);
    assert_eq!((put.code, put.out.as_str()), (0, "stored  yes\n"), "{}", put.err);
    let got = ask(&["cache", "get", "page", "--key", "id=a b/ü", "--json"]);
    assert_eq!(got.json()["value"], r#"{"b": 1,  "a": 2}"#);
    assert_eq!(ask(&["cache", "get", "page", "--key", "id=other"]).code, 1, "a miss");
    let wrong = ask(&["cache", "put", "page", "--key", "id=a", "--value", "1", "--ttl-ms", "999999999999"]);
    assert!(wrong.code == 2 && wrong.err.contains("--ttl-ms"), "{wrong:?}");
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0, "no data folder was made");
    drop(served);
    let gone = ask(&["cache", "get", "page", "--key", "id=a", "--json"]);
    assert_eq!((gone.code, gone.json()["code"].clone()), (3, json!("store.refused")), "{gone:?}");
    let nonsense = run(here.path(), &["cache", "get", "page", "--key", "id=a", "--server", "ftp://x"]);
    assert!(nonsense.code == 2 && nonsense.err.contains("--server"), "{nonsense:?}");
}
