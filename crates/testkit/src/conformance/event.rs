//! What every event must do on every store.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use quaymaster::event::{MAX_BYTES, Message, Told};
use quaymaster::{Code, Quaymaster};
use serde_json::{Value, json};

use super::{Subject, command, command_int};

fn events(subject: &Subject) -> Quaymaster {
    subject.schema(
        "[event.news]\n[event.progress]\nchannel = \"progress:{id}\"\n\
         [event.status]\nstatus = { every = \"2s\", queues = [\"jobs\", \"urgent\"] }\n\
         [event.all]\nstatus = {}\n\
         [queue.jobs]\nmax_size = 100\n[queue.urgent]\nmax_size = 100\norder = \"priority\"\n",
    )
}

async fn listen(quaymaster: &Quaymaster, name: &str, key: &[(&str, &str)]) -> BoxStream<'static, Message> {
    quaymaster.event(name).expect("declared").subscribe(key).await.expect("a subscription")
}

async fn heard(messages: &mut BoxStream<'static, Message>) -> String {
    let next = tokio::time::timeout(Duration::from_secs(20), messages.next()).await;
    match next.expect("a message in time").expect("a subscription that goes on") {
        Message::Data(data) => String::from_utf8(data.to_vec()).expect("text"),
        Message::Missed(count) => panic!("missed {count}"),
    }
}

