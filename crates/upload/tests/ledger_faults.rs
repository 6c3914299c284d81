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
use support::databases::{Database, HOUR, LEASE, claimed, complete, held, new, opened, part, record, whole};

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

/// A whole upload through a link that is cut again and again, after more bytes each time.
#[tokio::test(flavor = "multi_thread")]
async fn cut_at_any_answer_every_move_is_made_once() {
    let server = PostgresServer::start();
    let proxy = FaultProxy::start(server.address()).await;
    let options =
        LedgerOptions { deadline: Duration::from_secs(20), connections: 1, ..LedgerOptions::default() };
    let ledger = Ledger::open(&server.url_at(proxy.address()), &options).await.unwrap();
    let mut cuts = 0;
    // From before the first answer to well past the last of any one call.
    for bytes in (0..1400).step_by(70) {
        let id = format!("u{bytes}");
        let cut = |way| {
            proxy.cut_after(way, bytes, Cut::Rst);
        };
        let way = if bytes % 140 == 0 { Way::Reply } else { Way::Request };
        cut(way);
        let made = until_answered(async || ledger.create(&new(&id)).await).await;
        assert!(matches!(made, Created::Created(_) | Created::Existing(_)), "{made:?}");
        cut(way);
        held(until_answered(async || ledger.opened(&id, &format!("multi-{id}")).await).await);
        for number in 1..=2 {
            cut(way);
            let part = part(number, "same");
            let answer =
                until_answered(async || ledger.record_part(&id, &format!("multi-{id}"), &part).await).await;
            assert!(matches!(answer, RecordPart::Durable { durable, .. } if durable == number), "{answer:?}");
        }
        cut(way);
        let total = until_answered(async || ledger.learn_total(&id, 2).await).await;
        assert_eq!(total, Total::Known { all: true });
        cut(way);
        let claim = until_answered(async || ledger.begin_completion(&id, "w", HOUR).await).await;
        let Claim::Ours(fence, _) = claim else { panic!("{claim:?}") };
        assert_eq!(fence.number(), 1, "claimed once");
        cut(way);
        held(until_answered(async || ledger.proved(&fence, "\"e\"", 8).await).await);
        cut(way);
        held(until_answered(async || ledger.recorded(&fence, "topic").await).await);
        cut(way);
        held(until_answered(async || ledger.announced(&fence).await).await);
        cut(way);
        held(until_answered(async || ledger.finished(&fence, HOUR).await).await);
        proxy.heal();
        let told: Vec<_> = ledger.history(&id).await.unwrap().into_iter().map(|line| line.what).collect();
        let once = ["created", "opened", "completing", "proved", "recorded", "announced", "done"];
        assert_eq!(told, once, "after {bytes} bytes");
        cuts += 1;
    }
    let events = ledger.events(0, 1000).await.unwrap();
    assert_eq!(events.len(), cuts, "one event each");
    assert_eq!(events.last().unwrap().seq, cuts as i64, "and none was half written");
    assert_eq!(server.ask("SELECT COUNT(*) FROM nodes WHERE status = 'ACTIVE'"), cuts.to_string());
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
    let options = LedgerOptions { deadline: Duration::from_millis(500), ..LedgerOptions::default() };
    let ledger = Ledger::open(&server.url_at(proxy.address()), &options).await.unwrap();
    opened(&ledger, "a").await;
    proxy.silence();
    let error = ledger.learn_total("a", 2).await.unwrap_err();
    assert_eq!((error.trouble(), error.code()), (Trouble::Passing, Some("timeout")), "{error}");
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
