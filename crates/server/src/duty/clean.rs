//! The regular clean-up: every so often one of all servers puts right what keys of the schema have left behind.
//!
//! Two keys under `own_prefix` see to that: a lock, held and renewed by the server that walks, and when the last walk
//! ended. A walk that is broken off leaves no such note, and the next server begins anew.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use quaymaster::cache::{Cache, Put, Value};
use quaymaster::clean::{Ask, Mode, Report};
use quaymaster::lock::{Acquire, Hold, Holding, Lock};
use quaymaster::schema::{Source, load};
use quaymaster::{Code, Error, Quaymaster, Result, Retry};
use tokio_util::sync::CancellationToken;

use super::spread;
use crate::metrics::Cleaned;

/// How often the store is cleaned, and where servers agree on which of them does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanConfig {
    /// From the end of one walk to the begin of the next.
    pub every: Duration,
    /// The head of keys that belong to no schema.
    pub own_prefix: String,
}

/// While another server walks, this one looks again after about so long.
const LOOK: Duration = Duration::from_secs(60);

/// The clean-up of one server.
#[derive(Debug)]
pub(crate) struct Cleaning {
    every: Duration,
    turn: Lock,
    /// When the last walk ended, in milliseconds by the store's clock.
    ended: Cache,
}

impl Cleaning {
    /// Binds its keys to the store of `quaymaster`.
    pub(crate) fn new(quaymaster: &Quaymaster, config: &CleanConfig) -> Result<Self> {
        let CleanConfig { every, own_prefix } = config;
        let text = format!(
            "[schema]\nname = \"own\"\nprefix = \"{own_prefix}\"\n[lock.clean]\nkey = \"clean\"\nttl = \"1m\"\n\
             [cache.cleaned]\nkey = \"cleaned\"\nttl = \"{}ms\"\non_outage = \"error\"\n",
            every.as_millis()
        );
        let Some(schema) = load(&[Source { name: "own.toml", text: &text }], &|_| None).schema else {
            let detail =
                format!("store.own_prefix: no key can begin with {own_prefix:?}, and [clean] needs two");
            return Err(Error::new("clean", Code::ConfigInvalid, detail));
        };
        let own = Quaymaster::new(Arc::new(schema), quaymaster.engine().clone());
        Ok(Self { every: *every, turn: own.lock("clean")?.clone(), ended: own.cache("cleaned")?.clone() })
    }

    /// Cleans if that is due and nobody else does; when to look again. An error that no waiting changes, as of a user who
    /// may not, is told each time; a store that is away is told by the probe.
    pub(super) async fn round(
        &self,
        quaymaster: &Quaymaster,
        counts: &Cleaned,
        stop: &CancellationToken,
    ) -> Result<Duration> {
        let done = self.in_turn(quaymaster, counts, stop).await;
        if let Err(error) = &done
            && (error.code.retry() == Retry::Useless || may_not(error.code))
        {
            tracing::warn!(code = %error.code, detail = error.detail, "the clean-up failed; the next is due as usual");
            return Ok(self.every);
        }
        done
    }

    async fn in_turn(
        &self,
        quaymaster: &Quaymaster,
        counts: &Cleaned,
        stop: &CancellationToken,
    ) -> Result<Duration> {
        let Hold::Ours(turn) = self.turn.hold(&[], Acquire::default()).await? else {
            return Ok(spread(LOOK).min(self.every));
        };
        let next = match self.left(quaymaster).await {
            Ok(Some(left)) => Ok(left),
            Ok(None) => self.clean(quaymaster, &turn, counts, stop).await,
            Err(error) => Err(error),
        };
        // One that was lost is somebody else's already.
        let _ = turn.release().await;
        next
    }

    /// How long until the next walk is due; `None` when it is.
    async fn left(&self, quaymaster: &Quaymaster) -> Result<Option<Duration>> {
        let Some(Value::Bytes(ended)) = self.ended.get(&[]).await?.value() else { return Ok(None) };
        let ended_ms = std::str::from_utf8(&ended).ok().and_then(|text| text.parse::<i64>().ok());
        let since_ms = ended_ms.map(|ended_ms| quaymaster.engine().now_us() / 1000 - ended_ms);
        // A note from the future, or none of ours, says nothing.
        let since = since_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        Ok(since.and_then(|since| self.every.checked_sub(since)).filter(|left| !left.is_zero()))
    }

