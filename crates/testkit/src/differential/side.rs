//! One of the two stores, with the hand on its clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use quaymaster_store::{Engine, Invocation, Reply, Workload};

use super::scripts;
use crate::held_clock::HeldClock;

/// How many keys one dump looks at.
const PAGE: usize = 500;

/// A server whose time is this near has looked at its clock.
const SETTLED_US: i64 = 1_000_000;

/// A clock that a test moves.
#[derive(Debug, Clone)]
pub enum Hand {
    /// In this process.
    Manual(Arc<AtomicI64>),
    /// In a server.
    Held(HeldClock),
}

/// A store and its clock.
#[derive(Debug, Clone)]
pub struct Side {
    /// What it is called in reports.
    pub name: &'static str,
    /// The store.
    pub engine: Arc<dyn Engine>,
    /// Its clock.
    pub hand: Hand,
}

/// One key: type, milliseconds to live, content with unordered parts sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// `string`, `hash`, …
    pub kind: String,
    /// As PTTL answers.
    pub ttl_ms: i64,
    /// What is in it.
    pub content: Reply,
}

impl Side {
    /// Stops the clock at this moment and waits until the store has seen it: a server may look at its clock
    /// only now and then.
    pub async fn set_time(&self, us: i64) {
        match &self.hand {
            Hand::Manual(clock) => clock.store(us, Ordering::SeqCst),
            Hand::Held(clock) => {
                clock.freeze(us);
                for _ in 0..10_000 {
                    let told_us = self.engine.time_us().await.expect("the store tells its time");
                    if (told_us - us).abs() < SETTLED_US {
                        return;
                    }
                }
                panic!("{} does not follow its clock", self.name);
            }
        }
    }

    /// Every key that begins with `prefix`, with everything there is to see of it.
    pub async fn keyspace(&self, prefix: &str) -> BTreeMap<Bytes, Held> {
        let keys = self.keys(prefix).await;
        let mut found = BTreeMap::new();
        for page in keys.chunks(PAGE) {
            let Reply::Array(told) = self.over(&scripts::DUMP, page).await else {
                panic!("a dump is a table")
            };
            assert_eq!(told.len(), page.len());
            for (key, told) in page.iter().zip(told) {
                let held = Held::read(told);
                // A key may have ended between the scan and the dump, when the store's time runs.
                if held.kind != "none" {
                    found.insert(key.clone(), held);
                }
            }
        }
        found
    }

    /// Removes every key that begins with `prefix`.
    pub async fn clear(&self, prefix: &str) {
        for page in self.keys(prefix).await.chunks(PAGE) {
            self.over(&scripts::CLEAR, page).await;
        }
    }

    async fn keys(&self, prefix: &str) -> Vec<Bytes> {
        let pattern = format!("{prefix}*");
        let (mut keys, mut cursor) = (Vec::new(), None);
        loop {
            let page =
                self.engine.scan(pattern.as_bytes(), 5000, cursor.take()).await.expect("the store scans");
            keys.extend(page.keys);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    async fn over(&self, script: &'static quaymaster_store::Script, keys: &[Bytes]) -> Reply {
        let mut call = Invocation::new(script, Workload::Default);
        for key in keys {
            call.keys.push(key);
        }
        self.engine.run(call).await.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

impl Held {
    fn read(told: Reply) -> Self {
        let Reply::Array(parts) = told else { panic!("a dumped key is a table, got {told:?}") };
        let [Reply::Bytes(kind), Reply::Int(ttl_ms), content] =
            <[Reply; 3]>::try_from(parts).expect("three parts")
        else {
            panic!("a dumped key is type, time to live and content")
        };
        let kind = String::from_utf8_lossy(&kind).into_owned();
        let mut content = content;
        match kind.as_str() {
            "hash" => sort(&mut content, 2),
            "set" => sort(&mut content, 1),
            _ => {}
        }
        Self { kind, ttl_ms, content }
    }
}

/// Sorts an array whose order is not defined, `width` values at a time.
pub(super) fn sort(reply: &mut Reply, width: usize) {
    if let Reply::Array(parts) = reply {
        let mut groups: Vec<Vec<Reply>> = parts.chunks(width).map(<[Reply]>::to_vec).collect();
        groups.sort_by_cached_key(|group| format!("{group:?}"));
        *parts = groups.concat();
    }
}
