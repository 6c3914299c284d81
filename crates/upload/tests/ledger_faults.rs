//! A database that goes away, answers late or loses its answers: what was acknowledged holds, and whoever repeats a
//! call gets the answer that was lost.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/servers.rs"]
mod servers;
mod support;

use std::sync::Arc;
use std::time::Duration;

use quaymaster_upload::ledger::{
    Claim, Clock, Created, Ledger, LedgerOptions, Moved, RecordPart, Step, Sync, Total,
};
use quaymaster_upload::{Result, Trouble};
use servers::PostgresServer;
use servers::proxy::{Cut, FaultProxy, Way};
use support::databases::{Database, HOUR, LEASE, claimed, complete, new, opened, part, record, whole};

/// Repeats a call until it answers, as every caller does.
async fn until_answered<T>(mut call: impl AsyncFnMut() -> Result<T>) -> T {
    for _ in 0..200 {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert_eq!(error.trouble(), Trouble::Passing, "{error}"),
        }
    }
    panic!("it should have passed");
}

/// Places at which what is said in `bytes` bytes is cut: a few, or under `QUAYMASTER_SOAK=1` every eighth; and just before
/// the end, when everything is done and the last word of it is lost.
fn places(bytes: u64) -> impl Iterator<Item = u64> {
    let step = if std::env::var_os("QUAYMASTER_SOAK").is_some() { 8 } else { bytes / 7 };
    (0..bytes.saturating_sub(8)).step_by(step.max(1) as usize).chain([bytes - 3])
}

/// All that a move can change.
async fn facts(ledger: &Ledger, id: &str) -> (Option<(Step, i64, Option<u32>)>, usize, bool, Vec<String>) {
    let upload = ledger.find(id).await.unwrap();
    let node = ledger.node(&format!("node-{id}")).await.unwrap().map(|node| node.status);
    let told = ledger.history(id).await.unwrap().into_iter().map(|line| line.what);
    (
        upload.map(|upload| (upload.step, upload.fence, upload.total_chunks)),
        ledger.parts(id).await.unwrap().len(),
        ledger.event_of(id).await.unwrap().is_some(),
        told.chain(node).collect(),
    )
}

/// Every move through a link that is cut somewhere in what is said about it, either way: it is made whole or not at all,
/// and whoever says it again has made it once.
#[tokio::test(flavor = "multi_thread")]
async fn cut_at_any_answer_every_move_is_made_once() {
    let server = PostgresServer::start();
    let proxy = FaultProxy::start(server.address()).await;
    let url = server.url_at(proxy.address());
    let options = LedgerOptions { connections: 1, ..LedgerOptions::default() };
    let direct = Ledger::open(&server.url(), &LedgerOptions::default()).await.unwrap();
    let stands_before = async |id: &str, n: usize| {
        for move_before in 0..n {
            assert!(make_move(&direct, id, move_before).await.unwrap(), "{id}: move {move_before}");
        }
        facts(&direct, id).await
    };
    let (mut uploads, mut made, mut not_made) = (0, 0, 0);
    for n in 0..9 {
        // Names of one length: then every upload is spoken of in as many bytes.
        let name = |way: &str, at: u64| format!("u{n}-{way}-{at:05}");
        let probe = name("probe", 0);
        stands_before(&probe, n).await;
        let ledger = Ledger::open(&url, &options).await.unwrap();
        let before = (proxy.passed(Way::Request), proxy.passed(Way::Reply));
        assert!(make_move(&ledger, &probe, n).await.unwrap(), "move {n}");
        let asked = proxy.passed(Way::Request) - before.0;
        let answered = proxy.passed(Way::Reply) - before.1;
        let then = facts(&direct, &probe).await;
        uploads += 1;
        for (way, word, bytes) in [(Way::Request, "asked", asked), (Way::Reply, "reply", answered)] {
            for at in places(bytes) {
                let id = name(word, at);
                let was = stands_before(&id, n).await;
                let ledger = Ledger::open(&url, &options).await.unwrap();
                proxy.cut_after(way, at, Cut::Rst);
                let error = make_move(&ledger, &id, n).await.expect_err("the link is cut");
                assert_eq!(error.trouble(), Trouble::Passing, "{id}: {error}");
                proxy.heal();
                let now = facts(&direct, &id).await;
                assert!(now == was || now == then, "{id}: half made: {now:?}");
                *(if now == then { &mut made } else { &mut not_made }) += 1;
                let again = until_answered(async || make_move(&ledger, &id, n).await).await;
                assert!(again, "{id}: said again");
                assert_eq!(facts(&direct, &id).await, then, "{id}: made once");
                uploads += 1;
            }
        }
    }
    assert!(made >= 9 && not_made >= 9, "answers were lost ({made}), and requests ({not_made})");
    // Whatever is left is finished, and each is told once.
    for upload in direct.page("", 10_000).await.unwrap() {
        let id = &upload.upload_id;
        let left = match upload.step {
            Step::Created => 1,
            Step::Open => 2,
            Step::Completing => 5,
            Step::Proved => 6,
            Step::Recorded => 7,
            Step::Announced => 8,
            _ => 9,
        };
        for n in left..9 {
            assert!(make_move(&direct, id, n).await.unwrap(), "{id}: move {n} at the end");
        }
    }
    let events = direct.events(0, 10_000).await.unwrap();
    assert_eq!(events.len(), uploads, "one event each");
    assert_eq!(events.last().unwrap().seq, uploads as i64, "and none was half written");
    assert_eq!(server.ask("SELECT COUNT(*) FROM nodes WHERE status = 'ACTIVE'"), uploads.to_string());
}

