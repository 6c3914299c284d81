//! `database`: nodes that share a limit without the store, in SQLite and in PostgreSQL.

use std::collections::HashSet;

use quaymaster::limit::{self, Charge, Part, Together};
use quaymaster::schema::Outage;
use quaymaster::{DatabaseOptions, Quaymaster, Settings};
use quaymaster_testkit::hammer::{Hammer, HammerConfig};
use quaymaster_testkit::proxy::{Cut, FaultProxy, Way};
use quaymaster_testkit::servers::{PostgresServer, RedisConfig, RedisServer, own_ip};
use tempfile::TempDir;

use crate::scene::{
    DATABASE_DEADLINE, DEADLINE, ID, NAMES, back, carried, counting_in, limits, node, take,
    take_all_there_is, until, used,
};

/// A database, and what keeps it alive.
enum Sql {
    Sqlite(TempDir),
    Postgres(PostgresServer),
}

impl Sql {
    fn both() -> [Self; 2] {
        [Self::Sqlite(tempfile::tempdir().unwrap()), Self::Postgres(PostgresServer::start())]
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("counts.db").display()),
            Self::Postgres(server) => server.url(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }
}

#[tokio::test]
async fn nodes_share_every_limit_to_the_unit_and_the_store_is_told_once() {
    for sql in Sql::both() {
        let mut server = RedisServer::start(RedisConfig::default());
        let schema = limits("database", 10);
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(node(&schema, &server.url(), counting_in(&sql.url())).await);
        }
        server.kill9();
        for name in NAMES {
            let mut allowed = 0;
            for node in &nodes {
                for _ in 0..4 {
                    let (passed, policy) = take(node.limit(name).unwrap()).await;
                    assert_eq!(policy, Some(Outage::Database));
                    allowed += u64::from(passed);
                }
            }
            assert_eq!(allowed, 10, "{name} in {}", sql.name());
        }
        server.restart();
        for node in &nodes {
            carried(node).await;
        }
        for name in NAMES {
            assert_eq!(used(nodes[0].limit(name).unwrap()).await, 10, "{name} from {}", sql.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_that_first_count_at_once_make_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = RedisServer::start(RedisConfig::default());
    let mut rounds = Vec::new();
    for round in 0..20 {
        let url = format!("sqlite:{}", folder.path().join(format!("{round}.db")).display());
        let mut nodes = Vec::new();
        for _ in 0..8 {
            nodes.push(node(&limits("database", 2), &server.url(), counting_in(&url)).await);
        }
        rounds.push(nodes);
    }
    server.kill9();
    for nodes in rounds {
        let first = nodes
            .into_iter()
            .map(|node| tokio::spawn(async move { take(node.limit("fixed_window").unwrap()).await }));
        let mut allowed = 0;
        for first in first.collect::<Vec<_>>() {
            let (passed, policy) = first.await.unwrap();
            assert_eq!(policy, Some(Outage::Database));
            allowed += u64::from(passed);
        }
        assert_eq!(allowed, 2);
    }
}

#[tokio::test]
async fn sixteen_callers_at_once_on_two_nodes_never_go_over() {
    for sql in Sql::both() {
        let mut server = RedisServer::start(RedisConfig::default());
        let schema = limits("database", 40);
        let nodes = [
            node(&schema, &server.url(), counting_in(&sql.url())).await,
            node(&schema, &server.url(), counting_in(&sql.url())).await,
        ];
        server.kill9();
        for name in NAMES {
            let callers: Vec<_> = (0..16)
                .map(|caller| {
                    let limit = nodes[caller % 2].limit(name).unwrap().clone();
                    tokio::spawn(async move {
                        let mut allowed = 0;
                        for _ in 0..5 {
                            // A database that is asked too much may be slow to answer; it never lets more through.
                            if limit.take(ID, Charge::one()).await.is_ok_and(|verdict| verdict.is_allowed()) {
                                allowed += 1;
                            }
                        }
                        allowed
                    })
                })
                .collect();
            let mut allowed = 0;
            for caller in callers {
                allowed += caller.await.unwrap();
            }
            let left = take_all_there_is(nodes[0].limit(name).unwrap(), Outage::Database).await;
            assert_eq!(allowed + left, 40, "{name} in {}", sql.name());
        }
    }
}

#[test]
fn two_processes_share_a_limit_and_the_counts_of_a_dead_one_are_told() {
    for sql in Sql::both() {
        let mut server = RedisServer::start(RedisConfig::default());
        let folder = tempfile::tempdir().unwrap();
        let schema = folder.path().join("schema.toml");
        std::fs::write(&schema, limits("database", 300)).unwrap();
        let config = HammerConfig {
            store: server.url(),
            limit: "sliding_log".into(),
            key: vec![("id".into(), "a".into())],
            deadline: Some(DEADLINE),
            database: Some(sql.url()),
            hold: true,
            ..HammerConfig::default()
        };
        let mut hammers = [0, 1].map(|_| Hammer::start(env!("CARGO_BIN_EXE_limit_hammer"), &schema, &config));
        for hammer in &hammers {
            hammer.wait_ready();
        }
        server.kill9();
        for hammer in &mut hammers {
            hammer.go();
        }
        for hammer in &hammers {
            hammer.wait_limited(20);
        }
        let together = hammers[0].allowed() + hammers[1].allowed();
        assert_eq!(together, 300, "in {}", sql.name());
        // Nobody who counted is left to tell the store.
        for hammer in &mut hammers {
            hammer.kill9();
        }
        server.restart();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let fresh = node(&limits("database", 300), &server.url(), counting_in(&sql.url())).await;
            let limit = fresh.limit("sliding_log").unwrap();
            until("a node that never counted tells the store", async || used(limit).await == 300).await;
            assert_eq!(take(limit).await, (false, None));
        });
    }
}

