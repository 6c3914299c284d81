//! Commits per second under `always` beside the disk's own pace: a hundred bytes written and synced
//! (fdatasync), again and again, to a file that grows and to one that does not. A fresh log lies in a file of
//! fixed size; after the folder is opened again the log grows. Alternating rounds in one run; medians.
//!
//! `cargo run --release -p quaymaster-store --example journal_cost -- [FOLDER]`

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quaymaster_store::embedded::{Durability, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Effect, Engine, Invocation, Result, Script, Workload};

const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 7;

static INCR: std::sync::LazyLock<Script> = std::sync::LazyLock::new(|| {
    let source = "return redis.call('INCR', KEYS[1])";
    let sha = sha1_smol::Sha1::from(source).digest().to_string();
    Script { id: "example.incr", source, sha: sha.leak(), effect: Effect::Writes }
});

fn bare(dir: &Path, size: u64) -> Result<f64, std::io::Error> {
    let mut file = File::create(dir.join("bare"))?;
    file.set_len(size)?;
    file.sync_all()?;
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < ROUND {
        file.write_all(&[7; 100])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

async fn ours(store: &Arc<EmbeddedStore>, tasks: usize) -> Result<f64> {
    let started = Instant::now();
    let work = (0..tasks).map(|task| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut count = 0;
            while started.elapsed() < ROUND {
                let mut call = Invocation::new(&INCR, Workload::RateLimit);
                call.keys.push(format!("counter:{task}"));
                store.run(call).await?;
                count += 1;
            }
            Ok(count)
        })
    });
    let mut count = 0;
    for task in work.collect::<Vec<_>>() {
        count += task.await.unwrap_or(Ok(0))?;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("journal-cost-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let fresh = Arc::new(EmbeddedStore::open(&dir.join("fresh"), EmbeddedOptions::default()).await?);
    EmbeddedStore::open(&dir.join("again"), EmbeddedOptions::default()).await?.close().await?;
    let again = Arc::new(EmbeddedStore::open(&dir.join("again"), EmbeddedOptions::default()).await?);
    let everysec = EmbeddedOptions { durability: Durability::EverySec, ..EmbeddedOptions::default() };
    let everysec = Arc::new(EmbeddedStore::open(&dir.join("everysec"), everysec).await?);
    let memory = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await?);
    let mut rates: [Vec<f64>; 10] = Default::default();
    for _ in 0..ROUNDS {
        rates[0].push(tokio::task::block_in_place(|| bare(&dir, 64 << 20))?);
        rates[1].push(ours(&fresh, 1).await?);
        rates[2].push(ours(&fresh, 64).await?);
        rates[3].push(tokio::task::block_in_place(|| bare(&dir, 0))?);
        rates[4].push(ours(&again, 1).await?);
        rates[5].push(ours(&again, 64).await?);
        rates[6].push(ours(&everysec, 1).await?);
        rates[7].push(ours(&everysec, 64).await?);
        rates[8].push(ours(&memory, 1).await?);
        rates[9].push(ours(&memory, 64).await?);
    }
    let rates = rates.map(median);
    let of =
        |at: usize, base: usize| format!("{:>10.0}/s   {:.2} of bare", rates[at], rates[at] / rates[base]);
    println!("fixed size: bare fdatasync   {:>10.0}/s", rates[0]);
    println!("  always, 1 task             {}", of(1, 0));
    println!("  always, 64 tasks           {}", of(2, 0));
    println!("growing:    bare fdatasync   {:>10.0}/s", rates[3]);
    println!("  always, 1 task             {}", of(4, 3));
    println!("  always, 64 tasks           {}", of(5, 3));
    println!("everysec, 1 task             {:>10.0}/s", rates[6]);
    println!("everysec, 64 tasks           {:>10.0}/s", rates[7]);
    println!("memory, 1 task               {:>10.0}/s", rates[8]);
    println!("memory, 64 tasks             {:>10.0}/s", rates[9]);
    for store in [fresh, again, everysec, memory] {
        store.close().await?;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
