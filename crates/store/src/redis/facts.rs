//! What the store says about itself and about single keys.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::future::try_join_all;

use crate::redis::Inner;
use crate::redis::call::Route;
use crate::redis::fault::Fault;
use crate::redis::node::Node;
use crate::redis::options::Target;
use crate::redis::resp::{self, words};
use crate::{Code, Deployment, Error, KeyFacts, Reply, Result, ScanCursor, ScanPage, Words};

const SCAN: &str = "store.scan";
const FACTS: &str = "key.explain";
const DEPLOYMENT: &str = "store.deployment";
/// The oldest server the scripts are tested on.
const OLDEST: (u32, u32) = (6, 2);

/// The reply of TIME, in microseconds.
pub(super) fn time(reply: &Reply) -> Result<i64> {
    let parts = resp::parts(reply).unwrap_or_default();
    match (parts.first().and_then(resp::number), parts.get(1).and_then(resp::number)) {
        (Some(seconds), Some(micros)) => Ok(seconds * 1_000_000 + micros),
        _ => Err(strange("store.time", "TIME", reply)),
    }
}

fn strange(op: &'static str, command: &str, reply: &Reply) -> Error {
    Error::new(op, Code::StoreProtocol, format!("{command} answered {reply:?}"))
}

impl Inner {
    /// Refuses what cannot work before the first call meets it. A user that may not ask is let through.
    pub(super) async fn check_server(&self) -> Result<()> {
        let info = match self.ask(super::CONNECT, &words(["INFO", "server"]), None).await {
            Ok(reply) => info(&reply),
            Err(error) if error.code == Code::StorePermission => return Ok(()),
            Err(error) => return Err(error),
        };
        let cluster = info.get("redis_mode").is_some_and(|mode| mode == "cluster");
        if cluster && !matches!(self.route, Route::Cluster(_)) {
            let detail = "this server is a node of a cluster: use redis+cluster://";
            return Err(Error::new(super::CONNECT, Code::ConfigInvalid, detail));
        }
        // Valkey says here which Redis it is compatible with.
        if let Some(version) = info.get("redis_version")
            && version_of(version).is_some_and(|found| found < OLDEST)
        {
            let detail =
                format!("the server is Redis {version}; {}.{} is the oldest that works", OLDEST.0, OLDEST.1);
            return Err(Error::new(super::CONNECT, Code::StoreVersion, detail));
        }
        Ok(())
    }

    pub(super) async fn key_facts(&self, key: &[u8]) -> Result<Option<KeyFacts>> {
        // Sent together, they share a write; a key that ends between them is reported as gone.
        let (kind, ttl, memory) =
            (about(&["TYPE"], key), about(&["PTTL"], key), about(&["MEMORY", "USAGE"], key));
        let (kind, ttl, memory) = tokio::join!(
            self.ask(FACTS, &kind, Some(key)),
            self.ask(FACTS, &ttl, Some(key)),
            self.ask(FACTS, &memory, Some(key)),
        );
        let (kind, ttl) = (kind?, ttl?);
        let kind = resp::text(&kind).ok_or_else(|| strange(FACTS, "TYPE", &kind))?.to_owned();
        let ttl = resp::number(&ttl).ok_or_else(|| strange(FACTS, "PTTL", &ttl))?;
        if kind == "none" || ttl == -2 {
            return Ok(None);
        }
        // An estimate some users may not ask for.
        let bytes = memory.ok().and_then(|reply| u64::try_from(resp::number(&reply)?).ok());
        Ok(Some(KeyFacts { kind, ttl_ms: u64::try_from(ttl).ok(), bytes }))
    }

    /// A page of one node's keys. On a cluster the masters come one after another, by their lowest slot; a
    /// master that was replaced by its replica is scanned again from its beginning, so that nothing that
    /// stayed is missed. Slots that move to another master meanwhile may be seen twice or not at all.
    pub(super) async fn scan(
        &self,
        pattern: &[u8],
        count: usize,
        cursor: Option<ScanCursor>,
    ) -> Result<ScanPage> {
        let at = Cursor::read(cursor)?;
        let command = |from: u64| {
            let (from, count) = (from.to_string(), count.max(1).to_string());
            words([b"SCAN", from.as_bytes(), b"MATCH", pattern, b"COUNT", count.as_bytes()])
        };
        let (reply, slot, address, next_slot) = match &self.route {
            Route::Single(_) => (self.ask(SCAN, &command(at.own), None).await?, 0, String::new(), None),
            Route::Cluster(cluster) => {
                let table = cluster.table();
                let shards = table.shards();
                let Some(index) = shards.iter().position(|(slot, ..)| *slot >= at.slot) else {
                    return Ok(ScanPage::default());
                };
                let (slot, address, node) = &shards[index];
                let same = *slot == at.slot && address.to_string() == at.address;
                let from = if same { at.own } else { 0 };

                let reply = self.ask_node(SCAN, &command(from), node).await?;
                (reply, *slot, address.to_string(), shards.get(index + 1).map(|(slot, ..)| *slot))
            }
        };
        let Some((cursor, keys)) = page(&reply) else { return Err(strange(SCAN, "SCAN", &reply)) };
        let next = match (cursor, next_slot) {
            (0, None) => None,
            (0, Some(slot)) => Some(Cursor { slot, address: String::new(), own: 0 }),
            (own, _) => Some(Cursor { slot, address, own }),
        };
        Ok(ScanPage { keys, next: next.map(|next| next.write()) })
    }

