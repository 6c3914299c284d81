//! `local`: this node's share, and what the store knows of it afterwards.

use quaymaster::limit::Charge;
use quaymaster::schema::Outage;
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{Invocation, Workload};
use quaymaster::{Engine, Settings, operations};
use quaymaster_testkit::proxy::{Cut, FaultProxy, Way};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::scene::{
    ID, NAMES, among, back, bind, carried, limits, node, take, take_all_there_is, until, used,
};

#[tokio::test]
async fn shares_never_sum_to_more_than_the_limit_and_come_back_to_the_unit() {
    let mut server = RedisServer::start(RedisConfig::default());
    let schema = limits("local", 10);
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(node(&schema, &server.url(), among(3)).await);
    }
    server.kill9();
    for name in NAMES {
        for node in &nodes {
            assert_eq!(
                take_all_there_is(node.limit(name).unwrap(), Outage::Local).await,
                3,
                "{name}: 10 / 3"
            );
        }
    }
    assert_eq!(nodes[0].outages().uncarried().await.local_keys, NAMES.len() as u64);
    server.restart();
    for node in &nodes {
        carried(node).await;
    }
    for name in NAMES {
        let limit = nodes[0].limit(name).unwrap();
        assert_eq!(used(limit).await, 9, "{name}");
        assert_eq!(take(limit).await, (true, None), "{name}: the tenth");
        assert_eq!(take(limit).await, (false, None), "{name}: no eleventh");
    }
}

#[tokio::test]
async fn a_limit_smaller_than_the_number_of_nodes_lets_nothing_through() {
    let mut server = RedisServer::start(RedisConfig::default());
    let node = node(&limits("local", 2), &server.url(), among(3)).await;
    server.kill9();
    for name in NAMES {
        let limit = node.limit(name).unwrap();
        let verdict = limit.take(ID, Charge::one()).await.unwrap();
        assert!(!verdict.is_allowed() && verdict.retry_after().is_some(), "{name}: the store may come back");
    }
}

#[tokio::test]
async fn the_store_is_told_before_it_is_asked_again() {
    let mut server = RedisServer::start(RedisConfig::default());
    let node = node(&limits("local", 4), &server.url(), among(1)).await;
    server.kill9();
    for name in NAMES {
        assert_eq!(take_all_there_is(node.limit(name).unwrap(), Outage::Local).await, 4, "{name}");
    }
    server.restart();
    // Whoever comes first, a call or the task that looks for the store: nothing more is let through.
    for name in NAMES {
        let limit = node.limit(name).unwrap();
        until("the store refuses", async || take(limit).await == (false, None)).await;
        assert_eq!(limit.counts().allowed(), 4, "{name}");
    }
}

#[tokio::test]
async fn a_link_that_comes_and_goes_does_not_hand_out_the_share_again() {
    let mut server =
        RedisServer::start(RedisConfig::default().line("appendonly yes").line("appendfsync always"));
    let node = node(&limits("local", 6), &server.url(), among(2)).await;
    for round in 0..3 {
        server.kill9();
        for name in NAMES {
            let limit = node.limit(name).unwrap();
            until("the node is on its own", async || limit.peek(ID).await.unwrap().quota().outage.is_some())
                .await;
            let expected = if round == 0 { 3 } else { 0 };
            assert_eq!(take_all_there_is(limit, Outage::Local).await, expected, "{name}, outage {round}");
        }
        server.restart();
        back(&node).await;
        carried(&node).await;
        for name in NAMES {
            assert_eq!(used(node.limit(name).unwrap()).await, 3, "{name}, outage {round}");
        }
    }
}

#[tokio::test]
async fn what_the_store_had_counted_is_added_to_and_not_replaced() {
    let mut server =
        RedisServer::start(RedisConfig::default().line("appendonly yes").line("appendfsync always"));
    let node = node(&limits("local", 10), &server.url(), among(2)).await;
    for name in NAMES {
        for _ in 0..4 {
            assert_eq!(take(node.limit(name).unwrap()).await, (true, None));
        }
    }
    server.kill9();
    for name in NAMES {
        assert_eq!(take_all_there_is(node.limit(name).unwrap(), Outage::Local).await, 5, "{name}");
    }
    server.restart();
    carried(&node).await;
    for name in NAMES {
        assert_eq!(used(node.limit(name).unwrap()).await, 9, "{name}");
    }
}

