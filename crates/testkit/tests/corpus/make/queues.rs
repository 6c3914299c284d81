//! What queues and batches do.

use super::Maker;

pub(super) fn queue(maker: &mut Maker) {
    for payload in ["1", "null", "\"text\"", "{\"b\": 1, \"a\":[1.0, 1e2]}", "[]", "\"ü\\n\"", "0.1"] {
        maker.post("push jobs", &format!("{{\"payload\":{payload}}}"));
    }
    maker.post("push jobs", &format!("{{\"payload\":\"{}\"}}", "z".repeat(2_000)));
    maker.posts(2, "push jobs", r#"{"payloads":[{"n":1},{"n":2}],"id":"folder-7"}"#);
    maker.posts(2, "push jobs", r#"{"payload":1,"dedupe":{"name":"seen","key":{"id":"d"},"value":"first"}}"#);
    maker.posts(2, "push jobs", r#"{"payload":1,"request_id":"r-1"}"#);
    maker.post("push jobs", r#"{"payload":1,"payloads":[1]}"#);
    maker.post("push jobs", r#"{"payloads":[]}"#);
    maker.post("push jobs", r#"{"payload":1,"priority":5}"#);
    maker.post("push jobs", r#"{"payload":"later","delay_ms":5000}"#);
    maker.get("peek jobs", "");
    maker.get("peek jobs", "count=3");
    maker.get("pressure jobs", "");
    maker.post_as("a", "claim jobs", r#"{"count":3,"worker":"w-1"}"#);
    maker.get("pressure jobs", "");
    maker.post("extend jobs", r#"{"lease":"${a.jobs.0.lease}","lease_ms":60000}"#);
    maker.post("extend jobs", r#"{"lease":"${a.jobs.0.lease}"}"#);
    maker.post("ack jobs", r#"{"leases":["${a.jobs.0.lease}"]}"#);
    maker.post("ack jobs", r#"{"leases":["${a.jobs.0.lease}","${a.jobs.1.lease}"]}"#);
    maker.post("extend jobs", r#"{"lease":"${a.jobs.0.lease}"}"#);
    maker.post("nack jobs", r#"{"lease":"${a.jobs.0.lease}","error":"gone"}"#);
    maker.post("nack jobs", r#"{"lease":"${a.jobs.2.lease}","error":"once","request_id":"r-2"}"#);
    maker.post("nack jobs", r#"{"lease":"${a.jobs.2.lease}","error":"once","request_id":"r-2"}"#);
    maker.post_as("b", "claim jobs", r#"{"count":2,"request_id":"r-3"}"#);
    maker.post("claim jobs", r#"{"count":2,"request_id":"r-3"}"#);
    maker.post("nack jobs", r#"{"lease":"${b.jobs.0.lease}","error":"no good: ü","dead":true}"#);
    maker.post("nack jobs", r#"{"lease":"${b.jobs.1.lease}","error":"later","delay_ms":2500}"#);
    maker.get("dead jobs", "");
    maker.pass(1_000);
    maker.post_as("c", "claim jobs", "{}");
    maker.post("nack jobs", r#"{"lease":"${c.jobs.0.lease}","error":"again"}"#);
    maker.get("dead jobs", "count=1");
    maker.get("dead jobs", "count=1&offset=1");
    maker.post_as("d", "claim jobs", r#"{"count":2,"lease_ms":2000}"#);
    maker.pass(2_100);
    maker.post("ack jobs", r#"{"leases":["${d.jobs.0.lease}"]}"#);
    maker.post_as("e", "claim jobs", r#"{"count":1}"#);
    maker.post_as(
        "f",
        "ack jobs",
        r#"{"leases":["${e.jobs.0.lease}"],"then":[{"call":"batch.add","name":"slow","key":{"id":"q"},"item":1,"id":"i"},{"call":"event.publish","name":"news","data":{"x":1}},{"call":"queue.push","name":"jobs","payload":{"then":1},"delay_ms":1}],"claim":{"count":2}}"#,
    );
    maker.post(
        "ack jobs",
        r#"{"leases":["${e.jobs.0.lease}"],"then":[{"call":"queue.push","name":"jobs","payload":1}]}"#,
    );
    maker.posts(2, "ack jobs", r#"{"leases":["${f.jobs.0.lease}"],"request_id":"r-4"}"#);
    maker.post(
        "ack jobs",
        r#"{"leases":["${f.jobs.1.lease}"],"then":[{"call":"queue.push","name":"nosuch","payload":1}]}"#,
    );
    maker.post("ack jobs", r#"{"leases":["${f.jobs.1.lease}"],"then":[{"call":"queue.psh","name":"jobs"}]}"#);
    maker.post("redrive jobs", r#"{"count":1}"#);
    maker.post("redrive jobs", "{}");
    maker.post("redrive jobs", "");
    maker.post("pause jobs", "{}");
    maker.post("claim jobs", "{}");
    maker.get("pressure jobs", "");
    maker.post("push jobs", r#"{"payload":"while paused"}"#);
    maker.post("resume jobs", "");
    maker.post("claim jobs", r#"{"count":100}"#);
    maker.post("claim jobs", r#"{"wait_ms":20}"#);
    maker.post("purge jobs", "{}");
    for name in ["rejecting", "burying", "dropping"] {
        for payload in 1..=4 {
            maker.post(&format!("push {name}"), &format!("{{\"payload\":{payload}}}"));
        }
        maker.post(&format!("push {name}"), r#"{"payloads":[5,6,7]}"#);
        maker.get(&format!("pressure {name}"), "");
        maker.get(&format!("peek {name}"), "");
        maker.get(&format!("dead {name}"), "");
        maker.post_as("g", &format!("claim {name}"), r#"{"count":2}"#);
        maker.post(&format!("nack {name}"), r#"{"lease":"${g.jobs.0.lease}","error":"bad","dead":true}"#);
        maker.post(&format!("redrive {name}"), r#"{"overflow":true}"#);
        maker.post(&format!("redrive {name}"), "{}");
        maker.get(&format!("pressure {name}"), "");
        maker.post_as("h", &format!("claim {name}"), r#"{"count":2}"#);
        maker.post(&format!("nack {name}"), r#"{"lease":"${h.jobs.0.lease}","error":"bad","dead":true}"#);
        maker.post(&format!("purge {name}"), r#"{"older_than_ms":1000}"#);
        maker.post(&format!("purge {name}"), r#"{"count":1}"#);
        maker.post(&format!("purge {name}"), "");
    }
    for (payload, priority) in [("low", "1"), ("high", "9.5"), ("negative", "-3"), ("low again", "1")] {
        maker.post("push ranked", &format!("{{\"payload\":\"{payload}\",\"priority\":{priority}}}"));
    }
    maker.post("push ranked", r#"{"payload":"plain"}"#);
    maker.get("peek ranked", "");
    maker.post_as("i", "claim ranked", r#"{"count":2}"#);
    maker.post("nack ranked", r#"{"lease":"${i.jobs.0.lease}","error":"e","delay_ms":0}"#);
    maker.post("claim ranked", r#"{"count":10}"#);
    for (name, payload) in [
        ("detection_queue", r#"{"camera_id":"c","file_path":"/1.jpg"}"#),
        ("analysis_queue", r#"{"batch_id":"b"}"#),
        ("priority_queue", "1"),
        ("dockets", "\"12345\""),
    ] {
        maker.post(&format!("push {name}"), &format!("{{\"payload\":{payload}}}"));
        maker.get(&format!("pressure {name}"), "");
        maker.post_as("j", &format!("claim {name}"), "{}");
        maker.post(&format!("ack {name}"), r#"{"leases":["${j.jobs.0.lease}"]}"#);
    }
    // What faults are tried on has something in it.
    maker.posts(4, "push burying", r#"{"payload":1}"#);
    maker.posts(3, "push jobs", r#"{"payload":1}"#);
}

pub(super) fn batch(maker: &mut Maker) {
    maker.post("add slow", r#"{"key":{"id":"s"},"item":1,"id":"d-1"}"#);
    maker.post("add slow", r#"{"key":{"id":"s"},"item":{"b": 1, "a":[1.0]}}"#);
    maker.post("add slow", r#"{"key":{"id":"s"},"item":1,"id":"d-1"}"#);
    maker.posts(2, "add slow", r#"{"key":{"id":"s"},"item":null,"request_id":"r-1"}"#);
    // Batches that close at the same moment are listed by their ids, which are random.
    maker.pass(1_000);
    maker.post("add slow", r#"{"key":{"id":"t"},"item":"x"}"#);
    maker.get("list slow", "");
    maker.get("list slow", "count=1");
    maker.get("list slow", "count=1&offset=1");
    maker.posts(2, "close slow", r#"{"key":{"id":"s"},"request_id":"r-2"}"#);
    maker.posts(2, "close slow", r#"{"key":{"id":"t"}}"#);
    maker.post("close slow", r#"{"key":{"id":"never"}}"#);
    maker.get("list slow", "");
    maker.post("sweep slow", "");
    maker.post("add slow", r#"{"key":{"id":"s"},"item":1,"id":"d-1"}"#);
    maker.other("queue", "claim jobs", r#"{"count":10}"#);
    maker.posts(3, "add few", r#"{"key":{"id":"s"},"item":1}"#);
    maker.get("list few", "");
    maker.other("queue", "claim ranked", r#"{"count":10}"#);
    maker.pass(20_000);
    maker.get("list few", "");
    maker.post("add camera", r#"{"key":{"camera_id":"front_door"},"item":7}"#);
    maker.get("list camera", "");
    maker.post("close camera", r#"{"key":{"camera_id":"front_door"}}"#);
    maker.other("queue", "claim analysis_queue", "{}");
}