    pub(super) async fn deployment(&self) -> Result<Deployment> {
        let nodes = self.nodes();
        let asking = try_join_all(nodes.iter().map(|node| self.deployment_of(node)));
        let mut all = match tokio::time::timeout(self.shared.options.deadline, asking).await {
            Ok(all) => all?,
            Err(_) => return Err(Fault::timed_out("the store").into_error(DEPLOYMENT)),
        };
        let mut whole = all.pop().unwrap_or_default();
        // What is unsafe on one node is unsafe: the worst setting speaks for all.
        for node in all {
            let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
            whole.used_memory_bytes = sum(whole.used_memory_bytes, node.used_memory_bytes);
            whole.max_memory_bytes = sum(whole.max_memory_bytes, node.max_memory_bytes);
            whole.connected_clients = sum(whole.connected_clients, node.connected_clients);
            if node.eviction_policy.as_deref().is_some_and(|policy| policy != "noeviction") {
                whole.eviction_policy = node.eviction_policy;
            }
            if rank(node.persistence.as_deref()) < rank(whole.persistence.as_deref()) {
                whole.persistence = node.persistence;
            }
        }
        Ok(whole)
    }

    async fn deployment_of(&self, node: &std::sync::Arc<Node>) -> Result<Deployment> {
        let info = info(&self.ask_node(DEPLOYMENT, &words(["INFO"]), node).await?);
        let number = |name: &str| info.get(name).and_then(|text| text.parse::<u64>().ok());
        let text = |name: &str| info.get(name).cloned();
        // Managed services forbid CONFIG; what it would have told stays unknown.
        let mut config = HashMap::new();
        for name in ["appendfsync", "save"] {
            if let Ok(reply) = self.ask_node(DEPLOYMENT, &words(["CONFIG", "GET", name]), node).await
                && let Some([_, value]) = resp::parts(&reply)
            {
                config.insert(name, resp::text(value).unwrap_or_default().to_owned());
            }
        }
        let persistence = match (number("aof_enabled"), config.get("appendfsync"), config.get("save")) {
            (Some(1), Some(fsync), _) => Some(fsync.clone()),
            (Some(1), None, _) => Some("aof".into()),
            (_, _, Some(save)) if save.is_empty() => Some("none".into()),
            (_, _, Some(_)) => Some("rdb".into()),
            (_, _, None) => None,
        };
        let valkey = info.contains_key("valkey_version");
        let mode = match self.shared.options.target {
            Target::Standalone(_) | Target::Unix(_) => "standalone",
            Target::Sentinel { .. } => "sentinel",
            Target::Cluster(_) => "cluster",
        };
        Ok(Deployment {
            product: if valkey { "valkey" } else { "redis" }.into(),
            version: text(if valkey { "valkey_version" } else { "redis_version" }).unwrap_or_default(),
            mode: mode.into(),
            eviction_policy: text("maxmemory_policy"),
            max_memory_bytes: number("maxmemory"),
            used_memory_bytes: number("used_memory"),
            persistence,
            connected_clients: number("connected_clients"),
        })
    }
}

/// How much survives a crash, least first.
fn rank(persistence: Option<&str>) -> u8 {
    match persistence {
        None => 0,
        Some("none") => 1,
        Some("rdb") => 2,
        Some("no" | "aof") => 3,
        Some("everysec") => 4,
        Some(_) => 5,
    }
}

fn about(command: &[&str], key: &[u8]) -> Words {
    let mut words = words(command);
    words.push(key);
    words
}

fn page(reply: &Reply) -> Option<(u64, Vec<Bytes>)> {
    let [cursor, keys] = resp::parts(reply)? else { return None };
    let key = |reply: &Reply| match reply {
        Reply::Bytes(key) => Some(key.clone()),
        _ => None,
    };
    Some((resp::text(cursor)?.parse().ok()?, resp::parts(keys)?.iter().map(key).collect::<Option<_>>()?))
}

fn info(reply: &Reply) -> HashMap<String, String> {
    let pairs = resp::text(reply).unwrap_or_default().lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A place in a scan: a shard, named by its lowest slot and the address it had, and the node's own cursor.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cursor {
    slot: u16,
    address: String,
    /// As the node gave it.
    own: u64,
}

impl Cursor {
    fn write(&self) -> ScanCursor {
        ScanCursor(format!("{} {} {}", self.slot, self.own, self.address).into_bytes())
    }

    fn read(cursor: Option<ScanCursor>) -> Result<Self> {
        let Some(ScanCursor(bytes)) = cursor else { return Ok(Self::default()) };
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let mut parts = text.splitn(3, ' ');
        let parsed = (|| {
            let slot = parts.next()?.parse().ok()?;
            let own = parts.next()?.parse().ok()?;
            Some(Self { slot, own, address: parts.next()?.to_owned() })
        })();
        parsed.ok_or_else(|| Error::new(SCAN, Code::RequestInvalid, "the cursor is not one a scan gave out"))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a cursor that does not come back is the test's failure")]
    use super::*;

    #[test]
    fn cursors_come_back_as_they_went_out() {
        for cursor in [Cursor::default(), Cursor { slot: 16383, address: "[::1]:7000".into(), own: u64::MAX }]
        {
            assert_eq!(Cursor::read(Some(cursor.write())).unwrap(), cursor);
        }
        for bad in ["", "1", "1 2", "x y z", "70000 1 a"] {
            let error = Cursor::read(Some(ScanCursor(bad.into()))).unwrap_err();
            assert_eq!(error.code, Code::RequestInvalid, "{bad}");
        }
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version_of("6.0.16").unwrap() < OLDEST);
        assert!(version_of("10.0.0").unwrap() > OLDEST);
        assert_eq!(version_of("x"), None);
    }
}
