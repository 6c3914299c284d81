use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;

use super::*;

/// Counts what it is given; can hold a commit back, and can fail.
#[derive(Debug, Default)]
struct Double {
    commits: Mutex<Vec<(u64, u64, usize)>>,
    synced: AtomicU64,
    hold: Option<Barrier>,
    fail_at: Option<u64>,
    calls: AtomicUsize,
}

impl Sink for Arc<Double> {
    fn commit(
        &self,
        first: u64,
        last: u64,
        changes: Vec<Change>,
        sync: Sync,
    ) -> Result<Vec<Generation>, Cause> {
        self.calls.fetch_add(1, Relaxed);
        if let Some(hold) = &self.hold {
            hold.wait();
        }
        if self.fail_at.is_some_and(|at| (first..=last).contains(&at)) {
            return Err("no space left".into());
        }
        self.commits.lock().push((first, last, changes.len()));
        if sync == Sync::Disk {
            self.synced.store(last, Release);
        }
        Ok(vec![last])
    }

    fn sync(&self, last: u64) -> Result<(), Cause> {
        self.synced.store(last, Release);
        Ok(())
    }
}

/// Longer than any wait here.
const LONG: Duration = Duration::from_secs(60);

fn change() -> Vec<Change> {
    vec![Change::Remove { key: Bytes::from_static(b"k"), generation: None }]
}

fn committer(double: Double, durability: Durability) -> (Arc<Double>, Arc<Committer<Arc<Double>>>) {
    let double = Arc::new(double);
    (Arc::clone(&double), Arc::new(Committer::new(double, durability, 10)))
}

#[tokio::test]
async fn a_reply_goes_out_after_its_commit_and_not_before() {
    let (double, committer) = committer(Double::default(), Durability::Always);
    let ticket = committer.enqueue(change());
    assert_eq!(ticket, 11);
    assert!(!committer.is_released(ticket));
    committer.released(ticket, LONG).await.unwrap();
    assert_eq!(double.synced.load(Acquire), 11);
    assert_eq!(*double.commits.lock(), [(11, 11, 1)]);
    assert_eq!(committer.take_dead(), [11]);
}

#[tokio::test]
async fn a_reader_waits_for_what_it_saw() {
    let (double, committer) = committer(Double::default(), Durability::Always);
    assert!(committer.is_released(committer.enqueue(Vec::new())), "there is nothing to wait for");
    let written = committer.enqueue(change());
    let read = committer.enqueue(Vec::new());
    assert_eq!(read, written);
    assert!(!committer.is_released(read));
    committer.released(read, LONG).await.unwrap();
    assert_eq!(double.synced.load(Acquire), written);
    assert!(committer.is_released(committer.enqueue(Vec::new())));
}

