//! Which node of a cluster owns a slot, and keeping that true.
//!
//! The cluster client of the redis crate is not used: when a slot refresh fails it answers every call in
//! flight with that error, also calls that healthy nodes are executing. Whether a call may have run cannot be
//! told any more then, and that is what decides if it may be sent again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::redis::dial::Place;
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::node::{Node, Origin, Shared};
use crate::redis::options::Address;
use crate::redis::resp::{self, words};
use crate::redis::slot::{SLOTS, slot};
use crate::{Code, Reply, Workload};

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
    pub(super) fn shards(&self) -> Vec<(&Address, &Arc<Node>)> {
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
        shards.into_iter().map(|(_, address, node)| (address, node)).collect()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
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
            // Any will do, so one that is known to answer.
            None => {
                let masters = &table.masters;
                let from = self.core.next.fetch_add(1, Relaxed);
                let turn = |at: usize| masters.get((from + at) % masters.len().max(1)).map(|(_, node)| node);
                let all = || (0..masters.len()).filter_map(turn);
                all()
                    .find(|node| node.is_up())
                    .or_else(|| all().find(|node| !node.breaker_open()))
                    .or_else(|| turn(0))
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
            tracing::debug!(code = %fault.code, detail = %fault.detail, "the cluster's slots cannot be read");
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
        match live.send(&words(["CLUSTER", "SLOTS"]), until).await {
            Ok(reply) => ranges(&reply, address),
            Err(fault) if fault.then == Then::Redial => {
                node.lose(&live, &fault);
                Err(fault.before_sending())
            }
            // "This instance has cluster support disabled" is no fault of a script.
            Err(fault) if fault.code == Code::ScriptFailed => {
                Err(Fault { code: Code::ConfigInvalid, ..fault })
            }
            Err(fault) => Err(fault),
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

fn ranges(answer: &Reply, asked: &Address) -> Result<Vec<Range>, Fault> {
    let ranges: Option<Vec<Range>> =
        resp::parts(answer).and_then(|lines| lines.iter().map(|line| range(line, asked)).collect());
    match ranges {
        Some(ranges) if ranges.is_empty() => {
            let detail = format!("{asked} knows no owner of any slot");
            Err(Fault::new(Code::StoreClusterDown, Ran::No, Then::Reroute, detail))
        }
        Some(ranges) => Ok(ranges),
        None => {
            let detail = format!("{asked} answered CLUSTER SLOTS in a form we do not know");
            Err(Fault::new(Code::StoreProtocol, Ran::No, Then::Report, detail))
        }
    }
}

/// `[first, last, [host, port, …] of the master, then of its replicas]`.
fn range(line: &Reply, asked: &Address) -> Option<Range> {
    let [first, last, nodes @ ..] = resp::parts(line)? else { return None };
    let slot_of = |reply| u16::try_from(resp::number(reply)?).ok().filter(|slot| usize::from(*slot) < SLOTS);
    let mut members = nodes.iter().map(|node| {
        let [host, port, ..] = resp::parts(node)? else { return None };
        // A node that prefers to be unknown has no host.
        let host = if *host == Reply::Nil { "" } else { resp::text(host)? }.to_owned();
        let port = u16::try_from(resp::number(port)?).ok()?;
        Some(named(&Address { host, port }, &Place::Tcp(asked.clone())))
    });
    let master = members.next()??;
    let replicas = members.collect::<Option<Vec<_>>>()?;
    Some(Range { first: slot_of(first)?, last: slot_of(last)?, master, replicas })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Reply, port: i64) -> Reply {
        Reply::Array(vec![host, Reply::Int(port), Reply::Bytes("id".into())])
    }

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn slots_are_read_and_nameless_nodes_take_the_name_of_who_answered() {
        let asked = at("10.0.0.1", 7000);
        let line = |first, last, nodes: Vec<Reply>| {
            let mut parts = vec![Reply::Int(first), Reply::Int(last)];
            parts.extend(nodes);
            Reply::Array(parts)
        };
        let answer = Reply::Array(vec![
            line(0, 8191, vec![node(Reply::Bytes("a".into()), 1), node(Reply::Bytes("b".into()), 2)]),
            line(8192, 16383, vec![node(Reply::Nil, 3)]),
        ]);
        let expected = vec![
            Range { first: 0, last: 8191, master: at("a", 1), replicas: vec![at("b", 2)] },
            Range { first: 8192, last: 16383, master: at("10.0.0.1", 3), replicas: vec![] },
        ];
        assert_eq!(ranges(&answer, &asked).ok(), Some(expected));
        for bad in [
            Reply::Nil,
            Reply::Array(vec![Reply::Int(1)]),
            Reply::Array(vec![line(0, 1, vec![])]),
            Reply::Array(vec![line(0, 16384, vec![node(Reply::Nil, 3)])]),
            Reply::Array(vec![line(0, 1, vec![node(Reply::Nil, 70_000)])]),
        ] {
            assert_eq!(
                ranges(&bad, &asked).err().map(|fault| fault.code),
                Some(Code::StoreProtocol),
                "{bad:?}"
            );
        }
        let none = ranges(&Reply::Array(vec![]), &asked).err().map(|fault| fault.code);
        assert_eq!(none, Some(Code::StoreClusterDown));
    }
}
