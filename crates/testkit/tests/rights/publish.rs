//! Publishing is the last step of a script, and one that is refused undoes nothing and hides nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use quaymaster::Code;
use quaymaster::guard::{Enter, Entered, Leave, Left, Settled};
use quaymaster::idempotency::{Abandoned, Begin, Begun, Finished};
use quaymaster::lock::{Acquire, Acquired, Released};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::{
    Case, Subject, cache, event, guard, idempotency, lock, queue_edges, upload, upload_life, upload_tell,
};
use quaymaster_testkit::servers::{Binary, RedisServer};

use crate::{server, subject};

const BINARIES: [Binary; 3] = [Binary::Redis62, Binary::Redis7, Binary::Valkey9];

pub(crate) const SCHEMA: &str = "
[idempotency.pay]
key = \"idem:{id}\"
ttl = \"1h\"
in_progress_ttl = \"1m\"
on_outage = \"allow\"
[lock.account]
key = \"lock:{account}\"
ttl = \"1m\"
on_outage = \"allow\"
[guard.pay]
idempotency = \"pay\"
lock = \"account\"
[event.news]
";

/// What MONITOR shows until `end` is published: the commands of each script.
fn scripts(monitor: BufReader<TcpStream>, end: &str) -> Vec<Vec<String>> {
    let mut scripts = Vec::new();
    for line in monitor.lines() {
        let line = line.unwrap();
        if line.contains(end) {
            return scripts;
        }
        let Some((_, said)) = line.split_once("] ") else { continue };
        let command = said.split(' ').next().unwrap_or_default().trim_matches('"').to_ascii_uppercase();
        if !line.contains(" lua] ") {
            scripts.push(Vec::new());
        } else if let Some(script) = scripts.last_mut() {
            script.push(command);
        }
    }
    panic!("the server stopped telling its commands");
}

fn monitor(server: &RedisServer) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    assert_eq!(first, "+OK\r\n");
    reader
}

/// Runs these cases and looks at every command of every script.
async fn publishing_is_the_last_step(cases: impl IntoIterator<Item = &'static Case>) {
    let server = server(Binary::Redis7, &["~*", "&*", "+@all"]);
    let monitor = monitor(&server);
    let reading = std::thread::spawn(move || scripts(monitor, "the-end-of-the-suite"));
    let subject = subject("monitored", &server).await;
    for case in cases {
        (case.run)(&subject.apart(case.name)).await;
    }
    server.command::<i64>(&["PUBLISH", "the-end-of-the-suite", ""]);
    let writes: Vec<&str> = include_str!("../../../store/commands.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            words.next().filter(|name| words.next() == Some("write") && *name != "PUBLISH")
        })
        .collect();
    let mut published = 0;
    for script in reading.join().unwrap() {
        let Some(first) = script.iter().position(|command| command == "PUBLISH") else { continue };
        published += 1;
        // The one message whose number of receivers is part of the answer that is kept; the first SET is before it.
        let kept = script == ["GET", "SET", "PUBLISH", "SET"];
        let after = script[first..].iter().find(|command| writes.contains(&command.as_str()));
        assert!(kept || after.is_none(), "{after:?} comes after PUBLISH: {script:?}");
    }
    assert!(published > 0, "no script published");
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_is_the_last_step_of_locks_claims_and_guards() {
    publishing_is_the_last_step([lock::CASES, idempotency::CASES, guard::CASES].into_iter().flatten()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_is_the_last_step_of_caches_and_events() {
    publishing_is_the_last_step([cache::CASES, event::CASES].into_iter().flatten()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_is_the_last_step_of_queues() {
    // An ack alone publishes. The other cases push megabytes, which MONITOR spells out for longer than a call may take.
    publishing_is_the_last_step(queue_edges::CASES.iter().filter(|case| case.name.contains("follows"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_is_the_last_step_of_uploads() {
    publishing_is_the_last_step(
        [upload::CASES, upload_life::CASES, upload_tell::CASES].into_iter().flatten(),
    )
    .await;
}

#[tokio::test]
async fn a_user_without_channels_finishes_and_leaves_whole() {
    for binary in BINARIES {
        let server = server(binary, &["~*", "resetchannels", "+@all"]);
        let quaymaster = subject("mute", &server).await.schema(SCHEMA);
        let idempotency = quaymaster.idempotency("pay").unwrap();
        let id = [("id", "1")];
        let Begun::Started(claim) = idempotency.begin(&id, Begin::default()).await.unwrap() else { panic!() };
        let finished = idempotency.finish(&id, &claim.token, Some(b"done")).await.unwrap();
        assert_eq!(finished, Finished::Finished { kept: true, outage: None }, "{binary:?}");
        let Begun::Started(claim) = idempotency.begin(&[("id", "2")], Begin::default()).await.unwrap() else {
            panic!()
        };
        let abandoned = idempotency.abandon(&[("id", "2")], &claim.token, Some("a")).await.unwrap();
        assert_eq!(abandoned, Abandoned::Abandoned, "{binary:?}");

        let (guard, key) = (quaymaster.guard("pay").unwrap(), [("id", "3"), ("account", "b")]);
        let Entered::Entered(pass) = guard.enter(&key, Enter::default()).await.unwrap() else { panic!() };
        let waiting = tokio::spawn(waiter(server.clone()));
        while server.command::<Vec<String>>(&["KEYS", "*:queue"]).is_empty() {
            tokio::task::yield_now().await;
        }
        let leave = Leave { response: Some(b"done"), request_id: Some("l"), ..Leave::default() };
        let left = guard.leave(&key, &pass.token, leave).await.unwrap();
        let whole = Left {
            idempotency: Some(Settled::Finished { kept: true }),
            lock: Some(Released::Released),
            outage: None,
        };
        assert_eq!(left, whole, "{binary:?}");
        waiting.await.unwrap();
    }
}

/// Waits for the guard's lock, by the default user, and gets it.
async fn waiter(server: Arc<RedisServer>) {
    let store = RedisStore::connect(RedisOptions::from_url(&server.url()).unwrap()).await.unwrap();
    let subject = Subject {
        name: "waiter",
        engine: Arc::new(store),
        clock: None,
        prefix: "case:".into(),
        keep: server,
    };
    let quaymaster = subject.schema(SCHEMA);
    let how = Acquire { wait: Duration::from_secs(20), ..Acquire::default() };
    let acquired = quaymaster.lock("account").unwrap().acquire(&[("account", "b")], how).await.unwrap();
    assert!(matches!(acquired, Acquired::Ours(lease) if lease.outage.is_none()));
}

#[tokio::test]
async fn a_refused_message_is_an_error_and_leaves_no_record() {
    for binary in BINARIES {
        let server = server(binary, &["~*", "resetchannels", "+@all"]);
        let quaymaster = subject("mute", &server).await.schema(SCHEMA);
        let news = quaymaster.event("news").unwrap();
        for request in [None, Some("r-1"), Some("r-1")] {
            let error = news.publish_as(&[], b"1", request).await.unwrap_err();
            assert_eq!(error.code, Code::StorePermission, "{binary:?} {error}");
        }
        assert_eq!(server.command::<i64>(&["DBSIZE"]), 0, "{binary:?}: nothing is kept");
        server.command::<()>(&["ACL", "SETUSER", "svc", "allchannels"]);
        assert_eq!(news.publish_as(&[], b"1", Some("r-1")).await.unwrap(), 0, "{binary:?}");
    }
}
