//! How long a folder with many keys takes to open, and the memory it then needs.
//!
//! `cargo run --release -p quaymaster-store --example load_cost -- [KEYS] [FOLDER]`
//! fills a folder in one process and opens it in another.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use quaymaster_store::embedded::{Durability, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Effect, Engine, Invocation, Script, Workload};

type Outcome = Result<(), Box<dyn std::error::Error>>;

static FILL: std::sync::LazyLock<Script> = std::sync::LazyLock::new(|| {
    let source = "for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
        redis.call('SET', string.format('rl:customer-%d:29384756', n), n % 1000, 'PX', 86400000)
      end return 1";
    let sha = sha1_smol::Sha1::from(source).digest().to_string();
    Script { id: "example.fill", source, sha: sha.leak(), effect: Effect::Writes }
});

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

async fn fill(dir: &Path, keys: u64) -> Outcome {
    let options = EmbeddedOptions { durability: Durability::EverySec, ..EmbeddedOptions::default() };
    let store = EmbeddedStore::open(dir, options).await?;
    let started = Instant::now();
    for from in (1..=keys).step_by(1_000) {
        let mut call = Invocation::new(&FILL, Workload::Default);
        call.args.push(from.to_string());
        call.args.push((from + 999).min(keys).to_string());
        store.run(call).await?;
    }
    store.close().await?;
    println!("filled {keys} keys in {:.2?}", started.elapsed());
    Ok(())
}

async fn open(dir: &Path) -> Outcome {
    let before = resident();
    let started = Instant::now();
    let store = EmbeddedStore::open(dir, EmbeddedOptions::default()).await?;
    let took = started.elapsed();
    let facts = store.deployment().await?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "opened in {took:.2?}; {:.0} MiB resident, of which {:.0} MiB are counted as data",
        mib(resident() - before),
        mib(facts.used_memory_bytes.unwrap_or(0))
    );
    drop(store);
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<_> = std::env::args_os().collect();
    match arguments.get(1).and_then(|first| first.to_str()) {
        Some("--fill") => {
            return fill(&PathBuf::from(&arguments[2]), arguments[3].to_string_lossy().parse()?).await;
        }
        Some("--open") => return open(&PathBuf::from(&arguments[2])).await,
        _ => {}
    }
    let keys = arguments.get(1).map_or("1000000".into(), |keys| keys.to_string_lossy());
    let dir = arguments.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("load-cost-{}", std::process::id()));
    let me = std::env::current_exe()?;
    Command::new(&me).arg("--fill").arg(&dir).arg(&*keys).status()?;
    for _ in 0..3 {
        Command::new(&me).arg("--open").arg(&dir).status()?;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
