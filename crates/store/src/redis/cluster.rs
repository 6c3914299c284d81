//! Which node of a cluster owns a slot, and keeping that true.
//!
//! The redis crate has a cluster client; it is not used, because it answers every call in flight with the
//! error of a failed slot refresh, also calls that healthy nodes are executing. Whether a call may have run
//! cannot be told any more then, and that is what decides if it may be sent again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::redis::dial::Place;
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::node::{Node, Origin, Shared};
use crate::redis::options::Address;
use crate::redis::slot::{SLOTS, slot};
use crate::{Code, Workload};

/// The pause between two looks at the topology, however loud the calls ask for one.
const CALM: Duration = Duration::from_millis(100);
const UNOWNED: u16 = u16::MAX;

/// A cluster; dropping it closes everything.
#[derive(Debug)]
pub(super) struct Cluster {
    core: Arc<Core>,
    refresher: AbortHandle,
}

#[derive(Debug)]
struct Core {
    shared: Arc<Shared>,
    table: ArcSwap<Table>,
    /// Every node there is a use for; not on the way of a call that finds its slot in the table.
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// What the URL names; asked when everything else is gone.
    seeds: Vec<Address>,
    /// Masters and replicas as last seen: whom to ask for the topology.
    members: Mutex<Vec<Address>>,
    next: AtomicUsize,
    stale: Notify,
    looked: watch::Sender<u64>,
}

/// Who owns which slot.
#[derive(Debug)]
pub(super) struct Table {
    owners: Box<[u16]>,
    pub(super) masters: Vec<(Address, Arc<Node>)>,
}

impl Table {
    fn empty() -> Self {
        Self { owners: vec![UNOWNED; SLOTS].into(), masters: Vec::new() }
    }

    /// The masters that own slots, by the lowest of them: an order that a failover does not change.
    pub(super) fn shards(&self) -> Vec<(u16, &Address, &Arc<Node>)> {
        let mut shards: Vec<_> = self
            .masters
            .iter()
            .enumerate()
            .filter_map(|(index, (address, node))| {
                let lowest = self.owners.iter().position(|owner| usize::from(*owner) == index)?;
                Some((lowest as u16, address, node))
            })
            .collect();
        shards.sort_by_key(|(lowest, ..)| *lowest);
        shards
    }

    fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        let index = self.owners[usize::from(slot)];
        self.masters.get(usize::from(index)).map(|(_, node)| node)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl Cluster {
    /// Learns the topology from the first node that answers; the caller bounds the time.
    pub(super) async fn connect(shared: Arc<Shared>, seeds: Vec<Address>) -> Result<Self, Fault> {
        let core = Arc::new(Core {
            shared,
            table: ArcSwap::from_pointee(Table::empty()),
            nodes: Mutex::new(HashMap::new()),
            seeds,
            members: Mutex::new(Vec::new()),
            next: AtomicUsize::new(0),
            stale: Notify::new(),
            looked: watch::Sender::new(0),
        });
        core.refresh().await?;
        let refresher = tokio::spawn(keep_fresh(Arc::clone(&core))).abort_handle();
        Ok(Self { core, refresher })
    }

    /// The node that owns the key's slot; any master without a key.
    pub(super) fn node(&self, key: Option<&[u8]>) -> Result<Arc<Node>, Fault> {
        let table = self.core.table.load();
        let node = match key {
            Some(key) => table.owner(slot(key)),
            None => {
                let masters = &table.masters;
                let at = self.core.next.fetch_add(1, Relaxed) % masters.len().max(1);
                masters.get(at).map(|(_, node)| node)
            }
        };
        node.cloned().ok_or_else(|| {
            let detail = "no master of the cluster owns this slot";
            Fault::new(Code::StoreClusterDown, Ran::No, Then::Reroute, detail)
        })
    }

    /// The node a redirect named; `from` answers for a node that does not know its own host.
    pub(super) fn at(&self, address: &Address, from: &Place) -> Arc<Node> {
        self.core.node_at(named(address, from))
    }

    /// The topology as last seen.
    pub(super) fn table(&self) -> Arc<Table> {
        self.core.table.load_full()
    }

    /// Says that the topology looks wrong.
    pub(super) fn suspect(&self) {
        self.core.stale.notify_one();
    }

    /// Waits for the next look at the topology.
    pub(super) async fn looked(&self) {
        let mut looked = self.core.looked.subscribe();
        let _ = looked.changed().await;
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        self.refresher.abort();
        for node in self.core.nodes.lock().values() {
            node.close();
        }
    }
}

/// Looks at the topology when asked and every so often, never faster than `CALM`.
async fn keep_fresh(core: Arc<Core>) {
    loop {
        let asked = core.stale.notified();
        let _ = tokio::time::timeout(core.shared.options.refresh, asked).await;
        if let Err(fault) = core.refresh().await {
            tracing::warn!(code = %fault.code, detail = %fault.detail, "the cluster's slots cannot be read");
        }
        core.looked.send_modify(|count| *count += 1);
        tokio::time::sleep(CALM).await;
    }
}

impl Core {
    fn node_at(&self, address: Address) -> Arc<Node> {
        match self.nodes.lock().entry(address) {
            Entry::Occupied(found) => Arc::clone(found.get()),
            Entry::Vacant(free) => {
                let origin = Origin::Fixed(Place::Tcp(free.key().clone()));
                Arc::clone(free.insert(Arc::new(Node::new(Arc::clone(&self.shared), origin))))
            }
        }
    }

