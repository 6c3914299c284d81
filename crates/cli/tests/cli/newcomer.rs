//! What somebody meets who has just begun: no schema, no store, no variables; and a store that is not safe.

use serde_json::json;

use crate::process::{SCHEMA, Said, Served, any_port, command, folder, run, said};
use crate::servers::{RedisConfig, RedisServer};

#[test]
fn the_bundled_schemas_are_used_on_redis_only_with_demo() {
    let (folder, server) = (folder(&[("shop.toml", SCHEMA)]), RedisServer::start(RedisConfig::default()));
    let (here, url, listen) = (folder.path(), server.url(), any_port());
    let take = ["limit", "take", "courtlistener", "--store", &url];
    for args in [
        &["serve", "--listen", &listen, "--store", &url][..],
        &["worker", "--store", &url],
        &take,
        &["limit", "peek", "courtlistener", "--store", &url],
        &["clean", "--store", &url],
    ] {
        let told = run(here, args);
        assert_eq!(told.code, 2, "{args:?}: {told:?}");
        assert!(told.err.contains("--schema FILE") && told.err.contains("--demo"), "{args:?}: {told:?}");
    }
    assert_eq!(server.command::<i64>(&["DBSIZE"]), 0, "nothing was written");
    assert_eq!(run(here, &[&take[..], &["--demo"]].concat()).code, 0);
    assert_eq!(said(command(here).args(take).env("QUAYMASTER_DEMO", "1")).code, 0);
    let own = ["limit", "take", "orders", "--store", &url, "--schema", "shop.toml", "--key", "customer=a"];
    assert_eq!(run(here, &own).code, 0, "a schema that is named needs no --demo");
    let served = Served::start(here, &["--store", &url, "--demo"]);
    assert!(served.line.contains("schemas: courtlistener"), "{}", served.line);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn explain_needs_no_store() {
    let folder = folder(&[]);
    let told = run(folder.path(), &["explain", "rl:PSP001:2026-11-15-21-30"]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.out.contains("limit.psp") && told.out.contains("no store was asked"), "{}", told.out);
    let told = run(folder.path(), &["explain", "rl:PSP001:2026-11-15-21-30", "--json"]).json();
    assert_eq!((&told["name"], &told["actual"]), (&json!("psp"), &json!(null)));
    assert_eq!(run(folder.path(), &["explain", "nobody:knows"]).code, 1);
    assert!(!folder.path().join("quaymaster-data").exists(), "and makes none");
    assert_eq!(run(folder.path(), &["limit", "take", "courtlistener"]).code, 0);
    let told = run(folder.path(), &["explain", "rl:PSP001:2026-11-15-21-30", "--json"]).json();
    assert_eq!(told["actual"]["exists"], false, "a store that is there is asked");
}

#[test]
fn check_and_docs_without_a_file_take_the_schemas_that_serve_would() {
    let empty = folder(&[("shop.toml", SCHEMA)]);
    let bundled = run(empty.path(), &["check", "--json"]);
    assert_eq!((bundled.code, &bundled.json()["ok"]), (0, &json!(true)), "{bundled:?}");
    assert!(run(empty.path(), &["docs"]).out.contains("rl:{psp_id}:{minute}"));
    let by_variable = |word| said(command(empty.path()).arg(word).env("QUAYMASTER_SCHEMA", "shop.toml"));
    assert!(by_variable("check").out.starts_with("1 resource, "), "{:?}", by_variable("check"));
    assert!(!by_variable("docs").out.contains("psp_id"));
    // The variables of the server are nobody's business here.
    let toml =
        "schemas = [\"shop.toml\"]\n[server]\nlisten = \"0.0.0.0:7420\"\ntokens = [{ env = \"NOT_SET\" }]\n";
    let configured = folder(&[("shop.toml", SCHEMA), ("quaymaster.toml", toml)]);
    let told = run(configured.path(), &["check"]);
    assert!(told.code == 0 && told.out.starts_with("1 resource, "), "{told:?}");
    assert!(run(configured.path(), &["docs"]).out.contains("orders:{customer}"));
}

#[test]
fn an_unknown_resource_of_the_demonstration_says_how_to_load_a_schema() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let problem = |args: &[&str], name: &str| {
        let served = Served::start(folder.path(), args);
        let path = format!("/v1/limit/{name}/take");
        let (status, body) = served.ask("POST", &path, r#"{"key":{"customer":"a"}}"#);
        assert_eq!(status, 404, "{body}");
        assert_eq!(served.stop().code, 0);
        body
    };
    let forgotten = problem(&["--store", "memory"], "orders");
    assert!(forgotten.contains("demonstration") && forgotten.contains("--schema FILE"), "{forgotten}");
    let loaded = problem(&["--store", "memory", "--schema", "shop.toml"], "oders");
    assert!(loaded.contains("did you mean") && !loaded.contains("--schema"), "{loaded}");
}

#[test]
fn an_unsafe_store_has_one_verdict() {
    let config = RedisConfig::default().line("maxmemory-policy allkeys-lru");
    let (folder, server) = (folder(&[("shop.toml", SCHEMA)]), RedisServer::start(config));
    let (url, listen) = (server.url(), any_port());
    let with = |args: &[&str], more: &[&str]| -> Said {
        let place = ["--schema", "shop.toml", "--store", &url];
        run(folder.path(), &[args, &place, more].concat())
    };
    let verdict = "maxmemory-policy allkeys-lru destroys what the schema holds";
    let take = ["limit", "take", "orders", "--key", "customer=a"];
    for args in [&["serve", "--listen", &listen][..], &take, &["health"], &["health", "--json"]] {
        let told = with(args, &[]);
        assert_eq!(told.code, 3, "{args:?}: {told:?}");
        assert!((told.out.clone() + &told.err).contains(verdict), "{args:?}: {told:?}");
        assert!(!told.err.contains("WARN"), "one message: {args:?}: {told:?}");
    }
    assert_eq!(with(&["health", "--json"], &[]).json()["status"], "unsafe");
    assert_eq!(server.command::<i64>(&["DBSIZE"]), 0, "nothing was counted");
    // Looking endangers nothing.
    assert_eq!(with(&["limit", "peek", "orders", "--key", "customer=a"], &[]).code, 0);
    assert_eq!(with(&take, &["--accept-eviction"]).code, 0);
    let accepted = with(&["health", "--json"], &["--accept-eviction"]);
    assert_eq!((accepted.code, &accepted.json()["status"]), (0, &json!("healthy")), "{accepted:?}");
    assert!(accepted.json()["warnings"].to_string().contains(verdict), "{accepted:?}");
}

#[test]
fn a_store_that_is_away_and_a_full_queue_are_one_message_each() {
    let schema = "[schema]\nname = \"shop\"\nowner = \"shop\"\n[queue.jobs]\nmax_size = 1\n";
    let folder = folder(&[("shop.toml", schema)]);
    let push = |store: &str, more: &[&str]| {
        let args = ["queue", "push", "jobs", "--payload", "1", "--schema", "shop.toml", "--store", store];
        run(folder.path(), &[&args[..], more].concat())
    };
    let away = format!("redis://{}", crate::address::free_address());
    let server = RedisServer::start(RedisConfig::default());
    assert_eq!(push(&server.url(), &[]).code, 0);
    for (store, code, exit) in [(&away, "store.refused", 3), (&server.url(), "queue.full", 1)] {
        let told = push(store, &[]);
        let lines: Vec<&str> = told.err.lines().collect();
        assert_eq!((told.code, told.out.as_str(), lines.len()), (exit, "", 2), "{told:?}");
        assert!(lines[0].starts_with("quaymaster: ") && lines[0].contains(&format!("[{code}]")), "{told:?}");
        assert!(lines[1].starts_with("  help: "), "{told:?}");
        let told = push(store, &["--json"]);
        assert_eq!(
            (told.code, &told.json()["code"], told.err.lines().count()),
            (exit, &json!(code), 2),
            "{told:?}"
        );
    }
}

const VARIABLES: &str = "[schema]\nname = \"shop\"\nowner = \"shop\"\n\
    [limit.plain]\nkey = \"plain:{id}\"\nalgorithm = \"sliding_log\"\nlimit = 3\nwindow = \"1h\"\n\
    [limit.wants]\nkey = \"wants:{id}\"\nalgorithm = \"sliding_log\"\nlimit = { env = \"WANTED\" }\nwindow = \"1h\"\n\
    [guard.both]\nlimits = [\"plain\", \"wants\"]\n\
    [queue.jobs]\nmax_size = 9\npush = { url = { env = \"SHOP_URL\" }, secret = { env = \"SHOP_SECRET\" } }\n";

#[test]
fn a_command_looks_up_only_the_variables_it_needs() {
    let toml = "schemas = [\"shop.toml\"]\n[server]\ntokens = [{ env = \"TOKEN\" }]\n\
        [store]\ndatabase = { env = \"OUTAGE\" }\n\
        [uploads.s3]\naccess_key_id = \"a\"\nsecret_access_key = { env = \"S3_SECRET\" }\n";
    let folder = folder(&[("quaymaster.toml", toml), ("shop.toml", VARIABLES)]);
    let here = folder.path();
    for args in [
        &["queue", "push", "jobs", "--payload", "1"][..],
        &["queue", "claim", "jobs"],
        &["explain", "plain:a"],
        &["health"],
    ] {
        let told = run(here, args);
        assert_eq!(told.code, 0, "{args:?}: {told:?}");
    }
    let take = |name: &str| {
        said(command(here).args(["limit", "take", name, "--key", "id=a"]).env("OUTAGE", "sqlite:o.db"))
    };
    assert_eq!(take("plain").code, 0, "{:?}", take("plain"));
    for (told, part) in [
        (take("wants"), "limit.wants needs the environment variable WANTED"),
        (run(here, &["guard", "enter", "both", "--key", "id=a"]), "OUTAGE"),
        (
            said(
                command(here).args(["guard", "enter", "both", "--key", "id=a"]).env("OUTAGE", "sqlite:o.db"),
            ),
            "guard.both needs the environment variable WANTED",
        ),
        (run(here, &["explain", "wants:a"]), "limit.wants is not looked at: the environment variable WANTED"),
    ] {
        assert!(told.code != 0 && told.err.contains(part), "{part}: {told:?}");
    }
    let serve = said(command(here).args(["serve", "--listen", &any_port()]));
    assert_eq!(serve.code, 2, "{serve:?}");
    for part in ["TOKEN", "OUTAGE", "S3_SECRET"] {
        assert!(serve.err.contains(part), "{part}: {serve:?}");
    }
    let all = [("TOKEN", "0123456789abcdef"), ("OUTAGE", "sqlite:o.db"), ("S3_SECRET", "s")];
    let serve = said(command(here).args(["serve", "--listen", &any_port()]).envs(all));
    assert_eq!(serve.code, 1, "{serve:?}");
    for part in ["WANTED", "SHOP_URL", "SHOP_SECRET"] {
        assert!(serve.err.contains(part), "{part}: {serve:?}");
    }
}

const UPLOADS: &str = "[schema]\nname = \"docs\"\nowner = \"docs\"\n\
    [upload.mine]\nkey = \"mine:{upload_id}:state\"\nchunk_min = \"1B\"\n\
    [upload.theirs]\nkey = \"theirs:{upload_id}:state\"\nobjects = { env = \"BUCKET\" }\n\
    [limit.wants]\nkey = \"wants:{id}\"\nalgorithm = \"sliding_log\"\nlimit = { env = \"WANTED\" }\nwindow = \"1h\"\n";

#[test]
fn upload_put_says_which_store_it_takes_and_looks_up_only_the_variables_of_its_upload() {
    let toml = "schemas = [\"docs.toml\"]\n[server]\ntokens = [{ env = \"TOKEN\" }]\n[store]\ndatabase = { env = \"OUTAGE\" }\n";
    let folder = folder(&[("quaymaster.toml", toml), ("docs.toml", UPLOADS), ("a.bin", "content")]);
    let put = |more: &[&str]| run(folder.path(), &[&["upload", "put", "a.bin"], more].concat());
    let told = put(&["--resource", "mine"]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.err.contains("store: embedded in") && told.err.contains("--store"), "{told:?}");
    let named = put(&["--resource", "mine", "--store", "embedded"]);
    assert!(named.code == 0 && !named.err.contains("store: embedded in"), "{named:?}");
    let wants = put(&["--resource", "theirs"]);
    assert!(
        wants.code != 0 && wants.err.contains("upload.theirs needs the environment variable BUCKET"),
        "{wants:?}"
    );
    // Which upload is meant does not depend on what is set.
    let several = put(&[]);
    assert!(
        several.code != 0 && several.err.contains("name one of mine, theirs with --resource"),
        "{several:?}"
    );
}

const PUSHING: &str = "[schema]\nname = \"shop\"\nowner = \"shop\"\n[queue.jobs]\nmax_size = 9\nlease = \"1h\"\n\
    push = { url = \"http://127.0.0.1:9/\" }\n";

#[test]
fn each_dead_letter_and_a_push_that_nobody_works_on_are_one_line() {
    let folder = folder(&[("shop.toml", PUSHING)]);
    let here = folder.path();
    let served = Served::start(here, &["--schema", "shop.toml"]);
    for payload in ["1", "2"] {
        served.take("/v1/queue/jobs/push", &json!({"payload": payload}).to_string());
    }
    let jobs = served.take("/v1/queue/jobs/claim", r#"{"count": 2}"#);
    let lease = |at: usize| jobs["jobs"][at]["lease"].as_str().unwrap().to_owned();
    let gone = json!({"lease": lease(0), "error": "no such customer", "dead": true});
    assert_eq!(served.take("/v1/queue/jobs/nack", &gone.to_string())["outcome"], "dead");
    let by_hand = run(
        here,
        &["queue", "nack", "jobs", "--schema", "shop.toml", "--lease", &lease(1), "--error", "e", "--dead"],
    );
    assert!(by_hand.code == 0 && !by_hand.err.contains("dead letter"), "{by_hand:?}");
    let log = served.stop().err;
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("a job is a dead letter now"), 1, "{log}");
    assert!(log.contains("no such customer"), "{log}");
    assert_eq!(lines("this server sends nothing"), 1, "{log}");
    let log = Served::start(here, &["--schema", "shop.toml", "--workers"]).stop().err;
    assert!(!log.contains("this server sends nothing"), "{log}");
}
