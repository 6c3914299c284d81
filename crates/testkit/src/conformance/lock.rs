//! What every lock must do on every store.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use quaymaster::lock::{Acquire, Acquired, Hold, Lease, Lock, Released, Renewed};
use quaymaster::{Code, Quaymaster, Token};

use super::{Subject, command_int, command_text};

const A: &[(&str, &str)] = &[("id", "a")];
/// Longer than anything takes on a busy machine: what is waited for comes long before.
const LONG: Duration = Duration::from_secs(60);

fn declare(subject: &Subject, ttl: &str) -> (Quaymaster, Lock) {
    let quaymaster = subject.schema(&format!("[lock.door]\nkey = \"door:{{id}}\"\nttl = \"{ttl}\"\n"));
    let lock = quaymaster.lock("door").expect("declared").clone();
    (quaymaster, lock)
}

/// The lock's key as other programs know it.
fn key_of(subject: &Subject) -> String {
    format!("{}door:a", subject.prefix)
}

fn side(subject: &Subject, suffix: &str) -> String {
    subject.side("door:a", suffix)
}

/// Waiters of processes that died: in the queue, and past their time.
async fn wait_and_die(subject: &Subject, numbers: std::ops::Range<u32>) {
    let (queue, alive) = (side(subject, "queue"), side(subject, "alive"));
    for first in numbers.clone().step_by(500) {
        let (mut waiters, mut deadlines) =
            (vec!["ZADD".to_owned(), queue.clone()], vec!["HSET".to_owned(), alive.clone()]);
        for number in first..(first + 500).min(numbers.end) {
            waiters.extend([number.to_string(), format!("dead-{number}")]);
            deadlines.extend([format!("dead-{number}"), "1".to_owned()]);
        }
        for words in [waiters, deadlines] {
            command_int(&*subject.engine, &words.iter().map(String::as_str).collect::<Vec<_>>()).await;
        }
    }
}

async fn acquire(lock: &Lock, how: Acquire<'_>) -> Acquired {
    lock.acquire(A, how).await.expect("acquire answers")
}

async fn take(lock: &Lock) -> Lease {
    match acquire(lock, Acquire::default()).await {
        Acquired::Ours(lease) => lease,
        Acquired::Held { .. } => panic!("the lock should be free"),
    }
}

async fn is_held(lock: &Lock) -> bool {
    matches!(acquire(lock, Acquire::default()).await, Acquired::Held { .. })
}

async fn release(lock: &Lock, token: &Token) -> Released {
    lock.release(A, token, None).await.expect("release answers")
}

/// A waiter in a task of its own.
fn waiter(lock: &Lock, wait: Duration) -> tokio::task::JoinHandle<Acquired> {
    let lock = lock.clone();
    tokio::spawn(async move { acquire(&lock, Acquire { wait, ..Acquire::default() }).await })
}

/// Waits until so many stand in the queue.
async fn queued(subject: &Subject, count: i64) {
    until(|| async { command_int(&*subject.engine, &["ZCARD", &side(subject, "queue")]).await == count })
        .await;
}

