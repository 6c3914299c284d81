//! Which versions of which files were handed over: one line each in a file beside the store.
//!
//! A line is written after the queue has the job. What dies in between is handed over again, and the queue
//! recognises it: by its content for five minutes, by the push's own id for a day. So no line needs a sync of its
//! own, and losing the file costs one more look at every image, not an image.
//!
//! Where the store has lost its queue, the lines are forgotten on demand. A line `again` with the moment stands in
//! their place: the push's own ids are others from then on, also where the store still knows the old ones.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};

use super::stamp::Mark;

/// Lines of files that are gone are kept until there are this many more of them than of others.
const SLACK: usize = 1024;

/// What the line begins with that says when lines were forgotten on demand.
const AGAIN: &str = "again ";

/// The lines, and the file they are in.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    marks: HashSet<Mark>,
    /// When lines were last forgotten on demand, in seconds since 1970.
    again: Option<u64>,
    /// Held as long as we live: two watchers with one ledger would each lose the other's lines.
    _lock: File,
}

impl Ledger {
    /// Opens or begins the ledger in `folder`.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join("watched");
        let lock = append(&folder.join("watched.lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            anyhow::bail!("another watcher works with {}; give this one its own --state", folder.display());
        }
        let file = append(&path)?;
        let (mut marks, mut again) = (HashSet::new(), None);
        let reading = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in BufReader::new(reading).split(b'\n') {
            // Half a line is what a power cut leaves: that version is looked at again.
            let line = line.with_context(|| format!("cannot read {}", path.display()))?;
            marks.extend(parse(&line));
            again = parse_again(&line).or(again);
        }
        let mut ledger = Self { path, file, marks, again, _lock: lock };
        // Whatever was half written ends here.
        ledger.write(b"\n")?;
        Ok(ledger)
    }

    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }

    pub(crate) fn has(&self, mark: Mark) -> bool {
        self.marks.contains(&mark)
    }

    pub(crate) fn add(&mut self, mark: Mark) -> anyhow::Result<()> {
        if self.marks.insert(mark) {
            self.write(format!("{mark}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Forgets all but `present`, the marks that a whole walk through the folder came by, once the rest has grown.
    pub(crate) fn tidy(&mut self, present: &HashSet<Mark>) -> anyhow::Result<bool> {
        if self.marks.len() <= present.len() * 2 + SLACK {
            return Ok(false);
        }
        let kept = self.marks.intersection(present).copied().collect();
        self.replace(kept)?;
        Ok(true)
    }

    /// What tells the pushes of this ledger from those before lines were forgotten on demand.
    pub(crate) fn again(&self) -> Option<u64> {
        self.again
    }

    /// Forgets the marks that `which` names, and notes when; answers how many. A watcher that is killed right after it
    /// goes on without being told again.
    pub(crate) fn forget(&mut self, now: u64, which: impl Fn(Mark) -> bool) -> anyhow::Result<usize> {
        let kept: HashSet<Mark> = self.marks.iter().copied().filter(|mark| !which(*mark)).collect();
        let forgotten = self.marks.len() - kept.len();
        self.again = Some(now.max(self.again.map_or(0, |before| before + 1)));
        self.replace(kept)?;
        Ok(forgotten)
    }

    /// Writes the file anew, whole or not at all.
    fn replace(&mut self, kept: HashSet<Mark>) -> anyhow::Result<()> {
        let new = self.path.with_extension("new");
        let wrong = || format!("cannot write {}", new.display());
        let mut out = BufWriter::new(File::create(&new).with_context(wrong)?);
        if let Some(again) = self.again {
            writeln!(out, "{AGAIN}{again}").with_context(wrong)?;
        }
        for mark in &kept {
            writeln!(out, "{mark}").with_context(wrong)?;
        }
        out.into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .with_context(wrong)?
            .sync_all()
            .with_context(wrong)?;
        std::fs::rename(&new, &self.path).with_context(wrong)?;
        self.file = append(&self.path)?;
        self.marks = kept;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file.write_all(bytes).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn append(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.with_context(|| format!("cannot open {}", path.display()))
}

fn parse(line: &[u8]) -> Option<Mark> {
    let text = std::str::from_utf8(line).ok().filter(|text| text.len() == 32)?;
    u128::from_str_radix(text, 16).ok().map(Mark)
}

fn parse_again(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line).ok()?.strip_prefix(AGAIN)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn marks(range: std::ops::Range<u128>) -> HashSet<Mark> {
        range.map(Mark).collect()
    }

    #[test]
    fn what_was_added_is_there_after_a_restart_and_half_a_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path()).unwrap();
        ledger.add(Mark(1)).unwrap();
        ledger.add(Mark(u128::MAX)).unwrap();
        ledger.add(Mark(1)).unwrap();
        ledger.write(b"0000000000000000").unwrap();
        drop(ledger);
        let mut ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!((ledger.len(), ledger.has(Mark(1)), ledger.has(Mark(u128::MAX))), (2, true, true));
        ledger.add(Mark(2)).unwrap();
        drop(ledger);
        assert!(Ledger::open(folder.path()).unwrap().has(Mark(2)), "a line after half a one is a line");
    }

    #[test]
    fn two_watchers_do_not_share_a_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let first = Ledger::open(folder.path()).unwrap();
        assert!(Ledger::open(folder.path()).unwrap_err().to_string().contains("another watcher"));
        drop(first);
        assert!(Ledger::open(folder.path()).is_ok());
    }

    #[test]
    fn files_that_are_gone_are_forgotten_and_the_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path()).unwrap();
        for mark in 0..2_000 {
            ledger.add(Mark(mark)).unwrap();
        }
        assert!(!ledger.tidy(&marks(0..600)).unwrap(), "too few are gone to be worth it");
        assert!(ledger.tidy(&marks(0..300)).unwrap());
        ledger.add(Mark(5_000)).unwrap();
        drop(ledger);
        let ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!((ledger.len(), ledger.has(Mark(299)), ledger.has(Mark(300))), (301, true, false));
        assert!(ledger.has(Mark(5_000)));
    }

    #[test]
    fn what_is_forgotten_on_demand_stays_forgotten_and_makes_other_ids() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path()).unwrap();
        for mark in 0..2_000 {
            ledger.add(Mark(mark)).unwrap();
        }
        assert_eq!(ledger.again(), None);
        assert_eq!(ledger.forget(70, |mark| mark.0 < 5).unwrap(), 5);
        drop(ledger);
        let mut ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!((ledger.len(), ledger.has(Mark(4)), ledger.again()), (1_995, false, Some(70)));
        assert!(ledger.tidy(&marks(0..100)).unwrap());
        assert_eq!(ledger.forget(70, |_| true).unwrap(), 95);
        ledger.add(Mark(7)).unwrap();
        drop(ledger);
        let ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!(
            (ledger.len(), ledger.has(Mark(7)), ledger.again()),
            (1, true, Some(71)),
            "in one second, too"
        );
    }
}
