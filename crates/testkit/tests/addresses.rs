//! Servers of one test are out of reach of every other test's.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use quaymaster_testkit::proxy::FaultProxy;
use quaymaster_testkit::servers::{
    Claim, Cluster, ClusterConfig, PostgresServer, RedisConfig, RedisServer, Sentinel, SentinelConfig,
    free_address, own_ip,
};

#[test]
fn the_port_of_a_stopped_server_stays_silent_whoever_starts_another() {
    let mut server = RedisServer::start(RedisConfig::default());
    let address = server.address();
    server.kill9();
    // As another test's server would, which knows nothing of this one.
    let other = Claim::take();
    let _stranger = TcpListener::bind((other.ip(), address.port())).unwrap();
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    server.restart();
    assert_eq!(server.command::<String>(&["PING"]), "PONG");
}

#[test]
fn an_address_has_one_owner_and_a_port_is_given_once() {
    let own = own_ip();
    let claims: Vec<Claim> = std::thread::scope(|scope| {
        let taking: Vec<_> = (0..16).map(|_| scope.spawn(Claim::take)).collect();
        taking.into_iter().map(|claim| claim.join().unwrap()).collect()
    });
    let ips: BTreeSet<Ipv4Addr> = claims.iter().map(Claim::ip).chain([own]).collect();
    assert_eq!(ips.len(), 17, "{ips:?}");
    assert!(ips.iter().all(|ip| ip.is_loopback() && *ip != Ipv4Addr::LOCALHOST), "{ips:?}");
    let given: BTreeSet<_> = (0..200).map(|_| free_address()).collect();
    assert_eq!(given.len(), 200);
    assert!(given.iter().all(|address| address.ip() == own));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fixture_listens_and_is_announced_on_the_tests_own_address() {
    assert_ne!(own_ip(), Ipv4Addr::LOCALHOST);
    let own = own_ip().to_string();
    let cluster = Cluster::start(ClusterConfig { replicas: 1, ..ClusterConfig::default() });
    let sentinel = Sentinel::start(SentinelConfig::default());
    let postgres = PostgresServer::start();
    let proxy = FaultProxy::start(postgres.address()).await;
    let mut addresses = vec![postgres.address(), proxy.address()];
    addresses.extend(cluster.nodes.iter().chain(&sentinel.servers).map(RedisServer::address));
    for address in addresses {
        assert_eq!(address.ip().to_string(), own);
    }
    for node in &cluster.nodes {
        let nodes: String = node.command(&["CLUSTER", "NODES"]);
        assert!(nodes.lines().all(|line| line.contains(&format!(" {own}:"))), "{nodes}");
    }
    let replicas = sentinel.servers[0].info("replication", "slave0").unwrap();
    assert!(replicas.contains(&format!("ip={own},")), "{replicas}");
}
