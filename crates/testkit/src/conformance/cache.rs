//! What every cache must do on every store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::join_all;
use quaymaster::cache::{Cache, Deleted, Fetched, Load, Presence, Put, Stored, Value, When};
use quaymaster::{Code, Quaymaster, Seal, Settings};
use quaymaster_store::Reply;
use tokio::sync::Notify;

use super::{Subject, command, command_int, command_text};

const A: &[(&str, &str)] = &[("id", "a")];
const ABSENT: Put<'_> = Put { ttl: None, when: When::Absent, request_id: None };

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

fn caches(subject: &Subject) -> Quaymaster {
    subject.schema(
        "[cache.page]\nkey = \"page:{id}\"\nttl = \"10s\"\n\
         [cache.brief]\nkey = \"brief:{id}\"\nttl = \"300ms\"\n\
         [cache.status]\nkey = \"status:{id}\"\ntype = \"hash\"\nttl = \"10s\"\n\
         [cache.kept]\nkey = \"kept:{id}\"\nttl = \"never\"\nwhy = \"tests\"\n\
         [cache.token]\nkey = \"token:{id}\"\nttl = \"10s\"\nsensitive = true\n\
         [cache.card]\nkey = \"card:{id}\"\ntype = \"hash\"\nttl = \"10s\"\nsensitive = true\n\
         [cache.doc]\nkey = \"doc:{id}\"\ntype = \"json\"\nttl = \"10s\"\n\
         [cache.secret]\nkey = \"secret:{id}\"\ntype = \"json\"\nttl = \"10s\"\nsensitive = true\n",
    )
}

fn sealed(subject: &Subject, keys: &str) -> Quaymaster {
    let settings = Settings { seal: Seal::from_text(keys).expect("keys"), ..Settings::default() };
    Quaymaster::with(caches(subject).schema().clone(), subject.engine.clone(), settings)
}

fn cache<'q>(quaymaster: &'q Quaymaster, name: &str) -> &'q Cache {
    quaymaster.cache(name).expect("declared")
}

async fn put(cache: &Cache, value: &Value) -> Stored {
    cache.put(A, value, Put::default()).await.expect("put answers")
}

async fn get(cache: &Cache) -> Option<Value> {
    cache.get(A).await.expect("get answers").value()
}

fn status(status: &'static str, amount: &'static str) -> Value {
    Value::fields([("amount", amount), ("status", status)])
}

/// The load's lease as a process that died would leave it.
async fn leave_lease(subject: &Subject, name: &str, lease_ms: i64) {
    let load = subject.side(&format!("{name}:a"), "load");
    let until_ms = subject.time_us().await / 1000 + lease_ms;
    let (value, ttl) = (format!("dead {until_ms}"), (lease_ms + 1000).to_string());
    command_text(&*subject.engine, &["SET", &load, &value, "PX", &ttl]).await;
}

