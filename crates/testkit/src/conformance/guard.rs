//! What every guard must do on every store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quaymaster::guard::{Enter, Entered, Guard, Leave, Left, Pass, Settled};
use quaymaster::lock::{Acquire, Acquired, Released};
use quaymaster::{Code, Quaymaster, Token};
use quaymaster_store::{Reply, Topology};

use super::{Subject, command, command_text};
use crate::liar::Liar;
use crate::toll::Toll;

/// A payment: its claim by `id`, its lock by `account`, limits by `who` and by `id`.
pub(super) fn payment(
    subject: &Subject,
    limit: u64,
    in_progress: &str,
    lock: &str,
    colocate: &str,
) -> Quaymaster {
    subject.schema(&format!(
        "[idempotency.pay]\nkey = \"idem:{{id}}\"\nttl = \"1h\"\nin_progress_ttl = \"{in_progress}\"\n{colocate}\n\
         [lock.account]\nkey = \"lock:{{account}}\"\nttl = \"{lock}\"\n{colocate}\n\
         [limit.calls]\nkey = \"calls:{{who}}\"\nalgorithm = \"fixed_window\"\nlimit = {limit}\nwindow = \"1h\"\n{colocate}\n\
         [limit.tries]\nkey = \"tries:{{id}}\"\nalgorithm = \"sliding_log\"\nlimit = 50\nwindow = \"1h\"\n{colocate}\n\
         [guard.pay]\nlimits = [\"calls\", \"tries\"]\nidempotency = \"pay\"\nlock = \"account\"\n"
    ))
}

const TOGETHER: &str = "colocate = \"g\"";

pub(super) fn guard(quaymaster: &Quaymaster) -> &Guard {
    quaymaster.guard("pay").expect("declared")
}

/// The same schema on another engine.
pub(super) fn on(quaymaster: &Quaymaster, engine: Arc<dyn quaymaster::Engine>) -> Quaymaster {
    Quaymaster::new(quaymaster.schema().clone(), engine)
}

pub(super) fn key<'a>(id: &'a str, account: &'a str) -> [(&'a str, &'a str); 3] {
    [("id", id), ("account", account), ("who", "w")]
}

pub(super) async fn enter(guard: &Guard, id: &str, account: &str, print: &str) -> Entered {
    let how = Enter { fingerprint: Some(print.as_bytes()), ..Enter::default() };
    guard.enter(&key(id, account), how).await.expect("enter answers")
}

pub(super) async fn pass(guard: &Guard, id: &str, account: &str, print: &str) -> Pass {
    match enter(guard, id, account, print).await {
        Entered::Entered(pass) => pass,
        other => panic!("{id} {account}: {other:?}"),
    }
}

async fn leave(guard: &Guard, id: &str, account: &str, token: &Token, leave: Leave<'_>) -> Left {
    guard.leave(&key(id, account), token, leave).await.expect("leave answers")
}

async fn used(quaymaster: &Quaymaster, limit: &str, key: &[(&str, &str)]) -> u64 {
    quaymaster.limit(limit).expect("declared").peek(key).await.expect("peek").quota().used
}

pub(super) async fn calls(quaymaster: &Quaymaster) -> u64 {
    used(quaymaster, "calls", &[("who", "w")]).await
}

