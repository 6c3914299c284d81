//! What every stats must do on every store.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use quaymaster::stats::{OVERFLOW, Record, Recorder, Report, ReportAsk, Request, Seen, Stats, UNMATCHED};
use quaymaster::{Code, Quaymaster};
use quaymaster_schema::{Kind, Spelling};
use quaymaster_store::Topology;

use super::{Subject, command_int, command_text};

/// `web` never flushes by itself within a test; `small` has room for little.
fn stats(subject: &Subject) -> Quaymaster {
    subject.schema(
        "[stats.web]\nkey = \"web:\"\nflush = \"1m\"\nheartbeat = \"2m\"\nsamples = 10\n\
         [stats.small]\nkey = \"small:\"\nflush = \"1m\"\nheartbeat = \"2m\"\nmax_endpoints = 3\nmax_instances = 2\n\
         [stats.brief]\nkey = \"brief:\"\nflush = \"100ms\"\nheartbeat = \"400ms\"\n\
         [stats.folded]\nkey = \"folded:\"\nflush = \"1m\"\nheartbeat = \"2m\"\nfold_ids = true\n",
    )
}

fn of<'q>(quaymaster: &'q Quaymaster, name: &str) -> &'q Stats {
    quaymaster.stats(name).expect("declared")
}

fn seen<'a>(route: &'a str, status: u16, us: u64) -> Seen<'a> {
    let elapsed = Duration::from_micros(us);
    Seen { method: &Method::GET, route: Some(route), status, elapsed, accepted: status != 429 }
}

fn request<'a>(instance: &'a str, path: &'a str, status: u16) -> Request<'a> {
    let elapsed = Duration::from_millis(5);
    Request { instance, method: "get", path, status, elapsed, remote: None, accepted: None }
}

async fn report(stats: &Stats) -> Report {
    stats.report(ReportAsk::default()).await.expect("a report")
}

async fn flush(recorder: &Recorder) {
    recorder.flush().await.expect("a flush");
}

/// A key as this store spells it.
fn spelled(quaymaster: &Quaymaster, name: &str, role: &str, values: &[(&str, &str)]) -> String {
    let spelling = match quaymaster.engine().topology() {
        Topology::Single => Spelling::Single,
        Topology::Cluster => Spelling::Cluster,
    };
    let mut key = Vec::new();
    let resource = quaymaster.schema().resource(Kind::Stats, name).expect("declared");
    resource.key(role).expect("a role").pattern.render(values, 0, spelling, &mut key).expect("a key");
    String::from_utf8(key).expect("text")
}

crate::cases! {
    async fn what_instances_recorded_adds_up_under_the_documented_keys(subject: &Subject) {
        let quaymaster = stats(subject);
        let engine = &*subject.engine;
        let web = of(&quaymaster, "web");
        let (one, two) = (web.recorder("0"), web.recorder("1"));
        for us in [150_123, 89_000, 10_000] {
            one.record(&seen("/api/users/{id}", 200, us));
        }
        two.record(&seen("/api/users/:id", 500, 20_000));
        two.record(&seen("/api/login", 429, 1_000));
        two.record(&Seen { route: None, status: 404, ..seen("", 404, 77) });
        flush(&one).await;
        flush(&two).await;
        let hour_ms = (subject.time_us().await / 3_600_000_000 * 3_600_000).to_string();
        let users = [("endpoint", "GET /api/users/:id")];
        for (role, values, held) in [
            ("requests_total", &[][..], "6"),
            ("requests_accepted", &[], "5"),
            ("errors_total", &[], "3"),
            ("requests_endpoint", &users, "4"),
            ("errors_endpoint", &users, "1"),
            ("response_count", &users, "4"),
            ("avg_response", &users, "269.123"),
            ("requests_instance", &[("instance_id", "0")], "3"),
            ("requests_instance", &[("instance_id", "1")], "3"),
            ("requests_hourly", &[("timestamp", &hour_ms)], "6"),
            ("errors_status", &[("status_code", "500")], "1"),
            ("errors_status", &[("status_code", "429")], "1"),
            ("connections_current", &[], "0"),
        ] {
            let key = spelled(&quaymaster, "web", role, values);
            assert_eq!(command_text(engine, &["GET", &key]).await.as_deref(), Some(held), "{key}");
        }
        if engine.topology() == Topology::Single {
            let key = spelled(&quaymaster, "web", "requests_endpoint", &users);
            assert_eq!(key, format!("{}web:requests:endpoint:GET /api/users/:id", subject.prefix));
        }
        let times = spelled(&quaymaster, "web", "response_times", &users);
        assert_eq!(command_int(engine, &["ZCARD", &times]).await, 4);
        let report = report(web).await;
        assert_eq!((report.total, report.accepted, report.errors), (6, 5, 3));
        assert_eq!(report.by_status, [(404, 1), (429, 1), (500, 1)]);
        assert_eq!(report.instances, [("0".to_owned(), 3), ("1".to_owned(), 3)]);
        assert_eq!(report.hourly, [(hour_ms.parse().expect("an hour"), 6)]);
        let names: Vec<(&str, u64, u64)> =
            report.endpoints.iter().map(|found| (found.name.as_str(), found.count, found.errors)).collect();
        assert_eq!(names, [("GET /api/users/:id", 4, 1), ("GET /api/login", 1, 1), (UNMATCHED, 1, 1)]);
        assert_eq!(report.endpoints[0].avg_us, 67_280);
        assert_eq!(report.endpoints[2].p99_us, 77);
    }
}
