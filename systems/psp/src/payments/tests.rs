#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;

async fn open() -> (tempfile::TempDir, Payments) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("payments.db").display());
    let payments = Payments::open(&url, Hold::default()).await.unwrap();
    (folder, payments)
}

const NEW: NewPayment<'_> = NewPayment {
    psp_transaction_id: "PSP-TX-1",
    psp_id: "PSP001",
    merchant_provider: "DEMO",
    qr_tx_id: "QR1",
    amount: 100_000,
};

const UNLOCKED: Lease<'static> = Lease { fence: None, is_lost: &|| false };

fn under(fence: u64) -> Lease<'static> {
    Lease { fence: Some(fence), ..UNLOCKED }
}

fn done(written: Written) -> Done {
    match written {
        Written::Done(done) => done,
        other => panic!("{other:?}"),
    }
}

async fn journal(payments: &Payments, outcome: &str) -> i64 {
    let row = sqlx::query("SELECT count(*) FROM journal WHERE outcome = ?1").bind(outcome);
    row.fetch_one(&payments.pool).await.unwrap().get(0)
}

#[tokio::test]
async fn a_second_run_of_a_create_finds_the_first_and_answers_the_same() {
    let (_folder, payments) = open().await;
    let first = done(payments.create(NEW, "t1", under(10)).await.unwrap());
    let second = done(payments.create(NEW, "t2", under(11)).await.unwrap());
    assert_eq!(second.payment.transaction_id, "t1");
    assert_eq!(first.at, second.at);
    assert_eq!((journal(&payments, "done").await, journal(&payments, "found").await), (1, 1));
}

#[tokio::test]
async fn a_create_behind_a_higher_fence_writes_nothing() {
    let (_folder, payments) = open().await;
    let _ = done(payments.create(NEW, "t1", under(11)).await.unwrap());
    let late = payments.create(NEW, "t2", under(10)).await.unwrap();
    assert_eq!(late, Written::Stale { ours: 10, theirs: 11 });
    assert_eq!((journal(&payments, "done").await, journal(&payments, "found").await), (1, 0));
}

#[tokio::test]
async fn an_id_of_another_payment_is_not_given_away() {
    let (_folder, payments) = open().await;
    let _ = done(payments.create(NEW, "t1", under(10)).await.unwrap());
    for other in [NewPayment { amount: 1, ..NEW }, NewPayment { psp_id: "PSP002", ..NEW }] {
        assert_eq!(payments.create(other, "t2", under(11)).await.unwrap(), Written::Other);
    }
}

#[tokio::test]
async fn the_fence_of_a_row_only_rises() {
    let (_folder, payments) = open().await;
    let _ = done(payments.create(NEW, "t1", under(999)).await.unwrap());
    let to = |status, fence| payments.advance("update", "PSP001", "t1", status, under(fence));
    // The create's fence is another lock's: it does not stand in the way.
    let _ = done(payments.advance("execute", "PSP001", "t1", Status::Executed, under(20)).await.unwrap());
    let _ = done(to(Status::Success, 30).await.unwrap());
    assert_eq!(to(Status::Refunded, 29).await.unwrap(), Written::Stale { ours: 29, theirs: 30 });
    assert_eq!(payments.payment("t1").await.unwrap().unwrap().status, Status::Success);
    // The holder itself may write again, and a later one too.
    let _ = done(to(Status::Refunded, 30).await.unwrap());
    assert_eq!(payments.payment("t1").await.unwrap().unwrap().fence, 30);
}

#[tokio::test]
async fn the_fence_rises_also_where_nothing_else_is_written() {
    let (_folder, payments) = open().await;
    let _ = done(payments.create(NEW, "t1", under(1)).await.unwrap());
    let execute = |fence| payments.advance("execute", "PSP001", "t1", Status::Executed, under(fence));
    let fail = |fence| payments.advance("update", "PSP001", "t1", Status::Failed, under(fence));
    let _ = done(execute(10).await.unwrap());
    // Found.
    let _ = done(execute(12).await.unwrap());
    assert_eq!(fail(11).await.unwrap(), Written::Stale { ours: 11, theirs: 12 });
    // Refused: only a success can be refunded.
    let refund = payments.advance("update", "PSP001", "t1", Status::Refunded, under(14)).await.unwrap();
    assert_eq!(refund, Written::Refused(Status::Executed));
    assert_eq!(fail(13).await.unwrap(), Written::Stale { ours: 13, theirs: 14 });
    // Another payment's id.
    let other = NewPayment { amount: 1, ..NEW };
    assert_eq!(payments.create(other, "t2", under(16)).await.unwrap(), Written::Other);
    assert_eq!(payments.create(NEW, "t3", under(15)).await.unwrap(), Written::Stale { ours: 15, theirs: 16 });
}

