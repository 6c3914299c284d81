//! What the store says about itself and about single keys.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};

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

/// Settings that INFO does not tell.
const CONFIG: [&str; 4] = ["appendfsync", "save", OUTPUT_BUFFERS, TIMEOUT];
const OUTPUT_BUFFERS: &str = "client-output-buffer-limit";
const TIMEOUT: &str = "timeout";

/// The reply of TIME, in microseconds.
pub(super) fn time(reply: &Reply) -> Result<i64> {
    let parts = resp::parts(reply).unwrap_or_default();
    match (parts.first().and_then(resp::number), parts.get(1).and_then(resp::number)) {
        (Some(seconds), Some(micros)) => Ok(seconds * 1_000_000 + micros),
        _ => Err(strange("store.time", "TIME", reply)),
    }
}

fn strange(op: &'static str, command: &str, reply: &Reply) -> Error {
    Error::new(op, Code::StoreReply, format!("{command} answered {reply:?}"))
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
        let (major, minor) = self.shared.options.oldest;
        if let Some(version) = info.get("redis_version")
            && version_of(version).is_some_and(|found| found < (major, minor))
        {
            let detail =
                format!("the server is Redis {version}; {major}.{minor} is the oldest that works here");
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

    /// A page of one node's keys. On a cluster the masters come one after another, by their lowest slot. Slots that
    /// move to another master meanwhile may be seen twice or not at all.
    ///
    /// A node's own cursor means something to the process that gave it out and to no other: the cursor says which
    /// that was, and one of another address or process is refused, since keys would be passed over.
    pub(super) async fn scan(
        &self,
        pattern: &[u8],
        count: usize,
        cursor: Option<ScanCursor>,
    ) -> Result<ScanPage> {
        let at = cursor.map(Cursor::read).transpose()?;
        let (node, next_shard) = match &self.route {
            Route::Single(node) => (Arc::clone(node), None),
            Route::Cluster(cluster) => {
                let table = cluster.table();
                let shards = table.shards();
                let index = match &at {
                    None => Some(0),
                    Some(at) => shards.iter().position(|(address, _)| address.to_string() == at.address),
                };
                let Some((_, node)) = index.and_then(|index| shards.get(index)) else {
                    return match at {
                        Some(at) => Err(at.refused()),
                        None => Ok(ScanPage::default()),
                    };
                };
                let next =
                    index.and_then(|index| shards.get(index + 1)).map(|(address, _)| address.to_string());
                (Arc::clone(node), next)
            }
        };
        let (from, count) = (at.as_ref().map_or(0, |at| at.own).to_string(), count.max(1).to_string());
        let command = words([b"SCAN", from.as_bytes(), b"MATCH", pattern, b"COUNT", count.as_bytes()]);
        // Both on one connection: what is asked and who answers are one process.
        let (place, about, reply) = self.ask_both(SCAN, &words(["INFO", "server"]), &command, &node).await?;
        let address = place.to_string();
        let process = about.ok().and_then(|about| info(&about).remove("run_id"));
        if let Some(at) = at
            && !at.is_of(&address, process.as_deref())
        {
            return Err(at.refused());
        }
        let Some((own, keys)) = page(&reply) else { return Err(strange(SCAN, "SCAN", &reply)) };
        let next = match (own, next_shard) {
            (0, None) => None,
            (0, Some(address)) => Some(Cursor { own: 0, process: None, address }),
            (own, _) => Some(Cursor { own, process, address }),
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
            whole.pubsub_buffer = match (whole.pubsub_buffer, node.pubsub_buffer) {
                (Some(a), Some(b)) => Some([0, 1, 2].map(|at| lower(a[at], b[at]))),
                (a, b) => a.or(b),
            };
            whole.idle_timeout_s = match (whole.idle_timeout_s, node.idle_timeout_s) {
                (Some(a), Some(b)) => Some(lower(a, b)),
                (a, b) => a.or(b),
            };
            if rank(node.persistence.as_deref()) < rank(whole.persistence.as_deref()) {
                whole.persistence = node.persistence;
            }
        }
        Ok(whole)
    }

    async fn deployment_of(&self, node: &Arc<Node>) -> Result<Deployment> {
        let info = info(&self.ask_node(DEPLOYMENT, &words(["INFO"]), node).await?);
        let number = |name: &str| info.get(name).and_then(|text| text.parse::<u64>().ok());
        let text = |name: &str| info.get(name).cloned();
        // Managed services forbid CONFIG; what it would have told stays unknown.
        let asked = CONFIG.map(async |name| {
            let reply = self.ask_node(DEPLOYMENT, &words(["CONFIG", "GET", name]), node).await.ok()?;
            let [_, value] = resp::parts(&reply)? else { return None };
            Some((name, resp::text(value).unwrap_or_default().to_owned()))
        });
        let config: HashMap<_, _> = join_all(asked).await.into_iter().flatten().collect();
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
            pubsub_buffer: config.get(OUTPUT_BUFFERS).and_then(|text| pubsub_buffer(text)),
            idle_timeout_s: config.get(TIMEOUT).and_then(|text| text.parse().ok()),
            ..Deployment::default()
        })
    }
}

