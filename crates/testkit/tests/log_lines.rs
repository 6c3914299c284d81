//! What limits and clean-ups say in the log: refused takes, the turn of the hour, deletions; and how seldom.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use quaymaster::Quaymaster;
use quaymaster::clean::{Ask, Mode};
use quaymaster::limit::{Charge, Part, take_all};
use quaymaster::schema::{Source, load};
use quaymaster_store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster_testkit::conformance::command;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

const SCHEMA: &str = "
[schema]
name = \"lines\"
owner = \"tests\"
[limit.calls]
key = \"calls:{hour}\"
algorithm = \"fixed_window\"
limit = 2
window = \"1h\"
ttl = \"2h\"
[limit.often]
key = \"often:{minute}\"
algorithm = \"fixed_window\"
limit = 1
window = \"1m\"
";

/// 2024-09-17 14:30:00 UTC.
const HALF_PAST_US: i64 = 1_726_583_400_000_000;
const REFUSED: &str = "takes were refused";
const ALLOWED: &str = "a take was allowed";
const TURNED: &str = "a new window has begun";
const DELETED: &str = "keys that were over are deleted";

/// What was logged, as text.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A store whose clock is held; its runtime must have one thread, whose log is kept.
struct Scene {
    quaymaster: Quaymaster,
    clock: Arc<AtomicI64>,
    log: Log,
    _logging: DefaultGuard,
}

impl Scene {
    async fn new() -> Self {
        Self::at(Level::INFO).await
    }

    /// With a log of this level.
    async fn at(level: Level) -> Self {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let logging = tracing::subscriber::set_default(subscriber);
        let clock = Arc::new(AtomicI64::new(HALF_PAST_US));
        let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
        let store = EmbeddedStore::memory(options).await.expect("a store");
        let schema = load(&[Source { name: "lines.toml", text: SCHEMA }], &|_| None).schema.expect("right");
        Self { quaymaster: Quaymaster::new(Arc::new(schema), Arc::new(store)), clock, log, _logging: logging }
    }

    async fn take(&self, limit: &str) -> bool {
        let limit = self.quaymaster.limit(limit).expect("declared");
        limit.take(&[], Charge::one()).await.expect("take").is_allowed()
    }

    /// Lines logged so far that have `part`.
    fn lines(&self, part: &str) -> Vec<String> {
        let text = String::from_utf8(self.log.0.lock().expect("not poisoned").clone()).expect("text");
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn a_refused_take_is_told_and_a_storm_of_them_is_not_a_flood() {
    let scene = Scene::new().await;
    assert!(scene.take("calls").await && scene.take("calls").await);
    assert_eq!(scene.lines(REFUSED), [""; 0]);
    assert!(!scene.take("calls").await);
    let told = scene.lines(REFUSED);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [" INFO ", "limit=\"calls\"", "refused=1", "used=2", "of=2", "retry_after_ms=1800000"] {
        assert!(told[0].contains(part), "{part}: {}", told[0]);
    }
    for _ in 0..5000 {
        assert!(!scene.take("calls").await);
    }
    let told = scene.lines(REFUSED).len();
    assert!(told < 500, "{told} lines for 5001 refusals");
}

#[tokio::test]
async fn an_allowed_take_is_a_line_at_debug_and_none_at_info() {
    let scene = Scene::new().await;
    assert!(scene.take("calls").await);
    assert_eq!(scene.lines(ALLOWED), [""; 0]);
    drop(scene);
    let scene = Scene::at(Level::DEBUG).await;
    assert!(scene.take("calls").await && scene.take("calls").await && !scene.take("calls").await);
    let told = scene.lines(ALLOWED);
    assert_eq!(told.len(), 2, "{told:?}");
    for part in ["DEBUG ", "limit=\"calls\"", "used=2", "of=2"] {
        assert!(told[1].contains(part), "{part}: {}", told[1]);
    }
}

#[tokio::test]
async fn a_take_that_is_refused_among_others_is_told_of_the_limit_that_refused() {
    let scene = Scene::new().await;
    assert!(scene.take("often").await);
    let limit = |name| Part { limit: scene.quaymaster.limit(name).expect("declared"), key: &[], cost: 1 };
    assert!(!take_all(&[limit("calls"), limit("often")], None).await.expect("take_all").is_allowed());
    let told = scene.lines(REFUSED);
    assert!(told.len() == 1 && told[0].contains("limit=\"often\""), "{told:?}");
}

#[tokio::test]
async fn the_turn_of_the_hour_is_told_once() {
    let scene = Scene::new().await;
    assert!(scene.take("calls").await && scene.take("often").await);
    assert_eq!(scene.lines(TURNED), [""; 0], "the first hour of a process is no turn");
    scene.clock.fetch_add(60_000_000, SeqCst);
    assert!(scene.take("often").await && scene.take("calls").await);
    assert_eq!(scene.lines(TURNED), [""; 0], "a minute is nothing to tell everybody");
    scene.clock.fetch_add(3_600_000_000, SeqCst);
    for _ in 0..3 {
        scene.take("calls").await;
    }
    let told = scene.lines(TURNED);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [" INFO ", "limit=\"calls\"", "begins=\"2024-09-17T15:00:00.000000Z\""] {
        assert!(told[0].contains(part), "{part}: {}", told[0]);
    }
}

#[tokio::test]
async fn what_a_clean_up_deletes_is_told_with_the_count_of_all() {
    let scene = Scene::new().await;
    for hour in 0..24 {
        let key = format!("calls:2024-09-16_{hour:02}");
        let words = [b"SET", key.as_bytes(), b"2"];
        command(&**scene.quaymaster.engine(), key.as_bytes(), &words).await.expect("written");
    }
    let clean =
        async |mode| scene.quaymaster.clean(Ask { mode, ..Ask::default() }, |_| ()).await.expect("clean");
    assert_eq!(clean(Mode::Look).await.stale, 24);
    assert_eq!(scene.lines(DELETED), [""; 0], "nothing was deleted");
    assert_eq!(clean(Mode::Apply).await.done, 24);
    let told = scene.lines(DELETED);
    let count = |line: &String| {
        let (_, rest) = line.split_once("deleted=").expect("a count");
        rest.split(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a number")
    };
    assert_eq!(told.iter().map(count).sum::<u64>(), 24, "{told:?}");
    assert!(told.len() < 24 && told.iter().all(|line| line.contains("resource=\"limit.calls\"")), "{told:?}");
}