async fn until<F: Future<Output = bool>>(mut look: impl FnMut() -> F) {
    let patience = Instant::now();
    while !look().await {
        assert!(patience.elapsed() < LONG, "it never came");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn ours(waiter: tokio::task::JoinHandle<Acquired>) -> Lease {
    match tokio::time::timeout(LONG, waiter).await.expect("the waiter is woken").expect("it does not panic") {
        Acquired::Ours(lease) => lease,
        held @ Acquired::Held { .. } => panic!("{held:?}"),
    }
}

crate::cases! {
    async fn one_caller_holds_the_lock_until_it_gives_it_back(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let lease = take(&lock).await;
        assert_eq!(lease.expires_in, Duration::from_secs(30));
        assert_eq!(lease.outage, None);
        match acquire(&lock, Acquire::default()).await {
            Acquired::Held { retry_after, owner } => {
                assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(30), "{retry_after:?}");
                assert_eq!(owner, None);
            }
            Acquired::Ours(lease) => panic!("two hold it: {lease:?}"),
        }
        assert_eq!(release(&lock, &lease.token).await, Released::Released);
        assert_eq!(release(&lock, &lease.token).await, Released::Lost);
        let next = take(&lock).await;
        assert!(next.fence > lease.fence);
        assert_ne!(next.token, lease.token);
    }

    async fn the_key_is_the_token_and_lives_as_long_as_the_lease(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let how = Acquire { ttl: Some(Duration::from_secs(5)), owner: Some("web.1"), ..Acquire::default() };
        let Acquired::Ours(lease) = acquire(&lock, how).await else { panic!("it was free") };
        assert!(lease.token.as_str().starts_with("web.1."));
        assert_eq!(lease.expires_in, Duration::from_secs(5));
        let held = command_text(&*subject.engine, &["GET", &key_of(subject)]).await;
        assert_eq!(held.as_deref(), Some(lease.token.as_str()));
        let left = command_int(&*subject.engine, &["PTTL", &key_of(subject)]).await;
        assert!(left > 0 && left <= 5_000, "{left}");
        let fence = command_text(&*subject.engine, &["GET", &side(subject, "fence")]).await;
        assert_eq!(fence, Some(lease.fence.to_string()));
        let left = command_int(&*subject.engine, &["PTTL", &side(subject, "fence")]).await;
        assert!(left > 30_000 && left <= 600_000, "the fence outlives the lease: {left}");
        let Acquired::Held { owner, .. } = acquire(&lock, Acquire::default()).await else { panic!("held") };
        assert_eq!(owner.as_deref(), Some("web.1"), "the name, and nothing of the token");
    }

    async fn a_lease_ends_by_the_stores_clock_and_its_holder_can_do_nothing_more(subject: &Subject) {
        let (_, lock) = declare(subject, "400ms");
        let old = take(&lock).await;
        assert!(is_held(&lock).await);
        subject.reach(old.at_us + 402_000).await;
        assert_eq!(lock.renew(A, &old.token, None).await.expect("renew"), Renewed::Lost);
        let new = take(&lock).await;
        assert!(new.fence > old.fence);
        // The late holder neither prolongs nor ends the other's lease.
        assert_eq!(lock.renew(A, &old.token, None).await.expect("renew"), Renewed::Lost);
        assert_eq!(release(&lock, &old.token).await, Released::Lost);
    }

    async fn another_holders_lease_survives_a_late_release(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let how = Acquire { ttl: Some(Duration::from_millis(40)), ..Acquire::default() };
        let Acquired::Ours(old) = acquire(&lock, how).await else { panic!("it was free") };
        subject.reach(old.at_us + 42_000).await;
        let new = take(&lock).await;
        assert_eq!(release(&lock, &old.token).await, Released::Lost);
        assert_eq!(lock.renew(A, &old.token, None).await.expect("renew"), Renewed::Lost);
        assert!(is_held(&lock).await, "the late release ended another's lease");
        assert_eq!(release(&lock, &new.token).await, Released::Released);
    }

    async fn renew_begins_the_lease_anew_under_the_same_fence(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let short = Some(Duration::from_millis(400));
        let Acquired::Ours(lease) = acquire(&lock, Acquire { ttl: short, ..Acquire::default() }).await else {
            panic!("it was free")
        };
        let Renewed::Ours(renewed) = lock.renew(A, &lease.token, None).await.expect("renew") else {
            panic!("it was ours")
        };
        assert_eq!((renewed.fence, &renewed.token), (lease.fence, &lease.token));
        assert_eq!(renewed.expires_in, Duration::from_secs(30));
        subject.reach(lease.at_us + 410_000).await;
        assert!(is_held(&lock).await, "the renewed lease ended with the first");
    }

    async fn fences_rise_also_when_their_key_or_the_clock_is_lost(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let mut last = take(&lock).await;
        for change in ["keep", "far ahead", "lose"] {
            assert_eq!(release(&lock, &last.token).await, Released::Released);
            let fence = side(subject, "fence");
            match change {
                // As after a clock that was set back: the next one is still higher.
                "far ahead" => {
                    let ahead = (last.fence + 3_600_000_000).to_string();
                    command_text(&*subject.engine, &["SET", &fence, &ahead, "PX", "600000"]).await;
                    last.fence += 3_600_000_000;
                }
                "lose" => assert_eq!(command_int(&*subject.engine, &["DEL", &fence]).await, 1),
                _ => {}
            }
            let before = if change == "lose" { 0 } else { last.fence };
            subject.pass(1).await;
            let next = take(&lock).await;
            assert!(next.fence > before, "{change}: {} after {before}", next.fence);
            assert!(next.fence >= u64::try_from(next.at_us).expect("after 1970"), "{change}: the time is a floor");
            last = next;
        }
    }

    async fn a_repeated_request_finds_its_own_lease(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let how = Acquire { request_id: Some("r-1"), ..Acquire::default() };
        let Acquired::Ours(first) = acquire(&lock, how).await else { panic!("it was free") };
        let Acquired::Ours(again) = acquire(&lock, how).await else { panic!("it is ours") };
        assert_eq!((again.fence, &again.token), (first.fence, &first.token));
        let other = Acquire { request_id: Some("r-2"), ..Acquire::default() };
        assert!(matches!(acquire(&lock, other).await, Acquired::Held { .. }));
        // A release is recognised too, and only for the lease it gave back.
        let release = |id| lock.release(A, &first.token, Some(id));
        assert_eq!(release("q").await.expect("release"), Released::Released);
        assert_eq!(release("q").await.expect("release"), Released::Released);
        assert_eq!(release("p").await.expect("release"), Released::Lost);
        let next = take(&lock).await;
        assert_eq!(release("q").await.expect("release"), Released::Released, "the answer it got");
        // Another lease under the same id is given back for real; the id is then its own.
        assert!(is_held(&lock).await, "a repeated release gave another's lease back");
        assert_eq!(lock.release(A, &next.token, Some("q")).await.expect("release"), Released::Released);
        let error = release("q").await.expect_err("the id is another lease's now");
        assert_eq!(error.code, Code::RequestReused);
        assert!(!is_held(&lock).await, "it was told released and is held");
    }

    async fn a_lease_that_comes_again_under_the_same_ids_is_given_back_again(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let how = Acquire { request_id: Some("j1"), ..Acquire::default() };
        for round in 0..3 {
            let Acquired::Ours(lease) = acquire(&lock, how).await else { panic!("round {round}: it was free") };
            for _ in 0..2 {
                let told = lock.release(A, &lease.token, Some("r")).await.expect("release");
                assert_eq!(told, Released::Released, "round {round}");
            }
            assert_eq!(command_text(&*subject.engine, &["GET", &key_of(subject)]).await, None, "round {round}");
        }
    }

    async fn a_lock_another_program_took_is_held(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let key = key_of(subject);
        let set = command_text(&*subject.engine, &["SET", &key, "host.example.com", "NX", "PX", "5000"]).await;
        assert_eq!(set.as_deref(), Some("OK"));
        let Acquired::Held { retry_after, owner } = acquire(&lock, Acquire::default()).await else { panic!("held") };
        assert!(retry_after <= Duration::from_secs(5), "{retry_after:?}");
        assert_eq!(owner, None, "what it wrote may be its secret");
        // Without a TTL too: it must not be taken away, nor promised an end.
        assert_eq!(command_int(&*subject.engine, &["PERSIST", &key]).await, 1);
        let Acquired::Held { retry_after, .. } = acquire(&lock, Acquire::default()).await else { panic!("held") };
        assert!(retry_after > Duration::ZERO);
        assert_eq!(command_int(&*subject.engine, &["DEL", &key]).await, 1);
        let lease = take(&lock).await;
        let set = command_text(&*subject.engine, &["SET", &key, "other", "NX", "PX", "5000"]).await;
        assert_eq!(set, None, "the other program respects our lease");
        assert_eq!(release(&lock, &lease.token).await, Released::Released);
    }

    async fn a_key_of_another_type_is_refused_and_left_alone(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        assert_eq!(command_int(&*subject.engine, &["RPUSH", &key_of(subject), "x"]).await, 1);
        let error = lock.acquire(A, Acquire::default()).await.expect_err("a list");
        assert_eq!(error.code, Code::KeyWrongType);
        assert_eq!(command_int(&*subject.engine, &["LLEN", &key_of(subject)]).await, 1);
    }

    async fn what_is_asked_wrongly_is_refused_by_name(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let long = "x".repeat(65);
        let bad: [(Acquire<'_>, &str); 6] = [
            (Acquire { ttl: Some(Duration::ZERO), ..Acquire::default() }, "ttl_ms"),
            (Acquire { ttl: Some(Duration::from_millis(30_001)), ..Acquire::default() }, "ttl_ms"),
            (Acquire { wait: Duration::from_secs(3601), ..Acquire::default() }, "wait_ms"),
            (Acquire { owner: Some(""), ..Acquire::default() }, "owner"),
            (Acquire { owner: Some(&long), ..Acquire::default() }, "owner"),
            (Acquire { request_id: Some("a{b"), ..Acquire::default() }, "request_id"),
        ];
        for (how, field) in bad {
            let error = lock.acquire(A, how).await.expect_err("refused");
            let declared = how.ttl.is_some_and(|ttl| ttl > Duration::from_secs(30));
            let code = if declared { Code::ResourceMismatch } else { Code::RequestInvalid };
            assert_eq!(error.code, code, "{how:?}");
            assert!(error.detail.starts_with(field), "{how:?}: {}", error.detail);
        }
        assert!(lock.acquire(&[], Acquire::default()).await.is_err(), "a placeholder is missing");
        assert!(!is_held(&lock).await, "a refused call took the lock");
    }

    async fn waiters_get_the_lock_in_the_order_they_came(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let mut last = take(&lock).await;
        let mut waiters = Vec::new();
        for place in 1..=4 {
            waiters.push(waiter(&lock, LONG));
            queued(subject, place).await;
            // Two that come in the same microsecond would stand in the order of their tokens.
            subject.pass(1).await;
        }
        for waiter in waiters {
            assert_eq!(release(&lock, &last.token).await, Released::Released);
            assert!(is_held(&lock).await, "somebody overtook the waiter whose turn it is");
            let lease = ours(waiter).await;
            assert!(lease.fence > last.fence);
            last = lease;
        }
        assert_eq!(release(&lock, &last.token).await, Released::Released);
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &side(subject, "queue")]).await, 0);
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &side(subject, "alive")]).await, 0);
    }

    async fn a_waiter_gets_the_lock_when_the_lease_ends(subject: &Subject) {
        let (_, lock) = declare(subject, "400ms");
        let old = take(&lock).await;
        let waiter = waiter(&lock, LONG);
        queued(subject, 1).await;
        subject.pass(410).await;
        let new = ours(waiter).await;
        // A lease ends with a whole millisecond of the store's.
        assert!(new.at_us / 1000 >= old.at_us / 1000 + 400, "before the lease ended");
    }

    async fn a_wait_that_ends_without_the_lock_leaves_no_trace(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let lease = take(&lock).await;
        let how = Acquire { wait: Duration::from_millis(30), ..Acquire::default() };
        assert!(matches!(acquire(&lock, how).await, Acquired::Held { .. }));
        assert_eq!(lock.counts().waiting(), 0);
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &side(subject, "queue")]).await, 0);
        assert_eq!(release(&lock, &lease.token).await, Released::Released);
        assert!(!is_held(&lock).await, "the lock is kept for a waiter that has left");
    }

    async fn a_waiter_that_is_dropped_leaves_the_queue_and_the_next_one_is_woken(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let lease = take(&lock).await;
        let first = waiter(&lock, LONG);
        queued(subject, 1).await;
        subject.pass(1).await;
        let second = waiter(&lock, LONG);
        queued(subject, 2).await;
        first.abort();
        queued(subject, 1).await;
        assert_eq!(release(&lock, &lease.token).await, Released::Released);
        ours(second).await;
        assert_eq!(lock.counts().waiting(), 0);
    }

    async fn a_waiter_that_died_is_dropped_when_its_time_is_up(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let lease = take(&lock).await;
        // As a process leaves it that was killed: in the queue, and until now within its time.
        let now_us = subject.time_us().await;
        let (queue, alive) = (side(subject, "queue"), side(subject, "alive"));
        let score = (now_us - 1_000_000).to_string();
        assert_eq!(command_int(&*subject.engine, &["ZADD", &queue, &score, "dead"]).await, 1);
        let until = (now_us / 1000 + 150).to_string();
        assert_eq!(command_int(&*subject.engine, &["HSET", &alive, "dead", &until]).await, 1);
        let waiter = waiter(&lock, LONG);
        queued(subject, 2).await;
        assert_eq!(release(&lock, &lease.token).await, Released::Released);
        subject.reach(now_us + 151_000).await;
        ours(waiter).await;
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &queue]).await, 0, "the dead one is gone");
    }

    async fn dead_waiters_of_a_clock_that_was_set_back_keep_nobody_out(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let ahead_us = subject.time_us().await + 3_600_000_000;
        let (queue, alive) = (side(subject, "queue"), side(subject, "alive"));
        command_int(&*subject.engine, &["ZADD", &queue, "1", "dead"]).await;
        command_int(&*subject.engine, &["HSET", &alive, "dead", &(ahead_us / 1000).to_string()]).await;
        take(&lock).await;
    }

    async fn eleven_thousand_dead_waiters_do_not_hold_a_free_lock(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let (queue, alive) = (side(subject, "queue"), side(subject, "alive"));
        wait_and_die(subject, 0..11_000).await;
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &queue]).await, 11_000);
        // One call finds that nobody is alive, and takes the lock.
        let lease = take(&lock).await;
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &queue]).await, 0);
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &alive]).await, 0);
        // Behind as many a live one keeps its place.
        wait_and_die(subject, 0..11_000).await;
        let until = (subject.time_us().await / 1000 + 2000).to_string();
        command_int(&*subject.engine, &["ZADD", &queue, "20000", "alive"]).await;
        command_int(&*subject.engine, &["HSET", &alive, "alive", &until]).await;
        assert_eq!(release(&lock, &lease.token).await, Released::Released);
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &queue]).await, 1, "the release drops the dead");
        assert_eq!(command_int(&*subject.engine, &["ZRANK", &queue, "alive"]).await, 0);
    }

    async fn more_dead_waiters_than_one_call_drops_are_dropped_by_the_next(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let queue = side(subject, "queue");
        wait_and_die(subject, 0..16_500).await;
        assert!(is_held(&lock).await, "the bound was not kept");
        let left = command_int(&*subject.engine, &["ZCARD", &queue]).await;
        assert!((1..=500).contains(&left), "{left}");
        take(&lock).await;
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &queue]).await, 0);
    }

    async fn of_many_callers_one_at_a_time_is_inside(subject: &Subject) {
        let (_, lock) = declare(subject, "30s");
        let inside = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let work = |lock: Lock, inside: Arc<std::sync::atomic::AtomicU64>| async move {
            let mut fences = Vec::new();
            for _ in 0..4 {
                let Acquired::Ours(lease) = acquire(&lock, Acquire { wait: LONG, ..Acquire::default() }).await
                else { panic!("a waiter starved") };
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                fences.push(lease.fence);
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                assert_eq!(release(&lock, &lease.token).await, Released::Released);
            }
            fences
        };
        let callers = (0..8).map(|_| tokio::spawn(work(lock.clone(), inside.clone())));
        let mut fences = Vec::new();
        for caller in join_all(callers).await {
            fences.extend(caller.expect("no caller panics"));
        }
        fences.sort_unstable();
        fences.dedup();
        assert_eq!(fences.len(), 32, "a fence was given twice");
        assert_eq!((lock.counts().acquired(), lock.counts().released()), (32, 32));
    }

    async fn a_holding_renews_itself_and_gives_the_lock_back(subject: &Subject) {
        let (_, lock) = declare(subject, "300ms");
        let Hold::Ours(holding) = lock.hold(A, Acquire::default()).await.expect("hold") else { panic!("free") };
        let renewals = lock.counts().renewed();
        until(|| async { lock.counts().renewed() >= renewals + 4 }).await;
        assert!(!holding.is_lost());
        assert!(is_held(&lock).await);
        assert!(holding.fence() > 0);
        assert_eq!(holding.release().await.expect("release"), Released::Released);
        let Hold::Ours(holding) = lock.hold(A, Acquire::default()).await.expect("hold") else { panic!("free") };
        drop(holding);
        until(|| async { !is_held(&lock).await }).await;
    }

    async fn a_holding_tells_at_once_when_the_lock_was_taken_away(subject: &Subject) {
        let (_, lock) = declare(subject, "600ms");
        let Hold::Ours(holding) = lock.hold(A, Acquire::default()).await.expect("hold") else { panic!("free") };
        let lost = holding.lost();
        assert_eq!(lock.release(A, holding.token(), None).await.expect("release"), Released::Released);
        let other = take(&lock).await;
        tokio::time::timeout(LONG, lost).await.expect("it is told");
        assert!(holding.is_lost());
        assert_eq!(holding.release().await.expect("release"), Released::Lost);
        let other = lock.renew(A, &other.token, None).await.expect("renew");
        assert!(matches!(other, Renewed::Ours(_)), "the late release ended another's lease");
    }
}
