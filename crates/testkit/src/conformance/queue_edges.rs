//! Queues beside other programs, by priority, with dead letters, and what follows from an ack.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use quaymaster::queue::{
    Ack, Claim, ClaimNext, Item, Job, Nack, Nacked, Purge, Push, PushDedupe, Queue, Redrive, Then,
};
use quaymaster::{Code, Quaymaster};
use quaymaster_store::{Message, Topology};

use super::queue::{
    LONG, ack, claim, claim_for, code, dead_letters, declare, failed, items, leases, one, payloads, places,
    pressure, push, push_all, shorten, spelled,
};
use super::{Subject, command, command_int, command_text};
use crate::toll::Toll;

fn priority(subject: &Subject, more: &str) -> (Quaymaster, Queue) {
    declare(subject, &format!("order = \"priority\"\n{more}"))
}

async fn push_at(queue: &Queue, priority: f64, payload: &'static str) {
    let push = Push { priority: Some(priority), ..Push::one(payload) };
    assert_eq!(queue.push(push).await.expect("push").accepted, 1);
}

/// `count` jobs, each of which dies with its first failure.
async fn bury(queue: &Queue, count: usize) {
    queue.push(Push::many((0..count).map(|n| Bytes::from(n.to_string())).collect())).await.expect("push");
    for job in claim(queue, count).await {
        let nack = Nack { dead: true, ..Nack::of(job.lease, "no") };
        assert_eq!(queue.nack(nack).await.expect("nack"), Nacked::Dead { attempt: 1 });
    }
}

fn numbers(jobs: &[Job]) -> Vec<u64> {
    jobs.iter()
        .map(|job| std::str::from_utf8(&job.payload).expect("text").parse().expect("a number"))
        .collect()
}

fn joined(subject: &Subject) -> (Quaymaster, Queue, Queue) {
    let (quaymaster, queue) = declare(
        subject,
        "[queue.next]\nmax_size = 2\ncolocate = \"q\"\n[queue.ranked]\norder = \"priority\"\ncolocate = \"q\"\n[event.news]\n",
    );
    let next = quaymaster.queue("next").expect("declared").clone();
    (quaymaster, queue, next)
}

fn then_push(name: &str, payload: &'static str) -> Then {
    Then::Push { name: name.into(), payload: payload.into(), priority: None, delay: None }
}

