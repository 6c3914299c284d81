//! Taking chunks.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::answer::{Accepted, Held, Refusal};
use super::ask::{Last, Offer, Reservation, Source, check_place};
use super::ops::Mark;
use super::{MAX_CHUNKS, Upload, keys, ops, tell};
use crate::scripts::{upload_arrive, upload_back, upload_hold};
use crate::{Code, Error, Result};

/// When to come back whose reservation was given up.
const BEGIN_ANEW: Duration = Duration::from_secs(1);

/// A reservation lasts so long from the moment its chunk is taken, until the chunk stands in its place: longer than the
/// steps in between may take, and no longer than a dead node's bytes should be missed.
const TAKING: Duration = Duration::from_secs(15);

impl Upload {
    /// The fewest bytes of a chunk that is not the last, of an upload that was announced with this size: as many as it
    /// takes for all chunks to be no more than there may be. Never more than the largest has: a schema may have been
    /// changed since the upload was created.
    pub fn chunk_min(&self, announced: Option<u64>) -> u64 {
        let least = announced.unwrap_or(0).div_ceil(u64::from(MAX_CHUNKS));
        self.spec.chunk_min.max(least).min(self.spec.chunk_max)
    }

    /// Why a chunk of this number and size could be none of an upload that was announced with this size, or of any
    /// upload; to be asked before its bytes are read.
    pub fn check(&self, number: u32, size: u64, last: Last, announced: Option<u64>) -> Option<Refusal> {
        let spec = &self.spec;
        if number >= MAX_CHUNKS {
            return Some(Refusal::TooMany { most: MAX_CHUNKS });
        }
        if size > spec.chunk_max {
            return Some(Refusal::TooLarge { most: spec.chunk_max });
        }
        if size == 0 && (number > 0 || last == Last::No) {
            return Some(Refusal::Empty);
        }
        let least = self.chunk_min(announced);
        if size < least && last == Last::No {
            let announced = announced.filter(|_| least > spec.chunk_min);
            return Some(Refusal::TooSmall { least, announced });
        }
        None
    }

    /// Takes a chunk whose bytes are there, once; the same bytes again get the same answer.
    ///
    /// An error after the chunk was taken (its upload is not in the index yet) is an error here, too: the chunk is
    /// offered again, and is known.
    pub async fn accept(&self, id: &str, offer: &Offer<'_>) -> Result<Accepted> {
        const OP: &str = ops::ACCEPT;
        let accepted = self.accepted(OP, id, offer).await?;
        match &accepted {
            Accepted::Taken { .. } => {
                self.counts.taken.fetch_add(1, Relaxed);
                self.counts.taken_bytes.fetch_add(offer.size, Relaxed);
            }
            Accepted::Known { .. } => drop(self.counts.known.fetch_add(1, Relaxed)),
            // Counted where it was found.
            Accepted::Busy { .. } => {}
            _ => drop(self.counts.refused.fetch_add(1, Relaxed)),
        }
        Ok(accepted)
    }

    async fn accepted(&self, op: &'static str, id: &str, offer: &Offer<'_>) -> Result<Accepted> {
        keys::check_id(op, "upload_id", id)?;
        if let Source::Elsewhere(place) = offer.source {
            check_place(op, place)?;
        }
        if offer.reservation.is_some_and(|name| !name.is_for(id, offer.number)) {
            let detail = format!("the reservation is not for chunk {} of upload {id}", offer.number);
            return Err(Error::new(op, Code::RequestInvalid, detail).field("reservation"));
        }
        if let Some(refusal) = self.check(offer.number, offer.size, offer.last, None) {
            return Ok(Accepted::Refused(refusal));
        }
        let fresh;
        let name = match offer.reservation {
            // A node that stood still for longer than its reservation must not bring the bytes in unasked, and they may
            // be gone: see `Upload::lapsed`.
            Some(name) => {
                if self.renew(&[name], TAKING).await? != [Held::Ours] {
                    self.counts.busy.fetch_add(1, Relaxed);
                    return Ok(Accepted::Busy { retry_after: BEGIN_ANEW });
                }
                name
            }
            // Counted before the chunk is taken: it may be durable and given back before its sender hears of it.
            None => {
                fresh = Reservation::fresh(id, offer.number);
                let names = [(fresh.as_str().to_owned(), offer.size)];
                upload_hold::Reply::read(
                    op,
                    self.bound.run(op, ops::hold(self, op, &names, Mark::Attempt, TAKING)?).await?,
                )?;
                &fresh
            }
        };
        let call = ops::accept(self, id, offer, name.attempt())?;
        let told = self.bound.run(op, call).await.and_then(|reply| tell::accepted(op, reply));
        let (accepted, attempt) = match told {
            Ok(told) => told,
            Err(error) => {
                // Keys that another program has spoiled took nothing, and nothing is on its way for them.
                if matches!(error.code, Code::KeyMalformed | Code::KeyWrongType) {
                    upload_back::Reply::read(
                        op,
                        self.bound.run(op, ops::back(self, op, &[name.as_str()])?).await?,
                    )?;
                }
                return Err(error);
            }
        };
        let waits = match &accepted {
            Accepted::Taken { .. } => true,
            // Whoever took it may have died before it was in the index.
            Accepted::Known { durable, .. } => !durable,
            _ => false,
        };
        if waits {
            let held = keys::flight_name(id, offer.number, &attempt);
            let spare = if held == name.as_str() { "" } else { name.as_str() };
            upload_arrive::Reply::read(
                op,
                self.bound.run(op, ops::arrive(self, id, spare, &held, offer.size)?).await?,
            )?;
        } else {
            upload_back::Reply::read(op, self.bound.run(op, ops::back(self, op, &[name.as_str()])?).await?)?;
        }
        Ok(accepted)
    }
}
