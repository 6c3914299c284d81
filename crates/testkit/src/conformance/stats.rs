//! What every stats must do on every store.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use quaymaster::stats::{OVERFLOW, Record, Recorder, Report, ReportAsk, Request, Seen, Stats, UNMATCHED};
use quaymaster::{Code, Quaymaster};
use quaymaster_schema::{Kind, Spelling};
use quaymaster_store::{Invocation, Reply, Topology, Workload};

use super::{Subject, command, command_int, command_text};
use crate::toll::Toll;

/// `web` never flushes by itself within a test; `small` has room for little.
fn stats(subject: &Subject) -> Quaymaster {
    subject.schema(
        "[stats.web]\nkey = \"web:\"\nflush = \"1m\"\nheartbeat = \"2m\"\nsamples = 10\n\
         [stats.small]\nkey = \"small:\"\nflush = \"1m\"\nheartbeat = \"2m\"\nmax_endpoints = 3\nmax_instances = 2\n\
         [stats.brief]\nkey = \"brief:\"\nflush = \"500ms\"\nheartbeat = \"2s\"\n\
         [stats.steady]\nkey = \"steady:\"\nflush = \"100ms\"\nheartbeat = \"2m\"\n\
         [stats.folded]\nkey = \"folded:\"\nflush = \"1m\"\nheartbeat = \"2m\"\nfold_ids = true\n",
    )
}

fn of<'q>(quaymaster: &'q Quaymaster, name: &str) -> &'q Stats {
    quaymaster.stats(name).expect("declared")
}

fn seen(route: &str, status: u16, us: u64) -> Seen<'_> {
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

