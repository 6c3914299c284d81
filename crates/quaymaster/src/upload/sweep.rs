//! What a sweep does: deadlines, indexes that a crash left behind their uploads, bytes nobody will ship.

use std::collections::BTreeMap;

use super::answer::{Audited, Dropped, Due, Forgotten, Held, Place, Status, Tended};
use super::ops::{Elsewhere, Mark};
use super::{Upload, keys, ops, tell};
use crate::scripts::{
    upload_back, upload_call, upload_delist, upload_drop, upload_due, upload_flight, upload_forget,
    upload_hold, upload_look, upload_mend, upload_page, upload_recount, upload_verify,
};
use crate::{Code, Error, Result, Retry};

/// Chunks looked at in one step.
const PAGE: usize = 500;

/// Names above which the account is not summed up anew.
const RECOUNT_MOST: usize = 10_000;

/// A chunk that waits.
struct Waiting {
    number: u32,
    held: bool,
    size: u64,
    place: Place,
    /// What its bytes are called in flight.
    name: String,
}

/// What `upload.look` told.
struct Looked {
    status: Status,
    aborted: bool,
    next: Option<std::time::Duration>,
    total: u64,
    /// How many there would be by the map.
    marked: u64,
    chunks: Vec<Waiting>,
}

impl Upload {
    /// Uploads past their deadline, and ended ones that were kept long enough; at most `count` after the first `skip`.
    /// What becomes of each is for the ledger to say: then [`Upload::expire`], [`Upload::clear`], [`Upload::forget`].
    pub async fn due(&self, count: usize, skip: usize) -> Result<Due> {
        const OP: &str = ops::SWEEP;
        check_count(OP, count)?;
        let reply = self.bound.run(OP, ops::due(self, count, skip)?).await?;
        let upload_due::Reply::Due { next_ms, ids } = upload_due::Reply::read(OP, reply)?;
        Ok(Due { ids: ids.iter().map(tell::text_of).collect(), next: tell::wait(next_ms) })
    }

    /// A page of all uploads in the index; fewer than `count` at the end. Uploads come and go between two pages.
    pub async fn page(&self, offset: u64, count: usize) -> Result<Vec<String>> {
        const OP: &str = ops::SWEEP;
        check_count(OP, count)?;
        let reply = self.bound.run(OP, ops::page(self, offset, count)?).await?;
        let upload_page::Reply::Page { uploads } = upload_page::Reply::read(OP, reply)?;
        Ok(uploads.iter().map(|row| tell::text_of(&row.id)).collect())
    }

    /// Looks after one upload: chunks that wait are in the index and counted as in flight, and those whose bytes the
    /// store has lost are asked for again.
    pub async fn tend(&self, id: &str) -> Result<Tended> {
        const OP: &str = ops::SWEEP;
        let mut offset = 0;
        let mut tended = Tended { status: None, aborted: false, waiting: 0, lost: Vec::new() };
        loop {
            let Some(mut looked) = self.look(id, offset, PAGE).await? else { return Ok(tended) };
            if offset == 0 && looked.marked != looked.total {
                upload_mend::Reply::read(OP, self.bound.run(OP, ops::mend(self, id)?).await?)?;
                match self.look(id, offset, PAGE).await? {
                    Some(again) => looked = again,
                    None => return Ok(tended),
                }
            }
            tended.status = Some(looked.status);
            tended.aborted = looked.aborted;
            tended.waiting = looked.total;
            let open = matches!(looked.status, Status::Pending | Status::Uploading);
            if looked.chunks.is_empty() || looked.aborted || !(open || looked.status == Status::Failed) {
                return Ok(tended);
            }
            let lost = self.verify(id, Elsewhere::Stays, &looked.chunks).await?;
            let here = looked.chunks.iter().filter(|chunk| !lost.contains(&chunk.number));
            // Bytes of an upload that has FAILED count for as long as a chunk's may wait, and not until its deadline: a
            // bad hour of the object store must not keep others out for a day.
            if open {
                self.count_again(here.map(|chunk| (chunk.name.clone(), chunk.size)).collect()).await?;
            }
            if let (true, Some(next)) = (open && offset == 0, looked.next) {
                upload_call::Reply::read(OP, self.bound.run(OP, ops::call(self, OP, id, next)?).await?)?;
            }
            // Those that were lost have left the schedule.
            offset += (looked.chunks.len() - lost.len()) as u64;
            tended.waiting -= (lost.len() as u64).min(tended.waiting);
            tended.lost.extend(lost);
            if looked.chunks.len() < PAGE {
                return Ok(tended);
            }
        }
    }

