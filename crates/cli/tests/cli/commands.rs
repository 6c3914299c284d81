//! `check`, `docs`, `explain`, `health`, `limit`, and how they end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Value, json};

use crate::process::{SCHEMA, command, folder, run, said};
use crate::servers::{RedisConfig, RedisServer};

#[test]
fn check_names_every_problem_with_its_place_and_ends_with_1() {
    let folder = folder(&[("good.toml", SCHEMA), ("bad.toml", FLAWED), ("binary.toml", "")]);
    let good = run(folder.path(), &["check", "good.toml"]);
    assert_eq!((good.code, good.out.as_str()), (0, "1 resource, 0 errors, 0 warnings\n"));
    let told = run(folder.path(), &["check", "good.toml", "bad.toml"]);
    assert_eq!(told.code, 1);
    assert!(told.out.contains("bad.toml:6:") && told.out.contains("bad.toml:8:"), "{}", told.out);
    assert!(told.out.contains("error[") && told.out.contains("algorithm"), "{}", told.out);
    let told = run(folder.path(), &["check", "bad.toml", "--json"]);
    assert_eq!((told.code, &told.json()["ok"]), (1, &json!(false)));
    let problem = &told.json()["problems"][0];
    assert_eq!((&problem["file"], &problem["severity"]), (&json!("bad.toml"), &json!("error")));
    assert!(problem["line"].is_u64() && problem["code"].is_string());
    assert_eq!(run(folder.path(), &["check", "nowhere.toml"]).code, 2);
    std::fs::write(folder.path().join("binary.toml"), b"a = \"\xff\"").unwrap();
    let binary = run(folder.path(), &["check", "binary.toml"]);
    assert_eq!(binary.code, 2);
    assert!(binary.err.contains("not UTF-8 at byte 5"), "{}", binary.err);
}

const FLAWED: &str = "[schema]\nname = \"x\"\n\n[limit.a]\nkey = \"a:{id}\"\nalgoritm = \"fixed_window\"\nlimit = 1\n\
                      window = \"6 parsecs\"\n";

#[test]
fn a_schema_with_errors_is_a_problem_document_that_has_each_of_them() {
    let folder = folder(&[("bad.toml", FLAWED)]);
    let take = ["limit", "take", "a", "--key", "id=a", "--store", "memory", "--schema", "bad.toml"];
    for words in [&take[..], &["docs", "bad.toml"], &["serve", "--schema", "bad.toml"]] {
        let told = run(folder.path(), &[words, &["--json"]].concat());
        let problem = told.json();
        assert_eq!((told.code, &problem["code"]), (1, &json!("config.invalid")), "{told:?}");
        let listed = problem["errors"].as_array().unwrap();
        assert_eq!(problem["detail"], format!("the schema has {} errors", listed.len()), "{told:?}");
        let lines: Vec<&Value> = listed.iter().map(|error| &error["line"]).collect();
        assert!(lines.contains(&&json!(6)) && lines.contains(&&json!(8)), "{problem}");
        for error in listed {
            assert!(error["code"].is_string() && error["file"] == "bad.toml", "{problem}");
            let message = error["message"].as_str().unwrap();
            assert!(told.err.contains(message), "the same as in words: {told:?}");
        }
    }
}