#[tokio::test]
async fn rows_half_told_by_a_node_that_ended_are_told_once() {
    for sql in Sql::both() {
        let mut server = RedisServer::start(RedisConfig::default());
        let proxy = FaultProxy::start(server.address()).await;
        let schema = limits("database", 10);
        let doomed = node(&schema, &proxy.url(), counting_in(&sql.url())).await;
        server.kill9();
        for name in NAMES {
            let verdict = doomed.limit(name).unwrap().take(ID, Charge::of(3)).await.unwrap();
            assert_eq!(verdict.quota().outage, Some(Outage::Database));
        }
        server.restart();
        // What it tells arrives, and it never learns so: every reply after the first few bytes is cut off.
        let seen = proxy.passed(Way::Request);
        let mut bytes = 100;
        until("it has told something", async || {
            proxy.cut_after(Way::Reply, bytes, Cut::Rst);
            bytes += 50;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let keys: HashSet<String> =
                server.command::<Vec<String>>(&["KEYS", "*req:sql-*"]).into_iter().collect();
            !keys.is_empty() && proxy.passed(Way::Request) > seen
        })
        .await;
        drop(doomed);
        let heirs = [
            node(&schema, &server.url(), counting_in(&sql.url())).await,
            node(&schema, &server.url(), counting_in(&sql.url())).await,
        ];
        for name in NAMES {
            let limit = heirs[0].limit(name).unwrap();
            until("the heirs have told the rest", async || used(limit).await >= 3).await;
        }
        for heir in &heirs {
            heir.outages().settle().await.unwrap();
        }
        for name in NAMES {
            assert_eq!(used(heirs[0].limit(name).unwrap()).await, 3, "{name} from {}", sql.name());
        }
    }
}

#[tokio::test]
async fn a_row_that_was_told_and_never_marked_is_told_again_and_counts_once() {
    let mut server = RedisServer::start(RedisConfig::default());
    let postgres = PostgresServer::start();
    let schema = limits("database", 10);
    let doomed = node(&schema, &server.url(), counting_in(&postgres.url())).await;
    server.kill9();
    for name in NAMES {
        let verdict = doomed.limit(name).unwrap().take(ID, Charge::of(3)).await.unwrap();
        assert_eq!(verdict.quota().outage, Some(Outage::Database));
    }
    server.restart();
    carried(&doomed).await;
    drop(doomed);
    // As a node leaves them that ends between telling the store and noting that it has.
    postgres.ask("UPDATE quaymaster_outage SET carried = carried - 3, sending = 3, batch = batch - 1");
    let heir = node(&schema, &server.url(), counting_in(&postgres.url())).await;
    until("the heir has told them again", async || {
        postgres.ask("SELECT count(*) FROM quaymaster_outage WHERE sending > 0 OR units > carried") == "0"
    })
    .await;
    for name in NAMES {
        assert_eq!(used(heir.limit(name).unwrap()).await, 3, "{name}");
    }
}