    /// Chunks that wait count as in flight. Only those that do not are put in anew: one that is shipped at this moment
    /// and was given back would count again until the next audit.
    async fn count_again(&self, chunks: Vec<(String, u64)>) -> Result<()> {
        const OP: &str = ops::SWEEP;
        let names: Vec<&str> = chunks.iter().map(|(name, _)| name.as_str()).collect();
        let held = self.renew_names(OP, &names, Mark::Chunk, self.spec.chunk_ttl).await?;
        let lost: Vec<(String, u64)> = chunks
            .into_iter()
            .zip(held)
            .filter(|(_, held)| *held == Held::Lost)
            .map(|(chunk, _)| chunk)
            .collect();
        if !lost.is_empty() {
            let call = ops::hold(self, OP, &lost, Mark::Chunk, self.spec.chunk_ttl)?;
            upload_hold::Reply::read(OP, self.bound.run(OP, call).await?)?;
        }
        Ok(())
    }

    /// Whether a chunk of this upload that waits has its bytes in this place, as [`super::Source::Elsewhere`] named it.
    pub async fn waits_at(&self, id: &str, place: &str) -> Result<bool> {
        let mut offset = 0;
        loop {
            let Some(looked) = self.look(id, offset, PAGE).await? else { return Ok(false) };
            let here = |chunk: &Waiting| matches!(&chunk.place, Place::Elsewhere(name) if name == place);
            if looked.chunks.iter().any(here) {
                return Ok(true);
            }
            if looked.chunks.len() < PAGE {
                return Ok(false);
            }
            // Those that are shipped meanwhile leave the schedule; what is looked at twice costs nothing.
            offset += PAGE as u64 / 2;
        }
    }

    async fn look(&self, id: &str, offset: u64, count: usize) -> Result<Option<Looked>> {
        const OP: &str = ops::SWEEP;
        let reply = self.bound.run(OP, ops::look(self, id, offset, count)?).await?;
        let upload_look::Reply::Look { status, aborted, next_ms, waiting, marked, chunks: told } =
            upload_look::Reply::read(OP, reply)?
        else {
            return Ok(None);
        };
        let (status, aborted, next) = (tell::status(OP, &status)?, aborted == 1, tell::wait(next_ms));
        let (total, marked) = (tell::counted(waiting), tell::counted(marked));
        let mut chunks = Vec::new();
        for row in told {
            let number = tell::text_of(&row.number).parse();
            if let (Ok(number), Some(facts)) = (number, tell::facts(&tell::text_of(&row.facts))) {
                let name = keys::flight_name(id, number, &facts.attempt);
                chunks.push(Waiting {
                    number,
                    held: row.held == 1,
                    size: facts.size,
                    place: facts.place,
                    name,
                });
            }
        }
        Ok(Some(Looked { status, aborted, next, total, marked, chunks }))
    }

    /// Chunks of an upload that has FAILED have waited long enough where they lie outside of this store: the client is
    /// asked for them when it resumes. Their bytes are the caller's to remove. In the store they end by themselves.
    pub async fn lapse(&self, id: &str) -> Result<Vec<Dropped>> {
        let mut lapsed = Vec::new();
        loop {
            let Some(looked) = self.look(id, 0, PAGE).await? else { return Ok(lapsed) };
            let lost = self.verify(id, Elsewhere::Lapses, &looked.chunks).await?;
            let gone = looked.chunks.into_iter().filter(|chunk| lost.contains(&chunk.number));
            lapsed.extend(gone.map(|chunk| Dropped { number: chunk.number, place: chunk.place }));
            // Those that are left are held by somebody, and let go of soon.
            if lost.is_empty() {
                return Ok(lapsed);
            }
        }
    }

    /// Which of these are lost; they are given back, too.
    async fn verify(&self, id: &str, elsewhere: Elsewhere, chunks: &[Waiting]) -> Result<Vec<u32>> {
        const OP: &str = ops::SWEEP;
        let looked_for = |chunk: &&Waiting| {
            let may_be_lost = chunk.place == Place::Store || elsewhere == Elsewhere::Lapses;
            !chunk.held && chunk.size > 0 && may_be_lost
        };
        let numbers: Vec<u32> = chunks.iter().filter(looked_for).map(|chunk| chunk.number).collect();
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let reply = self.bound.run(OP, ops::verify(self, id, elsewhere, &numbers)?).await?;
        let upload_verify::Reply::Verified { lost } = upload_verify::Reply::read(OP, reply)?;
        let lost: Vec<u32> = lost.into_iter().filter_map(|number| number.try_into().ok()).collect();
        let gone = chunks.iter().filter(|chunk| lost.contains(&chunk.number));
        let names: Vec<&str> = gone.map(|chunk| chunk.name.as_str()).collect();
        if !names.is_empty() {
            upload_back::Reply::read(OP, self.bound.run(OP, ops::back(self, OP, &names)?).await?)?;
        }
        Ok(lost)
    }