/// The total as the store holds it.
async fn report_or_none(stats: &Stats) -> u64 {
    stats.report(ReportAsk::default()).await.map_or(0, |report| report.total)
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

    async fn the_same_flush_or_request_counts_once(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let requests = [request("a", "/x", 200), request("a", "/x", 500)];
        let record = Record { requests: &requests, connections: &[("a", 4)], request_id: Some("r-1") };
        for node in [&quaymaster, &stats(subject)] {
            assert_eq!(of(node, "web").record(record).await.expect("a record").recorded, 2);
        }
        assert_eq!(report(web).await.total, 2);
        let other = Record { requests: &requests[..1], ..record };
        assert_eq!(web.record(other).await.expect_err("another request").code, Code::RequestReused);
        let once = Record { request_id: None, ..record };
        for _ in 0..2 {
            assert_eq!(web.record(once).await.expect("a record").recorded, 2);
        }
        let report = report(web).await;
        assert_eq!((report.total, report.errors, report.connections), (6, 3, 4));
        let times = spelled(&quaymaster, "web", "response_times", &[("endpoint", "GET /x")]);
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &times]).await, 6);
    }

    async fn a_batch_too_large_for_one_script_is_counted_in_several_and_once(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let paths: Vec<String> = (0..200).map(|number| format!("/p/{number}")).collect();
        let names: Vec<String> = (0..100).map(|number| format!("i-{number}")).collect();
        let requests: Vec<Request<'_>> = (0..2000_usize)
            .map(|number| Request {
                elapsed: Duration::from_micros(1 + (number as u64 * 7919) % 1_000_000),
                ..request(&names[number % 100], &paths[number % 200], 200 + (number % 300) as u16)
            })
            .collect();
        let record = Record { requests: &requests, connections: &[], request_id: Some("many") };
        for _ in 0..2 {
            assert_eq!(web.record(record).await.expect("a record").recorded, 2000);
        }
        let report = report(web).await;
        assert_eq!((report.total, report.endpoints.len(), report.instances.len()), (2000, 200, 100));
        assert!(report.endpoints.iter().all(|endpoint| endpoint.count == 10), "{:?}", report.endpoints);
        assert!(report.instances.iter().all(|(_, count)| *count == 20), "{:?}", report.instances);
        assert_eq!(report.by_status.iter().map(|(_, count)| count).sum::<u64>(), report.errors);
        assert_eq!(report.by_status.len(), 100);
        assert_eq!(report.alive, 100);
    }

    async fn times_in_more_buckets_than_one_script_takes_are_counted_once(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let recorder = web.recorder("a");
        // A microsecond to some hours: more than a thousand buckets of one endpoint.
        for number in 0..2000 {
            recorder.record(&seen("/x", 200, 1.012_f64.powi(number) as u64));
        }
        flush(&recorder).await;
        let report = report(web).await;
        assert_eq!((report.total, report.endpoints.len()), (2000, 1));
        assert_eq!(report.endpoints[0].count, 2000);
    }

    async fn equal_times_in_one_millisecond_are_samples_of_their_own_and_only_the_last_are_kept(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let key = spelled(&quaymaster, "web", "response_times", &[("endpoint", "GET /x")]);
        let recorder = web.recorder("a");
        for _ in 0..7 {
            recorder.record(&seen("/x", 200, 150_000));
        }
        flush(&recorder).await;
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &key]).await, 7);
        subject.pass(2).await;
        for us in 1..=7 {
            recorder.record(&seen("/x", 200, us * 1000));
        }
        flush(&recorder).await;
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &key]).await, 10, "the last ten are kept");
        let words: [&[u8]; 5] = [b"ZRANGE", key.as_bytes(), b"0", b"-1", b"WITHSCORES"];
        let Ok(Reply::Array(held)) = command(&*subject.engine, key.as_bytes(), &words).await else {
            panic!("no samples");
        };
        let now_ms = subject.time_us().await / 1000;
        let mut kept = Vec::new();
        for pair in held.chunks(2) {
            let [Reply::Bytes(member), Reply::Bytes(score)] = pair else { panic!("{pair:?}") };
            let (member, score) = (String::from_utf8_lossy(member), String::from_utf8_lossy(score));
            kept.push(member.split('#').next().expect("milliseconds").to_owned());
            let age_ms = now_ms - score.parse::<i64>().expect("whole milliseconds");
            // By the recorder's idea of the store's clock, which may be a little ahead of it.
            assert!((-1_000..60_000).contains(&age_ms), "{score}: {age_ms} ms old");
        }
        kept.sort();
        assert_eq!(kept, ["1.000", "150.000", "150.000", "150.000", "2.000", "3.000", "4.000", "5.000", "6.000", "7.000"]);
    }

    async fn endpoints_over_the_cap_are_counted_together_and_seen(subject: &Subject) {
        let quaymaster = stats(subject);
        let small = of(&quaymaster, "small");
        let recorders = [small.recorder("a"), small.recorder("b")];
        for (at, recorder) in recorders.iter().enumerate() {
            for number in 0..10 {
                recorder.record(&seen(&format!("/{at}/{number}"), if number == 9 { 500 } else { 200 }, 1000));
            }
            recorder.record(&Seen { route: None, ..seen("", 404, 1) });
            flush(recorder).await;
        }
        let report = report(small).await;
        assert_eq!((report.total, report.errors), (22, 4));
        let found: BTreeMap<&str, (u64, u64)> =
            report.endpoints.iter().map(|found| (found.name.as_str(), (found.count, found.errors))).collect();
        assert_eq!(found.len(), 5, "{found:?}");
        assert_eq!((found[OVERFLOW], found[UNMATCHED]), ((17, 2), (2, 2)));
        let index = spelled(&quaymaster, "small", "endpoints", &[]);
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &index]).await, 3);
        assert_eq!(small.counts().kept_out(), 3, "the second process brought three that it had admitted");
        recorders[1].record(&seen("/0/0", 200, 1));
        flush(&recorders[1]).await;
    }

    async fn instances_over_the_cap_are_counted_together_and_leave_after_a_day(subject: &Subject) {
        let quaymaster = stats(subject);
        let small = of(&quaymaster, "small");
        for instance in ["a", "b", "c", "d"] {
            let requests = [request(instance, "/x", 200)];
            let _ = small.record(Record { requests: &requests, ..Record::default() }).await.expect("a record");
        }
        let of_all = |counts: &[(&str, u64)]| counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>();
        assert_eq!(report(small).await.instances, of_all(&[("a", 1), ("b", 1), (OVERFLOW, 2)]));
        assert_eq!(small.sweep().await.expect("a sweep").left, 0);
        // A day without a flush, told to the index: no store has the patience.
        let index = spelled(&quaymaster, "small", "instances", &[]);
        let old = (subject.time_us().await / 1000 - 86_400_001).to_string();
        command_int(&*subject.engine, &["ZADD", &index, &old, "a"]).await;
        assert_eq!(small.sweep().await.expect("a sweep").left, 1);
        assert_eq!(report(small).await.instances, of_all(&[("b", 1), (OVERFLOW, 2)]));
        let key = spelled(&quaymaster, "small", "requests_instance", &[("instance_id", "a")]);
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &key]).await, 0);
        let requests = [request("c", "/x", 200)];
        let _ = small.record(Record { requests: &requests, ..Record::default() }).await.expect("a record");
        assert_eq!(report(small).await.instances, of_all(&[("b", 1), ("c", 1), (OVERFLOW, 2)]));
    }

    async fn a_recorder_forgets_instances_that_are_long_gone_by_itself(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let requests = [request("gone", "/x", 200)];
        let _ = web.record(Record { requests: &requests, ..Record::default() }).await.expect("a record");
        let index = spelled(&quaymaster, "web", "instances", &[]);
        let old = (subject.time_us().await / 1000 - 86_400_001).to_string();
        command_int(&*subject.engine, &["ZADD", &index, &old, "gone"]).await;
        let recorder = web.recorder("here");
        let key = spelled(&quaymaster, "web", "requests_instance", &[("instance_id", "gone")]);
        let mut left = false;
        for _ in 0..1000 {
            left = command_int(&*subject.engine, &["EXISTS", &key]).await == 0;
            if left {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(left, "its counter is still there");
        recorder.shutdown().await;
    }

    async fn a_silent_process_leaves_the_gauge_and_the_most_starts_again_when_none_is_alive(subject: &Subject) {
        let quaymaster = stats(subject);
        let brief = of(&quaymaster, "brief");
        let current = spelled(&quaymaster, "brief", "connections_current", &[]);
        let tell = async |connections: &[(&str, u64)]| {
            let _ = brief.record(Record { connections, ..Record::default() }).await.expect("a record");
            report(brief).await
        };
        let told = tell(&[("a", 5), ("b", 3)]).await;
        assert_eq!((told.connections, told.connections_max, told.alive), (8, 8, 2));
        let told = tell(&[("a", 1)]).await;
        assert_eq!((told.connections, told.connections_max), (4, 8));
        assert_eq!(command_text(&*subject.engine, &["GET", &current]).await.as_deref(), Some("4"));
        subject.pass(1250).await;
        let told = tell(&[("a", 2)]).await;
        assert_eq!((told.connections_max, told.alive), (8, 2));
        if subject.clock.is_some() {
            subject.pass(749).await;
            assert_eq!(report(brief).await.connections, 5, "its heartbeat is not over");
        }
        subject.pass(800).await;
        let told = report(brief).await;
        assert_eq!((told.connections, told.alive), (2, 1), "b is silent for longer than its heartbeat");
        let told = tell(&[("a", 3)]).await;
        assert_eq!((told.connections, told.connections_max, told.alive), (3, 8, 1));
        assert_eq!(command_text(&*subject.engine, &["GET", &current]).await.as_deref(), Some("3"));
        subject.pass(2001).await;
        let told = report(brief).await;
        assert_eq!((told.connections, told.alive, told.speed_per_second), (0, 0, 0));
        assert_eq!(command_text(&*subject.engine, &["GET", &current]).await, None, "a foreign reader sees none");
        let told = tell(&[("c", 1)]).await;
        assert_eq!((told.connections, told.connections_max, told.alive), (1, 1, 1), "a new start");
    }

    async fn another_life_of_an_instance_takes_the_place_of_the_old_one(subject: &Subject) {
        let quaymaster = stats(subject);
        let steady = of(&quaymaster, "steady");
        let first = steady.recorder("0");
        let open = (first.connected(), first.connected());
        first.record(&seen("/x", 200, 1));
        flush(&first).await;
        // It dies without a word: nothing of it is flushed any more.
        let second = steady.recorder("0");
        let _one = second.connected();
        second.record(&seen("/x", 200, 1));
        flush(&second).await;
        let told = report(steady).await;
        assert_eq!(told.total, 2, "a new life begins with the first number again");
        assert_eq!(told.instances, [("0".to_owned(), 2)]);
        assert!(told.connections >= 1, "{told:?}");
        drop(open);
    }

    async fn speed_is_that_of_a_second_all_have_flushed_and_the_most_is_kept(subject: &Subject) {
        let quaymaster = stats(subject);
        let steady = of(&quaymaster, "steady");
        // The beginning of a second, so that all of it is counted in one.
        let begin_us = (subject.time_us().await / 1_000_000 + 1) * 1_000_000;
        subject.reach(begin_us).await;
        let requests = [request("a", "/x", 200); 30];
        let _ = steady.record(Record { requests: &requests, ..Record::default() }).await.expect("a record");
        let told = report(steady).await;
        assert_eq!((told.speed_per_second, told.max_speed_per_second), (0, 30));
        for step in 1..=6 {
            subject.reach(begin_us + step * 350_000).await;
            let _ = steady.record(Record { connections: &[("a", 0)], ..Record::default() }).await.expect("alive");
        }
        let told = report(steady).await;
        if subject.clock.is_some() {
            assert_eq!(told.speed_per_second, 30, "two seconds later the second is complete");
        }
        assert_eq!(told.max_speed_per_second, 30);
    }

    async fn hours_are_reported_apart_and_together(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let recorder = web.recorder("a");
        for us in [100, 200, 300] {
            recorder.record(&seen("/x", 200, us));
        }
        recorder.record(&seen("/old", 500, 5));
        flush(&recorder).await;
        let first = report(web).await.hourly;
        if subject.clock.is_some() {
            subject.pass(3_600_000).await;
            for us in [100_000, 200_000] {
                recorder.record(&seen("/x", 404, us));
            }
            flush(&recorder).await;
            let ask = |hours| ReportAsk { hours: Some(hours), endpoints: None };
            let last = web.report(ask(1)).await.expect("a report");
            assert_eq!(last.endpoints.len(), 1);
            assert_eq!((last.endpoints[0].count, last.endpoints[0].errors, last.endpoints[0].avg_us), (2, 2, 150_000));
            assert_eq!(last.hourly, [(first[0].0 + 3_600_000, 2)]);
            let both = web.report(ask(2)).await.expect("a report");
            assert_eq!(both.hourly, [(first[0].0, 4), (first[0].0 + 3_600_000, 2)]);
            let found = &both.endpoints[0];
            assert_eq!((found.name.as_str(), found.count, found.errors, found.p50_us), ("GET /x", 5, 2, 301), "{found:?}");
            // A day after its end an hour is gone, and its requests still count.
            for _ in 0..24 {
                subject.pass(3_600_000).await;
                flush(&recorder).await;
            }
            let told = web.report(ask(24)).await.expect("a report");
            assert_eq!((told.total, told.hourly.len()), (6, 0), "{:?}", told.hourly);
            let key = spelled(&quaymaster, "web", "sketch_hour", &[("timestamp", &first[0].0.to_string()), ("endpoint", "GET /x")]);
            assert_eq!(command_int(&*subject.engine, &["EXISTS", &key]).await, 0);
        }
        let hour = spelled(&quaymaster, "web", "requests_hourly", &[("timestamp", &first[0].0.to_string())]);
        let ttl = command_int(&*subject.engine, &["PTTL", &hour]).await;
        assert!(ttl == -2 || (82_800_000..=86_400_000).contains(&ttl), "{ttl}");
        assert_eq!(first.len(), 1);
    }

    async fn every_key_but_the_counters_has_an_end(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let recorder = web.recorder("a");
        recorder.record(&seen("/x", 500, 1));
        flush(&recorder).await;
        for role in ["connections_current", "speed", "beats", "connections", "gauge", "flushes", "flushed", "seconds"] {
            let ttl = command_int(&*subject.engine, &["PTTL", &spelled(&quaymaster, "web", role, &[])]).await;
            let row = quaymaster.schema().resource(Kind::Stats, "web").expect("declared").key(role).expect("a role");
            let quaymaster_schema::Ttl::For(most) = &row.ttl else { panic!("{role} is declared without an end") };
            assert!(ttl > 0 && u128::try_from(ttl).expect("positive") <= most.as_millis(), "{role} {ttl}");
        }
    }

    async fn a_key_that_another_program_spoiled_stops_the_flush_whole_and_later_lets_it_through(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let engine = &*subject.engine;
        let recorder = web.recorder("a");
        let endpoint = [("endpoint", "GET /x")];
        for (role, values, spoil) in [
            ("errors_total", &[][..], &["SET", "many"][..]),
            ("errors_endpoint", &endpoint, &["RPUSH", "1"]),
            ("response_times", &endpoint, &["SET", "150"]),
            ("sketch", &endpoint, &["SADD", "1"]),
            ("micros", &[], &["SET", "1"]),
            ("micros", &[], &["HSET", "GET /x", "much"]),
            ("micros", &[], &["HSET", "GET /x", "9223372036854775807"]),
        ] {
            let before = report_or_none(web).await;
            let key = spelled(&quaymaster, "web", role, values);
            let held = command_int(engine, &["EXISTS", &key]).await;
            assert_eq!(held, 0, "{key}");
            let mut words = vec![spoil[0].as_bytes(), key.as_bytes()];
            words.extend(spoil[1..].iter().map(|word| word.as_bytes()));
            command(engine, key.as_bytes(), &words).await.expect("spoiled");
            recorder.record(&seen("/x", 500, 1));
            assert!(recorder.flush().await.is_err(), "{role}");
            let total = spelled(&quaymaster, "web", "requests_total", &[]);
            let after = command_text(engine, &["GET", &total]).await.map_or(0, |text| text.parse().expect("a count"));
            assert_eq!(after, before, "{role}: nothing of it is written");
            command_int(engine, &["DEL", &key]).await;
            flush(&recorder).await;
            let after = command_text(engine, &["GET", &total]).await.map_or(0, |text| text.parse::<u64>().expect("a count"));
            assert_eq!(after, before + 1, "{role}: delivered once it can be");
            for (role, values) in [("errors_total", &[][..]), ("errors_endpoint", &endpoint), ("response_times", &endpoint), ("sketch", &endpoint), ("micros", &[])] {
                command_int(engine, &["DEL", &spelled(&quaymaster, "web", role, values)]).await;
            }
        }
    }

    async fn a_gauge_or_a_bucket_that_is_no_number_is_refused_by_name(subject: &Subject) {
        let quaymaster = stats(subject);
        let (engine, web) = (&*subject.engine, of(&quaymaster, "web"));
        let recorder = web.recorder("a");
        recorder.record(&seen("/x", 500, 1));
        flush(&recorder).await;
        let total = spelled(&quaymaster, "web", "requests_total", &[]);
        let endpoint = [("endpoint", "GET /x")];
        for (role, values, field, value, reported) in [
            ("gauge", &[][..], "connections", "text", true),
            ("gauge", &[], "connections", "inf", true),
            ("gauge", &[], "started_ms", "9007199254740992", true),
            ("micros", &[], "GET /x", "00", false),
            ("sketch", &endpoint, "1", "9223372036854775807", false),
        ] {
            let key = spelled(&quaymaster, "web", role, values);
            let held = command_text(engine, &["HGET", &key, field]).await.expect("held");
            let before = command_text(engine, &["GET", &total]).await;
            command_int(engine, &["HSET", &key, field, value]).await;
            recorder.record(&seen("/x", 500, 1));
            let error = recorder.flush().await.expect_err("no number");
            assert!(error.code == Code::KeyMalformed && error.detail.contains(&key), "{role} {value}: {error}");
            assert_eq!(command_text(engine, &["GET", &total]).await, before, "{role} {value}");
            if reported {
                let error = web.report(ReportAsk::default()).await.expect_err("no number");
                assert!(error.code == Code::KeyMalformed && error.detail.contains(&key), "{role} {value}: {error}");
            }
            command_int(engine, &["HSET", &key, field, &held]).await;
            flush(&recorder).await;
        }
        // One that is alive in time to come is not alive, and names that no key can have hide nobody.
        let beats = spelled(&quaymaster, "web", "beats", &[]);
        let alive = report(web).await.alive;
        command_int(engine, &["ZADD", &beats, "inf", "ghost"]).await;
        for role in ["instances", "endpoints"] {
            command_int(engine, &["ZADD", &spelled(&quaymaster, "web", role, &[]), "inf", ""]).await;
        }
        let report = report(web).await;
        assert_eq!((report.alive, report.instances.len(), report.endpoints.len()), (alive, 1, 1));
    }

    async fn what_a_foreign_program_added_is_part_of_the_count(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let engine = &*subject.engine;
        let endpoint = [("endpoint", "GET /x")];
        for (role, values) in [("requests_total", &[][..]), ("requests_endpoint", &endpoint)] {
            command_int(engine, &["INCRBY", &spelled(&quaymaster, "web", role, values), "10"]).await;
        }
        let recorder = web.recorder("a");
        recorder.record(&seen("/x", 200, 1));
        flush(&recorder).await;
        let told = report(web).await;
        assert_eq!((told.total, told.endpoints[0].count), (11, 11));
    }

    async fn callers_the_schema_ignores_are_not_counted(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let requests = [
            Request { remote: Some("127.0.0.1"), ..request("a", "/x", 200) },
            Request { remote: Some("::ffff:127.0.0.1"), ..request("b", "/x", 200) },
            Request { remote: Some("10.0.0.1"), accepted: Some(false), ..request("c", "/x", 200) },
            Request { accepted: Some(true), ..request("c", "/x", 429) },
        ];
        let done = web.record(Record { requests: &requests, ..Record::default() }).await.expect("a record");
        assert_eq!((done.recorded, done.ignored), (2, 2));
        let told = report(web).await;
        assert_eq!((told.total, told.accepted), (2, 1));
        assert_eq!(told.instances, [("c".to_owned(), 2)]);
        let recorder = web.recorder("a");
        assert!(recorder.ignores("127.0.0.1".parse().expect("an address")));
        assert!(!recorder.ignores("10.0.0.1".parse().expect("an address")));
    }

    async fn ids_in_paths_are_one_endpoint_where_the_schema_folds_them(subject: &Subject) {
        let quaymaster = stats(subject);
        let folded = of(&quaymaster, "folded");
        let recorder = folded.recorder("a");
        for number in 0..1000 {
            recorder.record(&seen(&format!("/users/{number}/posts"), 200, number));
        }
        flush(&recorder).await;
        let told = report(folded).await;
        assert_eq!(told.endpoints.len(), 1);
        assert_eq!((told.endpoints[0].name.as_str(), told.endpoints[0].count), ("GET /users/:id/posts", 1000));
    }

    async fn a_sum_beyond_the_doubles_is_rendered_to_the_last_digit(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let engine = &*subject.engine;
        let micros = spelled(&quaymaster, "web", "micros", &[]);
        let avg = spelled(&quaymaster, "web", "avg_response", &[("endpoint", "GET /x")]);
        let recorder = web.recorder("a");
        for (held, us, rendered) in [
            ("0", 1, "0.001"),
            ("0", 20, "0.02"),
            ("0", 15_000_500, "15000.5"),
            ("0", 3000, "3"),
            ("9007199254740992", 1, "9007199254740.993"),
        ] {
            command_int(engine, &["HSET", &micros, "GET /x", held]).await;
            recorder.record(&seen("/x", 200, us));
            flush(&recorder).await;
            assert_eq!(command_text(engine, &["GET", &avg]).await.as_deref(), Some(rendered));
        }
    }

    async fn a_flush_sent_twice_counts_once(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        toll.send_twice();
        let quaymaster = stats(&Subject { engine: toll, ..subject.clone() });
        let web = of(&quaymaster, "web");
        let (one, two) = (web.recorder("a"), web.recorder("a"));
        for round in 1..=3 {
            for recorder in [&one, &two] {
                recorder.record(&seen("/x", 500, 1000));
                flush(recorder).await;
            }
            let told = report(web).await;
            assert_eq!((told.total, told.errors, told.endpoints[0].count), (2 * round, 2 * round, 2 * round));
        }
        assert_eq!(web.counts().repeats(), web.counts().flushes());
    }

    async fn a_flush_whose_reply_was_lost_is_sent_again_and_adds_up(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let quaymaster = stats(&Subject { engine: toll.clone(), ..subject.clone() });
        let web = of(&quaymaster, "web");
        let recorder = web.recorder("a");
        flush(&recorder).await;
        for round in 1..=5_u64 {
            // More endpoints than one script takes, so that the reply of a later part is lost as well.
            for number in 0..150 {
                recorder.record(&seen(&format!("/p/{number}"), 200, 1000 * round + number));
            }
            toll.lose_after(round % 3);
            let _ = recorder.flush().await;
            recorder.record(&seen("/p/0", 500, 7));
            flush(&recorder).await;
            let told = report(web).await;
            assert_eq!((told.total, told.errors, told.endpoints.len()), (151 * round, round, 150));
            assert_eq!(told.endpoints.iter().map(|found| found.count).sum::<u64>(), 151 * round);
            assert_eq!(told.instances, [("a".to_owned(), 151 * round)]);
        }
        assert!(web.counts().failures() >= 3, "{:?}", web.counts());
        assert_eq!((web.counts().recorded(), web.counts().lost()), (755, 0));
    }

    async fn what_is_counted_while_the_store_is_away_is_delivered_in_the_hour_it_was_made(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let quaymaster = stats(&Subject { engine: toll.clone(), ..subject.clone() });
        let web = of(&quaymaster, "web");
        let recorder = web.recorder("a");
        flush(&recorder).await;
        toll.away(true);
        let hour_ms = subject.time_us().await.div_euclid(3_600_000_000) * 3_600_000;
        // Where the test cannot hold the clock, the whole outage lies in one hour.
        let hours = if subject.clock.is_some() { 30 } else { 1 };
        for hour in 0..hours {
            for number in 0..=hour {
                recorder.record(&seen(&format!("/{}", number % 3), if number == 0 { 500 } else { 200 }, 1000));
            }
            assert!(recorder.flush().await.is_err(), "the store is away");
            if hour + 1 < hours {
                subject.pass(3_600_000).await;
            }
        }
        toll.away(false);
        flush(&recorder).await;
        let told = report(web).await;
        let made = |hour: u64| hour + 1;
        let all = (0..hours).map(made).sum::<u64>();
        assert_eq!((told.total, told.errors, web.counts().lost()), (all, hours, 0));
        assert_eq!(told.endpoints.iter().map(|found| found.count).sum::<u64>(), all);
        assert_eq!(told.instances, [("a".to_owned(), all)]);
        let kept = (hours.saturating_sub(24)..hours).map(|hour| (hour_ms + 3_600_000 * hour as i64, made(hour)));
        assert_eq!(told.hourly, kept.collect::<Vec<_>>(), "of each hour that is still kept, its own");
        let last = web.report(ReportAsk { hours: Some(1), endpoints: None }).await.expect("a report");
        assert_eq!(last.endpoints.iter().map(|found| found.count).sum::<u64>(), made(hours - 1));
    }

    async fn an_instance_that_came_back_stays(subject: &Subject) {
        let quaymaster = stats(subject);
        let web = of(&quaymaster, "web");
        let requests = [request("a", "/x", 200)];
        let _ = web.record(Record { requests: &requests, ..Record::default() }).await.expect("a record");
        // It was listed as silent and has flushed since: the second step of a sweep finds it again.
        let leave = quaymaster::operations().iter().find(|op| op.script.id == "stats.leave").expect("a script");
        let mut call = Invocation::new(&leave.script, Workload::Default);
        call.keys.push(spelled(&quaymaster, "web", "instances", &[]));
        call.keys.push(spelled(&quaymaster, "web", "requests_instance", &[("instance_id", "a")]));
        call.args.push("a");
        let told = subject.engine.run(call).await.expect("an answer");
        assert_eq!(told, Reply::Array(vec![Reply::Bytes("left".into()), Reply::Int(0)]));
        assert_eq!(report(web).await.instances, [("a".to_owned(), 1)]);
    }
}
