//! `serve` on the embedded store while the machine's clock is set: only the date is faked, the monotonic clock is real.

use std::path::Path;
use std::time::{Duration, Instant};

use faketime::FakeTime;
use quaymaster_upload::ledger::{Ledger, LedgerOptions};
use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Served, Started, any_port, command, folder};

#[path = "../../../testkit/src/servers/faketime.rs"]
#[allow(
    unreachable_pub,
    dead_code,
    clippy::allow_attributes,
    clippy::expect_used,
    clippy::duplicate_mod,
    reason = "public there, private here"
)]
mod faketime;

const SCHEMA: &str = r#"
[schema]
name = "clocks"
owner = "tests"
[lock.door]
key = "door:{id}"
ttl = "1h"
[queue.work]
max_size = 1000
lease = "1h"
retry = { max_attempts = 100, base = "1ms", max = "1ms", jitter = 0 }
[idempotency.pay]
key = "pay:{id}"
ttl = "24h"
in_progress_ttl = "1h"
[limit.log]
key = "log:{id}"
algorithm = "sliding_log"
limit = 2
window = "1h"
[limit.fixed]
key = "fixed:{id}"
algorithm = "fixed_window"
limit = 2
window = "1h"
"#;

const UPLOADS: &str = r#"
[schema]
name = "clocks"
owner = "tests"
[upload.documents]
key = "upload:{upload_id}:state"
objects = "file:objects"
database = "sqlite:uploads.db"
state_ttl = "1h"
"#;

const HOUR_MS: i64 = 3_600_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn serve(folder: &Path, clock: &FakeTime) -> Served {
    let mut command = command(folder);
    command.envs(clock.env()).args(["serve", "--listen", &any_port(), "--schema", "clocks.toml"]);
    Served::spawn(&mut command)
}

