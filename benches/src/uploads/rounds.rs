//! Several contestants, taking turns: who goes first changes from round to round, and ratios are taken within a round.

use anyhow::{Result, ensure};

use crate::Settings;
use crate::contest::{Contest, Outcome};
use crate::sample::Sample;

/// So many times a file may be in the memory of the machine, in its cache or on its way.
const MEMORY: u64 = 3;

/// Memory that a host gives a virtual machine only when it is touched, and takes back when it was free for a while, costs
/// whoever needs it first several times what copying does: here nobody measured is the first.
fn touch(mib: u64) {
    // Half of what there is, at most.
    let status = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = status.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = free.and_then(|free| free.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    let mib = mib.min(kib / 1024 / 2);
    let pieces: Vec<Vec<u8>> = (0..mib).map(|_| vec![1; 1 << 20]).collect();
    drop(std::hint::black_box(pieces));
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    /// Chunks it sends at once.
    pub(super) senders: usize,
}

/// A ratio that is wanted: who, beside whom, and what is promised.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) ours: &'static str,
    pub(super) theirs: &'static str,
    pub(super) target: Option<f64>,
}

/// Runs them all with `go`, as often as there are pairs; `before` makes what a round needs.
pub(super) fn run<T>(
    settings: &Settings,
    op: &str,
    contestants: &[Contestant],
    wanted: &[Wanted],
    mut before: impl FnMut() -> Result<T>,
    mut go: impl FnMut(&Contestant, &T) -> Result<Sample>,
) -> Result<Vec<Outcome>> {
    ensure!(settings.pairs > 0, "no pairs, no ratio");
    let mut found: Vec<(Contestant, Vec<Sample>)> =
        contestants.iter().map(|one| (*one, Vec::new())).collect();
    for round in 0..settings.pairs {
        let needed = before()?;
        let mut order: Vec<usize> = (0..found.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let one = found[at].0;
            // What the one before left to be written is not the next one's to wait for.
            rustix::fs::sync();
            touch(settings.mib * MEMORY);
            let sample = go(&one, &needed)?.note("senders", one.senders);
            eprintln!(
                "uploads {op}: round {}: {}: {:.0} MiB a second; {}",
                round + 1,
                one.name,
                sample.ops_per_s(),
                sample.notes
            );
            found[at].1.push(sample);
        }
    }
    let side = |name: &str| found.iter().find(|(one, _)| one.name == name);
    let mut outcomes = Vec::new();
    for want in wanted {
        let (Some(ours), Some(theirs)) = (side(want.ours), side(want.theirs)) else { continue };
        let contest = Contest {
            family: "uploads",
            op: op.to_owned(),
            ours: ours.0.name.to_owned(),
            theirs: theirs.0.name.to_owned(),
            concurrency: ours.0.senders,
            target: want.target,
        };
        for (ours, theirs) in ours.1.iter().zip(&theirs.1) {
            settings.record(&contest, &contest.ours, ours)?;
            settings.record(&contest, &contest.theirs, theirs)?;
        }
        let pairs = ours.1.iter().cloned().zip(theirs.1.iter().cloned()).collect();
        outcomes.push(Outcome { contest, pairs });
    }
    Ok(outcomes)
}