#[tokio::test]
async fn a_link_that_comes_and_goes_does_not_hand_out_the_limit_again() {
    for sql in Sql::both() {
        let mut server =
            RedisServer::start(RedisConfig::default().line("appendonly yes").line("appendfsync always"));
        let node = node(&limits("database", 5), &server.url(), counting_in(&sql.url())).await;
        for round in 0..2 {
            server.kill9();
            for name in NAMES {
                let limit = node.limit(name).unwrap();
                until("the store is away", async || limit.peek(ID).await.unwrap().quota().outage.is_some())
                    .await;
                let expected = if round == 0 { 5 } else { 0 };
                assert_eq!(
                    take_all_there_is(limit, Outage::Database).await,
                    expected,
                    "{name}, outage {round}"
                );
            }
            server.restart();
            back(&node).await;
            carried(&node).await;
            for name in NAMES {
                assert_eq!(used(node.limit(name).unwrap()).await, 5, "{name}, outage {round}");
            }
        }
    }
}

#[tokio::test]
async fn a_repeated_request_counts_once_and_what_is_given_back_is_not_told() {
    for sql in Sql::both() {
        let mut server = RedisServer::start(RedisConfig::default());
        let schema = limits("database", 10);
        let one = node(&schema, &server.url(), counting_in(&sql.url())).await;
        let other = node(&schema, &server.url(), counting_in(&sql.url())).await;
        server.kill9();
        for name in NAMES {
            for node in [&one, &other, &one] {
                let limit = node.limit(name).unwrap();
                let verdict = limit.take(ID, Charge::of(4).request_id("again")).await.unwrap();
                assert!(verdict.is_allowed() && verdict.quota().used == 4, "{name}: {verdict:?}");
            }
            let limit = other.limit(name).unwrap();
            assert_eq!(limit.refund(ID, Charge::of(1)).await.unwrap().quota().used, 3, "{name}");
            let refused = limit.refund(ID, Charge::of(1).request_id("again")).await.unwrap_err();
            assert_eq!(refused.code, quaymaster::Code::RequestReused, "{name}");
        }
        server.restart();
        carried(&one).await;
        carried(&other).await;
        for name in NAMES {
            assert_eq!(used(one.limit(name).unwrap()).await, 3, "{name} from {}", sql.name());
        }
    }
}

async fn both_away(node: &Quaymaster) {
    let asked = node.limit("fixed_window").unwrap().take(ID, Charge::one());
    let error = tokio::time::timeout((DEADLINE + DATABASE_DEADLINE) * 2, asked).await.unwrap().unwrap_err();
    assert_eq!(error.code.http_status(), 503);
    assert!(
        error.detail.contains("the database") && error.detail.contains(&own_ip().to_string()),
        "both causes: {error}"
    );
}

#[tokio::test]
async fn when_the_database_is_away_too_the_error_names_both_and_it_recovers_by_itself() {
    let mut server = RedisServer::start(RedisConfig::default());
    let mut postgres = PostgresServer::start();
    let proxy = FaultProxy::start(postgres.address()).await;
    let node =
        node(&limits("database", 9), &server.url(), counting_in(&postgres.url_at(proxy.address()))).await;
    let limit = node.limit("fixed_window").unwrap();
    server.kill9();
    assert_eq!(take(limit).await, (true, Some(Outage::Database)));
    postgres.stop();
    both_away(&node).await;
    postgres.start_again();
    until("it counts again", async || limit.take(ID, Charge::one()).await.is_ok()).await;
    proxy.silence();
    both_away(&node).await;
    proxy.heal();
    until("it counts again", async || limit.take(ID, Charge::one()).await.is_ok()).await;
    server.restart();
    carried(&node).await;
    let counted: u64 = postgres.ask("SELECT sum(units) FROM quaymaster_outage").parse().unwrap();
    assert_eq!(used(limit).await, counted);
    assert!(
        (3..=5).contains(&counted),
        "a call whose answer was lost may have counted, none counted twice: {counted}"
    );
}