fn acquire(served: &Served, id: &str, ttl_ms: u64) -> Value {
    served.take("/v1/lock/door/acquire", &format!(r#"{{"key":{{"id":"{id}"}},"ttl_ms":{ttl_ms}}}"#))
}

fn claim(served: &Served, lease_ms: u64) -> usize {
    let jobs = served.take("/v1/queue/work/claim", &format!(r#"{{"lease_ms":{lease_ms}}}"#));
    jobs["jobs"].as_array().unwrap().len()
}

/// Begins and uses up what lasts for an hour or nearly so, and a lock that lasts for a second.
fn use_all(served: &Served) {
    served.take("/v1/queue/work/push", r#"{"payload":1}"#);
    assert_eq!(claim(served, 3_000_000), 1);
    assert_eq!(acquire(served, "short", 1000)["outcome"], "ours");
    assert_eq!(acquire(served, "long", 3_000_000)["outcome"], "ours");
    assert_eq!(begin(served)["outcome"], "started");
    for limit in LIMITS {
        assert!(is_allowed(served, limit) && is_allowed(served, limit), "{limit}");
    }
}

/// All of it is still in use, and the lock of a second ends.
fn all_is_used(served: &Served) {
    let long = acquire(served, "long", 1000);
    assert_eq!(long["outcome"], "held", "{long}");
    assert!(long["retry_after_ms"].as_u64().unwrap() <= 3_000_000, "{long}");
    assert_eq!(claim(served, 1000), 0, "the job is still leased");
    assert_eq!(begin(served)["outcome"], "in_progress", "or the operation is paid twice");
    for limit in LIMITS {
        assert!(!is_allowed(served, limit), "{limit} has forgotten its calls");
    }
    until("the lock is free", || acquire(served, "short", 1000)["outcome"] == "ours");
    assert_eq!(store(served, "future_data"), 0);
}

const LIMITS: [&str; 2] = ["log", "fixed"];
const KEY: &str = r#"{"key":{"id":"1"}}"#;

fn begin(served: &Served) -> Value {
    served.take("/v1/idempotency/pay/begin", KEY)
}

fn is_allowed(served: &Served, limit: &str) -> bool {
    served.take(&format!("/v1/limit/{limit}/take"), KEY)["allowed"].as_bool().unwrap()
}

/// Asks until `done` is content; how often it was not is no matter, how long is.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn create(served: &Served) -> String {
    let made = served.take("/v1/upload/documents/create", r#"{"name":"a"}"#);
    made["upload_id"].as_str().unwrap().to_owned()
}

fn upload(served: &Served, id: &str, field: &str) -> String {
    let shown = served.take_get(&format!("/v1/upload/documents/{id}"));
    shown[field].as_str().unwrap().to_owned()
}

/// When these expire by the ledger.
fn deadlines(folder: &Path, ids: &[&str]) -> Vec<i64> {
    let url = format!("sqlite:{}", folder.join("quaymaster-data/uploads.db").display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let ledger = Ledger::open(&url, &LedgerOptions::default()).await.unwrap();
        let mut deadlines = Vec::new();
        for id in ids {
            deadlines.push(ledger.find(id).await.unwrap().unwrap().deadline_ms);
        }
        deadlines
    })
}

fn store(served: &Served, field: &str) -> Value {
    served.take_get("/v1/status")["store"][field].clone()
}

fn metric(served: &Served, name: &str) -> u64 {
    let (_, text) = served.ask("GET", "/metrics", "");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn leases_end_when_the_clock_is_set_back_and_not_before_when_it_is_set_forward() {
    let folder = folder(&[("clocks.toml", SCHEMA)]);
    let clock = FakeTime::new(folder.path());
    let served = serve(folder.path(), &clock);
    assert_eq!(store(&served, "clock_steps"), 0);
    served.take("/v1/queue/work/push", r#"{"payload":1}"#);
    for (step, offset_ms) in [(1, -HOUR_MS), (2, HOUR_MS)] {
        until("the lock is free", || acquire(&served, "short", 1000)["outcome"] == "ours");
        assert_eq!(acquire(&served, &format!("long-{step}"), 3_000_000)["outcome"], "ours");
        until("the job is there", || claim(&served, 1000) == 1);
        clock.set_offset_ms(offset_ms);
        until("the step is seen", || store(&served, "clock_steps") == step);
        until("the lock is free", || acquire(&served, "short", 1000)["outcome"] == "ours");
        until("the job comes again", || claim(&served, 1000) == 1);
        assert_eq!(acquire(&served, &format!("long-{step}"), 1000)["outcome"], "held");
    }
    assert_eq!(metric(&served, "quaymaster_store_clock_steps_total"), 2);
    let warnings = served.take_get("/v1/status")["warnings"].to_string();
    assert!(warnings.contains("behind the machine's clock"), "{warnings}");
    let log = served.stop_by(Signal::TERM).err;
    assert_eq!(log.matches("the machine's clock was set back").count(), 1, "{log}");
    assert_eq!(log.matches("the machine's clock was set forward").count(), 1, "{log}");
}

#[test]
fn what_was_leased_while_the_clock_was_a_day_ahead_ends_as_it_was_declared() {
    let folder = folder(&[("clocks.toml", SCHEMA)]);
    let clock = FakeTime::new(folder.path());
    clock.set_offset_ms(24 * HOUR_MS);
    let served = serve(folder.path(), &clock);
    served.take("/v1/queue/work/push", r#"{"payload":1}"#);
    assert_eq!(claim(&served, 2000), 1);
    assert_eq!(acquire(&served, "short", 2000)["outcome"], "ours");
    assert_eq!(acquire(&served, "long", 3_000_000)["outcome"], "ours");
    assert_eq!(served.stop().code, 0);

    clock.set_offset_ms(0);
    let served = serve(folder.path(), &clock);
    assert_eq!(store(&served, "future_data"), 1);
    assert_eq!(metric(&served, "quaymaster_store_future_data_total"), 1);
    until("the lock is free", || acquire(&served, "short", 2000)["outcome"] == "ours");
    until("the job comes again", || claim(&served, 2000) == 1);
    let long = acquire(&served, "long", 1000);
    assert_eq!(long["outcome"], "held");
    assert!(long["retry_after_ms"].as_u64().unwrap() <= 3_000_000, "{long}");
    let log = served.stop().err;
    assert_eq!(log.matches("the data is from the future").count(), 1, "{log}");
}

#[test]
fn no_lease_ends_early_when_the_clock_is_set_forward_and_the_store_is_opened_again() {
    for signal in [Signal::TERM, Signal::KILL] {
        let folder = folder(&[("clocks.toml", SCHEMA)]);
        let clock = FakeTime::new(folder.path());
        let served = serve(folder.path(), &clock);
        use_all(&served);
        clock.set_offset_ms(3 * HOUR_MS);
        until("the step is seen", || store(&served, "clock_steps") == 1);
        served.stop_by(signal);

        let served = serve(folder.path(), &clock);
        all_is_used(&served);
        let warnings = served.take_get("/v1/status")["warnings"].to_string();
        assert!(warnings.contains("behind the machine's clock"), "{warnings}");
        let log = served.stop().err;
        assert_eq!(log.matches("the machine's clock was set forward").count(), 1, "{log}");
    }
}

#[test]
fn no_lease_ends_early_when_the_clock_is_set_forward_and_an_attached_process_takes_over() {
    let folder = folder(&[("clocks.toml", SCHEMA)]);
    let clock = FakeTime::new(folder.path());
    let owner = serve(folder.path(), &clock);
    let heir = serve(folder.path(), &clock);
    use_all(&heir);
    clock.set_offset_ms(3 * HOUR_MS);
    until("the step is seen", || store(&owner, "clock_steps") == 1);
    owner.stop_by(Signal::KILL);
    until("the heir owns the data", || {
        let (_, status) = heir.ask("GET", "/v1/status", "");
        status.contains(r#""mode":"owner""#)
    });
    all_is_used(&heir);
}

#[test]
fn an_operator_who_asks_for_the_machines_date_gets_it_at_once() {
    let folder = folder(&[("clocks.toml", SCHEMA)]);
    let clock = FakeTime::new(folder.path());
    let served = serve(folder.path(), &clock);
    use_all(&served);
    clock.set_offset_ms(3 * HOUR_MS);
    served.stop();
    let request = folder.path().join("quaymaster-data/take-date");
    std::fs::write(&request, "").unwrap();

    let served = serve(folder.path(), &clock);
    assert!(!request.exists(), "it is asked for once");
    assert_eq!(acquire(&served, "long", 3_000_000)["outcome"], "ours", "it has ended by this date");
    assert!(is_allowed(&served, "log"));
    let warnings = served.take_get("/v1/status")["warnings"].to_string();
    assert!(!warnings.contains("the machine's clock"), "{warnings}");
    let log = served.stop().err;
    assert_eq!(log.matches("takes the machine's date at once").count(), 1, "{log}");
    let served = serve(folder.path(), &clock);
    assert_eq!(acquire(&served, "long", 1000)["outcome"], "held");
    let log = served.stop().err;
    assert!(!log.contains("the machine's clock was set") && !log.contains("machine's date at once"), "{log}");
}

#[test]
fn uploads_go_on_and_begin_when_the_clock_is_set_back_by_longer_than_they_may_take() {
    let folder = folder(&[("clocks.toml", UPLOADS)]);
    let clock = FakeTime::new(folder.path());
    let served = serve(folder.path(), &clock);
    let before = create(&served);
    clock.set_offset_ms(-HOUR_MS);
    until("the step is seen", || store(&served, "clock_steps") == 1);
    let after = create(&served);
    for id in [&before, &after] {
        let (code, told) = served.ask("PUT", &format!("/v1/upload/documents/{id}/chunk/0?last=true"), "abc");
        assert_eq!(code, 200, "{told}");
        until("the upload is completed", || upload(&served, id, "status") == "COMPLETED");
    }
    assert_eq!(served.stop().code, 0);
}

#[test]
fn an_upload_begun_while_the_clock_was_a_day_ahead_lasts_no_longer_than_declared() {
    let folder = folder(&[("clocks.toml", UPLOADS)]);
    let clock = FakeTime::new(folder.path());
    clock.set_offset_ms(24 * HOUR_MS);
    let served = serve(folder.path(), &clock);
    let id = create(&served);
    let ahead = upload(&served, &id, "expires_at");
    assert_eq!(served.stop().code, 0);

    clock.set_offset_ms(0);
    let served = serve(folder.path(), &clock);
    assert_eq!(store(&served, "future_data"), 1);
    until("its deadline is moved", || upload(&served, &id, "expires_at") != ahead);
    // One that begins now has all of the time that is declared.
    let fresh = create(&served);
    let (moved, declared) = (upload(&served, &id, "expires_at"), upload(&served, &fresh, "expires_at"));
    assert!(moved <= declared, "{moved} and {declared}");
    let (code, told) = served.ask("PUT", &format!("/v1/upload/documents/{id}/chunk/0?last=true"), "abc");
    assert_eq!(code, 200, "and it goes on: {told}");
    assert_eq!(served.stop().code, 0);
    let [moved, declared] = deadlines(folder.path(), &[&id, &fresh])[..] else { panic!("two of them") };
    assert!(moved <= declared, "{moved} and {declared}");
}

#[test]
fn a_clock_in_the_year_2300_opens_no_store() {
    let folder = folder(&[("clocks.toml", SCHEMA)]);
    let clock = FakeTime::new(folder.path());
    clock.set_offset_ms(274 * 365 * 24 * HOUR_MS);
    for store in ["embedded", "memory"] {
        let mut command = command(folder.path());
        command.envs(clock.env()).args(["serve", "--listen", &any_port(), "--store", store]);
        let said = Started::spawn(command.args(["--schema", "clocks.toml"])).end();
        assert_eq!(said.code, 3, "{said:?}");
        assert!(said.err.contains("store.clock"), "{said:?}");
    }
}