    /// Removes the bytes of an upload that has ended, a page at a time: until the answer is empty. What lies elsewhere
    /// is named, for the caller to remove.
    pub async fn clear(&self, id: &str) -> Result<Vec<Dropped>> {
        const OP: &str = ops::SWEEP;
        let Some(looked) = self.look(id, 0, PAGE).await? else { return Ok(Vec::new()) };
        let numbers: Vec<u32> = looked.chunks.iter().map(|chunk| chunk.number).collect();
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let reply = self.bound.run(OP, ops::drop_bytes(self, id, &numbers)?).await?;
        match upload_drop::Reply::read(OP, reply)? {
            upload_drop::Reply::Dropped { .. } => {}
            upload_drop::Reply::Open { .. } => return Ok(Vec::new()),
        }
        let names: Vec<&str> = looked.chunks.iter().map(|chunk| chunk.name.as_str()).collect();
        upload_back::Reply::read(OP, self.bound.run(OP, ops::back(self, OP, &names)?).await?)?;
        let dropped = |chunk: Waiting| Dropped { number: chunk.number, place: chunk.place };
        Ok(looked.chunks.into_iter().map(dropped).collect())
    }

    /// Removes every key of an upload that has ended and was cleared, and takes it out of the indexes.
    pub async fn forget(&self, id: &str) -> Result<Forgotten> {
        const OP: &str = ops::FORGET;
        let reply = self.bound.run(OP, ops::forget(self, id)?).await?;
        match upload_forget::Reply::read(OP, reply)? {
            upload_forget::Reply::Forgotten => {}
            upload_forget::Reply::Open { status } => return Ok(Forgotten::Open(tell::status(OP, &status)?)),
            upload_forget::Reply::Bytes { .. } => return Ok(Forgotten::Bytes),
        }
        upload_delist::Reply::read(OP, self.bound.run(OP, ops::delist(self, OP, id)?).await?)?;
        Ok(Forgotten::Forgotten)
    }

    /// Looks over a page of what is in flight: chunks that wait for nothing any more are given back, and from the
    /// beginning the sum is made anew, where that costs little.
    pub async fn audit(&self, offset: u64, count: usize) -> Result<Audited> {
        const OP: &str = ops::SWEEP;
        check_count(OP, count)?;
        let mut audited = Audited::default();
        if offset == 0 {
            let reply = self.bound.run(OP, ops::recount(self, RECOUNT_MOST)?).await?;
            match upload_recount::Reply::read(OP, reply)? {
                upload_recount::Reply::Counted { off, .. } => audited.off_bytes = tell::counted(off),
                upload_recount::Reply::Many { .. } => {}
            }
        }
        let reply = self.bound.run(OP, ops::in_flight(self, offset, count)?).await?;
        let upload_flight::Reply::Flight { chunks: told, .. } = upload_flight::Reply::read(OP, reply)?;
        audited.looked = told.len() as u64;
        // What is still on its way in ends by itself.
        let taken = told.iter().filter(|row| row.taken == 1);
        let names: Vec<String> = taken.map(|row| tell::text_of(&row.name)).collect();
        let mut by_upload: BTreeMap<&str, Vec<(u32, &str)>> = BTreeMap::new();
        for name in &names {
            if let Some((id, number)) = keys::flight_chunk(name) {
                by_upload.entry(id).or_default().push((number, name));
            }
        }
        for (id, chunks) in by_upload {
            let map = match self.status(id).await {
                Ok(state) => state.map(|state| state.map).unwrap_or_default(),
                // One that another program has spoiled must not keep the others.
                Err(error) if error.code.retry() == Retry::Useless => {
                    tracing::warn!(upload = self.name(), id, %error, "bytes in flight cannot be looked after");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let done = chunks.iter().filter(|(number, _)| map.get(*number as usize) != Some(&b'r'));
            let done: Vec<&str> = done.map(|(_, name)| *name).collect();
            if !done.is_empty() {
                audited.given_back += done.len() as u64;
                upload_back::Reply::read(OP, self.bound.run(OP, ops::back(self, OP, &done)?).await?)?;
            }
        }
        Ok(audited)
    }
}

pub(super) fn check_count(op: &'static str, count: usize) -> Result<()> {
    if count == 0 || count > super::ship::MAX_COUNT {
        let detail = format!("count: 1 to {}, got {count}", super::ship::MAX_COUNT);
        return Err(Error::new(op, Code::RequestInvalid, detail).field("count"));
    }
    Ok(())
}