#[tokio::test]
async fn without_a_database_the_limit_refuses_and_says_why() {
    let mut server = RedisServer::start(RedisConfig::default());
    let node = node(&limits("database", 9), &server.url(), quaymaster::Settings::default()).await;
    server.kill9();
    let error = node.limit("fixed_window").unwrap().take(ID, Charge::one()).await.unwrap_err();
    assert!(error.detail.contains("no database is configured"), "{error}");
}

#[tokio::test]
async fn several_limits_each_answer_by_their_own_policy_and_all_or_none_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = RedisServer::start(RedisConfig::default());
    let schema = limits("local", 5)
        .replace("key = \"local:sliding_log:{id}\"", "key = \"sl:{id}\"")
        .replacen("on_outage = \"local\"", "on_outage = \"allow\"", 1)
        .replace("[limit.bucket]", "[limit.shared]\nkey = \"shared:{id}\"\nalgorithm = \"fixed_window\"\nlimit = 2\nwindow = \"1h\"\non_outage = \"database\"\n[limit.strict]\nkey = \"strict:{id}\"\nalgorithm = \"fixed_window\"\nlimit = 2\nwindow = \"1h\"\n[limit.bucket]");
    let url = format!("sqlite:{}", folder.path().join("counts.db").display());
    let node = node(&schema, &server.url(), counting_in(&url)).await;
    server.kill9();
    let part = |name: &str| Part { limit: node.limit(name).unwrap(), key: ID, cost: 1 };
    // allow, local, database
    let parts = [part("fixed_window"), part("sliding_log"), part("shared")];
    for _ in 0..2 {
        let Together::Allowed(quotas) = limit::take_all(&parts, None).await.unwrap() else {
            panic!("room for two")
        };
        let policies: Vec<_> = quotas.iter().map(|quota| quota.outage).collect();
        assert_eq!(policies, [Some(Outage::Allow), Some(Outage::Local), Some(Outage::Database)]);
    }
    for _ in 0..5 {
        let Together::Limited(verdicts) = limit::take_all(&parts, None).await.unwrap() else {
            panic!("no third")
        };
        let allowed: Vec<_> = verdicts.iter().map(limit::Verdict::is_allowed).collect();
        assert_eq!(allowed, [true, true, false]);
    }
    assert_eq!(
        node.limit("sliding_log").unwrap().peek(ID).await.unwrap().quota().used,
        2,
        "the rest was given back"
    );
    let strict = [part("sliding_log"), part("strict")];
    assert!(limit::take_all(&strict, None).await.is_err(), "one that may not answer refuses for all");
    assert_eq!(node.limit("sliding_log").unwrap().peek(ID).await.unwrap().quota().used, 2);
}

#[tokio::test]
async fn two_stores_on_one_database_never_see_each_others_counts() {
    for sql in Sql::both() {
        let schema = limits("database", 10);
        let mut servers = [0, 1].map(|_| RedisServer::start(RedisConfig::default()));
        let mut nodes = Vec::new();
        for server in &servers {
            let database = DatabaseOptions::from_url(&sql.url()).unwrap().for_store(&server.url());
            let settings = Settings { database: Some(database), ..Settings::default() };
            nodes.push(node(&schema, &server.url(), settings).await);
        }
        for server in &mut servers {
            server.kill9();
        }
        for name in NAMES {
            for (node, units) in nodes.iter().zip([7, 4]) {
                let limit = node.limit(name).unwrap();
                let charge = Charge::of(units).request_id("the-same");
                let verdict = limit.take(ID, charge).await.unwrap();
                let seen = (verdict.is_allowed(), verdict.quota().used);
                assert_eq!(seen, (true, units), "{name} in {}", sql.name());
            }
        }
        for server in &mut servers {
            server.restart();
        }
        for (node, units) in nodes.iter().zip([7, 4]) {
            carried(node).await;
            for name in NAMES {
                assert_eq!(used(node.limit(name).unwrap()).await, units, "{name} from {}", sql.name());
            }
        }
    }
}
