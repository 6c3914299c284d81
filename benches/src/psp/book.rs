//! Where latencies are written down while a run goes on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Error, Result};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::mix::{Class, Operation};
use crate::sample::{Latency, histogram};

/// One histogram an operation, and the first thing that went wrong.
#[derive(Debug)]
pub(crate) struct Book {
    by: Vec<Mutex<Histogram<u64>>>,
    failed: Mutex<Option<Error>>,
    /// Steps begun and not ended.
    pub(super) open: AtomicU64,
}

impl Book {
    pub(crate) fn new() -> Result<Self> {
        let by = Operation::ALL.iter().map(|_| histogram().map(Mutex::new)).collect::<Result<_>>()?;
        Ok(Self { by, failed: Mutex::new(None), open: AtomicU64::new(0) })
    }

    /// Keeps the first failure: it is the cause, the others its consequences.
    pub(super) fn fail(&self, error: Error) {
        self.failed.lock().get_or_insert(error);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.lock().is_some()
    }

    pub(super) fn verdict(&self) -> Result<()> {
        self.failed.lock().take().map_or(Ok(()), Err)
    }

    pub(super) fn close_step(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    pub(crate) fn count(&self, operation: Operation) -> u64 {
        self.by[operation as usize].lock().len()
    }

    pub(crate) fn latency(&self, operation: Operation) -> Latency {
        Latency::from(&*self.by[operation as usize].lock())
    }

    /// All operations of one class together.
    pub(crate) fn class(&self, class: Class) -> Result<Latency> {
        let mut all = histogram()?;
        for operation in Operation::ALL.into_iter().filter(|operation| operation.class() == class) {
            all.add(&*self.by[operation as usize].lock())?;
        }
        Ok(Latency::from(&all))
    }
}

/// The clock of one step. The first operation counts from the moment the step was due, each further one from
/// the answer before it: that is when its caller meant to make it.
#[derive(Debug)]
pub(crate) struct Lap<'a> {
    book: &'a Book,
    since: Instant,
}

impl<'a> Lap<'a> {
    pub(crate) fn new(book: &'a Book, due: Instant) -> Self {
        Self { book, since: due }
    }

    /// This operation is done.
    pub(crate) fn done(&mut self, operation: Operation) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.since);
        self.book.by[operation as usize].lock().saturating_record(took.as_nanos() as u64);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Context as _;

    use super::*;

    #[test]
    fn waiting_for_ones_turn_counts_once_and_in_the_first_operation() -> Result<()> {
        let book = Book::new()?;
        let due = Instant::now().checked_sub(Duration::from_secs(1)).context("the clock began just now")?;
        let mut lap = Lap::new(&book, due);
        lap.done(Operation::Enter);
        lap.done(Operation::Leave);
        assert!(book.latency(Operation::Enter).p50_ms >= 999.0);
        assert!(book.latency(Operation::Leave).p50_ms < book.latency(Operation::Enter).p50_ms);
        assert!(book.class(Class::Compound)?.p99_ms >= 999.0);
        assert_eq!(book.count(Operation::Get), 0);
        Ok(())
    }

    #[test]
    fn the_first_failure_is_the_one_told() -> Result<()> {
        let book = Book::new()?;
        book.fail(anyhow::anyhow!("cause"));
        book.fail(anyhow::anyhow!("consequence"));
        assert_eq!(book.verdict().map_err(|error| error.to_string()), Err("cause".into()));
        Ok(())
    }
}