#[test]
fn every_command_tells_an_error_as_a_problem_document() {
    let folder = folder(&[("schema.toml", "mine")]);
    let id = "6f1c4b1d8e2a4c0f9b7d3e5a1c2b4d6f";
    let nowhere = ["--schema", "nowhere.toml"];
    for (words, more, code) in [
        (&["event", "stream", "nowhere", "--store", "memory"][..], &[][..], "resource.unknown"),
        (&["upload", "content", "nowhere", "--upload-id", id, "--store", "memory"], &[], "resource.unknown"),
        (&["upload", "progress", "nowhere", "--upload-id", id, "--store", "memory"], &[], "resource.unknown"),
        (
            &["upload", "put", "schema.toml", "--resource", "nowhere"],
            &["--store", "memory"],
            "resource.unknown",
        ),
        (&["upload", "doctor", "--resource", "nowhere"], &["--store", "memory"], "resource.unknown"),
        (&["check", "nowhere.toml"], &[], "config.invalid"),
        (&["docs", "nowhere.toml"], &[], "config.invalid"),
        (&["init"], &[], "config.invalid"),
        (&["serve"], &nowhere, "config.invalid"),
        (&["worker"], &nowhere, "config.invalid"),
        (&["health"], &nowhere, "config.invalid"),
        (&["clean"], &nowhere, "config.invalid"),
        (&["clean"], &["--data-dir", "nowhere"], "store.refused"),
        (&["respell"], &nowhere, "config.invalid"),
        (&["explain", "a"], &nowhere, "config.invalid"),
        (&["describe"], &["--speed"], "request.invalid"),
        (&["openapi"], &["--speed"], "request.invalid"),
        (&["schema"], &[], "request.invalid"),
    ] {
        let told = run(folder.path(), &[words, more, &["--json"]].concat());
        assert!(told.code >= 2, "{words:?}: {told:?}");
        assert_eq!(told.json()["code"], code, "{words:?}: {told:?}");
    }
}

#[test]
fn describe_tells_every_verb_in_words_and_as_json() {
    let folder = folder(&[]);
    let (words, json) = (run(folder.path(), &["describe"]), run(folder.path(), &["describe", "--json"]));
    assert_eq!((words.code, json.code, &*words.err, &*json.err), (0, 0, "", ""));
    let mut told = 0;
    let json = json.json();
    for kind in json["kinds"].as_array().unwrap() {
        let verbs = kind["verbs"].as_array().unwrap();
        for verb in verbs {
            assert!(verb["role"].is_string() && verb["fields"].is_array(), "{verb}");
            let by_path = verb["path"].as_str().unwrap();
            assert!(by_path.starts_with(&format!("/v1/{}/", kind["kind"].as_str().unwrap())), "{verb}");
        }
        // Streams, chunks and the like are no calls with a table of fields.
        let head = format!("{}: {}\n", kind["kind"].as_str().unwrap(), kind["about"].as_str().unwrap());
        let Some((_, below)) = words.out.split_once(&head) else { continue };
        for line in below.lines().take_while(|line| line.starts_with("  ")) {
            let word = line.trim_start().split([' ', ':']).next().unwrap();
            assert!(verbs.iter().any(|verb| verb["verb"] == word), "{line}");
            told += 1;
        }
    }
    assert_eq!(told, words.out.lines().filter(|line| line.starts_with("  ")).count(), "{}", words.out);
    assert!(told > 40 && words.out.contains("  take key [cost] [request_id]: "), "{}", words.out);
}

#[test]
fn the_help_lists_every_exit_code() {
    let help = run(folder(&[]).path(), &["--help"]).out;
    let codes = help.split("Exit codes: ").nth(1).unwrap();
    let codes: Vec<&str> = codes.split(',').filter_map(|code| code.split_whitespace().next()).collect();
    assert_eq!(codes, ["0", "1", "2", "3", "4"], "{help}");
}

#[test]
fn docs_print_the_schema_as_markdown() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let told = run(folder.path(), &["docs", "shop.toml"]);
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.out.starts_with('#') && told.out.contains("orders:{customer}"), "{}", told.out);
    let json = run(folder.path(), &["docs", "shop.toml", "--json"]).json();
    assert_eq!(json["markdown"].as_str(), Some(&*told.out));
}

#[test]
fn explain_finds_the_bundled_patterns_and_says_no_to_others() {
    let folder = folder(&[]);
    let told = run(folder.path(), &["explain", "rl:PSP001:2026-11-15-21-30", "--store", "memory"]);
    assert_eq!(told.code, 0, "{}", told.err);
    for part in ["rl:{psp_id}:{minute}", "limit.psp", "psp_id=PSP001", "nothing under it"] {
        assert!(told.out.contains(part), "{part}: {}", told.out);
    }
    let told = run(folder.path(), &["explain", "nobody:knows", "--store", "memory", "--json"]);
    assert_eq!((told.code, &told.json()["pattern"]), (1, &json!(null)));
}

