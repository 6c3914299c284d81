//! A store under test.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use quaymaster::{Engine, Quaymaster, Result};
use quaymaster_schema::{Source, load};
use quaymaster_store::{Effect, Invocation, Reply, Script, Workload};

/// A store under test, with a way to let its time pass and a prefix nobody else uses.
#[derive(Clone)]
pub struct Subject {
    /// What it is called in messages.
    pub name: &'static str,
    /// The store.
    pub engine: Arc<dyn Engine>,
    /// Its clock, when a test holds it; else time passes by itself.
    pub clock: Option<Arc<AtomicI64>>,
    /// A prefix for keys, so that cases do not meet.
    pub prefix: String,
    /// What must live as long as the store does: servers, folders.
    pub keep: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.prefix)
    }
}

impl Subject {
    /// The same store under keys of its own.
    pub fn apart(&self, prefix: &str) -> Self {
        Self { prefix: format!("{prefix}:"), ..self.clone() }
    }

    /// Lets `ms` milliseconds of the store's time pass.
    pub async fn pass(&self, ms: i64) {
        if let Some(clock) = &self.clock {
            clock.fetch_add(ms * 1000, Ordering::SeqCst);
            return;
        }
        let until = self.time_us().await + ms * 1000;
        self.reach(until).await;
    }

    /// Waits until the store's time is at least `until_us`.
    pub async fn reach(&self, until_us: i64) {
        if let Some(clock) = &self.clock {
            clock.fetch_max(until_us, Ordering::SeqCst);
            return;
        }
        let patience = Instant::now();
        loop {
            let left = until_us - self.time_us().await;
            if left <= 0 {
                return;
            }
            assert!(patience.elapsed() < Duration::from_secs(60), "the store's time does not pass");
            tokio::time::sleep(Duration::from_micros(left.min(5_000) as u64)).await;
        }
    }

    /// The store's time.
    pub async fn time_us(&self) -> i64 {
        self.engine.time_us().await.expect("the store tells its time")
    }

    /// A side key of the key that the schema writes as `key`: under the prefix, beside the whole key as hash tag.
    pub fn side(&self, key: &str, suffix: &str) -> String {
        format!("{0}{{{0}{key}}}:{suffix}", self.prefix)
    }

    /// Binds a schema whose keys all begin with this subject's prefix.
    pub fn schema(&self, body: &str) -> Quaymaster {
        let text =
            format!("[schema]\nname = \"case\"\nowner = \"tests\"\nprefix = \"{}\"\n{body}", self.prefix);
        let loaded = load(&[Source { name: "case.toml", text: &text }], &|_| None);
        let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}\n{text}", loaded.diagnostics));
        Quaymaster::new(Arc::new(schema), self.engine.clone())
    }
}

/// Any one command: how a test writes what a foreign program would.
static COMMAND: Script = Script {
    id: "testkit.command",
    source: "return redis.call(unpack(ARGV))",
    sha: "3c44b7a40779a5c68a6e3920550ff76660a813aa",
    effect: Effect::Writes,
};

/// Runs one command whose key is `key` (it must also be among the words).
pub async fn command(engine: &dyn Engine, key: &[u8], words: &[&[u8]]) -> Result<Reply> {
    let mut call = Invocation::new(&COMMAND, Workload::Default);
    call.keys.push(key);
    for word in words {
        call.args.push(word);
    }
    engine.run(call).await
}

/// The same for a command of text that answers an integer.
pub async fn command_int(engine: &dyn Engine, words: &[&str]) -> i64 {
    let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match command(engine, bytes[1], &bytes).await.expect("the command runs") {
        Reply::Int(value) => value,
        other => panic!("{words:?} answered {other:?}"),
    }
}

/// The same for a command that answers a string or nothing.
pub async fn command_text(engine: &dyn Engine, words: &[&str]) -> Option<String> {
    let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match command(engine, bytes[1], &bytes).await.expect("the command runs") {
        Reply::Bytes(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        Reply::Nil => None,
        other => panic!("{words:?} answered {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_script_has_its_own_digest() {
        assert_eq!(super::COMMAND.sha, sha1_smol::Sha1::from(super::COMMAND.source).digest().to_string());
    }
}