crate::cases! {
    async fn the_highest_priority_comes_first_and_ties_oldest_first(subject: &Subject) {
        let (_, queue) = priority(subject, "");
        for (score, payload) in [(1.0, "\"a\""), (5.5, "\"b\""), (-3.0, "\"c\""), (5.5, "\"d\""), (1.0, "\"a\""), (1e300, "\"e\"")] {
            push_at(&queue, score, payload).await;
        }
        push(&queue, "\"zero\"").await;
        assert_eq!(places(&queue).await, (7, 0, 0, 0), "equal payloads are two jobs");
        let jobs = claim(&queue, 10).await;
        assert_eq!(payloads(&jobs), ["\"e\"", "\"b\"", "\"d\"", "\"a\"", "\"a\"", "\"zero\"", "\"c\""]);
        assert_eq!(ack(&queue, &jobs).await.acked, 7);
        let wrong = Push { priority: Some(f64::NAN), ..Push::one("1") };
        assert_eq!(code(queue.push(wrong).await), Code::RequestInvalid);
    }

    async fn a_job_that_comes_again_keeps_its_priority(subject: &Subject) {
        let (_, queue) = priority(subject, "");
        push_at(&queue, 2.0, "\"middle\"").await;
        push_at(&queue, 1.0, "\"low\"").await;
        let middle = one(&queue).await;
        push_at(&queue, 3.0, "\"high\"").await;
        push_at(&queue, 2.0, "\"younger\"").await;
        assert_eq!(failed(&queue, &middle, "no").await, Nacked::Retry { attempt: 1, retry_in: Duration::ZERO });
        assert_eq!(payloads(&claim(&queue, 1).await), ["\"high\""], "a retry does not jump the queue");
        let rest = claim(&queue, 5).await;
        assert_eq!(payloads(&rest), ["\"middle\"", "\"younger\"", "\"low\""], "and is the oldest of its priority");
        assert_eq!(rest[0].attempt, 2);
        // The same after a crash.
        push_at(&queue, 9.0, "\"first\"").await;
        let crashed = claim_for(&queue, 1, 20).await;
        subject.pass(22).await;
        push_at(&queue, 10.0, "\"above\"").await;
        assert_eq!(payloads(&claim(&queue, 1).await), ["\"above\""]);
        assert_eq!((payloads(&claim(&queue, 1).await), ack(&queue, &crashed).await.lost), (vec!["\"first\""], 1));
    }

    async fn a_priority_queue_shares_its_zset_with_others(subject: &Subject) {
        let (quaymaster, queue) = priority(subject, "");
        let key = spelled(subject, &quaymaster, "items", &[]);
        let waiting = queue.clone();
        let waiter = tokio::spawn(async move { waiting.claim(Claim { wait: LONG, ..Claim::default() }).await });
        while queue.counts().waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        command_int(&*subject.engine, &["ZADD", &key, "7", "{\"foreign\":1}"]).await;
        assert_eq!(payloads(&waiter.await.expect("task").expect("claim")), ["{\"foreign\":1}"]);
        push_at(&queue, 1.5, "\"ours\"").await;
        let words: [&[u8]; 3] = [b"ZPOPMAX", key.as_bytes(), b"1"];
        let popped = command(&*subject.engine, key.as_bytes(), &words).await.expect("ZPOPMAX");
        assert!(format!("{popped:?}").contains(":\\\"ours\\\""), "{popped:?}");
        command_int(&*subject.engine, &["ZADD", &key, "1", "not json"]).await;
        push_at(&queue, 0.0, "\"good\"").await;
        let claimed = claim(&queue, 2).await;
        assert_eq!(payloads(&claimed), ["\"not json\"", "\"good\""], "foreign text comes as a JSON string");
    }

    async fn a_full_priority_queue_sheds_what_would_come_last(subject: &Subject) {
        let (quaymaster, queue) = priority(subject, "max_size = 2\noverflow = \"dlq\"");
        push_at(&queue, 5.0, "\"high\"").await;
        push_at(&queue, 1.0, "\"low\"").await;
        let pushed = queue.push(Push { priority: Some(3.0), ..Push::one("\"middle\"") }).await.expect("push");
        assert_eq!((pushed.moved_to_dlq, pushed.queue_length), (1, 2));
        assert_eq!(items(subject, &spelled(subject, &quaymaster, "overflow", &[])).await, [b"\"low\""]);
        assert_eq!(payloads(&claim(&queue, 5).await), ["\"high\"", "\"middle\""]);
        let moved = queue.redrive(Redrive { overflow: true, ..Redrive::default() }, |_| ()).await.expect("redrive");
        assert_eq!((moved.moved, payloads(&claim(&queue, 5).await)), (1, vec!["\"low\""]));
        let (_, queue) = priority(&subject.apart("drop"), "max_size = 1\noverflow = \"drop_oldest\"");
        push_at(&queue, 5.0, "\"high\"").await;
        let pushed = queue.push(Push { priority: Some(3.0), ..Push::one("\"middle\"") }).await.expect("push");
        assert_eq!((pushed.dropped, payloads(&claim(&queue, 5).await)), (1, vec!["\"high\""]));
        let (_, queue) = priority(&subject.apart("reject"), "max_size = 1");
        push_at(&queue, 5.0, "\"high\"").await;
        assert_eq!(code(queue.push(Push::one("1")).await), Code::QueueFull);
    }

    async fn a_delayed_job_keeps_its_priority_and_a_dead_one_when_it_is_redriven(subject: &Subject) {
        let (_, queue) = priority(subject, "retry = { max_attempts = 1 }");
        queue.push(Push { priority: Some(2.0), delay: Some(Duration::from_millis(20)), ..Push::one("\"two\"") }).await.expect("push");
        subject.pass(22).await;
        push_at(&queue, 3.0, "\"three\"").await;
        push_at(&queue, 1.0, "\"one\"").await;
        let jobs = claim(&queue, 5).await;
        assert_eq!(payloads(&jobs), ["\"three\"", "\"two\"", "\"one\""]);
        assert_eq!(failed(&queue, &jobs[0], "no").await, Nacked::Dead { attempt: 1 });
        push_at(&queue, 2.5, "\"later\"").await;
        assert_eq!(queue.redrive(Redrive::default(), |_| ()).await.expect("redrive").moved, 1);
        assert_eq!(payloads(&claim(&queue, 5).await), ["\"three\"", "\"later\""]);
        let age = pressure(&queue).await.oldest_age;
        assert_eq!(age, None, "nothing waits");
        push_at(&queue, 1.0, "\"old\"").await;
        subject.pass(30).await;
        push_at(&queue, 9.0, "\"young\"").await;
        assert!(pressure(&queue).await.oldest_age.expect("known") >= Duration::from_millis(30));
    }

    async fn other_programs_push_and_pop_beside_us(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "");
        let key = spelled(subject, &quaymaster, "items", &[]);
        command_int(&*subject.engine, &["RPUSH", &key, "{\"n\": 1}"]).await;
        push(&queue, "2").await;
        command_int(&*subject.engine, &["LPUSH", &key, "0"]).await;
        let folded = format!("Z:{}", STANDARD.encode(fold(b"{\"folded\": true}")));
        command_int(&*subject.engine, &["RPUSH", &key, &folded]).await;
        assert_eq!(command_text(&*subject.engine, &["LPOP", &key]).await.as_deref(), Some("0"));
        assert_eq!(payloads(&claim(&queue, 5).await), ["{\"n\": 1}", "2", "{\"folded\": true}"]);
    }

    async fn foreign_text_that_is_not_json_is_a_string_and_redriven_as_it_was(subject: &Subject) {
        // The documents push ids and names as they are: `ZADD priority_queue 9 item_id`.
        let (quaymaster, queue) = declare(subject, "retry = { max_attempts = 1 }");
        let key = spelled(subject, &quaymaster, "items", &[]);
        let folded = format!("Z:{}", STANDARD.encode(fold(b"folded text")));
        for item in ["item_id", "", "{\"cut\": ", folded.as_str()] {
            command_int(&*subject.engine, &["RPUSH", &key, item]).await;
        }
        let wanted = ["\"item_id\"", "\"\"", "\"{\\\"cut\\\": \"", "\"folded text\""];
        let shown = queue.peek(10).await.expect("peek");
        assert_eq!(shown.iter().map(Item::bytes).collect::<Vec<_>>(), wanted);
        assert!(shown.iter().all(|item| matches!(item, Item::Json(_))));
        let jobs = claim(&queue, 5).await;
        assert_eq!((payloads(&jobs), places(&queue).await), (wanted.to_vec(), (0, 4, 0, 0)));
        for job in &jobs {
            assert_eq!(failed(&queue, job, "no").await, Nacked::Dead { attempt: 1 });
        }
        let letters = dead_letters(&queue).await;
        for (letter, text) in letters.iter().zip(["item_id", "", "{\"cut\": ", "folded text"]) {
            assert_eq!((&letter["original_job"], &letter["original_encoding"]), (&text.into(), &"text".into()));
        }
        let redriven = queue.redrive(Redrive::default(), |_| ()).await.expect("redrive");
        assert_eq!((redriven.moved, redriven.left), (4, 0));
        assert_eq!(command_text(&*subject.engine, &["LINDEX", &key, "0"]).await.as_deref(), Some("item_id"));
        assert_eq!(payloads(&claim(&queue, 5).await), wanted);

        let (quaymaster, queue) = priority(&subject.apart("priority"), "");
        let key = spelled(&subject.apart("priority"), &quaymaster, "items", &[]);
        push_at(&queue, 5.0, "\"ours\"").await;
        for (score, member) in [("9", "item_id"), ("1", "12:00 front door")] {
            command_int(&*subject.engine, &["ZADD", &key, score, member]).await;
        }
        let jobs = claim(&queue, 5).await;
        assert_eq!(payloads(&jobs), ["\"item_id\"", "\"ours\"", "\"12:00 front door\""]);
        assert_eq!(ack(&queue, &jobs).await.acked, 3);
    }

    async fn a_foreign_item_that_no_worker_can_be_given_is_a_dead_letter_at_once(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "compress_over = \"1KiB\"");
        let key = spelled(subject, &quaymaster, "items", &[]);
        // Twenty megabytes of nothing, in a few bytes.
        let bomb = Bytes::from(format!("\"{}\"", "a".repeat(20 << 20)));
        let bomb = format!("Z:{}", STANDARD.encode(fold(&bomb)));
        assert!(bomb.len() < 10_000);
        // Text that is not JSON was buried too; the documents push ids as they are, so it is a string now.
        let garbage: [&[u8]; 5] = [b"\xff", b"Z:***", b"Z:aGVsbG8=", bomb.as_bytes(), b"\xff\xfe"];
        for item in garbage {
            command(&*subject.engine, key.as_bytes(), &[b"RPUSH", key.as_bytes(), item]).await.expect("RPUSH");
        }
        push(&queue, "\"good\"").await;
        let how = Claim { request_id: Some("c".into()), ..Claim::default() };
        let jobs = queue.claim(how.clone()).await.expect("claim");
        assert_eq!(payloads(&jobs), ["\"good\""], "none of it stands in the way");
        assert_eq!(leases(&queue.claim(how).await.expect("claim")), leases(&jobs), "and the request is still known");
        assert_eq!(places(&queue).await, (0, 1, 0, garbage.len() as u64));
        let letters = dead_letters(&queue).await;
        assert_eq!(letters[0]["original_job"], "/w==");
        assert!(letters[0]["error"].as_str().expect("text").contains("not JSON"), "{}", letters[0]["error"]);
        assert!(letters[2]["error"].as_str().expect("text").contains("zstd"));
        assert_eq!(letters[3]["original_job"], bomb.as_str());
        assert!(letters[3]["error"].as_str().expect("text").contains("more than"), "{}", letters[3]["error"]);
        assert_eq!((&letters[4]["original_job"], &letters[4]["original_encoding"]), (&serde_json::json!("//4="), &serde_json::json!("base64")));
        let redriven = queue.redrive(Redrive::default(), |_| ()).await.expect("redrive");
        assert_eq!((redriven.moved, redriven.left), (0, garbage.len() as u64), "they would only die again");
    }

    async fn many_bombs_are_defused_a_few_at_a_time(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "");
        let key = spelled(subject, &quaymaster, "items", &[]);
        let large = fold(format!("\"{}\"", "a".repeat(15 << 20)).as_bytes());
        let bomb = fold(&vec![b'a'; 17 << 20]);
        for folded in [&large, &bomb, &bomb, &bomb, &bomb, &large, &bomb, &large] {
            let item = format!("Z:{}", STANDARD.encode(folded));
            command_int(&*subject.engine, &["RPUSH", &key, &item]).await;
        }
        push(&queue, "\"plain\"").await;
        let mut seen = Vec::new();
        while seen.len() < 4 {
            let jobs = claim(&queue, 100).await;
            assert!(!jobs.is_empty() && jobs.iter().map(|job| job.payload.len()).sum::<usize>() <= 80 << 20);
            assert!(jobs.iter().all(|job| job.attempt == 1), "what was given back was not tried");
            seen.extend(jobs.iter().map(|job| job.payload.len()));
            assert_eq!(ack(&queue, &jobs).await.acked, jobs.len() as u64);
        }
        seen.sort_unstable();
        assert_eq!(seen, [7, (15 << 20) + 2, (15 << 20) + 2, (15 << 20) + 2]);
        assert_eq!(places(&queue).await, (0, 0, 0, 5));
    }

    async fn an_item_too_large_to_deliver_goes_to_the_overflow_list(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "");
        let key = spelled(subject, &quaymaster, "items", &[]);
        let huge = vec![b'1'; (32 << 20) + 1];
        command(&*subject.engine, key.as_bytes(), &[b"RPUSH", key.as_bytes(), &huge]).await.expect("RPUSH");
        push(&queue, "2").await;
        assert_eq!(payloads(&claim(&queue, 5).await), ["2"]);
        let now = pressure(&queue).await;
        assert_eq!((now.overflowed, now.totals.overflowed), (1, 1));
    }

    async fn a_key_of_another_type_is_told_and_nothing_is_changed(subject: &Subject) {
        for role in ["items", "meta", "stamps", "overflow", "jobs", "held", "delayed", "leases", "dead"] {
            let subject = subject.apart(&format!("{}wrong {role}", subject.prefix).replace(' ', ":"));
            let (quaymaster, queue) = declare(&subject, "max_size = 2\noverflow = \"dlq\"\nretry = { max_attempts = 1 }");
            push_all(&queue, &["1", "2"]).await;
            let jobs = claim(&queue, 1).await;
            let key = spelled(&subject, &quaymaster, role, &[]);
            let engine = &*subject.engine;
            let kept = format!("{key}:kept");
            let kept = if subject.engine.topology() == Topology::Cluster { key.clone() } else { kept };
            if kept != key && command_int(engine, &["EXISTS", &key]).await == 1 {
                let words: [&[u8]; 3] = [b"RENAME", key.as_bytes(), kept.as_bytes()];
                command(engine, key.as_bytes(), &words).await.expect("RENAME");
            } else {
                command_int(engine, &["DEL", &key]).await;
            }
            command(engine, key.as_bytes(), &[b"SET", key.as_bytes(), b"a string"]).await.expect("SET");
            let next = Some(ClaimNext { count: 1, lease: None, worker: None });
            let refused = [
                queue.push(Push { delay: Some(LONG), ..Push::many(vec!["3".into(), "4".into()]) }).await.err(),
                queue.push(Push::many(vec!["3".into(), "4".into(), "5".into()])).await.err(),
                queue.claim(Claim::default()).await.err(),
                queue.nack(Nack::of(jobs[0].lease.clone(), "no")).await.err(),
                queue.ack(Ack { claim: next, ..Ack::of(leases(&jobs)) }).await.err(),
                queue.sweep().await.err(),
                queue.pressure().await.err(),
            ];
            let wrong = refused.iter().flatten().inspect(|error| {
                assert!(matches!(error.code, Code::KeyWrongType), "{role}: {error}");
            });
            assert!(wrong.count() >= 2, "{role}: {refused:?}");
            // Back to what it was: whoever was refused has left nothing half done.
            command_int(engine, &["DEL", &key]).await;
            if kept == key {
                continue;
            }
            if command_int(engine, &["EXISTS", &kept]).await == 1 {
                let words: [&[u8]; 3] = [b"RENAME", kept.as_bytes(), key.as_bytes()];
                command(engine, kept.as_bytes(), &words).await.expect("RENAME");
            }
            let now = pressure(&queue).await;
            let whole = now.current_length + now.leased + now.delayed + now.dead + now.overflowed + now.totals.acked;
            let pushed = now.totals.pushed;
            assert_eq!(whole, pushed, "{role}: every job is in one place: {now:?}");
        }
    }

    async fn dead_letters_are_paged_redriven_and_purged(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        bury(&queue, 250).await;
        let page = queue.dead(100, 200).await.expect("dead");
        assert_eq!((page.length, page.items.len()), (250, 50));
        assert!(queue.dead(10, 10_000).await.expect("dead").items.is_empty());
        let mut heard = Vec::new();
        let redriven = queue.redrive(Redrive { count: Some(120), ..Redrive::default() }, |moved| heard.push(moved)).await.expect("redrive");
        assert_eq!((redriven.moved, redriven.left, redriven.full), (120, 0, false));
        assert_eq!(heard, [100, 120]);
        let jobs = claim(&queue, 200).await;
        assert_eq!(numbers(&jobs), (0..120).collect::<Vec<u64>>(), "the oldest first");
        assert!(jobs.iter().all(|job| job.attempt == 1), "they begin anew");
        assert_eq!(queue.purge(Purge { count: Some(30), ..Purge::default() }, |_| ()).await.expect("purge"), 30);
        assert_eq!(places(&queue).await.3, 100);
        assert_eq!(dead_letters(&queue).await[0]["original_job"], 150);
        assert_eq!(queue.redrive(Redrive::default(), |_| ()).await.expect("redrive").moved, 100);
        assert_eq!((places(&queue).await.3, pressure(&queue).await.totals.redriven), (0, 220));
        assert_eq!(queue.purge(Purge::default(), |_| ()).await.expect("purge"), 0);
    }

    async fn a_redrive_or_purge_that_was_interrupted_goes_on_where_it_was(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let (_, queue) = declare(&Subject { engine: toll.clone(), ..subject.clone() }, "");
        bury(&queue, 250).await;
        let which = Redrive { count: Some(150), request_id: Some("r".into()), ..Redrive::default() };
        // The reply to the second step is lost; what it did is known.
        let heard = |moved| if moved == 100 { toll.lose_after(1) };
        assert_eq!(code(queue.redrive(which.clone(), heard).await), Code::StoreLost);
        assert_eq!(places(&queue).await.3, 100);
        assert_eq!(queue.redrive(which.clone(), |_| ()).await.expect("redrive").moved, 150, "no more than asked for");
        assert_eq!(queue.redrive(which, |_| ()).await.expect("redrive").moved, 150, "told once more");
        assert_eq!(places(&queue).await, (150, 0, 0, 100));
        let which = Purge { count: Some(60), request_id: Some("p".into()), ..Purge::default() };
        toll.lose_after(2);
        assert_eq!(code(queue.purge(which.clone(), |_| ()).await), Code::StoreLost);
        assert_eq!(queue.purge(which.clone(), |_| ()).await.expect("purge"), 60);
        assert_eq!(queue.purge(which, |_| ()).await.expect("purge"), 60);
        assert_eq!(places(&queue).await.3, 40);
        let conflict = Purge { request_id: Some("r".into()), ..Purge::default() };
        assert_eq!(code(queue.purge(conflict, |_| ()).await), Code::RequestReused);
    }

    async fn letters_that_are_not_ours_are_left_where_they_are(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "max_size = 3");
        let key = spelled(subject, &quaymaster, "dead", &[]);
        bury(&queue, 2).await;
        for letter in ["foreign", "{\"original_job\": {\"a\":  1}, \"error\": \"theirs\"}", "{}"] {
            command_int(&*subject.engine, &["RPUSH", &key, letter]).await;
        }
        bury(&queue, 2).await;
        command_int(&*subject.engine, &["LPUSH", &key, "foreign"]).await;
        let redriven = queue.redrive(Redrive::default(), |_| ()).await.expect("redrive");
        assert_eq!((redriven.moved, redriven.full), (3, true), "no more fit: {redriven:?}");
        assert_eq!(payloads(&claim(&queue, 5).await), ["0", "1", "{\"a\":  1}"]);
        let redriven = queue.redrive(Redrive::default(), |_| ()).await.expect("redrive");
        assert_eq!((redriven.moved, redriven.left), (2, 3));
        let left = queue.dead(10, 0).await.expect("dead");
        // A letter that is text and not JSON is shown as a string, as a job would be.
        assert_eq!(left.items.iter().map(Item::bytes).collect::<Vec<_>>(), ["\"foreign\"", "\"foreign\"", "{}"]);
        assert!(left.items.iter().all(|item| matches!(item, Item::Json(_))));
    }

    async fn only_letters_older_than_asked_are_purged(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "");
        let key = spelled(subject, &quaymaster, "dead", &[]);
        bury(&queue, 3).await;
        command_int(&*subject.engine, &["RPUSH", &key, "foreign"]).await;
        subject.pass(2600).await;
        bury(&queue, 2).await;
        let older = |ms, count| Purge { count, older_than: Some(Duration::from_millis(ms)), request_id: None };
        assert_eq!(queue.purge(older(3_600_000, None), |_| ()).await.expect("purge"), 0);
        assert_eq!(queue.purge(older(2500, Some(1)), |_| ()).await.expect("purge"), 1);
        assert_eq!(queue.purge(older(2500, None), |_| ()).await.expect("purge"), 2);
        let left = queue.dead(10, 0).await.expect("dead");
        // Text that is not JSON is shown as a string now, as in the list above.
        assert_eq!((left.items.len(), left.items[0].bytes()), (3, &Bytes::from("\"foreign\"")), "its age is not known");
    }

    async fn what_follows_from_an_ack_happens_with_it(subject: &Subject) {
        let (quaymaster, queue, next) = joined(subject);
        push_all(&queue, &["1", "2"]).await;
        let mut news = subject.engine.subscribe(format!("{}news", subject.prefix).as_bytes()).await.expect("subscribe");
        let job = one(&queue).await;
        let then = vec![
            then_push("next", "{\"of\":1}"),
            Then::Publish { name: "news".into(), data: "{\"done\":  1}".into() },
            Then::Push { name: "ranked".into(), payload: "\"r\"".into(), priority: Some(4.0), delay: None },
            Then::Push { name: "q".into(), payload: "\"self\"".into(), priority: None, delay: Some(Duration::from_millis(10)) },
        ];
        let claim_next = Some(ClaimNext { count: 5, lease: None, worker: None });
        let all = Ack { leases: vec![job.lease.clone()], then, claim: claim_next, request_id: Some("r".into()) };
        let acked = queue.ack(all.clone()).await.expect("ack");
        assert_eq!((acked.acked, acked.lost, payloads(&acked.jobs)), (1, 0, vec!["2"]));
        let again = queue.ack(all).await.expect("ack");
        assert_eq!((again.acked, leases(&again.jobs)), (1, leases(&acked.jobs)), "told once more, and nothing happens twice");
        assert_eq!(payloads(&claim(&next, 5).await), ["{\"of\":1}"]);
        assert_eq!(payloads(&claim(quaymaster.queue("ranked").expect("declared"), 5).await), ["\"r\""]);
        let heard = tokio::time::timeout(Duration::from_secs(10), news.next()).await.expect("it is published");
        assert_eq!(heard, Some(Message::Data("{\"done\":  1}".into())));
        subject.pass(12).await;
        assert_eq!(payloads(&claim(&queue, 5).await), ["\"self\""]);
    }

    async fn items_go_into_their_batch_with_the_ack(subject: &Subject) {
        let (quaymaster, queue) = declare(
            subject,
            "[queue.closed]\nmax_size = 100\ncolocate = \"q\"\n[batch.camera]\nkey = \"batch:{camera_id}:current\"\n\
             by = \"camera_id\"\nwindow = \"90s\"\nidle = \"30s\"\nmax_items = 3\nto = \"closed\"\nttl = \"1h\"\n\
             items = \"detections\"\nitems_as = \"detection_ids\"\ncolocate = \"q\"",
        );
        let (batch, closed) = (quaymaster.batch("camera").expect("declared"), quaymaster.queue("closed").expect("declared"));
        let add = |camera: &str, item: &'static str, id: Option<&str>| Then::BatchAdd {
            name: "camera".into(),
            key: vec![("camera_id".into(), camera.into())],
            item: item.into(),
            id: id.map(Into::into),
        };
        let acked = |then: Vec<Then>, request_id: Option<String>| {
            let queue = queue.clone();
            async move {
                push(&queue, "1").await;
                let job = one(&queue).await;
                let all = Ack { then, request_id, ..Ack::of(vec![job.lease]) };
                let acked = queue.ack(all.clone()).await.expect("ack");
                assert_eq!((acked.acked, acked.lost), (1, 0));
                all
            }
        };
        // Two of one step lie in one batch, though the first of them began it.
        let all = acked(vec![add("a", "1", Some("x")), add("a", "2", None), add("b", "9", None), add("a", "1", Some("x"))], Some("r".into())).await;
        let open = batch.list(0, 10).await.expect("list");
        let mut sizes: Vec<_> = open.iter().map(|open| (open.by.as_str(), open.size)).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [("a", 2), ("b", 1)]);
        assert_eq!(queue.ack(all).await.expect("ack").acked, 1, "told once more");
        assert_eq!(batch.list(0, 10).await.expect("list").iter().map(|open| open.size).sum::<u64>(), 3, "and not added again");
        // Another process has begun the next batch meanwhile: the guess is wrong, and put right.
        let fresh = subject.schema(
            "[queue.q]\ncolocate = \"q\"\n[queue.closed]\nmax_size = 100\ncolocate = \"q\"\n[batch.camera]\n\
             key = \"batch:{camera_id}:current\"\nby = \"camera_id\"\nwindow = \"90s\"\nidle = \"30s\"\nmax_items = 3\n\
             to = \"closed\"\nttl = \"1h\"\nitems = \"detections\"\nitems_as = \"detection_ids\"\ncolocate = \"q\"",
        );
        let other = fresh.queue("q").expect("declared");
        push(other, "1").await;
        let job = one(other).await;
        // The third seals the batch; the fourth and fifth begin the next.
        let then = vec![add("a", "3", None), add("a", "4", None), add("a", "5", None)];
        assert_eq!(other.ack(Ack { then, ..Ack::of(vec![job.lease]) }).await.expect("ack").acked, 1);
        let job = one(closed).await;
        let item: serde_json::Value = serde_json::from_slice(&job.payload).expect("JSON");
        assert_eq!((&item["camera_id"], &item["detection_ids"]), (&serde_json::json!("a"), &serde_json::json!([1, 2, 3])));
        let open = batch.list(0, 10).await.expect("list");
        assert_eq!(open.iter().find(|open| open.by == "a").expect("open").size, 2);
        // Nothing is added for a lease that is lost, nor by a part beside one that cannot be done.
        push(&queue, "1").await;
        let job = one(&queue).await;
        let unknown = Ack { then: vec![add("a", "6", None), then_push("nobody", "1")], ..Ack::of(vec![job.lease.clone()]) };
        assert_eq!(code(queue.ack(unknown).await), Code::ResourceUnknown);
        let broken = Ack { then: vec![add("a", "{", None)], ..Ack::of(vec![job.lease.clone()]) };
        assert_eq!(code(queue.ack(broken).await), Code::RequestInvalid);
        ack(&queue, std::slice::from_ref(&job)).await.acked.checked_sub(1).expect("acked");
        let late = Ack { then: vec![add("a", "6", None)], ..Ack::of(vec![job.lease]) };
        assert_eq!(queue.ack(late).await.expect("ack").lost, 1);
        assert_eq!(batch.list(0, 10).await.expect("list").iter().map(|open| open.size).sum::<u64>(), 3);
    }

    async fn nothing_follows_from_a_lease_that_is_lost(subject: &Subject) {
        let (_, queue, next) = joined(subject);
        push_all(&queue, &["1", "2"]).await;
        let jobs = claim(&queue, 2).await;
        shorten(&queue, &jobs[..1], 20).await;
        subject.pass(22).await;
        let all = Ack { then: vec![then_push("next", "1")], ..Ack::of(leases(&jobs)) };
        let acked = queue.ack(all).await.expect("ack");
        assert_eq!((acked.acked, acked.lost), (0, 1), "one is lost, so none is acked");
        assert_eq!(places(&next).await, (0, 0, 0, 0));
        let held = Ack { then: vec![then_push("next", "1")], ..Ack::of(vec![jobs[1].lease.clone()]) };
        assert_eq!(queue.ack(held).await.expect("ack").acked, 1);
        assert_eq!(places(&next).await.0, 1);
    }

    async fn a_full_queue_refuses_the_ack_and_the_lease_stays(subject: &Subject) {
        let (_, queue, next) = joined(subject);
        push(&queue, "1").await;
        push(&next, "0").await;
        let job = one(&queue).await;
        let then = |count: usize| Ack { then: vec![then_push("next", "1"); count], ..Ack::of(vec![job.lease.clone()]) };
        assert_eq!(code(queue.ack(then(2)).await), Code::QueueFull, "counted together they do not fit");
        assert_eq!((places(&queue).await, places(&next).await), ((0, 1, 0, 0), (1, 0, 0, 0)));
        assert_eq!(queue.ack(then(1)).await.expect("ack").acked, 1);
        assert_eq!((places(&queue).await, places(&next).await), ((0, 0, 0, 0), (2, 0, 0, 0)));
    }

    async fn what_cannot_follow_is_refused_before_anything_happens(subject: &Subject) {
        let (_, queue, _) = joined(subject);
        push(&queue, "1").await;
        let job = one(&queue).await;
        let with = |then: Then| Ack { then: vec![then], ..Ack::of(vec![job.lease.clone()]) };
        assert_eq!(code(queue.ack(with(then_push("nobody", "1"))).await), Code::ResourceUnknown);
        assert_eq!(code(queue.ack(with(then_push("next", "{"))).await), Code::RequestInvalid);
        let unheard = Then::Publish { name: "nobody".into(), data: "1".into() };
        assert_eq!(code(queue.ack(with(unheard)).await), Code::ResourceUnknown);
        let broken = Then::Publish { name: "news".into(), data: "{".into() };
        assert_eq!(code(queue.ack(with(broken)).await), Code::RequestInvalid);
        let unordered = Then::Push { name: "next".into(), payload: "1".into(), priority: Some(1.0), delay: None };
        assert_eq!(code(queue.ack(with(unordered)).await), Code::ResourceMismatch);
        assert_eq!(code(queue.ack(Ack { then: vec![then_push("next", "1")], ..Ack::default() }).await), Code::RequestInvalid);
        assert_eq!(ack(&queue, &[job]).await.acked, 1);
    }

    async fn what_a_cluster_keeps_apart_is_refused_there_and_nowhere_else(subject: &Subject) {
        let quaymaster = subject.schema("[queue.q]\n[queue.far]\n[dedupe.d]\nkey = \"d:{id}\"\nttl = \"1h\"\n");
        let queue = quaymaster.queue("q").expect("declared");
        let seen = PushDedupe { name: "d".into(), key: vec![("id".into(), "a".into())], value: None };
        let pushed = queue.push(Push { dedupe: Some(seen), ..Push::one("1") }).await;
        push(queue, "2").await;
        let job = claim(queue, 5).await.pop().expect("a job");
        let acked = queue.ack(Ack { then: vec![then_push("far", "1")], ..Ack::of(vec![job.lease]) }).await;
        match subject.engine.topology() {
            Topology::Single => {
                assert_eq!((pushed.expect("push").accepted, acked.expect("ack").acked), (1, 1));
            }
            Topology::Cluster => {
                assert_eq!((code(pushed), code(acked)), (Code::QueueApart, Code::QueueApart));
                assert_eq!(places(queue).await.1, 1, "the lease stays");
            }
        }
    }
}

fn fold(payload: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(payload, 3).expect("zstd")
}