#[test]
fn health_names_the_version_of_redis() {
    let (folder, server) = (folder(&[]), RedisServer::start(RedisConfig::default()));
    let said = server.command::<String>(&["INFO", "server"]);
    let version = said.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap();
    let told = run(folder.path(), &["health", "--store", &server.url(), "--json"]);
    assert_eq!((told.code, &told.json()["redis_version"]), (0, &json!(version)), "{}", told.err);
    let embedded = run(folder.path(), &["health", "--store", "memory", "--json"]);
    assert_eq!(embedded.json()["redis_version"], json!(null));
}

#[test]
fn health_tells_what_the_store_is_and_ends_with_3_when_there_is_none() {
    let folder = folder(&[]);
    let told = run(folder.path(), &["health", "--store", "memory", "--json"]);
    assert_eq!(told.code, 0, "{}", told.err);
    let found = told.json();
    assert_eq!((&found["status"], &found["connected"]), (&json!("healthy"), &json!(true)));
    assert_eq!((&found["product"], &found["success_rate"]), (&json!("embedded"), &json!(1.0)));
    assert_eq!(found["consecutive_failures"], 0);
    assert_eq!((&found["connect_failures"], &found["connect_success_rate"]), (&json!(0), &json!(1.0)));
    assert!(found["connect_attempts"].is_u64(), "{found}");
    assert!(found["latency_us"]["median"].is_u64() && found["version"].is_string(), "{found}");
    let plain = run(folder.path(), &["health", "--store", "memory"]);
    for part in
        ["status", "connected", "version", "connections", "success rate", "consecutive failures", "latency"]
    {
        assert!(plain.out.contains(part), "{part}: {}", plain.out);
    }
    // Port 1 on the loopback is nobody's.
    let away = "redis://:hunter2@127.0.0.1:1?deadline_ms=200";
    for args in [&["health", "--store", away][..], &["health", "--store", away, "--json"]] {
        let told = run(folder.path(), args);
        assert_eq!(told.code, 3, "{told:?}");
        assert!(!told.out.contains("hunter2") && !told.err.contains("hunter2"), "{told:?}");
    }
}

#[test]
fn limit_counts_on_disk_and_ends_with_1_when_the_answer_is_no() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let limit = |verb: &str, more: &[&str]| {
        let mut args = vec!["limit", verb, "orders", "--schema", "shop.toml", "--key", "customer=ann"];
        args.extend_from_slice(more);
        run(folder.path(), &args)
    };
    let first = limit("take", &["--cost", "2", "--request-id", "r1", "--json"]);
    assert_eq!((first.code, &first.json()["used"]), (0, &json!(2)), "{}", first.err);
    assert!(folder.path().join("quaymaster-data").is_dir(), "the default store is embedded, here");
    let again = limit("take", &["--cost", "2", "--request-id", "r1", "--json"]);
    assert_eq!((again.code, &again.json()["used"]), (0, &json!(2)), "a repeated request counts once");
    let over = limit("take", &["--cost", "2"]);
    assert_eq!(over.code, 1);
    assert!(over.out.contains("allowed    no") && over.out.contains("2 of 3"), "{}", over.out);
    assert_eq!(limit("take", &["--cost", "9", "--json"]).json()["retry_after_ms"], json!(null));
    assert_eq!(limit("peek", &[]).code, 0);
    assert_eq!(limit("refund", &["--json"]).json()["used"], 1);
    assert_eq!(limit("reset", &["--json"]).json()["used"], 0);
}

#[test]
fn commands_that_only_look_create_nothing() {
    let folder = folder(&[]);
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for place in ["typo", "empty"] {
        for args in [
            &["health"][..],
            &["health", "--json"],
            &["explain", "rl:tx:a"],
            &["limit", "peek", "transaction", "--key", "transaction_id=a"],
        ] {
            let mut all = args.to_vec();
            all.extend(["--data-dir", place]);
            let told = run(folder.path(), &all);
            assert_eq!(told.code, 3, "{all:?}: {told:?}");
            let text = told.err.clone() + &told.out;
            assert!(text.contains("no data") && text.contains(place), "{all:?}: {told:?}");
        }
    }
    assert!(!folder.path().join("typo").exists() && std::fs::read_dir(&empty).unwrap().next().is_none());
}

