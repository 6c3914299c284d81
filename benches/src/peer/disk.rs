//! The disk itself: append a record, make it durable, again. No store that acknowledges after the disk
//! can be faster with one caller.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::sample::{Latency, Sample, histogram};

/// About what one take of one caller leaves in a journal.
const RECORD: [u8; 128] = [b'q'; 128];

/// Whether the file already has its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It grows with every record, as a log does.
    Growing,
    /// It was filled and synced before: a sync writes data only.
    Filled,
}

/// `write` and `fdatasync` in a loop.
pub(crate) fn fdatasync(dir: &Path, shape: Shape, lasting: Duration) -> Result<Sample> {
    let path = dir.join("fdatasync");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&path)
        .context("cannot make a file")?;
    if shape == Shape::Filled {
        fill(&mut file)?;
    }
    let mut kept = histogram()?;
    let began = Instant::now();
    let mut at = began;
    while at - began < lasting {
        file.write_all(&RECORD)?;
        file.sync_data()?;
        let now = Instant::now();
        kept.saturating_record((now - at).as_nanos() as u64);
        at = now;
    }
    let mut sample = Sample::new(kept.len(), began.elapsed());
    sample.latency = Some(Latency::from(&kept));
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(sample.note("record_bytes", RECORD.len()))
}

/// Far more than a run writes.
fn fill(file: &mut File) -> Result<()> {
    use std::io::Seek as _;
    let block = vec![0_u8; 1 << 20];
    for _ in 0..64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    file.rewind()?;
    Ok(())
}
