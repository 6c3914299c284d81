//! A request's record that another program wrote is refused by name, before anything is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::{Code, Engine};
use quaymaster_server::command::Command;
use quaymaster_testkit::conformance::{command, command_text};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::cases::{CASES, Case};
use crate::runner::{Runner, changes, connect, dump, find};

const ID: &str = "R9";

/// What no call of ours writes; `%` stands for the first word of the right record.
const FOREIGN: &[&str] = &[
    "",
    "x",
    "%",
    "% ",
    "hello world",
    "% nan nan nan",
    "% allowed 1 2",
    "% 1e308 inf -inf",
    "% allowed nan 2 3",
    "% allowed 9007199254740993 1 1",
    "% pushed 1 1 1 99999999999999999999",
    "9007199254740992",
];

/// The names of the keys that hold the answer to the request.
async fn records(engine: &Arc<dyn Engine>, prefix: &str) -> Vec<String> {
    let keys = dump(engine, prefix).await.into_keys();
    // A run whose id is made up has another one the next time.
    keys.filter(|key| key.ends_with(&format!(":{ID}")) && !key.contains("manual_")).collect()
}

fn takes_ids(command: Command) -> bool {
    command.fields().any(|field| field.name == "request_id")
}

async fn set(engine: &Arc<dyn Engine>, key: &str, text: &str) {
    command(&**engine, key.as_bytes(), &[b"SET", key.as_bytes(), text.as_bytes()]).await.unwrap();
}

async fn refuse_foreign_records(engine: Arc<dyn Engine>) {
    let (mut wrong, mut tried) = (Vec::new(), BTreeSet::new());
    for (number, case) in
        CASES.iter().enumerate().filter(|(_, case)| takes_ids(find(case.call.0, case.call.1)))
    {
        // Once with a record of its own, to learn where it lies and how it begins.
        let learnt = format!("learn{number}:");
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner::on(engine.clone(), &learnt, folder.path());
        let fields = Case::asked_as(&case.prepare(&runner).await, ID);
        runner.run(case.call, fields).await.unwrap_or_else(|error| panic!("{case:?}: {error}"));
        for record in records(&engine, &learnt).await {
            let held = command_text(&*engine, &["GET", &record]).await.unwrap();
            let word = held.split([' ', ':']).next().unwrap_or_default().to_owned();
            tried.insert(format!("{} {}", case.call.0, case.call.1));
            for (foreign, text) in FOREIGN.iter().enumerate() {
                let prefix = format!("case{number}x{foreign}:");
                let folder = tempfile::tempdir().unwrap();
                let runner = Runner::on(engine.clone(), &prefix, folder.path());
                let fields = Case::asked_as(&case.prepare(&runner).await, ID);
                let (record, text) = (record.replace(&learnt, &prefix), text.replace('%', &word));
                set(&engine, &record, &text).await;
                let before = dump(&engine, &prefix).await;
                let answer = runner.run(case.call, fields).await;
                let changed = changes(&before, &dump(&engine, &prefix).await);
                let what = format!("{:?} {} with {text:?} in {record}", case.call, case.fields);
                match answer {
                    Err(error) if error.code == Code::KeyMalformed && error.detail.contains(&record) => {
                        if !changed.is_empty() || error.may_have_run {
                            wrong.push(format!("{what}: {error}, changed {changed:?}"));
                        }
                    }
                    other => wrong.push(format!("{what}: {other:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried.len() >= 20, "records were found for {tried:?} only");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_not_ours_is_refused_by_name_on_redis() {
    let server = RedisServer::start(RedisConfig::default());
    refuse_foreign_records(connect(&server.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_not_ours_is_refused_by_name_on_the_embedded_store() {
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    refuse_foreign_records(Arc::new(store)).await;
}