/// The next move of an upload, and whether it holds.
async fn make_move(ledger: &Ledger, id: &str, n: usize) -> Result<bool> {
    let multipart = format!("multi-{id}");
    if n < 4 {
        return Ok(match n {
            0 => matches!(ledger.create(&new(id)).await?, Created::Created(_) | Created::Existing(_)),
            1 => matches!(ledger.opened(id, &multipart).await?, Moved::Moved(_)),
            2 => matches!(
                ledger.record_part(id, &multipart, &part(1, "x")).await?,
                RecordPart::Durable { durable: 1, .. }
            ),
            _ => ledger.learn_total(id, 1).await? == Total::Known { all: true },
        });
    }
    let Claim::Ours(fence, _) = ledger.begin_completion(id, "w", HOUR).await? else { return Ok(n == 8) };
    let moved = match n {
        4 => return Ok(fence.number() == 1),
        5 => ledger.proved(&fence, "\"e\"", 1).await?,
        6 => ledger.recorded(&fence, "topic").await?,
        7 => ledger.announced(&fence).await?,
        _ => ledger.finished(&fence, HOUR).await?,
    };
    Ok(matches!(moved, Moved::Moved(_)))
}

/// Every commit is done and the last bytes of its answer are lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_after_its_commit_is_given_again() {
    let server = PostgresServer::start();
    let proxy = FaultProxy::start(server.address()).await;
    let url = server.url_at(proxy.address());
    // A new connection for each: then the same call gets the same number of bytes.
    let fresh = async || Ledger::open(&url, &LedgerOptions::default()).await.unwrap();
    let direct = Ledger::open(&server.url(), &LedgerOptions::default()).await.unwrap();
    for n in 0..9 {
        let ledger = fresh().await;
        let before = proxy.passed(Way::Reply);
        assert!(make_move(&ledger, "m", n).await.unwrap(), "move {n}");
        let bytes = proxy.passed(Way::Reply) - before;

        let ledger = fresh().await;
        proxy.cut_after(Way::Reply, bytes - 3, Cut::Rst);
        let error = make_move(&ledger, "n", n).await.expect_err("its answer is lost");
        assert_eq!(error.trouble(), Trouble::Passing, "move {n}: {error}");
        let (done, lost) =
            (direct.find("m").await.unwrap().unwrap(), direct.find("n").await.unwrap().unwrap());
        assert_eq!((lost.step, lost.fence), (done.step, done.fence), "move {n} was committed");
        assert!(make_move(&ledger, "n", n).await.unwrap(), "move {n}, again");
    }
    let told = async |id: &str| {
        let history = direct.history(id).await.unwrap();
        history.into_iter().map(|line| line.what).collect::<Vec<_>>()
    };
    assert_eq!(told("n").await, told("m").await, "nothing happened twice");
    assert_eq!(direct.events(0, 10).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_restarted_is_found_again() {
    let mut server = PostgresServer::start();
    let options = LedgerOptions { deadline: Duration::from_secs(5), ..LedgerOptions::default() };
    let ledger = Arc::new(Ledger::open(&server.url(), &options).await.unwrap());
    let calls = (0..8).map(|n| {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move { whole(&ledger, &format!("u{n}")).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    server.stop();
    let error = ledger.find("u0").await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Passing, "{error}");
    server.start_again();
    for n in 0..8 {
        let id = format!("u{n}");
        let found = until_answered(async || ledger.find(&id).await).await;
        assert_eq!(found.unwrap().step, Step::Open);
        complete(&ledger, &claimed(&ledger, &id, "w").await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_database_is_not_waited_for() {
    let server = PostgresServer::start();
    let proxy = FaultProxy::start(server.address()).await;
    // Whoever makes the tables has more time.
    opened(&Ledger::open(&server.url(), &LedgerOptions::default()).await.unwrap(), "a").await;
    let options = LedgerOptions { deadline: Duration::from_secs(2), ..LedgerOptions::default() };
    let ledger = Ledger::open(&server.url_at(proxy.address()), &options).await.unwrap();
    proxy.silence();
    let error = ledger.learn_total("a", 2).await.unwrap_err();
    assert_eq!((error.trouble(), error.said()), (Trouble::Passing, Some("timeout")), "{error}");
    proxy.cut(Cut::Rst);
    proxy.heal();
    assert!(matches!(until_answered(async || ledger.learn_total("a", 2).await).await, Total::Known { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_told_as_such() {
    let server = PostgresServer::start();
    server.ask("CREATE ROLE reader LOGIN");
    let url = server.url().replace("quaymaster@", "reader@");
    let error = Ledger::open(&url, &LedgerOptions::default()).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Credentials, "{error}");
    // Whoever may only use tables finds those that somebody else made.
    let owner = Ledger::open(&server.url(), &LedgerOptions::default()).await.unwrap();
    opened(&owner, "a").await;
    server.ask("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO reader");
    let reader = Ledger::open(&url, &LedgerOptions::default()).await.unwrap();
    assert!(reader.find("a").await.unwrap().is_some());
    assert!(matches!(record(&reader, "a", &part(1, "x")).await, RecordPart::Durable { .. }));

    // A newer version made a table that the grant of then does not reach.
    server.ask("REVOKE ALL ON quaymaster_nodes FROM reader");
    let error = reader.create(&new("b")).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Credentials, "{error}");
    assert!(error.to_string().contains("quaymaster_nodes"), "{error}");
    let guide = include_str!("../../../docs/uploads.md");
    let grant = "GRANT SELECT, INSERT, UPDATE ON quaymaster_nodes TO reader";
    assert!(guide.contains(grant), "docs/uploads.md says what to grant");
    server.ask(grant);
    whole(&reader, "b").await;
    complete(&reader, &claimed(&reader, "b", "w").await).await;
}

/// A database in which each table that is changed takes longer than a call may.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_an_older_version_may_take_longer_than_a_call() {
    let server = PostgresServer::start();
    server.ask(
        "CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3); END';
         CREATE EVENT TRIGGER slow ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION slow()",
    );
    let options = LedgerOptions { deadline: Duration::from_secs(2), ..LedgerOptions::default() };
    let ledger = Ledger::open(&server.url(), &options).await.unwrap();
    whole(&ledger, "a").await;
    // Only these may: everything else keeps to the deadline, and so does whoever finds them made.
    assert!(Ledger::open(&server.url(), &options).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "not a database, whatever its name says, and longer than a header".repeat(40))
        .unwrap();
    let error =
        Ledger::open(&format!("sqlite:{}", file.display()), &LedgerOptions::default()).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Never, "{error}");
    let nowhere = format!("sqlite:{}/none/ledger.db", folder.path().display());
    assert!(Ledger::open(&nowhere, &LedgerOptions::default()).await.is_err());
}

/// Two owners and a sweep in every order, with leases that lapse anywhere: one completion, one event.
#[tokio::test(flavor = "multi_thread")]
async fn no_order_of_two_owners_completes_twice() {
    const DEPTH: u32 = 7;
    let database = Database::sqlite();
    let options = LedgerOptions {
        sync: Sync::Never,
        clock: Clock::Held(Arc::clone(&database.clock)),
        ..LedgerOptions::default()
    };
    let ledger = Ledger::open(&database.url(), &options).await.unwrap();
    for order in 0..3_u32.pow(DEPTH) {
        let id = format!("u{order}");
        whole(&ledger, &id).await;
        let mut owners = [None, None];
        let mut rest = order;
        for _ in 0..DEPTH {
            match rest % 3 {
                2 => database.advance(LEASE),
                n => step(&ledger, &id, &mut owners[n as usize], &format!("w{n}")).await,
            }
            rest /= 3;
        }
        // Whoever is left finishes it.
        database.advance(LEASE);
        let mut last = None;
        for _ in 0..6 {
            step(&ledger, &id, &mut last, "last").await;
        }
        let upload = ledger.find(&id).await.unwrap().unwrap();
        assert_eq!(upload.step, Step::Done, "order {order}");
        let told = ledger.history(&id).await.unwrap();
        let recorded = told.iter().filter(|line| line.what == "recorded").count();
        assert_eq!(recorded, 1, "order {order}: {told:#?}");
        // Fences only grow, and every line is by whoever had the highest then.
        assert!(told.windows(2).all(|pair| pair[0].fence <= pair[1].fence), "order {order}: {told:#?}");
    }
    let mut after = 0;
    let mut events = 0;
    loop {
        let page = ledger.events(after, 500).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        events += page.len();
    }
    assert_eq!(events as u32, 3_u32.pow(DEPTH));
}

/// The next thing an owner does, by what it believes; `None` believes nothing.
async fn step(
    ledger: &Ledger,
    id: &str,
    owner: &mut Option<(quaymaster_upload::ledger::Fence, Step)>,
    name: &str,
) {
    let Some((fence, at)) = owner.clone() else {
        // Names are unique to the attempt: a number that only grows would do as well.
        let name = format!("{name}-{}", fastrand::u64(..));
        if let Claim::Ours(fence, upload) = ledger.begin_completion(id, &name, LEASE).await.unwrap() {
            *owner = Some((fence, upload.step));
        }
        return;
    };
    let moved = match at {
        Step::Completing => ledger.proved(&fence, "\"e\"", 20).await.unwrap(),
        Step::Proved => ledger.recorded(&fence, "topic").await.unwrap(),
        Step::Recorded => ledger.announced(&fence).await.unwrap(),
        Step::Announced => ledger.finished(&fence, HOUR).await.unwrap(),
        _ => return,
    };
    *owner = match moved {
        Moved::Moved(upload) => Some((fence, upload.step)),
        Moved::Lost(_) | Moved::Unknown => None,
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_start_at_once_all_open_a_new_file() {
    for round in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("uploads.db").display());
        let opens: Vec<_> = (0..4)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { Ledger::open(&url, &LedgerOptions::default()).await.map(drop) })
            })
            .collect();
        for open in opens {
            let opened = open.await.unwrap();
            assert!(opened.is_ok(), "round {round}: {opened:?}");
        }
    }
}
