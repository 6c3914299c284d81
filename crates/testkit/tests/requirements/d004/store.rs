//! How Redis is set up and reached.

use std::sync::Barrier;

use quaymaster_testkit::servers::{Certificates, free_address, own_ip};
use quaymaster_testkit::stage::{Answer, Ask, Stage, Wire};
use serde_json::json;

use super::{put_status, run, status, warns};

fn peek(s: &Stage) -> Answer {
    s.get("/v1/limit/psp/peek?key.psp_id=PSP001")
}

/// Connections of the server, by the names they give themselves.
fn ours(s: &Stage) -> usize {
    let names = s.redis(|server| server.client_names());
    names.iter().filter(|name| name.starts_with("quaymaster:")).count()
}

fn l186_connections_are_shared(s: &Stage) {
    const CALLERS: usize = 120;
    let address = s.address();
    let crowd = || {
        let together = Barrier::new(CALLERS + 1);
        std::thread::scope(|scope| {
            s.redis(|server| server.pause());
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    let mut wire = Wire::open(address);
                    together.wait();
                    wire.ask(&Ask::new("GET", "/v1/limit/psp/peek?key.psp_id=PSP001")).0.expect(200);
                });
            }
            together.wait();
            s.redis(|server| server.resume());
        });
    };
    peek(s).expect(200);
    let before = ours(s);
    crowd();
    assert!((1..=8).contains(&ours(s)) && ours(s) <= before + 4, "{before} before, {} after", ours(s));
    // There is no least and no most: the number is said.
    s.kill();
    s.settings("[store.pools.ratelimit]\nsize = 5");
    s.until("five", || {
        peek(s).expect(200);
        let suffix = format!(":ratelimit:{}", s.pid());
        s.redis(|server| server.client_names()).iter().filter(|name| name.ends_with(&suffix)).count() == 5
    });
    s.kill();
    s.settings("max_size = 200");
    let said = s.cli(&["health"]);
    assert!(said.code == 2 && said.err.contains("max_size"), "{said:?}");
}

fn l190_one_instance_is_enough(s: &Stage) {
    put_status(s);
    let told = status(s);
    assert_eq!((&told["store"]["product"], &told["store"]["mode"]), (&json!("redis"), &json!("standalone")));
    let entered = s.ok("guard/create/enter", json!({"key": {"psp_id": "P", "psp_transaction_id": "A"}}));
    assert_eq!(entered["outcome"], "entered");
    assert!(s.redis(|server| server.try_command::<()>(&["CLUSTER", "INFO"])).is_err(), "it is no cluster");
}

fn l192_snapshots_without_a_log_start(s: &Stage) {
    s.redis_line("save 900 1 300 10 60 10000");
    s.redis_line("appendonly no");
    run(s, "create", &json!({"psp_transaction_id": "A"}), &json!(1));
    let warning = "the store saves snapshots only: a crash forgets everything since the last one";
    assert!(s.log().contains(warning), "{}", s.log());
    assert_eq!(status(s)["store"]["persistence"], "rdb");
    let health = s.cli(&["health", "--json"]);
    assert!(health.code == 0 && health.json()["warnings"].to_string().contains(warning), "{health:?}");
    // A clean stop saves; what comes after a snapshot is gone with a crash, as the warning says.
    s.redis(|server| server.restart_cleanly());
    assert!(s.text("idem:create:A").is_some());
    s.kill();
    run(s, "create", &json!({"psp_transaction_id": "B"}), &json!(1));
    s.redis(|server| server.restart());
    assert_eq!(s.keys("idem:*"), ["idem:create:A".to_owned()].into());
}

