//! A stop under load: no request is lost on a connection that the server said nothing about.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{Connection, request};
use crate::fixture::{Fixture, settings};

const CONNECTIONS: usize = 64;

async fn server(toml: &str) -> Fixture {
    Fixture::with(settings(toml, &|_| None).server).await
}

fn take() -> Vec<u8> {
    request("POST", "/v1/limit/plain/take", &[("content-type", "application/json")], b"{}")
}

fn says_goodbye(answer: &crate::client::Answer) -> bool {
    answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
}

/// Waits until the server has begun to stop; a new connection is still served.
async fn until_stopping(server: &Fixture) {
    for _ in 0..5000 {
        let ready = server.get("/readyz").await;
        if ready.status == 503 {
            assert!(says_goodbye(&ready), "{}", ready.head);
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("it never begins to stop");
}

#[tokio::test]
async fn what_arrives_on_a_kept_connection_after_a_stop_is_answered_and_says_that_it_was_the_last() {
    let mut server = server("[server]\nshutdown_drain = \"10m\"\nshutdown_grace = \"10m\"").await;
    let mut kept = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::open(server.address).await;
        connection.send(&take()).await;
        let answer = connection.receive().await.unwrap();
        assert!(answer.status == 200 && !says_goodbye(&answer), "{}", answer.head);
        kept.push(connection);
    }
    // One that is connected and has not asked anything yet.
    kept.push(Connection::open(server.address).await);
    server.ask_to_stop();
    until_stopping(&server).await;
    for connection in &mut kept {
        connection.send(&take()).await;
        let answer = connection.receive().await.expect("a request within the drain is answered");
        assert!(answer.status == 200 && says_goodbye(&answer), "{}", answer.head);
        assert!(connection.receive().await.is_none(), "and the connection ends");
    }
    server.stopped().await;
}

/// Posts again and again until nobody can connect any more. A request is lost when its connection ends without an answer
/// although the last answer on it did not say so.
async fn post_in_a_loop(address: SocketAddr, answered: Arc<AtomicU64>) -> u64 {
    let mut lost = 0;
    while let Ok(stream) = TcpStream::connect(address).await {
        let mut connection = Connection::of(stream);
        loop {
            if !connection.try_send(&take()).await {
                lost += 1;
                break;
            }
            match connection.receive().await {
                None => {
                    lost += 1;
                    break;
                }
                Some(answer) => {
                    assert_eq!(answer.status, 200, "{}", answer.head);
                    answered.fetch_add(1, SeqCst);
                    if says_goodbye(&answer) {
                        break;
                    }
                }
            }
        }
    }
    lost
}

async fn until_answered(answered: &AtomicU64, wanted: u64) {
    let until = answered.load(SeqCst) + wanted;
    for _ in 0..30_000 {
        if answered.load(SeqCst) >= until {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("requests are not answered any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_under_load_loses_no_request() {
    for _ in 0..3 {
        let mut server = server("[server]\nshutdown_drain = \"200ms\"").await;
        let answered = Arc::new(AtomicU64::new(0));
        let mut posting = JoinSet::new();
        for _ in 0..CONNECTIONS {
            posting.spawn(post_in_a_loop(server.address, answered.clone()));
        }
        until_answered(&answered, 10 * CONNECTIONS as u64).await;
        server.ask_to_stop();
        let lost: u64 = posting.join_all().await.into_iter().sum();
        assert_eq!(lost, 0, "of {} answered", answered.load(SeqCst));
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_stop_waits_for_nobody_when_nobody_is_connected() {
    let mut server = server("[server]\nshutdown_drain = \"10m\"\nshutdown_grace = \"10m\"").await;
    assert_eq!(server.get("/readyz").await.status, 200);
    server.ask_to_stop();
    server.stopped().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_when_the_drain_is_over() {
    let mut server = server("[server]\nshutdown_drain = \"20ms\"\nshutdown_grace = \"10m\"").await;
    let mut idle = Connection::open(server.address).await;
    idle.send(&request("GET", "/healthz", &[], b"")).await;
    assert_eq!(idle.receive().await.unwrap().status, 200);
    server.ask_to_stop();
    assert!(idle.receive().await.is_none());
    server.stopped().await;
}

/// nginx in front of two servers, with connections kept to each. It goes to the second when the first cannot be
/// connected to; a request that it has sent, and that is not answered, it does not send again.
struct Nginx {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Nginx {
    async fn start(first: SocketAddr, second: SocketAddr) -> Self {
        let folder = TempDir::new().unwrap();
        // An address of its own: no other test's server is there.
        let address = loop {
            let [a, b, c] = [fastrand::u8(1..255), fastrand::u8(..), fastrand::u8(1..255)];
            let address = SocketAddr::from((Ipv4Addr::new(127, a, b, c), 8080));
            if std::net::TcpListener::bind(address).is_ok() {
                break address;
            }
        };
        let at = folder.path().display();
        let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {at}/{name};"))
            .join("\n");
        let config = format!(
            "daemon off;\nmaster_process off;\npid {at}/nginx.pid;\nerror_log {at}/error.log info;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\naccess_log off;\n{temp}\nkeepalive_requests 1000000;\n\
             upstream quaymaster {{ server {first}; server {second} backup; keepalive {CONNECTIONS}; \
             keepalive_requests 1000000; }}\n\
             server {{ listen {address}; location / {{ proxy_pass http://quaymaster; proxy_http_version 1.1; \
             proxy_set_header Connection \"\"; proxy_set_header Host localhost; }} }}\n}}\n"
        );
        std::fs::write(folder.path().join("nginx.conf"), config).unwrap();
        // It ends with this test, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "/usr/sbin/nginx"]);
        command.arg("-c").arg(folder.path().join("nginx.conf")).arg("-p").arg(folder.path());
        command.arg("-e").arg(folder.path().join("error.log")).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("nginx is installed: scripts/test-tools");
        let mut nginx = Self { child, address, folder };
        while TcpStream::connect(address).await.is_err() {
            assert!(nginx.child.try_wait().unwrap().is_none(), "nginx does not start: {}", nginx.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        nginx
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("error.log")).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_behind_nginx_loses_no_request() {
    let mut first = server("[server]\nshutdown_drain = \"300ms\"").await;
    let second = server("").await;
    let nginx = Nginx::start(first.address, second.address).await;
    let (answered, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut posting = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (answered, over, address) = (answered.clone(), over.clone(), nginx.address);
        posting.spawn(async move {
            let mut connection = Connection::open(address).await;
            let mut failed = Vec::new();
            while over.load(SeqCst) == 0 {
                connection.send(&take()).await;
                let answer = connection.receive().await.expect("nginx answers");
                if answer.status != 200 {
                    failed.push(answer.head);
                }
                answered.fetch_add(1, SeqCst);
            }
            failed
        });
    }
    until_answered(&answered, 10 * CONNECTIONS as u64).await;
    first.ask_to_stop();
    first.stopped().await;
    until_answered(&answered, 10 * CONNECTIONS as u64).await;
    over.store(1, SeqCst);
    let failed: Vec<String> = posting.join_all().await.into_iter().flatten().collect();
    let log = nginx.log();
    assert!(failed.is_empty(), "{} of {}: {}\n{log}", failed.len(), answered.load(SeqCst), failed[0]);
    assert!(!log.contains("prematurely closed") && !log.contains("reset by peer"), "{log}");
}