#[tokio::test]
async fn a_piece_whose_reply_is_lost_is_told_again_and_counts_once() {
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address()).await;
    let node = node(&limits("local", 10), &proxy.url(), among(1)).await;
    // The store must know the scripts before replies are lost: loading one is a reply of its own.
    for name in NAMES {
        assert_eq!(take(node.limit(name).unwrap()).await, (true, None));
    }
    for round in 1..=2 {
        proxy.refuse();
        proxy.cut(Cut::Rst);
        for name in NAMES {
            let limit = node.limit(name).unwrap();
            until("the node is on its own", async || limit.peek(ID).await.unwrap().quota().outage.is_some())
                .await;
            assert_eq!(take(limit).await, (true, Some(Outage::Local)), "{name}");
        }
        proxy.heal();
        // Replies end in the middle again and again while the pieces are told.
        let mut bytes = 40;
        until("everything is told", async || {
            proxy.cut_after(Way::Reply, bytes, Cut::Rst);
            bytes += 25;
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
            node.outages().uncarried().await.local_keys == 0
        })
        .await;
        proxy.heal();
        back(&node).await;
        for name in NAMES {
            assert_eq!(used(node.limit(name).unwrap()).await, 1 + round, "{name}, round {round}");
        }
    }
}

#[tokio::test]
async fn a_repeated_request_counts_once_and_what_is_given_back_is_not_told() {
    let mut server = RedisServer::start(RedisConfig::default());
    let node = node(&limits("local", 10), &server.url(), among(1)).await;
    server.kill9();
    for name in NAMES {
        let limit = node.limit(name).unwrap();
        for _ in 0..3 {
            let verdict = limit.take(ID, Charge::of(4).request_id("again")).await.unwrap();
            assert!(verdict.is_allowed() && verdict.quota().used == 4, "{name}: {verdict:?}");
        }
        let verdict = limit.refund(ID, Charge::of(1)).await.unwrap();
        assert_eq!(verdict.quota().used, 3, "{name}");
        assert!(limit.reset(ID, None).await.is_err(), "only the store can forget what it counted");
    }
    server.restart();
    carried(&node).await;
    for name in NAMES {
        assert_eq!(used(node.limit(name).unwrap()).await, 3, "{name}");
    }
}

#[tokio::test]
async fn what_is_past_its_window_is_dropped() {
    let mut server = RedisServer::start(RedisConfig::default());
    let schema = limits("local", 10).replace("\"1h\"", "\"400ms\"");
    let node = node(&schema, &server.url(), among(1)).await;
    server.kill9();
    for name in ["fixed_window", "sliding_log", "sliding_window", "token_bucket"] {
        let limit = node.limit(name).unwrap();
        let verdict = limit.take(ID, Charge::of(9)).await.unwrap();
        assert!(verdict.is_allowed(), "{name}");
    }
    for name in ["fixed_window", "sliding_log", "sliding_window", "token_bucket"] {
        let limit = node.limit(name).unwrap();
        until("the window is over", async || limit.peek(ID).await.unwrap().quota().used == 0).await;
    }
    server.restart();
    carried(&node).await;
    let keys: Vec<String> = server.command(&["KEYS", "local:*"]);
    assert_eq!(keys, Vec::<String>::new(), "nothing that counts nowhere is written");
}

#[tokio::test]
async fn without_a_number_of_nodes_there_is_one() {
    let mut server = RedisServer::start(RedisConfig::default());
    let node = node(&limits("local", 7), &server.url(), Settings::default()).await;
    server.kill9();
    assert_eq!(take_all_there_is(node.limit("fixed_window").unwrap(), Outage::Local).await, 7);
}

