//! What a required seal key means for values that somebody else left readable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use quaymaster::cache::{Fetched, Load, Presence, Put, Stored, Value, When};
use quaymaster::dedupe::{First, Seen};
use quaymaster::idempotency::{Begin, Begun};
use quaymaster::{Code, Quaymaster, Seal, Settings};

use super::{Subject, command};

const A: &[(&str, &str)] = &[("id", "a")];
const ABSENT: Put<'_> = Put { ttl: None, when: When::Absent, request_id: None };
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const MISS: Fetched = Fetched::Miss { outage: None };

/// As `[store] require_seal_key = true` sets it up.
fn strict(subject: &Subject) -> Quaymaster {
    let schema = subject.schema(
        "[cache.token]\nkey = \"token:{id}\"\nttl = \"10s\"\nsensitive = true\n\
         [cache.card]\nkey = \"card:{id}\"\ntype = \"hash\"\nttl = \"10s\"\nsensitive = true\n\
         [cache.page]\nkey = \"page:{id}\"\nttl = \"10s\"\n\
         [dedupe.seen]\nkey = \"seen:{id}\"\nttl = \"10s\"\nsensitive = true\n\
         [idempotency.pay]\nkey = \"idem:{id}\"\nttl = \"1h\"\nsensitive = true\n\
         [guard.pay]\nidempotency = \"pay\"\n",
    );
    let settings = Settings { seal: Seal::from_text(KEY).expect("a key").required(), ..Settings::default() };
    Quaymaster::with(schema.schema().clone(), subject.engine.clone(), settings)
}

/// As another program leaves it, readable.
async fn forge(subject: &Subject, words: &[&str]) {
    let key = format!("{}{}", subject.prefix, words[1]);
    let words: Vec<&[u8]> =
        [&[words[0], &key], &words[2..]].concat().into_iter().map(str::as_bytes).collect();
    command(&*subject.engine, key.as_bytes(), &words).await.expect("the store takes it");
}

crate::cases! {
    async fn a_readable_entry_of_a_sensitive_cache_is_a_miss_and_a_put_replaces_it(subject: &Subject) {
        let quaymaster = strict(subject);
        let ours = Value::fields([("name", "Ann"), ("number", "4111")]);
        let cases = [
            ("token", vec!["SET", "token:a", "forged"], Value::from("ours")),
            // Begins as a sealed value and is none.
            ("token", vec!["SET", "token:a", "\u{1}short"], Value::from("ours")),
            ("card", vec!["HSET", "card:a", "number", "forged", "name", "forged"], ours),
        ];
        for (name, forged, ours) in cases {
            let cache = quaymaster.cache(name).expect("declared");
            for how in [Put::default(), ABSENT] {
                forge(subject, &forged).await;
                assert_eq!(cache.get(A).await.expect("get"), MISS, "{forged:?}");
                assert_eq!(cache.exists(A).await.expect("exists"), Presence::Absent { outage: None });
                assert_eq!(cache.put(A, &ours, how).await.expect("put"), Stored::Stored, "{forged:?}");
                assert_eq!(cache.get(A).await.expect("get"), Fetched::Hit(ours.clone()));
                assert_eq!(cache.exists(A).await.expect("exists"), Presence::Present);
                assert_eq!(cache.put(A, &ours, ABSENT).await.expect("put"), Stored::Present, "it is sealed now");
                let _ = cache.delete(A, None).await.expect("delete");
            }
        }
        let card = quaymaster.cache("card").expect("declared");
        let _ = card.put(A, &Value::fields([("number", "4111")]), Put::default()).await.expect("put");
        forge(subject, &["HSET", "card:a", "limit", "forged"]).await;
        assert_eq!(card.get(A).await.expect("get"), MISS, "one readable field is one too many");
        // Not sensitive: read as before.
        forge(subject, &["SET", "page:a", "plain"]).await;
        let page = quaymaster.cache("page").expect("declared").get(A).await.expect("get");
        assert_eq!(page, Fetched::Hit(Value::from("plain")));
    }

    async fn a_readable_entry_of_a_sensitive_cache_is_loaded_anew(subject: &Subject) {
        let quaymaster = strict(subject);
        let token = quaymaster.cache("token").expect("declared");
        forge(subject, &["SET", "token:a", "forged"]).await;
        let loads = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let counted = loads.clone();
            let loader = move || async move {
                counted.fetch_add(1, SeqCst);
                Ok::<_, std::io::Error>(Value::from("ours"))
            };
            let loaded = token.get_or_load(A, Load::default(), loader).await.expect("loads");
            assert_eq!(loaded.value, Value::from("ours"));
        }
        assert_eq!(loads.load(SeqCst), 1, "what was loaded is kept");
    }

    async fn a_readable_response_of_a_sensitive_idempotency_is_refused(subject: &Subject) {
        let quaymaster = strict(subject);
        let pay = quaymaster.idempotency("pay").expect("declared");
        let guard = quaymaster.guard("pay").expect("declared");
        for forged in ["f - somebody r forged", "f - somebody z forged"] {
            forge(subject, &["SET", "idem:a", forged]).await;
            let refused = pay.begin(A, Begin::default()).await.expect_err("not sealed");
            assert_eq!(refused.code, Code::KeyMalformed, "{refused}");
            assert!(refused.detail.contains("require_seal_key"), "{refused}");
            let refused = guard.enter(A, quaymaster::guard::Enter::default()).await.expect_err("not sealed");
            assert_eq!(refused.code, Code::KeyMalformed, "{refused}");
        }
        // Nothing in these could be forged to be read: finished, without a response.
        for documented in ["1", "f - somebody"] {
            forge(subject, &["SET", "idem:a", documented]).await;
            let Begun::Finished(replay) = pay.begin(A, Begin::default()).await.expect("begin") else {
                panic!("{documented} is finished");
            };
            assert_eq!(replay.response, None);
        }
    }

    async fn a_readable_value_of_a_sensitive_dedupe_is_refused(subject: &Subject) {
        let quaymaster = strict(subject);
        let seen = quaymaster.dedupe("seen").expect("declared");
        forge(subject, &["SET", "seen:a", "forged"]).await;
        let refused = seen.first(A, First::default()).await.expect_err("not sealed");
        assert_eq!(refused.code, Code::KeyMalformed, "{refused}");
        // As `SET … NX` of another program leaves it.
        forge(subject, &["SET", "seen:a", "1"]).await;
        let told = seen.first(A, First::default()).await.expect("first");
        assert_eq!(told, Seen::Duplicate { value: "1".into() });
    }
}