fn l201_an_evicting_store_is_refused(s: &Stage) {
    s.redis_line("maxmemory 4gb");
    s.redis_line("maxmemory-policy allkeys-lru");
    for words in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["lock", "acquire", "update", "--key", "transaction_id=A"],
    ] {
        let said = s.cli(words);
        assert_eq!(said.code, 3, "{said:?}");
        for part in
            ["maxmemory-policy allkeys-lru destroys", "the operation runs a second time", "noeviction"]
        {
            assert!(said.err.contains(part), "{part}: {said:?}");
        }
    }
    let health = s.cli(&["health", "--json"]);
    assert_eq!((health.code, &health.json()["status"]), (3, &json!("unsafe")), "{health:?}");
    // Whoever accepts it is told all the same.
    s.serve(&["--accept-eviction"]);
    let told = status(s);
    assert_eq!(told["store"]["eviction_policy"], "allkeys-lru");
    assert!(warns(&told, "allkeys-lru destroys what the schema holds"), "{told}");
    assert_eq!(s.metric("quaymaster_store_evicts"), Some(1.0));
    s.kill();
    s.raw::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    put_status(s);
    assert_eq!(s.metric("quaymaster_store_evicts"), Some(0.0));
}

/// The rules that `docs` prints for the store's user.
fn rules(s: &Stage) -> Vec<String> {
    let said = s.cli(&["docs", "psp.toml"]);
    let rules = said.out.lines().filter_map(|line| line.strip_prefix("ACL SETUSER quaymaster "));
    rules.flat_map(str::split_whitespace).map(|rule| rule.trim_matches(['\'', '"']).to_owned()).collect()
}

fn l261_password_and_acl(s: &Stage) {
    let rules = rules(s);
    assert!(rules.iter().any(|rule| rule == "~idem:create:*") && rules.len() > 10, "{rules:?}");
    let address = s.redis(|server| server.address());
    let mut words = vec!["ACL", "SETUSER", "quaymaster", ">the-right-password"];
    words.extend(rules.iter().map(String::as_str));
    s.raw::<()>(&words);
    s.var("QUAYMASTER_STORE", &format!("redis://quaymaster@{address}"));
    s.var("QUAYMASTER_STORE_PASSWORD", "the-right-password");
    let entered = s.ok("guard/create/enter", json!({"key": {"psp_id": "P", "psp_transaction_id": "A"}}));
    assert_eq!(entered["outcome"], "entered");
    put_status(s);
    s.ok("limit/transaction/take", json!({"key": {"transaction_id": "A"}, "request_id": "r"}));
    s.get("/readyz").expect(200);
    assert_eq!(s.raw::<Vec<redis::Value>>(&["ACL", "LOG"]).len(), 0, "nothing was denied");
    let clients: String = s.raw(&["CLIENT", "LIST"]);
    let named = clients.lines().filter(|line| line.contains(" name=quaymaster:"));
    assert!(
        named.clone().count() > 0 && named.clone().all(|line| line.contains(" user=quaymaster ")),
        "{clients}"
    );
    // Who lacks a right is not started.
    s.kill();
    s.raw::<()>(&["ACL", "SETUSER", "quaymaster", "-del"]);
    let said = s.cli(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(said.code == 3 && said.err.contains("+del"), "{said:?}");
}

fn l266_tls_to_the_store(s: &Stage) {
    let certificates = Certificates::new();
    let port = free_address().port();
    for line in certificates.redis_lines(port, false) {
        s.redis_line(&line);
    }
    s.redis(|_| ());
    s.var("QUAYMASTER_STORE", &format!("rediss://{}:{port}", own_ip()));
    s.settings(&format!("[store.tls]\nca_file = \"{}\"", certificates.ca.display()));
    run(s, "create", &json!({"psp_transaction_id": "A"}), &json!(1));
    s.lives("idem:create:A", 86_400);
    let clients: String = s.raw(&["CLIENT", "LIST"]);
    let mut named = clients.lines().filter(|line| line.contains(" name=quaymaster:"));
    assert!(
        named.clone().count() > 0 && named.all(|line| line.contains(&format!(":{port} fd="))),
        "{clients}"
    );
    // A server whose authority is another one is not spoken to.
    s.kill();
    let stranger = Certificates::new();
    std::fs::copy(&stranger.ca, &certificates.ca).unwrap();
    let told = s.post("lock/update/acquire", json!({"key": {"transaction_id": "A"}}));
    assert_eq!(told.expect(503)["code"], "store.tls");
}

cases! {
    l186_connections_are_shared
    l190_one_instance_is_enough
    l192_snapshots_without_a_log_start
    l201_an_evicting_store_is_refused
    l261_password_and_acl
    l266_tls_to_the_store
}