#[tokio::test]
async fn a_lease_that_is_known_to_have_ended_writes_nothing() {
    let (_folder, payments) = open().await;
    let ended = |fence| Lease { is_lost: &|| true, ..under(fence) };
    assert_eq!(payments.create(NEW, "t1", ended(1)).await.unwrap(), Written::Lost);
    assert_eq!(payments.payment("t1").await.unwrap(), None);
    let _ = done(payments.create(NEW, "t1", under(2)).await.unwrap());
    let late = payments.advance("execute", "PSP001", "t1", Status::Executed, ended(3)).await.unwrap();
    assert_eq!(late, Written::Lost);
    let now = payments.payment("t1").await.unwrap().unwrap();
    assert_eq!((now.status, now.fence), (Status::Created, 0));
    assert_eq!((journal(&payments, "done").await, journal(&payments, "found").await), (1, 0));
}

#[tokio::test]
async fn a_late_repetition_finds_what_was_done_although_the_payment_went_on() {
    let (_folder, payments) = open().await;
    let _ = done(payments.create(NEW, "t1", under(1)).await.unwrap());
    let first = done(payments.advance("execute", "PSP001", "t1", Status::Executed, under(1)).await.unwrap());
    let _ = done(payments.advance("update", "PSP001", "t1", Status::Success, under(2)).await.unwrap());
    let again = done(payments.advance("execute", "PSP001", "t1", Status::Executed, under(3)).await.unwrap());
    assert_eq!(first.at, again.at);
    assert_eq!(payments.payment("t1").await.unwrap().unwrap().status, Status::Success);
    assert_eq!((journal(&payments, "done").await, journal(&payments, "found").await), (3, 1));
}

#[tokio::test]
async fn a_payment_goes_only_where_it_may() {
    let (_folder, payments) = open().await;
    let _ = done(payments.create(NEW, "t1", under(1)).await.unwrap());
    let to = |psp_id, status| payments.advance("update", psp_id, "t1", status, under(2));
    assert_eq!(to("PSP001", Status::Success).await.unwrap(), Written::Refused(Status::Created));
    assert_eq!(to("PSP002", Status::Failed).await.unwrap(), Written::Missing);
    let _ = done(to("PSP001", Status::Failed).await.unwrap());
    assert_eq!(to("PSP001", Status::Refunded).await.unwrap(), Written::Refused(Status::Failed));
    let unknown = payments.advance("update", "PSP001", "t9", Status::Failed, under(2)).await.unwrap();
    assert_eq!(unknown, Written::Missing);
}

#[tokio::test]
async fn without_a_fence_the_row_still_decides() {
    let (_folder, payments) = open().await;
    let first = done(payments.create(NEW, "t1", UNLOCKED).await.unwrap());
    assert_eq!(done(payments.create(NEW, "t2", UNLOCKED).await.unwrap()), first);
    let executed =
        done(payments.advance("execute", "PSP001", "t1", Status::Executed, UNLOCKED).await.unwrap());
    let again = done(payments.advance("execute", "PSP001", "t1", Status::Executed, UNLOCKED).await.unwrap());
    assert_eq!(executed.at, again.at);
    assert_eq!((journal(&payments, "done").await, journal(&payments, "found").await), (2, 2));
}

#[tokio::test]
async fn two_processes_on_one_file_make_one_payment() {
    let (folder, one) = open().await;
    let url = format!("sqlite:{}", folder.path().join("payments.db").display());
    let two = Payments::open(&url, Hold::default()).await.unwrap();
    let runs = (0..20).map(|n| {
        let payments = if n % 2 == 0 { one.clone() } else { two.clone() };
        tokio::spawn(async move { payments.create(NEW, &format!("t{n}"), UNLOCKED).await.unwrap() })
    });
    let mut ids = std::collections::HashSet::new();
    for run in runs.collect::<Vec<_>>() {
        ids.insert(done(run.await.unwrap()).payment.transaction_id);
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(journal(&one, "done").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gateways_that_start_at_once_all_open_a_new_file() {
    for round in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("payments.db").display());
        let opens: Vec<_> = (0..12)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { Payments::open(&url, Hold::default()).await.map(drop) })
            })
            .collect();
        for open in opens {
            let opened = open.await.unwrap();
            assert!(opened.is_ok(), "round {round}: {opened:?}");
        }
    }
}