/// Every key of the case: type, content, time to live.
async fn keyspace(subject: &Subject) -> BTreeMap<Vec<u8>, (String, String, i64)> {
    let engine = &*subject.engine;
    let pattern = format!("*{}*", subject.prefix);
    let (mut keys, mut cursor) = (Vec::new(), None);
    loop {
        let page = engine.scan(pattern.as_bytes(), 500, cursor.take()).await.expect("the store scans");
        keys.extend(page.keys);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut found = BTreeMap::new();
    for key in keys {
        let ask = async |words: &[&[u8]]| command(engine, &key, words).await.expect("the command runs");
        let Some(facts) = engine.key_facts(&key).await.expect("facts") else { continue };
        let content = match facts.kind.as_str() {
            "string" => ask(&[b"GET", &key]).await,
            "zset" => ask(&[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"]).await,
            "hash" => ask(&[b"HGETALL", &key]).await,
            other => panic!("a guard has no {other}"),
        };
        let Reply::Int(ttl_ms) = ask(&[b"PTTL", &key]).await else { panic!("a time to live is a number") };
        found.insert(key.to_vec(), (facts.kind, format!("{content:?}"), ttl_ms));
    }
    found
}

/// Nothing was written: same keys, same content, and no life begun anew.
fn assert_untouched(
    before: &BTreeMap<Vec<u8>, (String, String, i64)>,
    after: &BTreeMap<Vec<u8>, (String, String, i64)>,
    what: &str,
) {
    let names = |held: &BTreeMap<Vec<u8>, (String, String, i64)>| -> Vec<String> {
        held.keys().map(|key| key.escape_ascii().to_string()).collect()
    };
    assert_eq!(names(before), names(after), "{what}");
    for (key, (kind, content, ttl_ms)) in before {
        let (kind_after, content_after, ttl_after) = &after[key];
        let key = key.escape_ascii();
        assert_eq!((kind, content), (kind_after, content_after), "{what}: {key}");
        assert!(ttl_after <= ttl_ms, "{what}: {key} lives {ttl_after} ms after {ttl_ms} ms");
    }
}

/// Refuses with nothing written; told apart from a life begun anew by the milliseconds that pass before.
async fn refused(subject: &Subject, guard: &Guard, id: &str, account: &str, print: &str) -> Entered {
    subject.pass(5).await;
    let before = keyspace(subject).await;
    assert!(!before.is_empty(), "nothing to compare");
    let answer = enter(guard, id, account, print).await;
    assert!(!matches!(answer, Entered::Entered(_)), "{answer:?}");
    assert_untouched(&before, &keyspace(subject).await, &format!("{answer:?}"));
    answer
}

/// Writes over an idempotency's record what no record of ours says.
pub(super) async fn scribble(
    subject: &Subject,
    quaymaster: &Quaymaster,
    name: &str,
    values: &[(&str, &str)],
) {
    let kind = quaymaster::schema::Kind::Idempotency;
    let spelling = match subject.engine.topology() {
        Topology::Single => quaymaster::schema::Spelling::Single,
        Topology::Cluster => quaymaster::schema::Spelling::Cluster,
    };
    let resource = quaymaster.schema().resource(kind, name).expect("declared");
    let mut record = Vec::new();
    resource.keys[0].pattern.render(values, 0, spelling, &mut record).expect("a key");
    command(&*subject.engine, &record, &[b"SET", &record, b"what"]).await.expect("set");
}

crate::cases! {
    async fn a_guard_takes_every_part_and_gives_back_what_is_leased(subject: &Subject) {
        let quaymaster = payment(subject, 3, "10s", "5s", TOGETHER);
        let guard = guard(&quaymaster);
        let first = pass(guard, "1", "a", "p").await;
        assert_eq!(first.lock_expires_in, Some(Duration::from_secs(5)));
        assert_eq!(first.claim_expires_in, Some(Duration::from_secs(10)));
        assert_eq!(first.quotas.iter().map(|quota| (quota.limit, quota.used)).collect::<Vec<_>>(), [(3, 1), (50, 1)]);
        // The parts themselves agree, asked one by one.
        let held = quaymaster.lock("account").expect("declared").acquire(&[("account", "a")], Acquire::default());
        assert!(matches!(held.await.expect("acquire"), Acquired::Held { .. }));
        assert_eq!((calls(&quaymaster).await, used(&quaymaster, "tries", &[("id", "1")]).await), (1, 1));

        let response = Leave { response: Some(b"{\"ok\":true}"), ..Leave::default() };
        let left = leave(guard, "1", "a", &first.token, response).await;
        assert_eq!(left.idempotency, Some(Settled::Finished { kept: true }));
        assert_eq!(left.lock, Some(Released::Released));

        // A replay takes no quota and no lock.
        for _ in 0..3 {
            let Entered::Finished(replay) = refused(subject, guard, "1", "a", "p").await else { panic!("replayed") };
            assert_eq!(replay.response.as_deref(), Some(b"{\"ok\":true}".as_slice()));
        }
        assert_eq!(calls(&quaymaster).await, 1);

        let second = pass(guard, "2", "a", "p").await;
        assert!(second.fence > first.fence, "{second:?} after {first:?}");
    }

    async fn the_first_no_of_the_order_is_told_and_nothing_is_taken(subject: &Subject) {
        let quaymaster = payment(subject, 1, "10s", "10s", TOGETHER);
        let guard = guard(&quaymaster);
        let first = pass(guard, "1", "a", "p").await;
        // Everything says no now; the first of the order is told.
        assert_eq!(refused(subject, guard, "1", "a", "other").await, Entered::Mismatch);
        let answer = refused(subject, guard, "1", "a", "p").await;
        let Entered::InProgress { retry_after } = answer else { panic!("{answer:?}") };
        assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(10), "{retry_after:?}");
        let answer = refused(subject, guard, "2", "a", "p").await;
        let Entered::Held { retry_after } = answer else { panic!("{answer:?}") };
        assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(10), "{retry_after:?}");
        let answer = refused(subject, guard, "2", "b", "p").await;
        let Entered::Limited(verdicts) = answer else { panic!("{answer:?}") };
        assert_eq!(verdicts.iter().map(|verdict| verdict.is_allowed()).collect::<Vec<_>>(), [false, true]);
        assert!(verdicts[0].retry_after().expect("waiting helps") > Duration::ZERO);

        // Finished by its own part: the lock is still held and the limit still full.
        let finished = quaymaster.idempotency("pay").expect("declared").finish(&[("id", "1")], &first.token, None);
        let _ = finished.await.expect("finish");
        assert_eq!(refused(subject, guard, "1", "a", "other").await, Entered::Mismatch);
        let answer = refused(subject, guard, "1", "a", "p").await;
        assert!(matches!(answer, Entered::Finished(_)), "{answer:?}");
        assert_eq!(calls(&quaymaster).await, 1);
    }

    async fn entering_and_leaving_is_one_round_trip_each(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let quaymaster = on(&payment(subject, 2, "10s", "10s", TOGETHER), toll.clone());
        let guard = guard(&quaymaster);
        let first = pass(guard, "1", "a", "p").await;
        assert_eq!(toll.runs(), 1, "entered");
        for (id, account, print) in [("1", "a", "other"), ("1", "a", "p"), ("2", "a", "p")] {
            let _ = enter(guard, id, account, print).await;
            assert_eq!(toll.runs(), 1, "{id} {account} {print}");
        }
        let _ = leave(guard, "1", "a", &first.token, Leave::default()).await;
        assert_eq!(toll.runs(), 1, "left");
        let _ = enter(guard, "1", "a", "p").await;
        assert_eq!(toll.runs(), 1, "replayed");
        let _ = pass(guard, "2", "b", "p").await;
        assert_eq!(toll.runs(), 1);
        assert!(matches!(enter(guard, "3", "c", "p").await, Entered::Limited(_)));
        assert_eq!(toll.runs(), 1, "limited");
    }

    async fn a_repeated_enter_counts_once_and_finds_what_it_took(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let quaymaster = on(&payment(subject, 5, "10s", "10s", TOGETHER), toll.clone());
        let guard = guard(&quaymaster);
        let how = |id| Enter { fingerprint: Some(b"p"), request_id: Some(id), ..Enter::default() };
        toll.lose_next_reply();
        let lost = guard.enter(&key("1", "a"), how("r1")).await.expect_err("nobody heard it");
        assert_eq!(lost.code, Code::StoreLost);
        let mut passes = Vec::new();
        for _ in 0..3 {
            match guard.enter(&key("1", "a"), how("r1")).await.expect("enter answers") {
                Entered::Entered(pass) => passes.push(pass),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((calls(&quaymaster).await, used(&quaymaster, "tries", &[("id", "1")]).await), (1, 1));
        assert!(passes.windows(2).all(|pair| pair[0].token == pair[1].token && pair[0].fence == pair[1].fence));
        assert_eq!(passes[2].quotas[0].used, 1);
        // Another id is another call, and the same id on another key as well.
        let answer = guard.enter(&key("1", "a"), how("r2")).await.expect("enter answers");
        assert!(matches!(answer, Entered::InProgress { .. }), "{answer:?}");
        let answer = guard.enter(&key("2", "b"), how("r1")).await.expect("enter answers");
        assert!(matches!(answer, Entered::Entered(_)), "{answer:?}");
        assert_eq!(calls(&quaymaster).await, 2);
        // After it was left, a repetition is told the answer.
        let _ = leave(guard, "1", "a", &passes[0].token, Leave::default()).await;
        let answer = guard.enter(&key("1", "a"), how("r1")).await.expect("enter answers");
        assert!(matches!(answer, Entered::Finished(_)), "{answer:?}");
        assert_eq!(calls(&quaymaster).await, 2);
    }

    async fn an_enter_whose_leases_have_ended_is_a_new_one_and_counts(subject: &Subject) {
        let quaymaster = payment(subject, 5, "100ms", "100ms", TOGETHER);
        let guard = guard(&quaymaster);
        let how = Enter { request_id: Some("r"), ..Enter::default() };
        let Entered::Entered(first) = guard.enter(&key("1", "a"), how).await.expect("enter") else {
            panic!("the first one enters")
        };
        subject.pass(150).await;
        let Entered::Entered(again) = guard.enter(&key("1", "a"), how).await.expect("enter") else {
            panic!("nobody else has it")
        };
        assert_eq!(calls(&quaymaster).await, 2);
        assert!(again.fence > first.fence, "a new lease has a new fence");
    }

    async fn a_leave_under_an_id_of_another_lease_ends_its_own(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "10s", TOGETHER);
        let guard = guard(&quaymaster);
        let abandon = Leave { abandon: true, request_id: Some("x"), ..Leave::default() };
        let finish = |response| Leave { response: Some(response), request_id: Some("x"), ..Leave::default() };
        let first = pass(guard, "1", "a", "p").await;
        let left = leave(guard, "1", "a", &first.token, abandon).await;
        assert_eq!((left.idempotency, left.lock), (Some(Settled::Abandoned), Some(Released::Released)));
        let second = pass(guard, "1", "a", "p").await;
        for (response, kept) in [(b"paid".as_slice(), true), (b"paid", true), (b"other", false)] {
            let left = leave(guard, "1", "a", &second.token, finish(response)).await;
            assert_eq!((left.idempotency, left.lock), (Some(Settled::Finished { kept }), Some(Released::Released)));
        }
        let Entered::Finished(replay) = enter(guard, "1", "a", "p").await else { panic!("it was finished") };
        assert_eq!(replay.response.as_deref(), Some(b"paid".as_slice()));
        for (token, how) in [(&first.token, abandon), (&second.token, abandon)] {
            let error = guard.leave(&key("1", "a"), token, how).await.expect_err("the id is a finish's now");
            assert_eq!(error.code, Code::RequestReused, "{error}");
        }
        let _ = pass(guard, "2", "a", "p").await;
    }

    async fn a_leave_releases_the_lock_also_when_the_record_is_not_ours_to_read(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "10s", TOGETHER);
        let guard = guard(&quaymaster);
        let first = pass(guard, "1", "a", "p").await;
        let record = quaymaster.idempotency("pay").expect("declared");
        scribble(subject, &quaymaster, record.name(), &[("id", "1")]).await;
        let error = guard.leave(&key("1", "a"), &first.token, Leave::default()).await.expect_err("malformed");
        assert_eq!((error.code, error.may_have_run), (Code::KeyMalformed, true), "the lock was given back");
        let _ = pass(guard, "2", "a", "p").await;
    }

    async fn a_guard_of_limits_alone_takes_all_or_none(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let tables: Vec<String> = ["fixed_window", "sliding_log", "sliding_window", "token_bucket"]
            .iter()
            .zip([4, 3, 4, 4])
            .map(|(name, limit)| {
                format!(
                    "[limit.{name}]\nkey = \"{name}:{{who}}\"\nalgorithm = \"{name}\"\nlimit = {limit}\nwindow = \"1h\"\n\
                     {TOGETHER}\n"
                )
            })
            .collect();
        let names = "[\"fixed_window\", \"sliding_log\", \"sliding_window\", \"token_bucket\"]";
        let text = format!("{}[guard.pay]\nlimits = {names}\n", tables.concat());
        let quaymaster = on(&subject.schema(&text), toll.clone());
        let guard = guard(&quaymaster);
        let who = [("who", "w")];
        toll.lose_next_reply();
        let how = |id| Enter { request_id: Some(id), ..Enter::default() };
        guard.enter(&who, how("r1")).await.expect_err("nobody heard it");
        for id in ["r1", "r2", "r3", "r2"] {
            let answer = guard.enter(&who, how(id)).await.expect("enter");
            let Entered::Entered(pass) = answer else { panic!("{id}: {answer:?}") };
            assert_eq!((pass.fence, pass.claim_expires_in, pass.quotas.len()), (None, None, 4));
        }
        subject.pass(5).await;
        let before = keyspace(subject).await;
        let answer = guard.enter(&who, Enter::default()).await.expect("enter");
        let Entered::Limited(verdicts) = answer else { panic!("{answer:?}") };
        assert_eq!(
            verdicts.iter().map(|verdict| verdict.is_allowed()).collect::<Vec<_>>(),
            [true, false, true, true]
        );
        assert_eq!(verdicts.iter().map(|verdict| verdict.quota().used).collect::<Vec<_>>(), [3, 3, 3, 3]);
        assert_untouched(&before, &keyspace(subject).await, "limited");
        // Nothing was leased: there is nothing to give back, and nobody to ask.
        toll.runs();
        let left = guard.leave(&who, &Token::parse("test", "t").expect("a token"), Leave::default()).await;
        assert_eq!(left.expect("leave"), Left { idempotency: None, lock: None, outage: None });
        assert_eq!(toll.runs(), 0);
    }

    async fn a_guard_of_a_lock_alone_is_a_lock(subject: &Subject) {
        let quaymaster = subject.schema("[lock.l]\nkey = \"l:{id}\"\nttl = \"10s\"\n[guard.pay]\nlock = \"l\"\n");
        let guard = guard(&quaymaster);
        let id = [("id", "1")];
        let how = Enter { ttl: Some(Duration::from_secs(2)), ..Enter::default() };
        let Entered::Entered(pass) = guard.enter(&id, how).await.expect("enter") else { panic!("free") };
        assert_eq!((pass.lock_expires_in, pass.claim_expires_in), (Some(Duration::from_secs(2)), None));
        let answer = guard.enter(&id, Enter::default()).await.expect("enter");
        assert!(matches!(answer, Entered::Held { .. }), "{answer:?}");
        let request = Leave { request_id: Some("bye"), ..Leave::default() };
        for _ in 0..2 {
            let left = guard.leave(&id, &pass.token, request).await.expect("leave");
            assert_eq!((left.idempotency, left.lock), (None, Some(Released::Released)), "repeated too");
        }
        let left = guard.leave(&id, &pass.token, Leave::default()).await.expect("leave");
        assert_eq!(left.lock, Some(Released::Lost));
        for how in [
            Enter { ttl: Some(Duration::from_secs(11)), ..Enter::default() },
            Enter { fingerprint: Some(b"p"), ..Enter::default() },
            Enter { request_id: Some(""), ..Enter::default() },
        ] {
            let error = guard.enter(&id, how).await.expect_err("refused");
            let code =
                if how.request_id.is_some() { Code::RequestInvalid } else { Code::ResourceMismatch };
            assert_eq!(error.code, code, "{how:?}");
        }
    }

    async fn a_guard_of_an_idempotency_alone_is_an_idempotency(subject: &Subject) {
        let quaymaster =
            subject.schema("[idempotency.i]\nkey = \"i:{id}\"\nttl = \"1h\"\n[guard.pay]\nidempotency = \"i\"\n");
        let guard = guard(&quaymaster);
        let id = [("id", "1")];
        let Entered::Entered(first) = guard.enter(&id, Enter::default()).await.expect("enter") else {
            panic!("free")
        };
        assert_eq!((first.fence, first.lock_expires_in), (None, None));
        let abandon = Leave { abandon: true, ..Leave::default() };
        let left = guard.leave(&id, &first.token, abandon).await.expect("leave");
        assert_eq!((left.idempotency, left.lock), (Some(Settled::Abandoned), None));
        // The next one enters at once.
        let Entered::Entered(second) = guard.enter(&id, Enter::default()).await.expect("enter") else {
            panic!("abandoned")
        };
        let left = guard.leave(&id, &first.token, Leave::default()).await.expect("leave");
        assert_eq!(left.idempotency, Some(Settled::Lost));
        let both = Leave { abandon: true, response: Some(b"x"), ..Leave::default() };
        assert_eq!(guard.leave(&id, &second.token, both).await.expect_err("a contradiction").code, Code::RequestInvalid);
        for _ in 0..2 {
            let left = guard.leave(&id, &second.token, Leave::default()).await.expect("leave");
            assert_eq!(left.idempotency, Some(Settled::Finished { kept: false }), "repeated too");
        }
        let answer = guard.enter(&id, Enter::default()).await.expect("enter");
        let Entered::Finished(replay) = answer else { panic!("{answer:?}") };
        assert_eq!(replay.response, None);
        // Another program noted that it ran.
        command_text(&*subject.engine, &["SET", &format!("{}i:2", subject.prefix), "1"]).await;
        let answer = guard.enter(&[("id", "2")], Enter::default()).await.expect("enter");
        assert!(matches!(answer, Entered::Finished(_)), "{answer:?}");
    }

    async fn a_stale_bucket_is_rendered_again(subject: &Subject) {
        let quaymaster = subject.schema(&format!(
            "[limit.minute]\nkey = \"m:{{who}}:{{minute}}\"\nalgorithm = \"fixed_window\"\nlimit = 9\nwindow = \"60s\"\n\
             {TOGETHER}\n[lock.l]\nkey = \"l:{{id}}\"\nttl = \"10s\"\n{TOGETHER}\n\
             [guard.pay]\nlimits = [\"minute\"]\nlock = \"l\"\n"
        ));
        for (id, offset_ms) in [("1", -7_200_000), ("2", 7_200_000), ("3", -61_000)] {
            let toll = Toll::new(Arc::new(Liar::new(subject.engine.clone(), offset_ms)));
            let lying = on(&quaymaster, toll.clone());
            let key = [("id", id), ("who", id)];
            let Entered::Entered(pass) = guard(&lying).enter(&key, Enter::default()).await.expect("enter") else {
                panic!("free")
            };
            assert_eq!(pass.quotas[0].used, 1, "counted in one window");
            assert!(pass.quotas[0].reset_after <= Duration::from_secs(60));
            assert_eq!((toll.runs(), guard(&lying).counts().stale()), (2, 1));
        }
    }

    async fn a_key_is_the_union_of_the_parts_placeholders(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "10s", TOGETHER);
        let guard = guard(&quaymaster);
        assert_eq!(guard.placeholders().collect::<Vec<_>>(), ["id", "account", "who"]);
        let before = subject.engine.health().operations;
        for (key, code) in [
            (vec![("id", "1"), ("account", "a")], Code::KeyMissing),
            (vec![("id", "1"), ("account", "a"), ("who", "w"), ("whom", "w")], Code::KeyUnknown),
            (vec![("id", "1"), ("account", "a"), ("who", "w"), ("id", "1")], Code::KeyUnknown),
            (vec![("id", "1"), ("account", ""), ("who", "w")], Code::KeyValue),
        ] {
            let error = guard.enter(&key, Enter::default()).await.expect_err("refused");
            assert_eq!(error.code, code, "{key:?}: {error}");
            let token = Token::parse("test", "t").expect("a token");
            if code != Code::KeyMissing {
                assert_eq!(guard.leave(&key, &token, Leave::default()).await.expect_err("refused").code, code);
            }
        }
        assert_eq!(subject.engine.health().operations, before, "the store was asked");
        // `id` is in two parts and means the same in both.
        let _ = pass(guard, "7", "a", "p").await;
        assert_eq!(used(&quaymaster, "tries", &[("id", "7")]).await, 1);
    }

    async fn a_stale_token_leaves_nothing_behind_and_writes_nothing(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "10s", TOGETHER);
        let guard = guard(&quaymaster);
        let first = pass(guard, "1", "a", "p").await;
        let left = leave(guard, "1", "a", &first.token, Leave { abandon: true, ..Leave::default() }).await;
        assert_eq!((left.idempotency, left.lock), (Some(Settled::Abandoned), Some(Released::Released)));
        let second = pass(guard, "1", "a", "p").await;
        subject.pass(5).await;
        let before = keyspace(subject).await;
        for how in [
            Leave { response: Some(b"late"), ..Leave::default() },
            Leave { abandon: true, ..Leave::default() },
            Leave { request_id: Some("r"), ..Leave::default() },
        ] {
            let left = leave(guard, "1", "a", &first.token, how).await;
            assert_eq!((left.idempotency, left.lock), (Some(Settled::Lost), Some(Released::Lost)), "{how:?}");
            assert!(left.lost_any());
            assert_untouched(&before, &keyspace(subject).await, &format!("{how:?}"));
        }
        let left = leave(guard, "1", "a", &second.token, Leave::default()).await;
        assert!(!left.lost_any(), "{left:?}");
    }

    async fn each_part_says_whether_it_was_still_ours(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "100ms", TOGETHER);
        // The same keys with a lock that outlives a pause of the machine: where time passes by itself it does so here too.
        let patient = payment(subject, 9, "10s", "10s", TOGETHER);
        let (guard, thiefs) = (guard(&quaymaster), self::guard(&patient));
        let first = pass(guard, "1", "a", "p").await;
        subject.pass(150).await;
        let thief = pass(thiefs, "2", "a", "p").await;
        let left = leave(guard, "1", "a", &first.token, Leave { response: Some(b"done"), ..Leave::default() }).await;
        // The operation ran under its claim: that is kept, and the lost lock is told.
        assert_eq!(left.idempotency, Some(Settled::Finished { kept: true }));
        assert_eq!(left.lock, Some(Released::Lost));
        let left = leave(thiefs, "2", "a", &thief.token, Leave::default()).await;
        assert_eq!(left.lock, Some(Released::Released), "the thief's lock was not touched");

        let short = payment(&subject.apart("short"), 9, "100ms", "10s", TOGETHER);
        let guard = self::guard(&short);
        let first = pass(guard, "1", "a", "p").await;
        subject.pass(150).await;
        let left = leave(guard, "1", "a", &first.token, Leave::default()).await;
        assert_eq!((left.idempotency, left.lock), (Some(Settled::Lost), Some(Released::Released)));
    }

    async fn parts_that_hold_something_else_are_told_and_nothing_is_taken(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "10s", TOGETHER);
        let guard = guard(&quaymaster);
        let rows = [
            (quaymaster::schema::Kind::Idempotency, "pay", vec![("id", "1")]),
            (quaymaster::schema::Kind::Lock, "account", vec![("account", "a")]),
            (quaymaster::schema::Kind::Limit, "calls", vec![("who", "w")]),
            (quaymaster::schema::Kind::Limit, "tries", vec![("id", "1")]),
        ];
        for (kind, name, values) in rows {
            let resource = quaymaster.schema().resource(kind, name).expect("declared");
            let spelling = match subject.engine.topology() {
                Topology::Single => quaymaster::schema::Spelling::Single,
                Topology::Cluster => quaymaster::schema::Spelling::Cluster,
            };
            let mut foreign = Vec::new();
            resource.keys[0].pattern.render(&values, 0, spelling, &mut foreign).expect("a key");
            let ask = async |words: &[&[u8]]| command(&*subject.engine, &foreign, words).await.expect("it runs");
            ask(&[b"SADD", &foreign, b"x"]).await;
            let error = guard.enter(&key("1", "a"), Enter::default()).await.expect_err("of another type");
            assert_eq!(error.code, Code::KeyWrongType, "{name}: {error}");
            ask(&[b"DEL", &foreign]).await;
            if matches!(name, "pay" | "calls") {
                ask(&[b"SET", &foreign, b"what"]).await;
                let error = guard.enter(&key("1", "a"), Enter::default()).await.expect_err("malformed");
                assert_eq!(error.code, Code::KeyMalformed, "{name}: {error}");
                assert!(error.detail.contains(name), "{error}");
                ask(&[b"DEL", &foreign]).await;
            }
            assert_eq!(keyspace(subject).await, BTreeMap::new(), "{name}");
        }
        let _ = pass(guard, "1", "a", "p").await;
    }

    async fn of_many_callers_as_many_enter_as_may(subject: &Subject) {
        let quaymaster = payment(subject, 5, "10s", "10s", TOGETHER);
        let guard = guard(&quaymaster);
        let same = join_all((0..30).map(|_| enter(guard, "same", "s", "p"))).await;
        assert_eq!(same.iter().filter(|answer| matches!(answer, Entered::Entered(_))).count(), 1);
        assert_eq!(same.iter().filter(|answer| matches!(answer, Entered::InProgress { .. })).count(), 29);
        let ids: Vec<String> = (0..30).map(|id| format!("i{id}")).collect();
        let each = join_all(ids.iter().map(|id| enter(guard, id, id, "p"))).await;
        assert_eq!(each.iter().filter(|answer| matches!(answer, Entered::Entered(_))).count(), 4);
        assert_eq!(each.iter().filter(|answer| matches!(answer, Entered::Limited(_))).count(), 26);
        assert_eq!(calls(&quaymaster).await, 5);
        assert_eq!(guard.counts().entered(), 5);
        assert_eq!(quaymaster.limit("calls").expect("declared").counts().allowed(), 5);
    }

    async fn a_guard_does_not_overtake_who_waits_for_the_lock(subject: &Subject) {
        let quaymaster = payment(subject, 9, "10s", "10s", TOGETHER);
        let guard = guard(&quaymaster);
        let first = pass(guard, "1", "a", "p").await;
        let lock = quaymaster.lock("account").expect("declared").clone();
        let waiting = tokio::spawn(async move {
            let how = Acquire { wait: Duration::from_secs(60), ..Acquire::default() };
            lock.acquire(&[("account", "a")], how).await.expect("acquire")
        });
        let lock = quaymaster.lock("account").expect("declared");
        while lock.counts().waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let left = leave(guard, "1", "a", &first.token, Leave::default()).await;
        assert_eq!(left.lock, Some(Released::Released));
        let answer = enter(guard, "2", "a", "p").await;
        assert!(matches!(answer, Entered::Held { .. }), "{answer:?}");
        assert!(matches!(waiting.await.expect("the waiter ends"), Acquired::Ours(_)));
    }

    async fn a_call_that_the_engine_sends_again_by_itself_counts_once(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        toll.send_twice();
        let quaymaster = on(&payment(subject, 5, "60s", "60s", TOGETHER), toll.clone());
        let guard = guard(&quaymaster);
        let first = pass(guard, "1", "a", "p").await;
        assert_eq!(first.quotas[0].used, 1);
        assert_eq!((calls(&quaymaster).await, used(&quaymaster, "tries", &[("id", "1")]).await), (1, 1));
        // A lock that was released is not found again: that call says it must not be sent twice.
        let left = leave(guard, "1", "a", &first.token, Leave::default()).await;
        assert_eq!((left.idempotency, left.lock), (Some(Settled::Finished { kept: false }), Some(Released::Released)));
        let _ = pass(guard, "2", "b", "p").await;
        let how = Leave { abandon: true, request_id: Some("r"), ..Leave::default() };
        let third = pass(guard, "3", "c", "p").await;
        let left = leave(guard, "3", "c", &third.token, how).await;
        assert_eq!((left.idempotency, left.lock), (Some(Settled::Abandoned), Some(Released::Released)));
        assert_eq!(calls(&quaymaster).await, 3);
    }
}
