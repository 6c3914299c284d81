//! Runs that give no sign of life.

use std::sync::atomic::Ordering::Relaxed;

use super::answer::{self, Swept};
use super::{Run, ops};
use crate::scripts::{run_due, run_settle, run_sweep};
use crate::wrote::in_steps;
use crate::{Result, Retry};

/// Runs looked at in one page of a sweep, and pages in one sweep.
const PAGE: usize = 100;
const PAGES: usize = 10;

impl Run {
    /// Writes `stale` into the hash of every run that has given no sign of life for so long, where other programs see
    /// it; the next sign of life puts back what it was. Forgets runs whose state has expired. A thousand at most in one
    /// call; any number of processes may sweep.
    pub async fn sweep(&self) -> Result<Swept> {
        let swept = in_steps(self.sweep_pages()).await;
        self.noted(swept)
    }

    async fn sweep_pages(&self) -> Result<Swept> {
        const OP: &str = ops::SWEEP;
        let (mut swept, mut skip) = (Swept::default(), 0);
        for _ in 0..PAGES {
            let told = self.bound.run(OP, ops::due(self, PAGE, skip)?).await?;
            let run_due::Reply::Due { forgotten, kept, known, at_work, runs } =
                run_due::Reply::read(OP, told)?;
            // Silent for as long as the schema keeps a run, and kept for longer by their start.
            skip += kept;
            let forgotten = answer::counted(forgotten);
            swept.forgotten += forgotten;
            swept.known = answer::counted(known);
            swept.at_work = answer::counted(at_work);
            for run in &runs {
                let (id, active_ms) = (&*answer::text(&run.id), run.active_ms);
                match self.sweep_one(id, active_ms, &mut swept).await {
                    // One that another program has spoiled must not keep the others: its next sign of life brings it
                    // back to where sweeps look, if there is one.
                    Err(error) if error.code.retry() == Retry::Useless => {
                        tracing::warn!(run = self.name(), id, %error, "a run cannot be looked at");
                        self.counts.errors.fetch_add(1, Relaxed);
                        self.settle(OP, id, active_ms, "over", 0).await?;
                    }
                    other => other?,
                }
            }
            if runs.len() < PAGE && forgotten + answer::counted(kept) < PAGE as u64 {
                break;
            }
        }
        self.counts.known.store(swept.known, Relaxed);
        self.counts.at_work.store(swept.at_work.saturating_sub(swept.stale), Relaxed);
        self.counts.stale.fetch_add(swept.stale, Relaxed);
        Ok(swept)
    }

    async fn sweep_one(&self, id: &str, seen_ms: i64, swept: &mut Swept) -> Result<()> {
        const OP: &str = ops::SWEEP;
        let told = self.bound.run(OP, ops::sweep(self, id)?).await?;
        let (word, active_ms) = match run_sweep::Reply::read(OP, told)? {
            run_sweep::Reply::Stale { active_ms } => {
                tracing::info!(run = self.name(), id, "a run gives no sign of life");
                swept.stale += 1;
                ("stale", active_ms)
            }
            run_sweep::Reply::Fresh { active_ms } => ("fresh", active_ms),
            run_sweep::Reply::Over { active_ms } => ("over", active_ms),
            run_sweep::Reply::Gone { active_ms } => {
                swept.forgotten += 1;
                ("gone", active_ms)
            }
            run_sweep::Reply::Malformed { key } => return Err(answer::malformed(OP, &key)),
        };
        if self.is_whole() {
            return Ok(());
        }
        self.settle(OP, id, seen_ms, word, active_ms).await
    }

    /// Tells the indexes what became of a run, unless it was active since they were read.
    pub(super) async fn settle(
        &self,
        op: &'static str,
        id: &str,
        seen_ms: i64,
        word: &str,
        active_ms: i64,
    ) -> Result<()> {
        let told = self.bound.run(op, ops::settle(op, self, id, seen_ms, word, active_ms)?).await?;
        run_settle::Reply::read(op, told).map(drop)
    }
}
