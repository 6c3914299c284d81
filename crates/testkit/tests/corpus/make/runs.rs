//! What runs and stats do.

use super::Maker;

pub(super) fn run(maker: &mut Maker) {
    for name in ["passes", "courtlistener"] {
        let call = |verb: &str| format!("{verb} {name}");
        maker.post(&call("start"), "{}");
        maker.posts(2, &call("start"), r#"{"run_id":"base"}"#);
        maker.post(&call("start"), r#"{"run_id":"nightly:1","items":false,"request_id":"r-1"}"#);
        maker.post(&call("update"), r#"{"run_id":"base","fields":{"note":"half","count":"7"}}"#);
        maker.post(&call("update"), r#"{"run_id":"base","fields":{"note":null}}"#);
        maker.post(&call("update"), r#"{"run_id":"base","fields":{"status":"paused"}}"#);
        maker.post(&call("update"), r#"{"run_id":"base","fields":{"processed_count":"9"}}"#);
        maker.post(&call("task_start"), r#"{"run_id":"base","task_id":"fetch"}"#);
        maker.pass(1_234);
        maker.post(&call("task_finish"), r#"{"run_id":"base","task_id":"fetch"}"#);
        maker.post(&call("task_finish"), r#"{"run_id":"base","task_id":"never"}"#);
        maker.post(&call("processed"), r#"{"run_id":"base","items":["1","2","2"]}"#);
        maker.posts(2, &call("processed"), r#"{"run_id":"base","items":["3"],"request_id":"r-2"}"#);
        maker.post(&call("failed"), r#"{"run_id":"base","item":"4","error":"HTTP 500"}"#);
        maker.post(&call("failed"), r#"{"run_id":"base","item":"4"}"#);
        maker.post(&call("failed"), r#"{"run_id":"base","item":"5","error":"ü\n"}"#);
        maker.post(&call("remaining"), r#"{"run_id":"base","items":["1","4","6"]}"#);
        maker.get(&call("failures"), "");
        maker.get(&call("failures"), "count=1");
        maker.get(&call("failures"), "run_id=base&hour=2026-11-15_12");
        maker.get(&call("failures"), "hour=2026-11-15_11");
        maker.get(&call("failures"), "hour=yesterday");
        maker.post(&call("retry"), r#"{"run_id":"base","count":1,"lease_ms":5000}"#);
        maker.post(&call("retry"), r#"{"run_id":"base"}"#);
        maker.get(&call("show"), "run_id=base");
        maker.get(&call("show"), "run_id=base&items=false");
        maker.get(&call("show"), "run_id=nosuch");
        maker.get(&call("list"), "");
        maker.get(&call("list"), "count=1");
        maker.post(&call("finish"), r#"{"run_id":"nightly:1","status":"completed"}"#);
        maker.post(&call("finish"), r#"{"run_id":"nightly:1","status":"failed"}"#);
        maker.post(&call("processed"), r#"{"run_id":"nightly:1","items":["9"]}"#);
        maker.post(&call("update"), r#"{"run_id":"nosuch","fields":{"a":"b"}}"#);
        maker.post(&call("finish"), r#"{"run_id":"nosuch","status":"completed"}"#);
        maker.post(&call("sweep"), "");
        maker.get(&call("show"), "run_id=nightly:1");
    }
}

pub(super) fn stats(maker: &mut Maker) {
    maker.get("report web", "");
    let request = |more: &str| {
        format!(
            "{{\"requests\":[{{\"instance\":\"0\",\"method\":\"GET\",\"path\":\"/a\",\"status\":200,\"duration_ms\":1.5{more}}}]}}"
        )
    };
    maker.post("record web", &request(""));
    maker.post("record web", &request(",\"remote\":\"10.1.2.3\""));
    maker.post("record web", &request(",\"remote\":\"192.0.2.1\",\"accepted\":false"));
    maker.post("record web", &request("").replace("200", "503"));
    maker.post("record web", &request("").replace("/a", "/users/12345"));
    maker.post("record web", &request("").replace("/a", "/b?x=1"));
    maker.posts(2, "record web", &request("").replace("]}", "],\"request_id\":\"r-1\"}"));
    for at in 1..6 {
        maker.post(
            "record web",
            &request("").replace("/a", &format!("/p{at}")).replace("\"0\"", &format!("\"{at}\"")),
        );
    }
    maker.post("record web", r#"{"connections":{"0":12,"1":3}}"#);
    maker.post("record web", r#"{"connections":{"0":-1}}"#);
    maker.post("record web", r#"{"connections":{"0":"x"}}"#);
    maker.post("record web", r#"{"connections":{"":1}}"#);
    maker.post("record web", r#"{"requests":[]}"#);
    maker.post("record web", "{}");
    maker.get("report web", "");
    maker.get("report web", "hours=1&endpoints=1");
    maker.post("sweep web", "");
    maker.post("record ha", &request(""));
    maker.get("report ha", "");
}