#[test]
fn flags_in_the_environment_are_yes_no_or_not_set() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let check =
        |json: &str| said(command(folder.path()).args(["check", "shop.toml"]).env("QUAYMASTER_JSON", json));
    for yes in ["1", "true", "yes"] {
        assert_eq!(check(yes).json()["ok"], true, "{yes}");
    }
    for no in ["0", "false", "no", ""] {
        assert_eq!(check(no).out, "1 resource, 0 errors, 0 warnings\n", "{no:?}");
    }
    let wrong = check("maybe");
    assert_eq!(wrong.code, 2, "{wrong:?}");
    let mut health = command(folder.path());
    health.args(["health", "--store", "memory"]);
    for name in ["CONFIG", "LOG", "LOG_FORMAT", "SCHEMA", "DATA_DIR", "DURABILITY", "JSON", "STORE"] {
        health.env(format!("QUAYMASTER_{name}"), "");
    }
    let told = said(&mut health);
    assert_eq!(told.code, 0, "{told:?}");
}

#[test]
fn one_placeholder_has_one_value() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let told = run(
        folder.path(),
        &["limit", "take", "orders", "--schema", "shop.toml", "--key", "customer=a", "--key", "customer=b"],
    );
    assert_eq!(told.code, 2, "{told:?}");
    assert!(told.err.contains("[request.invalid]") && told.err.contains("twice"), "{}", told.err);
    assert!(!folder.path().join("quaymaster-data").exists(), "refused before anything is opened");
}

#[test]
fn bad_arguments_end_with_2_and_say_which() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let take = ["limit", "take", "orders", "--schema", "shop.toml", "--store", "memory"];
    for (more, part) in [
        (&["--key", "customer"][..], "PLACEHOLDER=VALUE"),
        (&["--key", "customer=ann", "--cost", "0"], "--cost"),
        (&["--key", "customer=ann", "--cost", "many"], "--cost"),
        (&["--key", "customer=a*"], "customer"),
        (&["--key", "customer=ann", "--key", "customer=ben"], "customer"),
        (&["--key", "custmer=ann"], "customer"),
        (&[], "customer"),
        (&["--key", "customer=ann", "--store", "tape"], "embedded"),
        (&["--key", "customer=ann", "--speed"], "--speed"),
    ] {
        let mut args = take.to_vec();
        if more.contains(&"--store") {
            args.truncate(args.len() - 2);
        }
        args.extend_from_slice(more);
        let told = run(folder.path(), &args);
        assert_eq!(told.code, 2, "{more:?}: {told:?}");
        assert!(told.err.contains(part), "{more:?}: {}", told.err);
    }
    let unknown =
        run(folder.path(), &["limit", "take", "oders", "--schema", "shop.toml", "--store", "memory"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("did you mean \"orders\"?"), "{}", unknown.err);
    let raw = said(command(folder.path()).args(["limit", "take"]).arg(OsStr::from_bytes(b"\xff")));
    assert_eq!(raw.code, 2);
    assert!(raw.err.contains("UTF-8"), "{}", raw.err);
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let script =
        format!("{} docs shop.toml | true; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_quaymaster"));
    let told = said(std::process::Command::new("bash").args(["-c", &script]).current_dir(folder.path()));
    assert_eq!((told.out.as_str(), told.err.as_str()), ("0\n", ""));
}

#[test]
fn openapi_and_version_need_nothing() {
    let folder = folder(&[]);
    let told = run(folder.path(), &["openapi"]);
    assert_eq!((told.code, &told.json()["info"]["title"]), (0, &json!("Quaymaster")));
    assert!(run(folder.path(), &["--version"]).out.starts_with("quaymaster "));
}
