//! A stage gives the same looks on both stores.

use serde_json::json;

use super::{NOW_US, Stage, Store};

const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"

[limit.calls]
key = "calls:{hour}"
algorithm = "fixed_window"
limit = { env = "CALLS", default = 5 }
window = "1h"

[event.news]
"#;

fn on_both(act: impl Fn(&Stage)) {
    for store in [Store::Redis, Store::Embedded] {
        act(&Stage::new(store, &[("test", SCHEMA)]));
    }
}

#[test]
fn another_program_sees_and_changes_what_the_server_has() {
    on_both(|s| {
        s.var("CALLS", "2");
        assert_eq!(s.ok("limit/calls/take", json!({"key": {}}))["remaining"], 1);
        assert_eq!(s.keys("calls:*"), ["calls:2026-11-15_12".to_owned()].into());
        s.raw::<i64>(&["INCRBY", "calls:2026-11-15_12", "1"]);
        let said = s.cli(&["limit", "peek", "calls", "--json"]);
        assert_eq!((said.code, &said.json()["used"]), (1, &json!(2)), "{said:?}");
        assert!(s.metric("quaymaster_store_up").is_some(), "{}", s.get("/metrics").text());
    });
}

#[test]
fn a_listener_hears_the_server_and_other_programs() {
    on_both(|s| {
        let heard = s.listen("news");
        s.ok("event/news/publish", json!({"data": {"a": 1}}));
        assert_eq!(heard.next(), r#"{"a":1}"#);
        s.raw::<()>(&["PUBLISH", "news", "plain"]);
        assert_eq!(heard.next(), "plain");
    });
}

#[test]
fn time_passes_for_everybody_and_what_was_there_stays() {
    on_both(|s| {
        s.raw::<()>(&["SET", "short", "1", "EX", "60"]);
        s.raw::<()>(&["SET", "long", "1", "EX", "7200"]);
        s.lives("short", 60);
        s.pass(3_600_000);
        assert_eq!((s.text("short"), s.text("long")), (None, Some("1".to_owned())));
        s.lives("long", 3600);
        s.ok("limit/calls/take", json!({"key": {}}));
        assert_eq!(s.text("calls:2026-11-15_13").as_deref(), Some("1"));
        assert!(s.clock().now_us() >= NOW_US + 3_600_000_000);
    });
}

#[test]
fn a_server_that_was_stopped_or_killed_starts_again_with_what_is_set_up_now() {
    on_both(|s| {
        s.settings("[server]\nshutdown_drain = \"1ms\"");
        s.address();
        assert_eq!(s.stop(), 0);
        s.var("CALLS", "3");
        assert_eq!(s.ok("limit/calls/take", json!({"key": {}}))["limit"], 3);
        s.kill();
        s.amend("test", "window = \"1h\"", "window = \"1h\"\nttl = \"3h\"");
        s.ok("limit/calls/take", json!({"key": {}}));
        s.lives("calls:2026-11-15_12", 10_800);
    });
}