    /// Asks in random order, so that a node cut off from the others is not believed for long.
    async fn refresh(&self) -> Result<(), Fault> {
        let mut known = self.members.lock().clone();
        known.extend(self.seeds.iter().filter(|seed| !known.contains(seed)).cloned().collect::<Vec<_>>());
        fastrand::shuffle(&mut known);
        // Nodes with a connection answer at once; the others may cost a time-out each.
        known.sort_by_key(|address| !self.nodes.lock().get(address).is_some_and(|node| node.is_up()));
        let mut last = None;
        for address in known {
            match self.ask(&address).await {
                Ok(ranges) => {
                    self.adopt(ranges);
                    return Ok(());
                }
                Err(fault) => last = Some(fault),
            }
        }
        Err(last.unwrap_or_else(|| {
            Fault::new(Code::StoreRefused, Ran::No, Then::Report, "the cluster's URL names no node")
        }))
    }

    async fn ask(&self, address: &Address) -> Result<Vec<Range>, Fault> {
        let node = self.node_at(address.clone());
        let until = Instant::now() + self.shared.options.pools.default.connect_timeout;
        let live = node.live(Workload::Default, until).await?;
        let question = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let answer = match tokio::time::timeout_at(until.into(), live.send(&question)).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::timed_out(&live.place.to_string())),
        };
        match answer {
            Ok(Value::ServerError(error)) => {
                let fault = Fault::server(&error);
                // "This instance has cluster support disabled" is no fault of a script.
                let code = if fault.code == Code::ScriptFailed { Code::ConfigInvalid } else { fault.code };
                Err(Fault { code, then: Then::Report, ..fault })
            }
            Ok(value) => ranges(value, address),
            Err(fault) => {
                node.lose(&live, &fault);
                Err(fault.before_sending())
            }
        }
    }

    fn adopt(&self, ranges: Vec<Range>) {
        let mut addresses: Vec<Address> = ranges.iter().map(|range| range.master.clone()).collect();
        addresses.sort_by(|a, b| (&a.host, a.port).cmp(&(&b.host, b.port)));
        addresses.dedup();
        let mut owners = vec![UNOWNED; SLOTS];
        for range in &ranges {
            let index = addresses.iter().position(|address| *address == range.master).unwrap_or(usize::MAX);
            let first = usize::from(range.first).min(SLOTS);
            let end = (usize::from(range.last) + 1).clamp(first, SLOTS);
            owners[first..end].fill(index as u16);
        }
        let mut members = addresses.clone();
        for replica in ranges.iter().flat_map(|range| &range.replicas) {
            if !members.contains(replica) {
                members.push(replica.clone());
            }
        }
        *self.members.lock() = members;
        let masters: Vec<_> = addresses
            .into_iter()
            .map(|address| {
                let node = self.node_at(address.clone());
                (address, node)
            })
            .collect();
        self.nodes.lock().retain(|address, _| masters.iter().any(|(master, _)| master == address));
        self.table.store(Arc::new(Table { owners: owners.into(), masters }));
    }
}

/// One line of CLUSTER SLOTS.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    master: Address,
    replicas: Vec<Address>,
}

fn named(address: &Address, from: &Place) -> Address {
    match from {
        Place::Tcp(from) if address.host.is_empty() || address.host == "?" => {
            Address { host: from.host.clone(), port: address.port }
        }
        _ => address.clone(),
    }
}

fn ranges(answer: Value, asked: &Address) -> Result<Vec<Range>, Fault> {
    let wrong = || {
        let detail = format!("{asked} answered CLUSTER SLOTS in a form we do not know");
        Fault::new(Code::StoreProtocol, Ran::No, Then::Report, detail)
    };
    let Value::Array(lines) = answer else { return Err(wrong()) };
    let from = Place::Tcp(asked.clone());
    let mut ranges = Vec::with_capacity(lines.len());
    for line in lines {
        let Value::Array(parts) = line else { return Err(wrong()) };
        let mut parts = parts.into_iter();
        let (Some(Value::Int(first)), Some(Value::Int(last))) = (parts.next(), parts.next()) else {
            return Err(wrong());
        };
        let mut nodes = Vec::with_capacity(2);
        for node in parts {
            let Value::Array(mut fields) = node else { return Err(wrong()) };
            if fields.len() < 2 {
                return Err(wrong());
            }
            fields.truncate(2);
            let (Some(Value::Int(port)), Some(host)) = (fields.pop(), fields.pop()) else {
                return Err(wrong());
            };
            // A node that prefers to be unknown has no host.
            let host =
                redis::from_redis_value::<Option<String>>(host).map_err(|_| wrong())?.unwrap_or_default();
            let port = u16::try_from(port).map_err(|_| wrong())?;
            nodes.push(named(&Address { host, port }, &from));
        }
        if nodes.is_empty() {
            continue;
        }
        let master = nodes.remove(0);
        let slot_of = |value: i64| u16::try_from(value).map_err(|_| wrong());
        ranges.push(Range { first: slot_of(first)?, last: slot_of(last)?, master, replicas: nodes });
    }
    if ranges.is_empty() {
        let detail = format!("{asked} knows no owner of any slot");
        return Err(Fault::new(Code::StoreClusterDown, Ran::No, Then::Reroute, detail));
    }
    Ok(ranges)
}