crate::cases! {
    async fn a_value_comes_back_byte_for_byte_until_its_time_is_over(subject: &Subject) {
        let quaymaster = caches(subject);
        let page = cache(&quaymaster, "page");
        assert_eq!(get(page).await, None);
        assert_eq!(page.exists(A).await.expect("exists"), Presence::Absent { outage: None });
        for value in [Value::from("text"), Value::from(""), Value::from(vec![0, 255, 10, 1])] {
            assert_eq!(put(page, &value).await, Stored::Stored);
            assert_eq!(get(page).await, Some(value));
        }
        assert_eq!(page.exists(A).await.expect("exists"), Presence::Present);
        let brief = cache(&quaymaster, "brief");
        let _ = put(brief, &Value::from("v")).await;
        subject.pass(301).await;
        assert_eq!(get(brief).await, None, "the schema's ttl");
        let short = Put { ttl: Some(Duration::from_millis(200)), ..Put::default() };
        let _ = page.put(A, &Value::from("v"), short).await.expect("put");
        subject.pass(201).await;
        assert_eq!(get(page).await, None, "the put's own");
        let long = Put { ttl: Some(Duration::from_millis(10_001)), ..Put::default() };
        let refused = page.put(A, &Value::from("v"), long).await.expect_err("longer than declared");
        assert_eq!((refused.code, refused.detail.starts_with("ttl_ms ")), (Code::ResourceMismatch, true));
    }

    async fn a_hash_is_replaced_whole_and_read_by_others_as_a_hash(subject: &Subject) {
        let quaymaster = caches(subject);
        let cached = cache(&quaymaster, "status");
        let key = format!("{}status:a", subject.prefix);
        let _ = put(cached, &Value::fields([("status", "NEW"), ("note", "gone")])).await;
        assert_eq!(put(cached, &status("SUCCESS", "100000")).await, Stored::Stored);
        assert_eq!(get(cached).await, Some(status("SUCCESS", "100000")));
        assert_eq!(command_text(&*subject.engine, &["HGET", &key, "status"]).await.as_deref(), Some("SUCCESS"));
        let ttl = command_int(&*subject.engine, &["PTTL", &key]).await;
        assert!((1..=10_000).contains(&ttl), "{ttl}");
        // What another program writes under the documented key is found.
        command_int(&*subject.engine, &["HSET", &key, "status", "FAILED"]).await;
        assert_eq!(get(cached).await, Some(status("FAILED", "100000")));
    }

    async fn json_comes_back_as_that_json_and_foreign_text_as_a_string(subject: &Subject) {
        let quaymaster = caches(subject);
        let (doc, key) = (cache(&quaymaster, "doc"), format!("{}doc:a", subject.prefix));
        for json in ["{\"data\": \"value\"}", "42", "\"42\"", "null", "1.50", "[1, {\"b\": []}]", "\"\""] {
            assert_eq!(put(doc, &Value::from(json)).await, Stored::Stored);
            assert_eq!(get(doc).await, Some(Value::from(json)), "as it was written");
            assert_eq!(command_text(&*subject.engine, &["GET", &key]).await.as_deref(), Some(json), "and stored");
        }
        for (foreign, back) in [
            ("plain text", "\"plain text\""),
            ("", "\"\""),
            ("{\"cut\": ", "\"{\\\"cut\\\": \""),
            ("{\"a\": NaN}", "\"{\\\"a\\\": NaN}\""),
            ("{\"data\": \"theirs\"}", "{\"data\": \"theirs\"}"),
        ] {
            command_text(&*subject.engine, &["SET", &key, foreign]).await;
            assert_eq!(get(doc).await, Some(Value::from(back)), "{foreign}");
        }
        let bytes = [b"SET", key.as_bytes(), b"\xff\x00"];
        command(&*subject.engine, key.as_bytes(), &bytes).await.expect("SET");
        assert_eq!(get(doc).await, Some(Value::from(vec![0xff, 0])), "what is no text stays as it is");
        for wrong in [Value::from("plain text"), Value::from(vec![0xff, 0]), Value::fields([("a", "b")])] {
            let refused = doc.put(A, &wrong, Put::default()).await.expect_err("no JSON");
            assert_eq!((refused.code, refused.detail.starts_with("value must be JSON")), (Code::ResourceMismatch, true));
        }
    }

    async fn what_a_json_cache_loads_is_json_and_foreign_text_is_not_loaded_again(subject: &Subject) {
        let quaymaster = caches(subject);
        let doc = cache(&quaymaster, "doc");
        let keys = Value::json(&["key-1", "key-2"]).expect("JSON");
        let loaded = keys.clone();
        let loader = || async { Ok::<_, std::io::Error>(loaded) };
        let got = doc.get_or_load(A, Load::default(), loader).await.expect("loaded").value;
        assert_eq!((&got, got.parsed::<Vec<String>>().expect("a list")), (&keys, vec!["key-1".into(), "key-2".into()]));
        let never = || async { Err::<Value, _>("it is there") };
        assert_eq!(doc.get_or_load(A, Load::default(), never).await.expect("a hit").value, keys);
        command_text(&*subject.engine, &["SET", &format!("{}doc:a", subject.prefix), "theirs"]).await;
        let never = || async { Err::<Value, _>("it is there") };
        assert_eq!(doc.get_or_load(A, Load::default(), never).await.expect("a hit").value, Value::from("\"theirs\""));
        assert_eq!(doc.delete(A, None).await.expect("delete"), Deleted::Deleted);
        let text = || async { Ok::<_, std::io::Error>(Value::from("no JSON")) };
        assert!(doc.get_or_load(A, Load::default(), text).await.is_err(), "a loader's value is looked at, too");
        assert_eq!(get(doc).await, None);
    }

    async fn sensitive_json_lies_sealed_and_readable_text_of_before_is_a_string(subject: &Subject) {
        let quaymaster = sealed(subject, KEY);
        let (secret, key) = (cache(&quaymaster, "secret"), format!("{}secret:a", subject.prefix));
        let _ = put(secret, &Value::from("{\"pin\": 4711}")).await;
        let lies = command(&*subject.engine, key.as_bytes(), &[b"GET", key.as_bytes()]).await.expect("GET");
        let Reply::Bytes(lies) = lies else { panic!("{lies:?}") };
        assert!(!lies.windows(4).any(|window| window == b"4711"), "{lies:?}");
        assert_eq!(get(secret).await, Some(Value::from("{\"pin\": 4711}")));
        let none = cache(&caches(subject), "secret").get(A).await.expect_err("no key");
        assert_eq!(none.code, Code::SealKey, "ciphertext is no foreign text");
        for (foreign, back) in [("4711", "4711"), ("pin 4711", "\"pin 4711\"")] {
            command_text(&*subject.engine, &["SET", &key, foreign]).await;
            assert_eq!(get(secret).await, Some(Value::from(back)));
        }
    }

    async fn a_value_that_lives_for_ever_has_no_end(subject: &Subject) {
        let quaymaster = caches(subject);
        let kept = cache(&quaymaster, "kept");
        let _ = put(kept, &Value::from("v")).await;
        assert_eq!(command_int(&*subject.engine, &["PTTL", &format!("{}kept:a", subject.prefix)]).await, -1);
        let hour = Put { ttl: Some(Duration::from_secs(3600)), ..Put::default() };
        let _ = kept.put(A, &Value::from("v"), hour).await.expect("put");
        assert!(command_int(&*subject.engine, &["PTTL", &format!("{}kept:a", subject.prefix)]).await > 0);
    }

    async fn of_many_who_put_if_absent_one_stores(subject: &Subject) {
        let quaymaster = caches(subject);
        for (name, value) in [("page", Value::from("v")), ("status", status("NEW", "1"))] {
            let cached = cache(&quaymaster, name);
            let puts = (0..20).map(|_| cached.put(A, &value, ABSENT));
            let stored = join_all(puts).await.into_iter().map(|stored| stored.expect("put"));
            assert_eq!(stored.filter(|stored| *stored == Stored::Stored).count(), 1, "{name}");
            assert_eq!(cached.put(A, &value, ABSENT).await.expect("put"), Stored::Present);
            assert_eq!(cached.delete(A, None).await.expect("delete"), Deleted::Deleted);
            assert_eq!(cached.delete(A, None).await.expect("delete"), Deleted::Absent);
            assert_eq!(cached.put(A, &value, ABSENT).await.expect("put"), Stored::Stored);
        }
    }

    async fn a_repeated_put_or_delete_changes_nothing_and_answers_the_same(subject: &Subject) {
        let quaymaster = caches(subject);
        for (name, first, second) in [
            ("page", Value::from("1"), Value::from("2")),
            ("status", status("NEW", "1"), status("NEW", "2")),
        ] {
            let cached = cache(&quaymaster, name);
            let named = Put { request_id: Some("r1"), ..ABSENT };
            assert_eq!(cached.put(A, &first, named).await.expect("put"), Stored::Stored);
            assert_eq!(cached.put(A, &first, named).await.expect("put"), Stored::Stored, "although it is there");
            let _ = put(cached, &second).await;
            assert_eq!(cached.put(A, &first, named).await.expect("put"), Stored::Stored);
            assert_eq!(get(cached).await, Some(second.clone()), "the repetition wrote nothing");
            assert_eq!(cached.delete(A, Some("r2")).await.expect("delete"), Deleted::Deleted);
            let _ = put(cached, &second).await;
            assert_eq!(cached.delete(A, Some("r2")).await.expect("delete"), Deleted::Deleted);
            assert_eq!(get(cached).await, Some(second), "the repetition removed nothing");
            let other = cached.delete(A, Some("r1")).await.expect_err("another verb's id");
            assert_eq!(other.code, Code::RequestReused);
        }
    }

    async fn a_key_of_another_type_is_a_miss_and_is_put_over(subject: &Subject) {
        let quaymaster = caches(subject);
        let (page, hash) = (cache(&quaymaster, "page"), cache(&quaymaster, "status"));
        command_int(&*subject.engine, &["HSET", &format!("{}page:a", subject.prefix), "f", "v"]).await;
        command_text(&*subject.engine, &["SET", &format!("{}status:a", subject.prefix), "v"]).await;
        for (cached, value) in [(page, Value::from("v")), (hash, status("NEW", "1"))] {
            assert_eq!(cached.get(A).await.expect("get"), Fetched::Miss { outage: None });
            assert_eq!(cached.exists(A).await.expect("exists"), Presence::Present);
            let absent = Put { when: When::Absent, ..Put::default() };
            assert_eq!(cached.put(A, &value, absent).await.expect("put"), Stored::Present);
            assert_eq!(cached.put(A, &value, Put::default()).await.expect("put"), Stored::Stored);
            assert_eq!(cached.get(A).await.expect("get"), Fetched::Hit(value));
        }
        assert_eq!(page.delete(A, None).await.expect("delete"), Deleted::Deleted);
    }

    async fn sensitive_values_lie_sealed_and_open_only_with_their_key(subject: &Subject) {
        let quaymaster = sealed(subject, KEY);
        let (token, card) = (cache(&quaymaster, "token"), cache(&quaymaster, "card"));
        let _ = put(token, &Value::from("hunter2-hunter2")).await;
        let _ = put(card, &Value::fields([("number", "4111111111111111"), ("name", "Ann")])).await;
        let key = format!("{}token:a", subject.prefix);
        let lies = command(&*subject.engine, key.as_bytes(), &[b"GET", key.as_bytes()]).await.expect("GET");
        let Reply::Bytes(lies) = lies else { panic!("{lies:?}") };
        assert!(!lies.windows(7).any(|window| window == b"hunter2"), "{lies:?}");
        assert_eq!(get(token).await, Some(Value::from("hunter2-hunter2")));
        assert_eq!(get(card).await.expect("hit").field("number").map(|v| &v[..]), Some(&b"4111111111111111"[..]));

        let wrong = cache(&sealed(subject, OTHER_KEY), "token").get(A).await.expect_err("another key");
        assert_eq!(wrong.code, Code::SealKey);
        let none = cache(&caches(subject), "token").get(A).await.expect_err("no key");
        assert_eq!(none.code, Code::SealKey, "ciphertext is never handed out as the value");
        let both = sealed(subject, &format!("{OTHER_KEY},{KEY}"));
        assert_eq!(get(cache(&both, "token")).await, Some(Value::from("hunter2-hunter2")), "a key in rotation");

        // Moved under another key, or into another field, it does not open.
        let b: &[(&str, &str)] = &[("id", "b")];
        let moved = format!("{}token:b", subject.prefix);
        command(&*subject.engine, moved.as_bytes(), &[b"SET", moved.as_bytes(), &lies]).await.expect("SET");
        assert_eq!(token.get(b).await.expect_err("moved").code, Code::KeyMalformed);
        // What was there before there was a key stays readable.
        let _ = put(cache(&caches(subject), "token"), &Value::from("plain")).await;
        assert_eq!(get(token).await, Some(Value::from("plain")));
    }

    async fn hits_and_misses_are_counted(subject: &Subject) {
        let quaymaster = caches(subject);
        let page = cache(&quaymaster, "page");
        assert_eq!(page.get(A).await.expect("get"), Fetched::Miss { outage: None });
        let _ = put(page, &Value::from("v")).await;
        for _ in 0..3 {
            assert!(get(page).await.is_some());
        }
        let reads = page.counts().reads();
        assert_eq!((reads.hits, reads.misses, reads.hit_ratio()), (3, 1, Some(0.75)));
        assert_eq!(page.counts().recent(), reads);
    }

    async fn one_of_several_processes_loads_and_the_others_are_woken(subject: &Subject) {
        // Each has its own handle, so that they meet in the store alone.
        let nodes: Vec<Quaymaster> = (0..3).map(|_| caches(subject)).collect();
        for (name, value) in [("page", Value::from("loaded")), ("status", status("NEW", "1"))] {
            let (loads, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
            let ask = |quaymaster: &Quaymaster| {
                let cached = cache(quaymaster, name).clone();
                let (loads, go, value) = (loads.clone(), go.clone(), value.clone());
                tokio::spawn(async move {
                    let loader = || async move {
                        loads.fetch_add(1, SeqCst);
                        go.notified().await;
                        Ok::<_, std::io::Error>(value)
                    };
                    cached.get_or_load(A, Load::default(), loader).await.expect("loaded").value
                })
            };
            let callers: Vec<_> = (0..30).map(|caller| ask(&nodes[caller % nodes.len()])).collect();
            // All are on their way once every node has missed for each of its ten.
            let missed = || nodes.iter().all(|node| cache(node, name).counts().reads().misses >= 10);
            while !(missed() && loads.load(SeqCst) == 1) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            go.notify_one();
            for caller in callers {
                assert_eq!(caller.await.expect("no panic"), value);
            }
            assert_eq!(loads.load(SeqCst), 1, "{name}: one load");
            assert_eq!(get(cache(&nodes[0], name)).await, Some(value));
        }
    }

    async fn a_process_that_died_while_loading_keeps_others_waiting_no_longer_than_its_lease(subject: &Subject) {
        let quaymaster = caches(subject);
        for name in ["page", "status"] {
            let value = if name == "page" { Value::from("v") } else { status("NEW", "1") };
            leave_lease(subject, name, 300).await;
            subject.pass(301).await;
            let loaded = value.clone();
            let loader = || async { Ok::<_, std::io::Error>(loaded) };
            let got = cache(&quaymaster, name).get_or_load(A, Load::default(), loader).await;
            assert_eq!(got.expect("loaded").value, value);
            assert_eq!(cache(&quaymaster, name).counts().loaded(), 1);
        }
    }

    async fn a_load_whose_entry_was_put_or_deleted_elsewhere_is_not_kept(subject: &Subject) {
        let (here, there) = (caches(subject), caches(subject));
        for change in ["put", "delete"] {
            let (began, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (cached, at, on) = (cache(&here, "page").clone(), began.clone(), go.clone());
            let loading = tokio::spawn(async move {
                let loader = || async move {
                    at.notify_one();
                    on.notified().await;
                    Ok::<_, std::io::Error>(Value::from("old"))
                };
                cached.get_or_load(A, Load::default(), loader).await
            });
            began.notified().await;
            if change == "put" {
                let _ = put(cache(&there, "page"), &Value::from("new")).await;
            } else {
                cache(&there, "page").delete(A, None).await.expect("delete");
            }
            go.notify_one();
            assert_eq!(loading.await.expect("no panic").expect("loaded").value, Value::from("old"));
            let left = (change == "put").then(|| Value::from("new"));
            assert_eq!(get(cache(&there, "page")).await, left, "{change}");
            cache(&there, "page").delete(A, None).await.expect("delete");
        }
        assert_eq!(cache(&here, "page").counts().load_lost(), 2);
    }

    async fn a_failed_load_lets_the_next_process_load_at_once(subject: &Subject) {
        let (here, there) = (caches(subject), caches(subject));
        let (began, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (cached, at, on) = (cache(&here, "page").clone(), began.clone(), go.clone());
        let failing = tokio::spawn(async move {
            let loader = || async move {
                at.notify_one();
                on.notified().await;
                Err::<Value, _>("no database")
            };
            // Longer than the other's patience: its end must be told, not waited for.
            let load = Load { lease: Duration::from_secs(60), ..Load::default() };
            cached.get_or_load(A, load, loader).await
        });
        began.notified().await;
        let cached = cache(&there, "page").clone();
        let waiting = tokio::spawn(async move {
            let loader = || async { Ok::<_, std::io::Error>(Value::from("v")) };
            cached.get_or_load(A, Load::default(), loader).await
        });
        while cache(&there, "page").counts().reads().misses == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        go.notify_one();
        assert!(failing.await.expect("no panic").is_err());
        assert_eq!(waiting.await.expect("no panic").expect("loaded").value, Value::from("v"));
    }

    async fn every_key_of_a_cache_has_its_end_and_its_row(subject: &Subject) {
        let quaymaster = caches(subject);
        let page = cache(&quaymaster, "page");
        leave_lease(subject, "page", 1000).await;
        let named = Put { request_id: Some("r"), ..Put::default() };
        let _ = page.put(A, &Value::from("v"), named).await.expect("put");
        let load = subject.side("page:a", "load");
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &load]).await, 0, "a put ends a load");
        for key in [format!("{}page:a", subject.prefix), subject.side("page:a", "req:r"), load] {
            let explained = quaymaster.schema().explain(key.as_bytes());
            assert!(explained.is_some(), "{key} is not in the schema");
            assert_ne!(command_int(&*subject.engine, &["PTTL", &key]).await, -1, "{key}");
        }
    }
}
