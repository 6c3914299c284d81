//! What every idempotency must do on every store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use quaymaster::idempotency::{Abandoned, Begin, Begun, Claim, Finished, Idempotency, Replay};
use quaymaster::{Code, Quaymaster, Seal, Settings, Token};

use super::{Subject, command, command_int, command_text};

const A: &[(&str, &str)] = &[("id", "a")];
const ONE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const TWO: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

/// `pay` as the fields declare it, keyed by `id`.
fn pay(subject: &Subject, fields: &str) -> Idempotency {
    of(&subject.schema(&table(fields)))
}

fn table(fields: &str) -> String {
    format!("[idempotency.pay]\nkey = \"idem:{{id}}\"\nttl = \"1h\"\n{fields}\n")
}

fn of(quaymaster: &Quaymaster) -> Idempotency {
    quaymaster.idempotency("pay").expect("declared").clone()
}

/// The same with keys to seal with.
fn sealed(subject: &Subject, keys: &str) -> Idempotency {
    let plain = subject.schema(&table("sensitive = true"));
    let settings = Settings { seal: Seal::from_text(keys).expect("good keys"), ..Settings::default() };
    of(&Quaymaster::with(plain.schema().clone(), plain.engine().clone(), settings))
}

fn record(subject: &Subject) -> String {
    format!("{}idem:a", subject.prefix)
}

async fn held(subject: &Subject) -> Option<String> {
    command_text(&*subject.engine, &["GET", &record(subject)]).await
}

async fn begin(pay: &Idempotency) -> Begun {
    pay.begin(A, Begin::default()).await.expect("begin answers")
}

async fn begin_as(pay: &Idempotency, fingerprint: &str) -> Begun {
    let begin = Begin { fingerprint: Some(fingerprint.as_bytes()), ..Begin::default() };
    pay.begin(A, begin).await.expect("begin answers")
}

fn claim(begun: Begun) -> Claim {
    match begun {
        Begun::Started(claim) => claim,
        other => panic!("not started: {other:?}"),
    }
}

fn replay(begun: Begun) -> Option<Vec<u8>> {
    match begun {
        Begun::Finished(Replay { response }) => response.map(|bytes| bytes.to_vec()),
        other => panic!("not finished: {other:?}"),
    }
}

async fn finish(pay: &Idempotency, token: &Token, response: &[u8]) -> Finished {
    pay.finish(A, token, Some(response)).await.expect("finish answers")
}

const KEPT: Finished = Finished::Finished { kept: true, outage: None };
const NOT_KEPT: Finished = Finished::Finished { kept: false, outage: None };

/// Begins and waits in a task of its own; returns when it is known to wait.
async fn waiter(pay: &Idempotency, wait: Duration) -> tokio::task::JoinHandle<Begun> {
    let before = pay.counts().waited();
    let waiting = pay.clone();
    let task = tokio::spawn(async move {
        waiting.begin(A, Begin { wait, ..Begin::default() }).await.expect("begin answers")
    });
    while pay.counts().waited() == before {
        tokio::task::yield_now().await;
    }
    task
}