    async fn clean(
        &self,
        quaymaster: &Quaymaster,
        turn: &Holding,
        counts: &Cleaned,
        stop: &CancellationToken,
    ) -> Result<Duration> {
        let ask = Ask { mode: Mode::Apply, stop: stop.child_token(), ..Ask::default() };
        let ends = ask.stop.clone();
        let mut walk = pin!(quaymaster.clean(ask, |_| ()));
        let report = tokio::select! {
            report = &mut walk => report?,
            () = turn.lost() => {
                ends.cancel();
                walk.await?
            }
        };
        counts.note(&report);
        let Report {
            examined,
            declared,
            stale,
            immortal,
            dangling,
            other_type,
            unusable,
            done,
            ref next,
            ..
        } = report;
        if next.is_some() {
            tracing::info!(examined, done, "a clean-up was broken off; it begins anew later");
            return Ok(spread(LOOK).min(self.every));
        }
        tracing::info!(
            examined,
            declared,
            stale,
            immortal,
            dangling,
            other_type,
            unusable,
            done,
            "cleaned up"
        );
        let ended = (quaymaster.engine().now_us() / 1000).to_string();
        let _ = self.ended.put(&[], &Value::from(ended), Put::default()).await?;
        Ok(self.every)
    }
}

/// The user's rights are the reason: an operator changes them, not time.
fn may_not(code: Code) -> bool {
    matches!(code, Code::StorePermission | Code::StoreScript)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use quaymaster::Engine;
    use quaymaster::store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
    use quaymaster::store::redis::{RedisOptions, RedisStore};
    use quaymaster_testkit::conformance::{command_int, command_text};
    use quaymaster_testkit::servers::{RedisConfig, RedisServer};

    use super::*;
    use crate::config::{Config, ConfigError, Overrides, RawConfig};

    const EVERY: Duration = Duration::from_secs(6 * 3600);

    const SCHEMA: &str = "[schema]\nname = \"left\"\nowner = \"tests\"\n[limit.calls]\nkey = \"calls:{hour}\"\n\
        algorithm = \"fixed_window\"\nlimit = 2\nwindow = \"1h\"\nttl = \"2h\"\n";

    /// A server's part of it, on a store that others may share.
    struct Node {
        quaymaster: Quaymaster,
        cleaning: Cleaning,
        counts: Cleaned,
    }

    impl Node {
        fn on(engine: &Arc<dyn Engine>) -> Self {
            let schema = load(&[Source { name: "left.toml", text: SCHEMA }], &|_| None).schema.unwrap();
            let quaymaster = Quaymaster::new(Arc::new(schema), engine.clone());
            let config = CleanConfig { every: EVERY, own_prefix: "quaymaster:".into() };
            let cleaning = Cleaning::new(&quaymaster, &config).unwrap();
            Self { quaymaster, cleaning, counts: Cleaned::default() }
        }

        async fn round(&self) -> Duration {
            let stop = CancellationToken::new();
            self.cleaning.round(&self.quaymaster, &self.counts, &stop).await.unwrap()
        }

        fn rounds(&self) -> u64 {
            self.counts.rounds.load(SeqCst)
        }
    }

    async fn litter(engine: &Arc<dyn Engine>) {
        command_text(&**engine, &["SET", "calls:2020-01-01_00", "2"]).await;
    }

    async fn litter_left(engine: &Arc<dyn Engine>) -> i64 {
        command_int(&**engine, &["EXISTS", "calls:2020-01-01_00"]).await
    }

    async fn one_of_two_cleans(engine: Arc<dyn Engine>) {
        let (one, two) = (Node::on(&engine), Node::on(&engine));
        litter(&engine).await;
        assert_eq!(one.round().await, EVERY);
        assert_eq!((litter_left(&engine).await, one.counts.done.load(SeqCst)), (0, 1));
        litter(&engine).await;
        for node in [&two, &one] {
            let left = node.round().await;
            assert!(left > EVERY / 2 && left <= EVERY, "not due for {left:?}");
        }
        assert_eq!((litter_left(&engine).await, one.rounds(), two.rounds()), (1, 1, 0));
        // Without the note it is due; while somebody walks nobody else does.
        command_int(&*engine, &["DEL", "quaymaster:cleaned"]).await;
        let Hold::Ours(turn) = one.cleaning.turn.hold(&[], Acquire::default()).await.unwrap() else {
            panic!("nobody holds it")
        };
        assert!(two.round().await <= LOOK * 2);
        assert_eq!((litter_left(&engine).await, two.rounds()), (1, 0));
        let _ = turn.release().await.unwrap();
        assert_eq!(two.round().await, EVERY);
        assert_eq!((litter_left(&engine).await, two.rounds()), (0, 1));
    }

    #[tokio::test]
    async fn of_two_servers_one_cleans_and_the_other_when_it_is_due_again_embedded() {
        one_of_two_cleans(Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap())).await;
    }

    #[tokio::test]
    async fn of_two_servers_one_cleans_and_the_other_when_it_is_due_again_on_redis() {
        let redis = RedisServer::start(RedisConfig::default());
        let options = RedisOptions::from_url(&redis.url()).unwrap();
        one_of_two_cleans(Arc::new(RedisStore::connect(options).await.unwrap())).await;
        let own: Vec<String> = redis.command(&["KEYS", "*"]);
        assert!(own.iter().all(|key| key.starts_with("quaymaster:")), "{own:?}");
    }

    #[tokio::test]
    async fn a_clean_up_is_due_when_its_time_is_over_and_one_that_was_broken_off_at_once() {
        let clock = Arc::new(AtomicI64::new(1_726_583_400_000_000));
        let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
        let engine: Arc<dyn Engine> = Arc::new(EmbeddedStore::memory(options).await.unwrap());
        let node = Node::on(&engine);
        assert_eq!((node.round().await, node.rounds()), (EVERY, 1));
        clock.fetch_add(3_600_000_000, SeqCst);
        let rest = EVERY.saturating_sub(Duration::from_secs(3600));
        assert_eq!((node.round().await, node.rounds()), (rest, 1));
        clock.fetch_add(5 * 3_600_000_000, SeqCst);
        // More than a page of keys, so that there is something to break off.
        for number in 0..2000 {
            command_text(&*engine, &["SET", &format!("calls:x{number}"), "2"]).await;
        }
        let stop = CancellationToken::new();
        stop.cancel();
        let next = node.cleaning.round(&node.quaymaster, &node.counts, &stop).await.unwrap();
        assert!(next <= LOOK * 2, "{next:?}");
        assert_eq!(node.round().await, EVERY, "it was due still");
    }

    #[tokio::test]
    async fn a_user_who_may_not_is_no_reason_to_try_every_few_seconds() {
        let redis = RedisServer::start(RedisConfig::default());
        redis.command::<()>(&["ACL", "SETUSER", "svc", "on", ">pw", "~calls:*", "&*", "+@all"]);
        let url = format!("redis://svc:pw@{}", redis.address());
        let store = RedisStore::connect(RedisOptions::from_url(&url).unwrap()).await.unwrap();
        let node = Node::on(&(Arc::new(store) as Arc<dyn Engine>));
        assert_eq!((node.round().await, node.rounds()), (EVERY, 0));
    }

    #[test]
    fn nothing_is_cleaned_unless_told_and_then_at_most_every_minute() {
        let read = |toml: &str| {
            let raw = RawConfig::parse("test.toml", toml, "".as_ref(), &|_| None)?;
            Ok::<_, ConfigError>(Config::resolve(raw, Overrides::default()).unwrap().clean)
        };
        for toml in ["", "[clean]", "[store]\nurl = \"memory\""] {
            assert_eq!(read(toml).unwrap(), None, "{toml}");
        }
        let told = |every, own_prefix: &str| Some(CleanConfig { every, own_prefix: own_prefix.into() });
        assert_eq!(read("[clean]\nevery = \"6h\"").unwrap(), told(EVERY, "quaymaster:"));
        let redis = "[store]\nurl = \"redis://localhost\"\nown_prefix = \"mine:\"\n[clean]\nevery = \"1m\"";
        assert_eq!(read(redis).unwrap(), told(Duration::from_secs(60), "mine:"));
        for (toml, said) in [
            ("[clean]\nevery = \"59s\"", "at least"),
            ("[clean]\nevery = 60", "duration"),
            ("[clean]\nrate = 5", "no setting"),
        ] {
            let Err(ConfigError::File(problems)) = read(toml) else { panic!("{toml} is taken") };
            assert!(problems.iter().any(|problem| problem.message.contains(said)), "{problems:?}");
        }
    }

    #[tokio::test]
    async fn a_prefix_that_no_key_can_begin_with_is_refused() {
        let engine: Arc<dyn Engine> =
            Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
        let node = Node::on(&engine);
        let config = CleanConfig { every: EVERY, own_prefix: "a*b:".into() };
        let error = Cleaning::new(&node.quaymaster, &config).unwrap_err();
        assert_eq!(error.code, Code::ConfigInvalid);
        assert!(error.detail.contains("own_prefix"), "{error}");
    }
}