crate::cases! {
    async fn every_listener_gets_the_message_as_it_was_published(subject: &Subject) {
        let quaymaster = events(subject);
        let mut listeners = Vec::new();
        for _ in 0..3 {
            listeners.push(listen(&quaymaster, "news", &[]).await);
        }
        let news = quaymaster.event("news").expect("declared");
        let odd = "{ \"b\": 1.0,\n  \"a\": [1e3, \"\\u00e9\", null], \"a\": 12345678901234567890 }";
        for data in [odd, "1", "\"text\"", "null"] {
            let receivers = news.publish(&[], data.as_bytes()).await.expect("publish");
            assert!(receivers >= 1 || subject.name.starts_with("cluster"), "{receivers}");
            for listener in &mut listeners {
                assert_eq!(heard(listener).await, data);
            }
        }
        // What another program publishes is heard too, whatever it is.
        let channel = format!("{}news", subject.prefix);
        let words: [&[u8]; 3] = [b"PUBLISH", channel.as_bytes(), b"not json"];
        command(&*subject.engine, channel.as_bytes(), &words).await.expect("a foreign message");
        for listener in &mut listeners {
            assert_eq!(heard(listener).await, "not json");
        }
    }

    async fn a_message_goes_to_its_own_channel_alone(subject: &Subject) {
        let quaymaster = events(subject);
        let progress = quaymaster.event("progress").expect("declared");
        let (a, b) = ([("id", "a")], [("id", "b:c")]);
        let mut of_a = listen(&quaymaster, "progress", &a).await;
        let mut of_b = listen(&quaymaster, "progress", &b).await;
        progress.publish(&b, b"\"b\"").await.expect("publish");
        progress.publish(&a, b"\"a\"").await.expect("publish");
        assert_eq!((heard(&mut of_a).await, heard(&mut of_b).await), ("\"a\"".to_owned(), "\"b\"".to_owned()));
        assert_eq!(progress.publish(&[], b"1").await.expect_err("no id").code, Code::KeyMissing);
        assert_eq!(progress.publish(&[("id", "*")], b"1").await.expect_err("a pattern").code, Code::KeyValue);
    }

    async fn a_repeated_request_is_published_once(subject: &Subject) {
        let quaymaster = events(subject);
        let news = quaymaster.event("news").expect("declared");
        let mut listener = listen(&quaymaster, "news", &[]).await;
        let first = news.publish_as(&[], b"1", Some("r-1")).await.expect("publish");
        for _ in 0..3 {
            assert_eq!(news.publish_as(&[], b"1", Some("r-1")).await.expect("publish"), first);
        }
        news.publish_as(&[], b"2", Some("r-2")).await.expect("publish");
        assert_eq!((heard(&mut listener).await, heard(&mut listener).await), ("1".to_owned(), "2".to_owned()));
        let key = subject.side("news", "pub:r-1");
        let ttl = command_int(&*subject.engine, &["PTTL", &key]).await;
        assert!((1..=600_000).contains(&ttl), "{ttl}");
        assert_eq!(news.publish_as(&[], b"1", Some("a{b")).await.expect_err("no id").code, Code::RequestInvalid);
    }

    async fn what_is_no_json_or_too_long_is_not_published(subject: &Subject) {
        let quaymaster = events(subject);
        let news = quaymaster.event("news").expect("declared");
        let mut listener = listen(&quaymaster, "news", &[]).await;
        for bad in [&b"{"[..], b"", b"\xff", b"1 2"] {
            assert_eq!(news.publish(&[], bad).await.expect_err("not JSON").code, Code::RequestInvalid);
        }
        let long = format!("\"{}\"", "x".repeat(MAX_BYTES));
        assert_eq!(news.publish(&[], long.as_bytes()).await.expect_err("too long").code, Code::RequestTooLarge);
        let most = &long[..MAX_BYTES - 1];
        news.publish(&[], format!("{most}\"").as_bytes()).await.expect("the longest there is");
        assert_eq!(heard(&mut listener).await.len(), MAX_BYTES);
    }

    async fn of_any_number_of_nodes_one_publishes_the_status_of_an_interval(subject: &Subject) {
        let nodes: Vec<Quaymaster> = (0..5).map(|_| events(subject)).collect();
        let mut listener = listen(&nodes[0], "status", &[]).await;
        for interval in 0..3 {
            let told = join_all(nodes.iter().map(|node| async {
                node.event("status").expect("declared").tell_status().await.expect("a turn or none")
            }))
            .await;
            let published = told.iter().filter(|told| matches!(told, Told::Published { .. })).count();
            assert_eq!(published, 1, "interval {interval}: {told:?}");
            for told in &told {
                if let Told::NotYet { left } = told {
                    assert!(*left <= Duration::from_secs(2), "{left:?}");
                }
            }
            let status: Value = serde_json::from_str(&heard(&mut listener).await).expect("JSON");
            assert_eq!(status["type"], "status");
            subject.pass(2001).await;
        }
    }

    async fn a_status_tells_queue_depths_and_what_programs_reported(subject: &Subject) {
        let quaymaster = events(subject);
        let status = quaymaster.event("status").expect("declared");
        let mut listener = listen(&quaymaster, "status", &[]).await;
        let (jobs, urgent) = (format!("{}jobs", subject.prefix), format!("{}urgent", subject.prefix));
        command_int(&*subject.engine, &["RPUSH", &jobs, "1", "2", "3"]).await;
        command_int(&*subject.engine, &["ZADD", &urgent, "1", "a"]).await;
        status.report(&[("gpu_utilization", "45.2")], None).await.expect("report");
        status.report(&[("cameras_online", "3")], Some(Duration::from_secs(1))).await.expect("report");
        status.report(&[("cameras_online", "4")], Some(Duration::from_secs(1))).await.expect("report");
        let before = subject.time_us().await;
        assert!(matches!(status.tell_status().await.expect("status"), Told::Published { .. }));
        let told: Value = serde_json::from_str(&heard(&mut listener).await).expect("JSON");
        let data = &told["data"];
        assert_eq!(data["queue_depths"], json!({"jobs": 3, "urgent": 1}));
        assert_eq!((&data["gpu_utilization"], &data["cameras_online"]), (&json!(45.2), &json!(4)));
        let at = data["timestamp"].as_str().expect("a timestamp");
        assert_eq!((at.len(), &at[..4], &at[19..20]), (26, &year(before)[..], "."), "{at}");
        subject.pass(2001).await;
        assert!(matches!(status.tell_status().await.expect("status"), Told::Published { .. }));
        let told: Value = serde_json::from_str(&heard(&mut listener).await).expect("JSON");
        assert_eq!(told["data"]["cameras_online"], Value::Null, "nobody has said so for a while");
        assert_eq!(told["data"]["gpu_utilization"], 45.2);
    }

    async fn what_is_reported_is_bounded_and_is_no_name_of_the_status_itself(subject: &Subject) {
        let quaymaster = events(subject);
        let all = quaymaster.event("all").expect("declared");
        for (name, value) in [("timestamp", "1"), ("queue_depths", "{}"), ("", "1"), ("a b", "1"), ("a", "{")] {
            let refused = all.report(&[(name, value)], None).await;
            assert_eq!(refused.expect_err("refused").code, Code::RequestInvalid, "{name} {value}");
        }
        let names: Vec<String> = (0..70).map(|at| format!("n{at}")).collect();
        for name in &names[..64] {
            all.report(&[(name, "1")], None).await.expect("report");
        }
        let one_more = all.report(&[(&names[64], "1")], None).await;
        assert_eq!(one_more.expect_err("full").code, Code::EventFull);
        all.report(&[(&names[0], "2")], None).await.expect("a name that is there");
        let news = quaymaster.event("news").expect("declared");
        assert_eq!(news.report(&[("a", "1")], None).await.expect_err("no status").code, Code::ResourceMismatch);
        assert_eq!(news.tell_status().await.expect_err("no status").code, Code::ResourceMismatch);
    }

    async fn a_status_without_names_tells_every_queue_of_its_document(subject: &Subject) {
        let quaymaster = events(subject);
        let mut listener = listen(&quaymaster, "all", &[]).await;
        let all = quaymaster.event("all").expect("declared");
        assert!(matches!(all.tell_status().await.expect("status"), Told::Published { .. }));
        let told: Value = serde_json::from_str(&heard(&mut listener).await).expect("JSON");
        assert_eq!(told["data"]["queue_depths"], json!({"jobs": 0, "urgent": 0}));
    }
}

/// The year of a moment of this century.
fn year(us: i64) -> String {
    let days = us / 86_400_000_000;
    (1970 + (days * 10_000 - 5_000) / 3_652_425).to_string()
}