crate::cases! {
    async fn one_of_many_begins_and_the_others_are_told_when_its_claim_ends(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"30s\"");
        let all = join_all((0..20).map(|_| begin(&pay))).await;
        let started = all.iter().filter(|begun| matches!(begun, Begun::Started(_))).count();
        assert_eq!(started, 1, "{all:?}");
        for begun in all {
            match begun {
                Begun::Started(claim) => assert_eq!(claim.expires_in, Duration::from_secs(30)),
                Begun::InProgress { retry_after } => {
                    assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(30));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((pay.counts().started(), pay.counts().in_progress()), (1, 19));
    }

    async fn a_finished_operation_gives_everybody_its_response_byte_for_byte(subject: &Subject) {
        let long = "all work and no play ".repeat(2000);
        let responses: [&[u8]; 6] = [b"{\"ok\":true}", b"", b"f - x r y", b"\xff\x00\r\n \xfe", b" ", long.as_bytes()];
        let pay = pay(subject, "");
        for (number, response) in responses.into_iter().enumerate() {
            let id = number.to_string();
            let key: &[(&str, &str)] = &[("id", &id)];
            let token = claim(pay.begin(key, Begin::default()).await.expect("begin")).token;
            assert_eq!(pay.finish(key, &token, Some(response)).await.expect("finish"), KEPT);
            for _ in 0..2 {
                let begun = pay.begin(key, Begin::default()).await.expect("begin");
                assert_eq!(replay(begun).as_deref(), Some(response));
            }
        }
        let stored = command_int(&*subject.engine, &["STRLEN", &format!("{}idem:5", subject.prefix)]).await;
        assert!(stored < 1024, "{} bytes are kept as {stored}", long.len());
        assert_eq!(pay.counts().replayed(), 12);
    }

    async fn a_finish_without_a_response_is_replayed_as_none(subject: &Subject) {
        let pay = pay(subject, "");
        let token = claim(begin(&pay).await).token;
        assert_eq!(pay.finish(A, &token, None).await.expect("finish"), NOT_KEPT);
        assert_eq!(replay(begin(&pay).await), None);
    }

    async fn a_live_claim_is_never_reclaimed_and_a_dead_one_at_once(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"400ms\"");
        let before_us = subject.time_us().await;
        let first = claim(begin(&pay).await);
        if subject.clock.is_some() {
            subject.pass(399).await;
            let Begun::InProgress { retry_after } = begin(&pay).await else { panic!("reclaimed a millisecond early") };
            assert_eq!(retry_after, Duration::from_millis(1));
            subject.pass(1).await;
        }
        let second = loop {
            match begin(&pay).await {
                Begun::InProgress { retry_after } => subject.pass(retry_after.as_millis() as i64).await,
                other => break claim(other),
            }
        };
        // A claim's deadline is a whole millisecond of the store's.
        let passed_ms = subject.time_us().await / 1000 - before_us / 1000;
        assert!(passed_ms >= 400, "reclaimed before its deadline, after {passed_ms} ms");
        assert_ne!(first.token, second.token);
        assert_eq!(finish(&pay, &first.token, b"late").await, Finished::Lost);
        assert_eq!(pay.abandon(A, &first.token, None).await.expect("abandon"), Abandoned::Lost);
        assert_eq!(finish(&pay, &second.token, b"in time").await, KEPT);
        assert_eq!(finish(&pay, &first.token, b"later still").await, Finished::Lost);
        assert_eq!(replay(begin(&pay).await).as_deref(), Some(b"in time".as_slice()));
        assert_eq!(pay.counts().lost(), 3);
    }

    async fn an_expired_claim_finishes_nothing_even_if_nobody_took_it_over(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"50ms\"");
        let token = claim(begin(&pay).await).token;
        subject.pass(51).await;
        assert_eq!(finish(&pay, &token, b"late").await, Finished::Lost);
        assert_eq!(pay.abandon(A, &token, None).await.expect("abandon"), Abandoned::Lost);
        let _ = claim(begin(&pay).await);
    }

    async fn another_request_under_the_same_key_is_a_mismatch_for_the_records_whole_life(subject: &Subject) {
        let pay = pay(subject, "");
        let token = claim(begin_as(&pay, "pay 100").await).token;
        assert_eq!(begin_as(&pay, "pay 900").await, Begun::Mismatch);
        assert!(matches!(begin_as(&pay, "pay 100").await, Begun::InProgress { .. }));
        // Who gives none is not compared.
        assert!(matches!(begin(&pay).await, Begun::InProgress { .. }));
        assert_eq!(finish(&pay, &token, b"paid").await, KEPT);
        assert_eq!(begin_as(&pay, "pay 900").await, Begun::Mismatch);
        assert_eq!(replay(begin_as(&pay, "pay 100").await).as_deref(), Some(b"paid".as_slice()));
        assert_eq!(replay(begin(&pay).await).as_deref(), Some(b"paid".as_slice()));
        assert_eq!(pay.counts().mismatch(), 2);
    }

    async fn an_abandoned_operation_may_be_begun_at_once_by_any_request(subject: &Subject) {
        let pay = pay(subject, "");
        let first = claim(begin_as(&pay, "pay 100").await).token;
        assert_eq!(pay.abandon(A, &first, None).await.expect("abandon"), Abandoned::Abandoned);
        assert_eq!(held(subject).await, None);
        let second = claim(begin_as(&pay, "pay 900").await).token;
        assert_eq!(pay.abandon(A, &first, None).await.expect("abandon"), Abandoned::Lost);
        assert_eq!(finish(&pay, &first, b"x").await, Finished::Lost);
        assert_eq!(finish(&pay, &second, b"paid").await, KEPT);
        assert_eq!(pay.abandon(A, &second, None).await.expect("abandon"), Abandoned::Lost, "what is done is done");
        assert_eq!(replay(begin(&pay).await).as_deref(), Some(b"paid".as_slice()));
    }

    async fn a_repeated_call_gets_the_answer_its_first_one_got(subject: &Subject) {
        let pay = pay(subject, "");
        let again = Begin { request_id: Some("r-1"), ..Begin::default() };
        let first = claim(pay.begin(A, again).await.expect("begin"));
        let second = claim(pay.begin(A, again).await.expect("begin"));
        assert_eq!(first.token, second.token);
        assert!(second.expires_in <= first.expires_in, "a repetition does not prolong the claim");
        let other = Begin { request_id: Some("r-2"), ..Begin::default() };
        assert!(matches!(pay.begin(A, other).await.expect("begin"), Begun::InProgress { .. }));
        for _ in 0..2 {
            let answer = pay.abandon(A, &first.token, Some("r-3")).await.expect("abandon");
            assert_eq!(answer, Abandoned::Abandoned);
        }
        let token = claim(begin(&pay).await).token;
        assert_eq!(pay.abandon(A, &first.token, Some("r-3")).await.expect("abandon"), Abandoned::Abandoned);
        assert_eq!(pay.abandon(A, &first.token, Some("r-4")).await.expect("abandon"), Abandoned::Lost);
        assert_eq!(finish(&pay, &token, b"once").await, KEPT);
        assert_eq!(finish(&pay, &token, b"once").await, KEPT);
        assert_eq!(finish(&pay, &token, b"twice").await, NOT_KEPT, "what is kept is another response");
        assert_eq!(replay(begin(&pay).await).as_deref(), Some(b"once".as_slice()), "the first response stays");
    }

    async fn an_abandon_under_an_id_of_another_claim_gives_its_own_claim_back(subject: &Subject) {
        let pay = pay(subject, "");
        let first = claim(begin(&pay).await).token;
        assert_eq!(pay.abandon(A, &first, Some("x")).await.expect("abandon"), Abandoned::Abandoned);
        let second = claim(begin(&pay).await).token;
        assert_eq!(pay.abandon(A, &second, Some("x")).await.expect("abandon"), Abandoned::Abandoned);
        assert_eq!(held(subject).await, None, "told abandoned, and the claim is there");
        let error = pay.abandon(A, &first, Some("x")).await.expect_err("the id is another claim's now");
        assert_eq!(error.code, Code::RequestReused);
        // The same token comes again with the same request.
        let again = Begin { request_id: Some("j"), ..Begin::default() };
        for _ in 0..2 {
            let token = claim(pay.begin(A, again).await.expect("begin")).token;
            assert_eq!(pay.abandon(A, &token, Some("y")).await.expect("abandon"), Abandoned::Abandoned);
            assert_eq!(held(subject).await, None);
        }
    }

    async fn a_finish_says_whether_its_own_response_is_the_one_kept(subject: &Subject) {
        let none_first = pay(subject, "");
        let token = claim(begin(&none_first).await).token;
        assert_eq!(none_first.finish(A, &token, None).await.expect("finish"), NOT_KEPT);
        assert_eq!(finish(&none_first, &token, b"late").await, NOT_KEPT);
        assert_eq!(replay(begin(&none_first).await), None);
        // Sealed, the same response is never the same bytes.
        let long = "all work and no play ".repeat(200);
        for (name, response) in [("short", b"paid".as_slice()), ("long", long.as_bytes())] {
            for sealing in [true, false] {
                let apart = subject.apart(&format!("{name}{sealing}"));
                let pay = if sealing { sealed(&apart, ONE) } else { pay(&apart, "") };
                let token = claim(begin(&pay).await).token;
                assert_eq!(finish(&pay, &token, response).await, KEPT);
                assert_eq!(finish(&pay, &token, response).await, KEPT, "{name} {sealing}");
                assert_eq!(finish(&pay, &token, b"other").await, NOT_KEPT, "{name} {sealing}");
                assert_eq!(pay.finish(A, &token, None).await.expect("finish"), NOT_KEPT);
                assert_eq!(replay(begin(&pay).await).as_deref(), Some(response));
            }
        }
    }

    async fn a_request_id_does_not_pass_for_another_request(subject: &Subject) {
        let pay = pay(subject, "");
        let of = |fingerprint| Begin { fingerprint: Some(fingerprint), request_id: Some("r-1"), ..Begin::default() };
        let _ = claim(pay.begin(A, of(b"pay 100")).await.expect("begin"));
        assert_eq!(pay.begin(A, of(b"pay 900")).await.expect("begin"), Begun::Mismatch);
    }

    async fn a_response_over_its_bound_is_not_kept_and_the_operation_is_finished(subject: &Subject) {
        let pay = pay(subject, "max_response = \"100B\"");
        let token = claim(begin(&pay).await).token;
        assert_eq!(finish(&pay, &token, &[b'x'; 101]).await, NOT_KEPT);
        assert_eq!(replay(begin(&pay).await), None);
        assert_eq!(pay.counts().not_kept(), 1);
        let key: &[(&str, &str)] = &[("id", "b")];
        let token = claim(pay.begin(key, Begin::default()).await.expect("begin")).token;
        assert_eq!(pay.finish(key, &token, Some(&[b'x'; 100])).await.expect("finish"), KEPT);
    }

    async fn a_compact_record_is_small_and_still_knows_its_request(subject: &Subject) {
        let pay = pay(subject, "compact = true");
        let token = claim(begin_as(&pay, "pay 100").await).token;
        assert_eq!(finish(&pay, &token, b"paid").await, NOT_KEPT);
        assert_eq!(finish(&pay, &token, b"paid").await, NOT_KEPT, "a repeated finish is known");
        assert_eq!(begin_as(&pay, "pay 900").await, Begun::Mismatch);
        assert_eq!(replay(begin_as(&pay, "pay 100").await), None);
        let text = held(subject).await.expect("there");
        assert!(text.len() <= 27 && !text.contains("paid"), "{text}");
    }

    async fn records_live_as_long_as_declared(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"20s\"");
        let pttl = ["PTTL", &record(subject)];
        let token = claim(begin_as(&pay, "pay 100").await).token;
        let left = command_int(&*subject.engine, &pttl).await;
        assert!((20_000..=21_000).contains(&left), "the broom comes after the deadline: {left}");
        let text = held(subject).await.expect("there");
        let words: Vec<&str> = text.split(' ').collect();
        assert_eq!((words[0], words[1], words[3].len()), ("p", token.as_str(), 16), "{text}");
        let now_ms = subject.time_us().await / 1000;
        let deadline_ms: i64 = words[2].parse().expect("a number");
        assert!(deadline_ms > now_ms && deadline_ms <= now_ms + 20_000, "{text}");
        assert_eq!(finish(&pay, &token, b"paid").await, KEPT);
        let left = command_int(&*subject.engine, &pttl).await;
        assert!(left > 3_590_000 && left <= 3_600_000, "{left}");
        let text = held(subject).await.expect("there");
        assert_eq!(text, format!("f {} {} r paid", words[3], &token.as_str()[14..]));
        assert!(!text.contains(token.as_str()), "a finished record does not show the token");
    }

    async fn what_another_program_wrote_is_finished_or_refused_and_never_changed(subject: &Subject) {
        let (pay, key) = (pay(subject, ""), record(subject));
        let engine = &*subject.engine;
        command(engine, key.as_bytes(), &[b"SET", key.as_bytes(), b"1"]).await.expect("set");
        assert_eq!(replay(begin(&pay).await), None);
        assert_eq!(replay(begin_as(&pay, "pay 100").await), None);
        let token = Token::parse("test", "somebody").expect("a token");
        assert_eq!(finish(&pay, &token, b"x").await, Finished::Lost);
        assert_eq!(pay.abandon(A, &token, None).await.expect("abandon"), Abandoned::Lost);
        assert_eq!(held(subject).await.as_deref(), Some("1"));
        // What a finish without a response wrote before it was shortened, and since.
        for bare in ["f - somebody -", "f - somebody"] {
            command(engine, key.as_bytes(), &[b"SET", key.as_bytes(), bare.as_bytes()]).await.expect("set");
            assert_eq!(replay(begin(&pay).await), None);
            assert_eq!(finish(&pay, &token, b"x").await, NOT_KEPT, "{bare}");
            assert_eq!(held(subject).await.as_deref(), Some(bare));
        }
        for junk in ["", "2", "p", "p t x -", "p t 1", "f", "f -", "f - t ", "f - t q", "f - t -x", "f - t rx", "done"] {
            command(engine, key.as_bytes(), &[b"SET", key.as_bytes(), junk.as_bytes()]).await.expect("set");
            let refused = pay.begin(A, Begin::default()).await.expect_err("junk");
            assert_eq!(refused.code, Code::KeyMalformed, "{junk:?}");
            let refused = pay.finish(A, &token, None).await.expect_err("junk");
            assert_eq!(refused.code, Code::KeyMalformed, "{junk:?}");
            let refused = pay.abandon(A, &token, None).await.expect_err("junk");
            assert_eq!(refused.code, Code::KeyMalformed, "{junk:?}");
            assert_eq!(held(subject).await.as_deref(), Some(junk));
        }
        command(engine, key.as_bytes(), &[b"DEL", key.as_bytes()]).await.expect("del");
        command(engine, key.as_bytes(), &[b"RPUSH", key.as_bytes(), b"1"]).await.expect("push");
        assert_eq!(pay.begin(A, Begin::default()).await.expect_err("a list").code, Code::KeyWrongType);
    }

    async fn who_waits_is_woken_by_the_finish_and_gets_its_response(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"1h\"");
        let token = claim(begin(&pay).await).token;
        let waiters = join_all((0..5).map(|_| waiter(&pay, Duration::from_secs(60)))).await;
        let finished = Instant::now();
        assert_eq!(finish(&pay, &token, b"paid").await, KEPT);
        for begun in join_all(waiters).await {
            assert_eq!(replay(begun.expect("joins")).as_deref(), Some(b"paid".as_slice()));
        }
        // Without a hint each would have asked again after five seconds.
        assert!(finished.elapsed() < Duration::from_secs(4), "nobody was woken");
    }

    async fn who_waits_is_woken_by_an_abandon_and_begins(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"1h\"");
        let token = claim(begin(&pay).await).token;
        let waiters = join_all((0..3).map(|_| waiter(&pay, Duration::from_secs(1)))).await;
        assert_eq!(pay.abandon(A, &token, None).await.expect("abandon"), Abandoned::Abandoned);
        let answers: Vec<Begun> = join_all(waiters).await.into_iter().map(|begun| begun.expect("joins")).collect();
        let started = answers.iter().filter(|begun| matches!(begun, Begun::Started(_))).count();
        let waiting = answers.iter().filter(|begun| matches!(begun, Begun::InProgress { .. })).count();
        assert_eq!((started, waiting), (1, 2), "{answers:?}");
    }

    async fn who_waits_takes_a_dead_claim_over_when_it_ends(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"300ms\"");
        let token = claim(begin(&pay).await).token;
        let waiter = waiter(&pay, Duration::from_secs(60)).await;
        subject.pass(300).await;
        let second = claim(waiter.await.expect("joins")).token;
        assert_eq!(finish(&pay, &token, b"late").await, Finished::Lost);
        assert_ne!(token, second);
    }

    async fn a_wait_ends_when_it_was_asked_to(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"1h\"");
        let _ = claim(begin(&pay).await);
        let begun = pay.begin(A, Begin { wait: Duration::from_millis(50), ..Begin::default() }).await.expect("begin");
        assert!(matches!(begun, Begun::InProgress { .. }), "{begun:?}");
        let other = begin_as(&pay, "x").await;
        assert!(matches!(other, Begun::InProgress { .. }), "no fingerprint was kept to differ from: {other:?}");
    }

    async fn two_hundred_at_once_run_the_effect_once_and_all_get_its_answer(subject: &Subject) {
        let pay = pay(subject, "in_progress_ttl = \"60s\"");
        let ran = Arc::new(AtomicU64::new(0));
        let caller = |number: u64| {
            let (pay, ran) = (pay.clone(), ran.clone());
            async move {
                let begin = Begin { fingerprint: Some(b"pay 100"), wait: Duration::from_secs(60), request_id: None };
                match pay.begin(A, begin).await.expect("begin") {
                    Begun::Started(claim) => {
                        ran.fetch_add(1, SeqCst);
                        let answer = format!("paid by {number}");
                        assert_eq!(finish(&pay, &claim.token, answer.as_bytes()).await, KEPT);
                        answer.into_bytes()
                    }
                    other => replay(other).expect("a response"),
                }
            }
        };
        let answers = join_all((0..200).map(|number| tokio::spawn(caller(number)))).await;
        assert_eq!(ran.load(SeqCst), 1);
        let answers: Vec<Vec<u8>> = answers.into_iter().map(|answer| answer.expect("joins")).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]));
    }

    async fn a_sensitive_response_is_sealed_at_rest_and_replayed_in_clear(subject: &Subject) {
        let pay = sealed(subject, ONE);
        let token = claim(begin_as(&pay, "card 4111").await).token;
        let response = "{\"card\":\"4111\"}".repeat(200);
        assert_eq!(finish(&pay, &token, response.as_bytes()).await, KEPT);
        let stored = command_text(&*subject.engine, &["GET", &record(subject)]).await.expect("there");
        assert!(!stored.contains("4111"), "{stored}");
        assert_eq!(replay(begin_as(&pay, "card 4111").await).as_deref(), Some(response.as_bytes()));
        let stranger = sealed(subject, TWO);
        assert_eq!(stranger.begin(A, Begin::default()).await.expect_err("no key").code, Code::SealKey);
        // The digest cannot be computed without the key: what was not sealed by it is not recognised.
        let plain = of(&subject.schema(&table("")));
        assert_eq!(begin_as(&plain, "card 4111").await, Begun::Mismatch);
    }

    async fn a_changed_seal_key_still_knows_the_requests_of_the_old_one(subject: &Subject) {
        let old = sealed(subject, ONE);
        let token = claim(begin_as(&old, "card 4111").await).token;
        let new = sealed(subject, &format!("{TWO},{ONE}"));
        assert!(matches!(begin_as(&new, "card 4111").await, Begun::InProgress { .. }));
        assert_eq!(finish(&new, &token, b"paid").await, KEPT);
        assert_eq!(replay(begin_as(&new, "card 4111").await).as_deref(), Some(b"paid".as_slice()));
        assert_eq!(begin_as(&new, "card 4222").await, Begun::Mismatch);
    }

    async fn bad_input_is_refused_by_name_and_writes_nothing(subject: &Subject) {
        let pay = pay(subject, "");
        let long = "x".repeat(129);
        for id in ["", "a*", &long] {
            let error = pay.begin(A, Begin { request_id: Some(id), ..Begin::default() }).await.expect_err("refused");
            assert_eq!(error.code, Code::RequestInvalid);
            assert!(error.detail.starts_with("request_id"), "{}", error.detail);
        }
        let error = pay.begin(&[], Begin::default()).await.expect_err("refused");
        assert_eq!(error.code, Code::KeyMissing);
        let error = pay.begin(&[("id", "a"), ("no", "b")], Begin::default()).await.expect_err("refused");
        assert_eq!(error.code, Code::KeyUnknown);
        assert_eq!(held(subject).await, None);
    }
}