/// The tighter of two bounds, where 0 is none.
fn lower(a: u64, b: u64) -> u64 {
    if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
}

/// `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60`
fn pubsub_buffer(text: &str) -> Option<[u64; 3]> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "pubsub").skip(1);
    let mut number = || words.next()?.parse().ok();
    Some([number()?, number()?, number()?])
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

pub(super) fn info(reply: &Reply) -> HashMap<String, String> {
    let pairs = resp::text(reply).unwrap_or_default().lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A place in a scan: the node's own cursor, and whose it is.
#[derive(Debug, PartialEq, Eq)]
struct Cursor {
    /// As the node gave it; 0 at the beginning of a node.
    own: u64,
    /// The process that gave it, by its run id; `None` where a user may not ask, and at the beginning.
    process: Option<String>,
    /// The node's address.
    address: String,
}

impl Cursor {
    fn write(&self) -> ScanCursor {
        let process = self.process.as_deref().unwrap_or("-");
        ScanCursor(format!("{} {process} {}", self.own, self.address).into_bytes())
    }

    fn read(ScanCursor(bytes): ScanCursor) -> Result<Self> {
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let mut parts = text.splitn(3, ' ');
        let parsed = (|| {
            let own = parts.next()?.parse().ok()?;
            let process = parts.next().filter(|process| !process.is_empty())?;
            let address = parts.next().filter(|address| !address.is_empty())?.to_owned();
            Some(Self { own, process: (process != "-").then(|| process.to_owned()), address })
        })();
        parsed.ok_or_else(|| {
            let detail = "the cursor is not one a scan gave out; begin again without it";
            Error::new(SCAN, Code::RequestInvalid, detail).field("cursor")
        })
    }

    /// Whether the process with this run id at this address gave it out. An id that nobody may ask for decides nothing.
    fn is_of(&self, address: &str, process: Option<&str>) -> bool {
        self.address == address
            && match (&self.process, process) {
                (Some(gave), Some(now)) => gave == now,
                _ => true,
            }
    }

    fn refused(&self) -> Error {
        let detail = format!(
            "the cursor belongs to {} as it was before a restart or a failover: going on would pass keys over; begin \
             again without it",
            self.address
        );
        Error::new(SCAN, Code::RequestInvalid, detail).field("cursor")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a cursor that does not come back is the test's failure")]
    use super::*;

    #[test]
    fn the_tighter_bound_of_two_nodes_speaks_for_both() {
        assert_eq!(
            pubsub_buffer("normal 0 0 0 slave 1 2 3 pubsub 33554432 8388608 60"),
            Some([32 << 20, 8 << 20, 60])
        );
        assert_eq!((pubsub_buffer("normal 0 0 0"), pubsub_buffer("pubsub 1 2")), (None, None));
        assert_eq!((lower(0, 5), lower(5, 0), lower(3, 5), lower(0, 0)), (5, 5, 3, 0));
    }

    #[test]
    fn cursors_come_back_as_they_went_out() {
        let first = Cursor { own: 0, process: None, address: "/run/redis.sock with a space".into() };
        let other = Cursor { own: u64::MAX, process: Some("abc".into()), address: "[::1]:7000".into() };
        for cursor in [first, other] {
            assert_eq!(Cursor::read(cursor.write()).unwrap(), cursor);
        }
        for bad in ["", "1", "1 2", "1 2 ", "x y z", "1  a"] {
            let error = Cursor::read(ScanCursor(bad.into())).unwrap_err();
            assert_eq!(error.code, Code::RequestInvalid, "{bad}");
        }
    }

    #[test]
    fn a_cursor_is_of_one_process_at_one_address() {
        let cursor = Cursor { own: 7, process: Some("one".into()), address: "a:1".into() };
        assert!(cursor.is_of("a:1", Some("one")) && cursor.is_of("a:1", None));
        assert!(!cursor.is_of("a:1", Some("two")) && !cursor.is_of("b:1", Some("one")));
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version_of("6.0.16").unwrap() < (6, 2));
        assert!(version_of("10.0.0").unwrap() > (6, 2));
        assert_eq!(version_of("x"), None);
    }
}
