//! The layers on a cluster: several limits are one step where their keys share a slot, and say so where they do not.

use axum::Router;
use axum::routing::get;
use quaymaster::layer::{Keyed, LimitLayer, Peer, StatsLayer};
use quaymaster::stats::ReportAsk;
use quaymaster::store::{StoreOptions, open};
use quaymaster_testkit::servers::{Cluster, ClusterConfig};

use crate::bind;
use crate::client::{ask, listener};

const SCHEMA: &str = r#"
[stats.web]
key = "web:"
ignore_remote = []

[limit.user]
key = "user:{user}"
algorithm = "fixed_window"
limit = 2
window = "1h"
colocate = "user"

[limit.slow]
key = "slow:{user}"
algorithm = "sliding_log"
limit = 9
window = "1h"
colocate = "user"

[limit.apart]
key = "apart:{user}"
algorithm = "fixed_window"
limit = 9
window = "1h"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_one_slot_are_one_step_and_others_are_refused() {
    let cluster = Cluster::start(ClusterConfig::default());
    let store = open(StoreOptions::from_url(&cluster.url(), "data".as_ref()).unwrap()).await.unwrap();
    let quaymaster = bind(SCHEMA, store);
    let recorder = quaymaster.stats("web").unwrap().recorder("one");
    let limit = |name: &str| quaymaster.limit(name).unwrap().clone();
    let by = |user: &'static str| move |_: &http::request::Parts| Keyed::one("user", user);
    let joined = LimitLayer::new(limit("user"), by("ann")).and(limit("slow"), by("ann"));
    let apart = LimitLayer::new(limit("user"), by("bob")).and(limit("apart"), by("bob"));
    let app = Router::new()
        .route("/joined", get(async || "").layer(joined))
        .route("/apart", get(async || "").layer(apart))
        .layer(StatsLayer::new(recorder.clone()))
        .into_make_service_with_connect_info::<Peer>();
    let (listener, address) = listener().await;
    let listener = recorder.listener(listener);
    tokio::spawn(async move { axum::serve(listener, app).await });
    for status in [200, 200, 429, 429] {
        assert_eq!(ask(address, "GET /joined", "").await.status, status);
    }
    let used = limit("slow").peek(&[("user", "ann")]).await.unwrap().quota().used;
    assert_eq!(used, 2, "what the other refused it has not counted");
    let refused = ask(address, "GET /apart", "").await;
    assert_eq!((refused.status, &*refused.code()), (503, "store.cross_slot"));
    recorder.flush().await.unwrap();
    let report = quaymaster.stats("web").unwrap().report(ReportAsk::default()).await.unwrap();
    assert_eq!((report.total, report.accepted), (5, 2));
    assert_eq!(report.by_status, [(429, 2), (503, 1)]);
}
