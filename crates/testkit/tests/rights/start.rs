//! A user who lacks something is refused at the start, with the rule to add; one who may not ask is not.

use std::sync::Arc;

use quaymaster::schema::{BUNDLED, OWN_PREFIX, Schema, Source, docs, load};
use quaymaster::store::StoreOptions;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::{Code, Engine, Quaymaster, Result};
use quaymaster_server::doctor::Eviction;
use quaymaster_server::open_store;
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig, RedisConfig, RedisServer};

use crate::publish::SCHEMA;
use crate::server;

fn schema(body: &str) -> Arc<Schema> {
    let text = format!("[schema]\nname = \"case\"\nowner = \"tests\"\nprefix = \"case:\"\n{body}");
    Arc::new(load(&[Source { name: "case.toml", text: &text }], &|_| None).schema.unwrap())
}

async fn open(url: &str, schema: Arc<Schema>) -> Result<Arc<dyn Engine>> {
    let options = StoreOptions::Redis(Box::new(RedisOptions::from_url(url).unwrap()));
    open_store(options, schema, Eviction::Refused, Backoff::default()).await
}

/// What `serve` says to a user of these rules.
async fn refused(binary: Binary, rules: &[&str]) -> String {
    let server = server(binary, rules);
    let told = open(&format!("redis://svc:pw@{}", server.address()), schema(SCHEMA)).await;
    let error = told.expect_err("a user who lacks something");
    assert_eq!((error.code, error.code.exit_code()), (Code::StoreUnsafe, 3), "{error}");
    assert_eq!(server.command::<i64>(&["DBSIZE"]), 0, "nothing was written");
    error.detail
}

#[tokio::test]
async fn what_a_user_lacks_is_told_with_the_rule_to_add() {
    for binary in [Binary::Redis7, Binary::Valkey9] {
        let told = refused(binary, &["~*", "&*", "+@all", "-del"]).await;
        assert!(told.contains("the store's user \"svc\" may not run DEL;"), "{told}");
        assert!(told.contains("ACL SETUSER svc +del;"), "{told}");
        let told = refused(binary, &["~*", "resetchannels", "+@all"]).await;
        assert!(told.contains("may not use the channels"), "{told}");
        assert!(told.contains("&{case:lock:*}:wake") || told.contains(":wake"), "{told}");
        let told = refused(binary, &["~case:idem:*", "~{case:*", "~case:{*", "&*", "+@all"]).await;
        assert!(told.contains("~case:lock:*") && told.contains("~quaymaster:*"), "{told}");
        assert!(!told.contains("~case:idem:*"), "{told}");
    }
}

#[tokio::test]
async fn a_program_that_prepares_is_told_what_its_user_lacks() {
    let server = server(Binary::Redis7, &["~*", "&*", "+@all", "-del"]);
    let url = format!("redis://svc:pw@{}", server.address());
    let store = RedisStore::connect(RedisOptions::from_url(&url).unwrap()).await.unwrap();
    let quaymaster = Quaymaster::new(schema(SCHEMA), Arc::new(store));
    let error = quaymaster.prepare().await.expect_err("a user who lacks something");
    assert_eq!(error.code, Code::StoreUnsafe, "{error}");
    assert!(error.detail.contains("allow it: ACL SETUSER svc +del"), "{error}");
    server.command::<()>(&["ACL", "SETUSER", "svc", "+del"]);
    quaymaster.prepare().await.expect("a user with the rule");
}

/// What was refused and is allowed by the rule that was told starts.
#[tokio::test]
async fn the_rule_that_is_told_is_enough() {
    let server = server(Binary::Redis7, &["+@all", "-del", "-pexpire"]);
    let url = format!("redis://svc:pw@{}", server.address());
    let error = open(&url, schema(SCHEMA)).await.expect_err("a user who lacks something");
    let rule = error.detail.split("ACL SETUSER ").nth(1).unwrap().split(';').next().unwrap();
    let words: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(rule.split(' ')).collect();
    server.command::<()>(&words);
    open(&url, schema(SCHEMA)).await.expect("a user with the rule");
}

/// The rules that `docs` prints for a schema, for the user `svc`.
fn documented(schema: &Schema) -> Vec<Vec<String>> {
    let text = docs(schema, OWN_PREFIX);
    let rules = text.lines().filter_map(|line| line.strip_prefix("ACL SETUSER quaymaster "));
    let words = |rule: &str| rule.split(' ').map(|word| word.trim_matches('"').to_owned()).collect();
    let mut rules: Vec<Vec<String>> = rules.map(words).collect();
    rules[0].push(">pw".to_owned());
    rules
}

fn allow(server: &RedisServer, rules: &[Vec<String>]) {
    for rule in rules {
        let words: Vec<&str> =
            ["ACL", "SETUSER", "svc"].into_iter().chain(rule.iter().map(String::as_str)).collect();
        server.command::<()>(&words);
    }
}

#[tokio::test]
async fn the_documented_user_starts_on_every_store() {
    let bundled = BUNDLED.map(|(name, text)| Source { name, text });
    for schema in [schema(SCHEMA), Arc::new(load(&bundled, &|_| None).schema.unwrap())] {
        let rules = documented(&schema);
        for binary in [Binary::Redis62, Binary::Redis7, Binary::Valkey9] {
            let server = RedisServer::start(RedisConfig::of(binary));
            allow(&server, &rules);
            let url = format!("redis://svc:pw@{}", server.address());
            let engine =
                open(&url, schema.clone()).await.unwrap_or_else(|error| panic!("{binary:?}: {error}"));
            engine.ready(std::time::Duration::from_secs(20)).await.unwrap();
        }
    }
    let schema = schema(SCHEMA);
    let cluster = Cluster::start(ClusterConfig::default());
    for node in &cluster.nodes {
        allow(node, &documented(&schema));
    }
    let url = cluster.url().replace("redis+cluster://", "redis+cluster://svc:pw@");
    let engine = open(&url, schema).await.unwrap();
    engine.ready(std::time::Duration::from_secs(20)).await.unwrap();
}

#[tokio::test]
async fn a_user_who_may_not_ask_is_not_refused() {
    // Redis 6.2 cannot be asked; elsewhere this user may not ask.
    let lacking = ["~*", "&*", "+@all", "-del"];
    let silent = ["~*", "&*", "+@all", "-del", "-acl"];
    for (binary, rules) in
        [(Binary::Redis62, &lacking[..]), (Binary::Redis7, &silent[..]), (Binary::Valkey9, &silent[..])]
    {
        let server = server(binary, rules);
        open(&format!("redis://svc:pw@{}", server.address()), schema(SCHEMA)).await.unwrap();
    }
}
