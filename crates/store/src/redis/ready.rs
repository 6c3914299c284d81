//! Whether writes succeed now: one is tried. PING and reads are answered by replicas, by servers without memory and
//! to users who may write nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::redis::Inner;
use crate::redis::call::Route;
use crate::redis::facts::info;
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::node::Node;
use crate::redis::resp::{self, words};
use crate::redis::slot::slot;
use crate::{Code, Readiness, Result, Workload};

const READY: &str = "store.ready";
/// The life of what is written, in milliseconds.
const LIFE_MS: &str = "10000";
/// Names tried until every primary of a cluster has one of its own; a primary of one slot is found in a tenth.
const NAMES: u32 = 160_000;

impl Inner {
    /// Writes a small key on every primary, and asks for its role and its eviction policy.
    pub(super) async fn ready(&self, patience: Duration) -> Result<Readiness> {
        // Calls are refused without a round trip, so is a try.
        self.clock.check(READY)?;
        let until = Instant::now() + patience;
        let mut found = Readiness::default();
        let tries = self.own_keys().into_iter().map(|(node, key)| self.try_write(node, key, until));
        for tried in join_all(tries).await {
            let policy = tried.map_err(|fault| fault.into_error(READY))?;
            // What is unsafe on one node is unsafe.
            if found.eviction_policy.is_none()
                || policy.as_deref().is_some_and(|policy| policy != "noeviction")
            {
                found.eviction_policy = policy.or(found.eviction_policy);
            }
        }
        Ok(found)
    }

    /// Every primary with a key that lies on it.
    fn own_keys(&self) -> Vec<(Arc<Node>, String)> {
        let prefix = &self.shared.options.own_prefix;
        match &self.route {
            Route::Single(node) => vec![(Arc::clone(node), format!("{prefix}probe"))],
            Route::Cluster(cluster) => {
                let table = cluster.table();
                let primaries = table.shards().len();
                let mut found: Vec<(Arc<Node>, String)> = Vec::new();
                for number in 0..NAMES {
                    if found.len() == primaries {
                        break;
                    }
                    let key = format!("{prefix}probe:{number}");
                    let Some(owner) = table.owner(slot(key.as_bytes())) else { continue };
                    if !found.iter().any(|(node, _)| Arc::ptr_eq(node, owner)) {
                        found.push((Arc::clone(owner), key));
                    }
                }
                found
            }
        }
    }

    /// The node's eviction policy, where its user may ask for it.
    async fn try_write(&self, node: Arc<Node>, key: String, until: Instant) -> Result<Option<String>, Fault> {
        let live = match node.live(Workload::Default, until).await {
            Ok(live) => live,
            Err(fault) => {
                self.look_again();
                return Err(fault);
            }
        };
        let (set, role, memory) =
            (words(["SET", &key, "1", "PX", LIFE_MS]), words(["ROLE"]), words(["INFO", "memory"]));
        // Joined, they are posted in this order and share one round trip.
        let (set, role, memory) =
            tokio::join!(biased; live.send(&set, until), live.send(&role, until), live.send(&memory, until));
        if let Ok(role) = &role
            && let Some(role) = resp::parts(role).and_then(|parts| resp::text(parts.first()?))
            && role != "master"
        {
            // Also one that takes writes: its next synchronisation forgets them.
            self.look_again();
            let detail = format!("{} is a {role}, not a primary", live.place);
            let fault = Fault::new(Code::StoreReadOnly, Ran::No, Then::Redial, detail);
            node.lose_found(&live, &fault);
            return Err(fault);
        }
        match set {
            Ok(_) => node.answered(),
            // The slot is on its way to another node, which has a key of its own.
            Err(fault) if matches!(fault.then, Then::Moved(_) | Then::Ask(_)) => self.look_again(),
            Err(fault) => {
                self.look_again();
                node.lose_found(&live, &fault);
                return Err(Fault { detail: format!("writing {key}: {}", fault.detail), ..fault });
            }
        }
        Ok(memory.ok().and_then(|memory| info(&memory).remove("maxmemory_policy")))
    }

    /// A cluster may have other primaries by now.
    fn look_again(&self) {
        if let Route::Cluster(cluster) = &self.route {
            cluster.suspect();
        }
    }
}
