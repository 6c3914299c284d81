//! Three instances as processes of their own record a hundred thousand requests into one store, whose replies are cut
//! off where that can be done; one of them is killed. What the store tells equals a separate count to the last request.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use quaymaster::Quaymaster;
use quaymaster::schema::{Source, load};
use quaymaster::stats::{OVERFLOW, Report, ReportAsk, Stats};
use quaymaster::store::{StoreOptions, open};
use quaymaster_testkit::crew::{Log, PATIENCE, Worker};
use quaymaster_testkit::proxy::{Cut, FaultProxy, Way};
use quaymaster_testkit::servers::{Binary, Cluster, ClusterConfig, RedisConfig, RedisServer};
use quaymaster_testkit::traffic::{PROCESSES, RAW, RAW_PATHS, SCHEMA, differences, open as connections};

/// What an instance said.
#[derive(Debug, Default)]
struct Said(Vec<String>);

impl Log for Said {
    fn note(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn end_by_kill(&mut self) {}
}

/// An instance, and when it has flushed everything.
struct Instance {
    worker: Worker<Said>,
    flushed: Receiver<()>,
}

fn start(store: &str, number: u64) -> Instance {
    let mut program = Command::new(env!("CARGO_BIN_EXE_stats_instance"));
    program.args([store, &number.to_string()]);
    let (tell, flushed) = channel();
    let watch = Arc::new(move |line: &str| {
        if line.starts_with("flushed") {
            let _ = tell.send(());
        }
    });
    Instance { worker: Worker::start(program, watch), flushed }
}

async fn bind(store: &str) -> Quaymaster {
    let schema = load(&[Source { name: "traffic.toml", text: SCHEMA }], &|_| None).schema.expect("right");
    let options = StoreOptions::from_url(store, Path::new(".")).expect("a store");
    Quaymaster::new(Arc::new(schema), open(options).await.expect("the store opens"))
}

async fn report(stats: &Stats) -> Report {
    stats.report(ReportAsk::default()).await.expect("a report")
}

/// Waits until the report says so.
async fn until(stats: &Stats, what: &str, says: impl Fn(&Report) -> bool) {
    let since = Instant::now();
    loop {
        // An embedded store whose owner was killed is taken over first.
        if let Ok(told) = stats.report(ReportAsk::default()).await {
            if says(&told) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {told:?}");
        }
        assert!(since.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `store` is where the instances go, `direct` where this test looks; `disturb` happens while they record.
async fn agree(store: &str, direct: &str, mut disturb: impl AsyncFnMut()) {
    let mut instances: Vec<Instance> = (0..PROCESSES).map(|number| start(store, number)).collect();
    let quaymaster = bind(direct).await;
    let stats = quaymaster.stats("web").expect("declared");
    let since = Instant::now();
    let mut waiting: Vec<usize> = (0..instances.len()).collect();
    while !waiting.is_empty() {
        disturb().await;
        waiting.retain(|at| instances[*at].flushed.try_recv().is_err());
        assert!(since.elapsed() < PATIENCE, "instances {waiting:?} have not flushed");
    }
    let all: Vec<u64> = (0..PROCESSES).collect();
    let told = report(stats).await;
    assert_eq!(differences(&told, &all), [""; 0], "after the flush");
    let open: u64 = all.iter().map(|number| connections(*number)).sum();
    assert_eq!((told.connections, told.connections_max, told.alive), (open, open, PROCESSES));
    // The first one owns an embedded store.
    let killed = instances.remove(0).worker.kill9();
    let left = open - connections(0);
    until(stats, "the killed one's connections leave the gauge", |told| {
        (told.connections, told.alive) == (left, PROCESSES - 1)
    })
    .await;
    let said: Vec<Vec<String>> = [killed]
        .into_iter()
        .chain(instances.into_iter().map(|one| one.worker.finish()))
        .map(|said| said.0)
        .collect();
    println!("{said:?}");
    until(stats, "nobody is alive", |told| told.alive == 0).await;
    let told = report(stats).await;
    assert_eq!((told.connections, told.speed_per_second), (0, 0));
    assert_eq!(differences(&told, &all), [""; 0], "after the end");
    quaymaster.engine().close().await.expect("the store closes");
}

async fn on_server(binary: Binary) {
    let server = RedisServer::start(RedisConfig::of(binary));
    let proxy = FaultProxy::start(server.address()).await;
    let mut cuts = 0_u64;
    agree(&proxy.url(), &server.url(), async || {
        // The server gets a request, and its answer is lost: at once, or in the middle.
        proxy.cut_after(Way::Reply, cuts % 5, if cuts.is_multiple_of(2) { Cut::Rst } else { Cut::Fin });
        cuts += 1;
        tokio::time::sleep(Duration::from_millis(120)).await;
        proxy.heal();
    })
    .await;
    assert!(cuts > 3, "only {cuts} replies were cut");
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_agree_with_a_separate_count_on_redis() {
    on_server(Binary::Redis7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_agree_with_a_separate_count_on_valkey() {
    on_server(Binary::Valkey9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_agree_with_a_separate_count_on_a_cluster() {
    let cluster = Cluster::start(ClusterConfig::default());
    agree(&cluster.url(), &cluster.url(), pause).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_agree_with_a_separate_count_on_the_embedded_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("embedded:{}", folder.path().display());
    agree(&store, &store, pause).await;
}

/// Every key of endpoints there is.
async fn endpoint_keys(quaymaster: &Quaymaster) -> usize {
    let (mut found, mut cursor) = (std::collections::BTreeSet::new(), None);
    loop {
        let page = quaymaster.engine().scan(b"*web:requests:endpoint:*", 1000, cursor).await.expect("a page");
        found.extend(page.keys);
        cursor = page.next;
        if cursor.is_none() {
            return found.len();
        }
    }
}

async fn raw_paths_leave_at_most_the_cap(store: &str) {
    let instances: Vec<Instance> = (RAW..RAW + 2).map(|number| start(store, number)).collect();
    for instance in instances {
        drop(instance.worker.finish());
    }
    let quaymaster = bind(store).await;
    let stats = quaymaster.stats("web").expect("declared");
    let told = report(stats).await;
    assert_eq!((told.total, told.errors), (2 * RAW_PATHS, 2 * RAW_PATHS));
    let most = stats.spec().max_endpoints as usize;
    assert_eq!((told.endpoints.len(), told.endpoints[0].name.as_str()), (most + 1, OVERFLOW));
    assert_eq!(told.endpoints.iter().map(|found| found.count).sum::<u64>(), 2 * RAW_PATHS);
    assert_eq!(endpoint_keys(&quaymaster).await, most + 1, "the cap, and the overflow that is seen");
    quaymaster.engine().close().await.expect("the store closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_raw_paths_leave_at_most_the_cap_of_endpoint_keys() {
    let server = RedisServer::start(RedisConfig::default());
    raw_paths_leave_at_most_the_cap(&server.url()).await;
    let cluster = Cluster::start(ClusterConfig::default());
    raw_paths_leave_at_most_the_cap(&cluster.url()).await;
    let folder = tempfile::tempdir().expect("a folder");
    raw_paths_leave_at_most_the_cap(&format!("embedded:{}", folder.path().display())).await;
}
