//! What is beyond its threshold, and the word for what to do: in the status, in metrics, in the log, in `health`.

use serde_json::json;

use crate::process::{SCHEMA, Served, folder, run};

#[test]
fn a_threshold_that_is_exceeded_says_what_to_do_wherever_it_is_told() {
    let settings = "schemas = [\"shop.toml\"]\n[thresholds]\nmemory = 0.0\n[store]\nmax_memory = \"1GiB\"\n";
    let folder = folder(&[("shop.toml", SCHEMA), ("quaymaster.toml", settings)]);
    let take = ["limit", "take", "orders", "--key", "customer=ann"];
    assert_eq!(run(folder.path(), &take).code, 0, "some memory is used");
    let mut served = Served::start(folder.path(), &[]);
    let detail = "the store uses 0 % of its 1073741824 bytes of memory";
    served.wait_for_log(&format!("threshold exceeded: {detail}; scale up"));
    let status = served.take_get("/v1/status");
    let told = json!([{"threshold": "memory", "subject": "store", "action": "scale up", "detail": detail}]);
    assert_eq!(status["thresholds"], told);
    assert!(status["warnings"].to_string().contains(&format!("{detail}; scale up")), "{status}");
    let metrics = served.ask("GET", "/metrics", "").1;
    for line in [
        "quaymaster_threshold_exceeded{threshold=\"memory\"} 1\n",
        "quaymaster_threshold_action{threshold=\"memory\",action=\"scale up\"} 1\n",
        "quaymaster_threshold_action{threshold=\"connections\",action=\"scale up\"} 0\n",
        "quaymaster_threshold_action{threshold=\"hit_rate\",action=\"investigate\"} 0\n",
        "quaymaster_threshold_action{threshold=\"p95\",action=\"investigate\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let health = run(folder.path(), &["health", "--json"]);
    assert_eq!((health.code, &health.json()["status"]), (0, &json!("degraded")), "usable all the same");
    let health = health.json();
    assert_eq!(health["warnings"], json!([format!("{detail}; scale up")]));
    assert_eq!(served.stop().code, 0);
}
