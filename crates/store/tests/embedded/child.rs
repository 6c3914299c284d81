//! A second process: this test binary, run again with orders in its environment.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use futures_util::StreamExt;
use quaymaster_store::{Code, Error, Message};

use super::*;

const ORDERS: &str = "QUAYMASTER_TEST_CHILD";
const FOLDER: &str = "QUAYMASTER_TEST_FOLDER";

/// What a child does until it is killed or its orders end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Orders {
    /// Count two keys up from four tasks, `always`.
    Count,
    /// The same, `everysec`.
    CountEverySec,
    /// Count one key up from two tasks through whoever owns the folder.
    Attach,
    /// Write values of ten kilobytes until that fails, then lift the limit and go on.
    Fill,
    /// Write such values once somebody is attached, until that fails; then go on through whoever owns the folder.
    FillAndYield,
    /// Write ten values, close, end.
    WriteAndClose,
}

impl Orders {
    const ALL: [(&'static str, Orders); 6] = [
        ("count", Orders::Count),
        ("count-everysec", Orders::CountEverySec),
        ("attach", Orders::Attach),
        ("fill", Orders::Fill),
        ("fill-and-yield", Orders::FillAndYield),
        ("write-and-close", Orders::WriteAndClose),
    ];

    fn read(text: Option<&str>) -> Option<Orders> {
        Self::ALL.into_iter().find(|(name, _)| Some(*name) == text).map(|(_, orders)| orders)
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, orders)| *orders == self).map_or("", |(name, _)| name)
    }
}

/// The entry of every child. Run with the other tests it has no orders and checks only how they are read.
#[test]
fn a_child_does_what_its_orders_say() {
    assert_eq!(Orders::read(Some("nonsense")), None);
    for (name, orders) in Orders::ALL {
        assert_eq!(Orders::read(Some(name)), Some(orders));
    }
    let Some(orders) = Orders::read(std::env::var(ORDERS).ok().as_deref()) else { return };
    let dir = PathBuf::from(std::env::var_os(FOLDER).expect("a child needs a folder"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(obey(orders, &dir));
}

fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone needs no report.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn obey(orders: Orders, dir: &Path) {
    let durability = match orders {
        Orders::CountEverySec => Durability::EverySec,
        _ => Durability::Always,
    };
    let store = match EmbeddedStore::open(dir, options(durability)).await {
        Ok(store) => Arc::new(store),
        Err(error) => return say(format_args!("failed {} {error}", error.code)),
    };
    say(format_args!("ready 0"));
    match orders {
        Orders::Count | Orders::CountEverySec => count(&store, 4, &BOTH, &["a", "b"]).await,
        Orders::Attach => count(&store, 2, &INCR, &["counter"]).await,
        Orders::Fill => {
            let mut messages = store.subscribe(b"channel").await.unwrap();
            fill(&store).await;
            say(format_args!("connected {}", store.health().connected));
            let name = |error: Option<Error>| error.map_or("accepted", |error| error.code.name());
            for script in [*GET, *INCR] {
                say(format_args!("again {}", name(store.run(call(script, &["other"], &[])).await.err())));
            }
            say(format_args!("again {}", name(store.time_us().await.err())));
            say(format_args!("again {}", name(store.deployment().await.err())));
            say(format_args!("again {}", name(store.wait_for_item(b"list", Duration::ZERO).await.err())));
            // There is space again.
            let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
            let limit = rustix::process::Rlimit { current: limit.maximum, ..limit };
            rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
            recover(&store).await;
            say(format_args!("recovered {}", store.health().connected));
            // A subscription made before goes on, and tells that it may have missed something.
            assert_eq!(messages.next().await, Some(Message::Missed(0)));
            store.run(call(&PUBLISH, &["channel"], &["after"])).await.unwrap();
            assert_eq!(messages.next().await, Some(Message::Data("after".into())));
            say(format_args!("heard after"));
        }
        Orders::FillAndYield => {
            // The harness has begun the first line itself.
            say(format_args!("waiting 0"));
            while store.deployment().await.unwrap().connected_clients != Some(1) {
                tokio::task::yield_now().await;
            }
            fill(&store).await;
            recover(&store).await;
            say(format_args!("recovered {}", mode(&store).await));
        }
        Orders::WriteAndClose => {
            for n in 0..10 {
                store.run(call(&SET, &[&format!("closed:{n}")], &["v"])).await.unwrap();
                say(format_args!("ack {n}"));
            }
            store.close().await.unwrap();
            say(format_args!("closed 0"));
        }
    }
}

async fn fill(store: &EmbeddedStore) {
    for n in 0..100_000_u32 {
        let (key, value) = (format!("fill:{n}"), "v".repeat(10_000));
        match store.run(call(&SET, &[&key], &[&value])).await {
            Ok(_) => say(format_args!("ack {n}")),
            Err(error) => return say(format_args!("failed {} {}", error.code, error.detail)),
        }
    }
}

/// Counts once more, however long that takes; until then each call is refused as one that did not run.
async fn recover(store: &EmbeddedStore) {
    while let Err(error) = store.run(call(&INCR, &["recovered"], &[])).await {
        assert_eq!(error.code, Code::StoreFolder, "{error}");
        tokio::task::yield_now().await;
    }
}

async fn count(
    store: &Arc<EmbeddedStore>,
    tasks: usize,
    script: &'static Script,
    keys: &'static [&'static str],
) {
    let tasks = (0..tasks).map(|_| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            loop {
                match int(&store, script, keys).await {
                    Ok(value) => say(format_args!("ack {value}")),
                    Err(error) => say(format_args!("{} {error}", error.code)),
                }
            }
        })
    });
    futures_util::future::join_all(tasks).await;
}