#[tokio::test]
async fn a_store_that_was_never_there_is_told_once_it_comes() {
    let mut server = RedisServer::start(RedisConfig::default());
    let engine =
        quaymaster::store::redis::RedisStore::connect(crate::scene::options(&server.url())).await.unwrap();
    server.kill9();
    let node = bind(&limits("local", 5), std::sync::Arc::new(engine), among(1));
    assert_eq!(take(node.limit("sliding_log").unwrap()).await, (true, Some(Outage::Local)));
    server.restart();
    carried(&node).await;
    assert_eq!(used(node.limit("sliding_log").unwrap()).await, 1);
    let counts: Vec<u64> =
        node.outages().counts().filter(|count| count.1 == "sliding_log").map(|c| c.3).collect();
    assert!(counts[0] >= 1);
}

/// What `limit.add.<algorithm>` says to `args`, and once more under the same id.
async fn add(engine: &dyn Engine, algorithm: &str, id: &str, args: &[&str]) -> String {
    let wanted = format!("limit.add.{algorithm}");
    let operation = operations().iter().find(|operation| operation.script.id == wanted).unwrap();
    let mut call = Invocation::new(&operation.script, Workload::RateLimit).repeat_safe();
    call.keys.push(format!("add:{algorithm}"));
    call.keys.push(format!("{{add:{algorithm}}}:req:{id}"));
    for arg in args {
        call.args.push(arg);
    }
    let mut words = Vec::new();
    for _ in 0..2 {
        let mut parts = engine.run(call.clone()).await.unwrap().parts("test").unwrap();
        words.push(String::from_utf8(parts.bytes().unwrap().to_vec()).unwrap());
    }
    assert_eq!(words[0], words[1], "{algorithm}: a repetition is told the same");
    words.remove(0)
}

#[tokio::test]
async fn the_store_itself_drops_what_its_clock_says_is_past() {
    let server = RedisServer::start(RedisConfig::default());
    let redis =
        quaymaster::store::redis::RedisStore::connect(crate::scene::options(&server.url())).await.unwrap();
    let memory = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let engines: [&dyn Engine; 2] = [&redis, &memory];
    for engine in engines {
        let now = engine.time_us().await.unwrap() / 1000;
        let at = |offset: i64| (now + offset).to_string();
        let hour = "3600000";
        // Windows of an hour: which one a moment belongs to does not change while the test runs, but at its edge.
        let start = now - now.rem_euclid(3_600_000);
        for (algorithm, live, past) in [
            (
                "fixed_window",
                ["3", hour, hour, "0", &at(500_000), "900000"].map(str::to_owned).to_vec(),
                (4, at(-1)),
            ),
            (
                "sliding_log",
                ["3", hour, hour, &at(-1_000), "n", "900000"].map(str::to_owned).to_vec(),
                (3, at(-3_600_001)),
            ),
            (
                "sliding_window",
                ["3", hour, hour, &start.to_string(), "900000"].map(str::to_owned).to_vec(),
                (3, (start - 2 * 3_600_000).to_string()),
            ),
            (
                "token_bucket",
                ["10", "3600000000", hour, "1080000000", "0", &at(1_080_000), "900000"]
                    .map(str::to_owned)
                    .to_vec(),
                (5, at(-1)),
            ),
        ] {
            let args: Vec<&str> = live.iter().map(String::as_str).collect();
            assert_eq!(add(engine, algorithm, "one", &args).await, "added", "{algorithm}");
            let facts = engine.key_facts(format!("add:{algorithm}").as_bytes()).await.unwrap().unwrap();
            assert!(facts.ttl_ms.is_some(), "{algorithm}: born with its TTL");
            if algorithm == "fixed_window" {
                assert!(
                    facts.ttl_ms.unwrap() <= 500_000,
                    "the window ends with the first unit let through, not later"
                );
            }
            let mut gone = live.clone();
            gone[past.0] = past.1;
            let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
            assert_eq!(add(engine, algorithm, "two", &gone).await, "past", "{algorithm}");
        }
    }
}

#[tokio::test]
async fn what_happens_seldom_does_not_make_every_call_larger() {
    let memory = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let node = bind(&limits("local", 5), std::sync::Arc::new(memory), Settings::default());
    let taking = size_of_val(&node.limit("fixed_window").unwrap().take(ID, Charge::one()));
    assert!(taking <= 2048, "{taking} bytes are moved for every take");
}
