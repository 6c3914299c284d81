//! How many jobs a second go from push to ack through handlers that do nothing:
//! `cargo run --release -p quaymaster --example worker_pace -- redis://127.0.0.1:6379 [jobs] [handlers] [pushers]`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quaymaster::Quaymaster;
use quaymaster::queue::Push;
use quaymaster::schema::{Source, load};
use quaymaster::store::{StoreOptions, open};
use quaymaster::worker::{Failure, Worker};
use tokio_util::sync::CancellationToken;

const SCHEMA: &str = "[schema]\nname = \"pace\"\n[queue.worker_pace]\nmax_size = 100000000\n";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "memory".to_owned());
    let mut number = |default: u64| args.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (jobs, handlers, pushers) = (number(200_000)?, number(100)?, number(4)?);
    let schema = load(&[Source { name: "pace.toml", text: SCHEMA }], &|_| None).schema.ok_or("the schema")?;
    let store = open(StoreOptions::from_url(&url, "worker-pace-data".as_ref())?).await?;
    let pace = Quaymaster::new(Arc::new(schema), store);
    let queue = pace.queue("worker_pace")?.clone();
    let worker = Worker::new(queue.clone()).concurrency(usize::try_from(handlers)?);
    let (counts, stop) = (worker.counts().clone(), CancellationToken::new());
    let handled = Arc::new(AtomicU64::new(0));
    let seen = handled.clone();
    let handler = move |_: quaymaster::queue::Job, _: quaymaster::worker::Lost| {
        seen.fetch_add(1, Relaxed);
        async { Ok::<_, Failure>(()) }
    };
    let began = Instant::now();
    let running = tokio::spawn(worker.run(handler, stop.clone()));
    let each = jobs / pushers / 100;
    let pushing: Vec<_> = (0..pushers)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let payload =
                    Bytes::from_static(br#"{"camera_id":"front_door","file_path":"/export/foscam/1.jpg"}"#);
                for _ in 0..each {
                    let _ = queue.push(Push::many(vec![payload.clone(); 100])).await?;
                }
                Ok::<(), quaymaster::Error>(())
            })
        })
        .collect();
    for task in pushing {
        task.await??;
    }
    let pushed = began.elapsed();
    let all = each * pushers * 100;
    while counts.acked() < all {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let acked = began.elapsed();
    stop.cancel();
    let ended = running.await??;
    let per_second = |took: Duration| all as f64 / took.as_secs_f64();
    println!(
        "{all} jobs, {handlers} handlers: pushed {:.0}/s, pushed and acked {:.0}/s; handled {}, lost {}, errors {}, {ended:?}",
        per_second(pushed),
        per_second(acked),
        handled.load(Relaxed),
        counts.lost(),
        counts.errors(),
    );
    Ok(())
}