/// A running child and what it has said.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<(String, String)>,
    /// Everything heard so far, by first word.
    pub(crate) said: BTreeMap<String, Vec<String>>,
}

/// Starts a child, through `shell` if given (a prefix of a shell command line).
pub(crate) fn start(orders: Orders, dir: &Path, shell: Option<&str>) -> Running {
    let exe = std::env::current_exe().unwrap();
    let mut command = match shell {
        None => Command::new(&exe),
        Some(prefix) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("{prefix}; exec \"$0\" \"$@\"")).arg(&exe);
            command
        }
    };
    let mut child = command
        .args(["--exact", "child::a_child_does_what_its_orders_say", "--nocapture", "--test-threads=1"])
        .env(ORDERS, orders.name())
        .env(FOLDER, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            if sender.send((word.to_owned(), rest.to_owned())).is_err() {
                return;
            }
        }
    });
    Running { child, lines, said: BTreeMap::new() }
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Listens until the child has said a line that begins with `word`; panics when it ends or is silent.
    pub(crate) fn hear(&mut self, word: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            let (first, rest) =
                line.unwrap_or_else(|_| panic!("no {word:?} from the child: {:?}", self.said));
            self.said.entry(first.clone()).or_default().push(rest.clone());
            if first == word {
                return rest;
            }
        }
    }

    /// Takes in what the child says for `time`.
    pub(crate) fn listen(&mut self, time: Duration) {
        let end = std::time::Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((first, rest)) => self.said.entry(first).or_default().push(rest),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Kills the child (-9) and takes in everything it managed to say.
    pub(crate) fn kill(mut self) -> BTreeMap<String, Vec<String>> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.rest()
    }

    /// Waits for the child to end by itself.
    pub(crate) fn end(mut self) -> BTreeMap<String, Vec<String>> {
        self.child.wait().unwrap();
        self.rest()
    }

    fn rest(&mut self) -> BTreeMap<String, Vec<String>> {
        while let Ok((first, rest)) = self.lines.recv_timeout(Duration::from_secs(60)) {
            self.said.entry(first).or_default().push(rest);
        }
        std::mem::take(&mut self.said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed must not leave a child behind; one that has ended does not mind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The numbers a child said after `word`.
pub(crate) fn numbers(said: &BTreeMap<String, Vec<String>>, word: &str) -> Vec<i64> {
    said.get(word).into_iter().flatten().map(|text| text.parse().unwrap()).collect()
}