#[tokio::test]
async fn callers_of_one_thread_share_a_commit() {
    let (double, committer) = committer(Double::default(), Durability::Always);
    let calls = (0..64).map(|_| {
        let committer = Arc::clone(&committer);
        tokio::spawn(async move {
            let ticket = committer.enqueue(change());
            committer.released(ticket, LONG).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(*double.commits.lock(), [(11, 74, 64)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_of_many_threads_have_no_gap_and_lose_nobody() {
    let (double, committer) = committer(Double::default(), Durability::Always);
    let calls = (0..32).map(|_| {
        let committer = Arc::clone(&committer);
        tokio::spawn(async move {
            for _ in 0..200 {
                let ticket = committer.enqueue(change());
                committer.released(ticket, LONG).await.unwrap();
                assert!(committer.is_released(ticket));
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let commits = double.commits.lock();
    let mut next = 11;
    for (first, last, changes) in commits.iter() {
        assert_eq!((*first, *changes as u64), (next, last - first + 1));
        next = last + 1;
    }
    assert_eq!(next, 11 + 32 * 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_caller_that_gives_up_leaves_nobody_waiting() {
    let (double, committer) =
        committer(Double { hold: Some(Barrier::new(2)), ..Double::default() }, Durability::Always);
    let start = |committer: &Arc<Committer<Arc<Double>>>| {
        let committer = Arc::clone(committer);
        tokio::spawn(async move {
            let ticket = committer.enqueue(change());
            committer.released(ticket, LONG).await
        })
    };
    let leader = start(&committer);
    while double.calls.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    // The leader is in its commit: these make up the next group. The first of them gives up.
    let quitter = start(&committer);
    while committer.last_ticket() < 12 {
        tokio::task::yield_now().await;
    }
    let follower = start(&committer);
    while committer.last_ticket() < 13 {
        tokio::task::yield_now().await;
    }
    quitter.abort();
    let double_ = Arc::clone(&double);
    let release = tokio::task::spawn_blocking(move || {
        for _ in 0..2 {
            double_.hold.as_ref().unwrap().wait();
        }
    });
    leader.await.unwrap().unwrap();
    follower.await.unwrap().unwrap();
    release.await.unwrap();
    assert_eq!(*double.commits.lock(), [(11, 11, 1), (12, 13, 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_is_told_from_one_that_is_slow_and_from_one_that_goes_on() {
    let (double, committer) =
        committer(Double { hold: Some(Barrier::new(2)), ..Double::default() }, Durability::Always);
    committer.check_disk(Duration::ZERO).unwrap();
    let writer = tokio::spawn({
        let committer = Arc::clone(&committer);
        async move { committer.released(committer.enqueue(change()), LONG).await }
    });
    while double.calls.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let error = committer.check_disk(Duration::ZERO).unwrap_err();
    assert_eq!(error.code, Code::StoreTimedOut, "{error}");
    committer.check_disk(LONG).unwrap();
    let release = tokio::task::spawn_blocking(move || double.hold.as_ref().unwrap().wait());
    writer.await.unwrap().unwrap();
    committer.check_disk(Duration::ZERO).unwrap();
    release.await.unwrap();
}

#[tokio::test]
async fn after_a_failed_commit_nothing_is_acknowledged_any_more() {
    let (double, committer) =
        committer(Double { fail_at: Some(12), ..Double::default() }, Durability::Always);
    let first = committer.enqueue(change());
    committer.released(first, LONG).await.unwrap();
    let second = committer.enqueue(change());
    let third = committer.enqueue(change());
    let failure = committer.failure();
    assert!(!*failure.borrow());
    for ticket in [second, third, committer.enqueue(Vec::new())] {
        let error = committer.released(ticket, LONG).await.unwrap_err();
        assert_eq!(error.code, Code::StoreDisk);
        assert!(error.detail.contains("no space left"), "{error}");
    }
    assert!(*failure.borrow());
    // What comes now is handed to no disk: it certainly did not run.
    let error = committer.released(committer.enqueue(change()), LONG).await.unwrap_err();
    assert_eq!((error.code, error.code.retry()), (Code::StoreFolder, crate::Retry::Later));
    assert_eq!(committer.check().unwrap_err().code, Code::StoreFolder);
    assert_eq!(committer.finish().unwrap_err().code, Code::StoreDisk);
    committer.released(first, LONG).await.unwrap();
    assert_eq!(double.commits.lock().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_still_waited_behind_a_commit_that_fails_did_not_run() {
    let hold = Double { hold: Some(Barrier::new(2)), fail_at: Some(11), ..Double::default() };
    let (double, committer) = committer(hold, Durability::Always);
    let start = || {
        let committer = Arc::clone(&committer);
        tokio::spawn(async move {
            let ticket = committer.enqueue(change());
            committer.released(ticket, LONG).await
        })
    };
    let leader = start();
    while double.calls.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let behind = start();
    while committer.last_ticket() < 12 {
        tokio::task::yield_now().await;
    }
    let release = tokio::task::spawn_blocking(move || double.hold.as_ref().unwrap().wait());
    assert_eq!(leader.await.unwrap().unwrap_err().code, Code::StoreDisk);
    assert_eq!(behind.await.unwrap().unwrap_err().code, Code::StoreFolder);
    release.await.unwrap();
}

#[tokio::test]
async fn everysec_replies_when_the_system_has_it_and_syncs_later() {
    let (double, committer) = committer(Double::default(), Durability::EverySec);
    let ticket = committer.enqueue(change());
    assert!(!committer.is_released(ticket), "a killed process would lose it");
    committer.released(ticket, LONG).await.unwrap();
    assert_eq!((double.commits.lock().len(), double.synced.load(Acquire)), (1, 0));
    committer.sync();
    assert_eq!(double.synced.load(Acquire), ticket);
}
