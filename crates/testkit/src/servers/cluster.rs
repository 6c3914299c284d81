//! A Redis or Valkey cluster on loopback.

use crate::servers::address::{free_address, own_ip};
use crate::servers::redis::{RedisConfig, RedisServer, wait_until};
use crate::servers::tools::Binary;

const SLOTS: usize = 16384;

/// How a cluster is set up.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Which program; not [`Binary::Redis62`].
    pub binary: Binary,
    /// How many masters share the slots.
    pub masters: usize,
    /// How many replicas each has.
    pub replicas: usize,
    /// Lines for every node's configuration file.
    pub lines: Vec<String>,
    /// Environment of every node, such as that of a [`crate::held_clock::HeldClock`].
    pub env: Vec<(String, String)>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self { binary: Binary::Redis7, masters: 3, replicas: 0, lines: Vec::new(), env: Vec::new() }
    }
}

/// A running cluster: first the masters, then the replicas, master by master.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<RedisServer>,
    masters: usize,
}

impl Cluster {
    /// Starts the nodes, joins them, hands out the slots and waits until every node agrees.
    pub fn start(config: ClusterConfig) -> Self {
        let count = config.masters * (1 + config.replicas);
        let nodes = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(|| start_node(&config))).collect();
            starting.into_iter().map(|node| node.join().expect("the node starts")).collect()
        });
        let cluster = Self { nodes, masters: config.masters };
        cluster.join(config.masters);
        cluster
    }

    fn join(&self, masters: usize) {
        let share = SLOTS.div_ceil(masters);
        for (index, node) in self.nodes.iter().enumerate() {
            let epoch = (index + 1).to_string();
            node.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            if index < masters {
                let (first, last) = (index * share, ((index + 1) * share - 1).min(SLOTS - 1));
                node.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            }
        }
        let (first, others) = self.nodes.split_first().expect("a cluster has a node");
        for node in others {
            let (ip, port) = (node.address().ip().to_string(), node.address().port().to_string());
            let bus = bus_port(node).to_string();
            first.command::<()>(&["CLUSTER", "MEET", &ip, &port, &bus]);
        }
        let everybody = self.nodes.len().to_string();
        for node in &self.nodes {
            wait_until("the nodes know each other", || {
                cluster_info(node, "cluster_known_nodes").is_some_and(|count| count == everybody)
            });
        }
        for (index, replica) in self.nodes[masters..].iter().enumerate() {
            let master: String =
                self.nodes[index / ((self.nodes.len() - masters) / masters)].command(&["CLUSTER", "MYID"]);
            wait_until("the replica knows its master", || {
                replica.try_command::<()>(&["CLUSTER", "REPLICATE", &master]).is_ok()
            });
        }
        self.wait_until_up();
        // A link that is up carries nothing until the replica's first acknowledgement, up to a second later; what is
        // written before is lost with its master. So something is written, and has to arrive.
        for master in &self.nodes[..masters] {
            master.command::<()>(&["FUNCTION", "FLUSH"]);
        }
        for replica in &self.nodes[masters..] {
            wait_until("the replica follows", || {
                let offset = replica.info("replication", "slave_repl_offset");
                let up =
                    replica.info("replication", "master_link_status").is_some_and(|status| status == "up");
                up && offset.and_then(|offset| offset.parse::<i64>().ok()).is_some_and(|offset| offset > 0)
            });
        }
    }

    /// Waits until every node serves its slots. A node that was restarted refuses calls for about two seconds.
    pub fn wait_until_up(&self) {
        for node in &self.nodes {
            wait_until("the cluster is up", || {
                cluster_info(node, "cluster_state").is_some_and(|state| state == "ok")
            });
        }
    }

    /// Kills every node, starts it again, and waits until the cluster serves.
    pub fn restart(&mut self) {
        self.nodes.iter_mut().for_each(RedisServer::restart);
        self.wait_until_up();
    }

    /// `redis+cluster://` with all nodes.
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// The node that was made master of the key's slot at the start.
    pub fn first_owner(&self, key: &str) -> usize {
        let slot: usize = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]);
        slot / SLOTS.div_ceil(self.masters)
    }
}

fn start_node(config: &ClusterConfig) -> RedisServer {
    let (lines, env) = (config.lines.clone(), config.env.clone());
    let node = RedisConfig { binary: config.binary, lines, env, ..RedisConfig::default() };
    RedisServer::start_with(node, |_| {
        vec![
            "cluster-enabled yes".into(),
            "cluster-node-timeout 1000".into(),
            // The bus is by default 10,000 above, which may not be a port, or not a free one.
            format!("cluster-port {}", free_address().port()),
            format!("cluster-announce-ip {}", own_ip()),
            "cluster-allow-replica-migration no".into(),
            "repl-diskless-sync-delay 0".into(),
        ]
    })
}

fn bus_port(node: &RedisServer) -> u16 {
    let (_, port): (String, u16) = node.command(&["CONFIG", "GET", "cluster-port"]);
    port
}

fn cluster_info(node: &RedisServer, field: &str) -> Option<String> {
    let text: String = node.try_command(&["CLUSTER", "INFO"]).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(|value| value.trim().to_owned()))
}
