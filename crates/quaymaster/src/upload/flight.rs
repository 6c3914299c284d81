//! Bytes in flight: an account that all nodes share, so that nobody is let in whom the store could not hold.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::answer::{Admitted, Held, InFlight};
use super::ask::Reservation;
use super::ops::Mark;
use super::{LEASE_MAX, Upload, ops, tell};
use crate::scripts::{upload_admit, upload_back, upload_flight, upload_lapsed, upload_renew};
use crate::{Code, Error, Result};

/// The shortest and the longest time a caller is told to stay away.
const STAY_AWAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// The most names of one call.
const MOST: usize = 1000;

impl Upload {
    /// Reserves `bytes` in flight under a name, or tells when to come back; under the same name again, so many in all.
    ///
    /// A reservation that is neither renewed nor given back is given up when `lease` is over: the bytes of a node that
    /// died come back by themselves.
    pub async fn admit(&self, name: &Reservation, bytes: u64, lease: Duration) -> Result<Admitted> {
        const OP: &str = ops::ADMIT;
        check_lease(OP, lease)?;
        let most = self.spec.max_bytes_in_flight;
        if bytes > most {
            let detail = format!("{bytes} bytes can never be in flight; the most is {most}");
            return Err(Error::new(OP, Code::RequestTooLarge, detail).field("bytes"));
        }
        let call = ops::admit(self, name.as_str(), bytes, lease)?;
        match upload_admit::Reply::read(OP, self.bound.run(OP, call).await?)? {
            upload_admit::Reply::Admitted { total } => {
                Ok(Admitted::Admitted { in_flight: tell::counted(total) })
            }
            // Its bytes are being removed: whoever stood still for so long begins anew.
            upload_admit::Reply::Lapsed { total } => {
                Ok(Admitted::Busy { retry_after: STAY_AWAY.0, in_flight: tell::counted(total) })
            }
            upload_admit::Reply::Busy { total, next_ms } => {
                self.counts.busy.fetch_add(1, Relaxed);
                let (shortest, longest) = STAY_AWAY;
                let retry_after = tell::wait(next_ms).unwrap_or(shortest).clamp(shortest, longest);
                Ok(Admitted::Busy { retry_after, in_flight: tell::counted(total) })
            }
        }
    }

    /// Lets reservations begin anew; in their order, which of them are still held.
    pub async fn renew(&self, names: &[&Reservation], lease: Duration) -> Result<Vec<Held>> {
        check_lease(ops::ADMIT, lease)?;
        let mut held = Vec::with_capacity(names.len());
        for page in names.chunks(MOST) {
            let names: Vec<&str> = page.iter().map(|name| name.as_str()).collect();
            held.extend(self.renew_names(ops::ADMIT, &names, Mark::Attempt, lease).await?);
        }
        Ok(held)
    }

    pub(super) async fn renew_names(
        &self,
        op: &'static str,
        names: &[&str],
        mark: Mark,
        lease: Duration,
    ) -> Result<Vec<Held>> {
        let reply = self.bound.run(op, ops::renew(self, op, names, mark, lease)?).await?;
        let upload_renew::Reply::Renewed { held } = upload_renew::Reply::read(op, reply)?;
        Ok(held.into_iter().map(|ours| if ours == 1 { Held::Ours } else { Held::Lost }).collect())
    }

    /// Gives a reservation back: nothing came of it.
    pub async fn give_back(&self, name: &Reservation) -> Result<()> {
        let call = ops::back(self, ops::ADMIT, &[name.as_str()])?;
        upload_back::Reply::read(ops::ADMIT, self.bound.run(ops::ADMIT, call).await?).map(drop)
    }

    /// Reservations that were given up because their time was over, before a chunk took them. Whoever made one may
    /// still be there: it holds it no longer, and cannot offer anything under it. What was staged under them is the
    /// caller's to remove, who says [`Upload::give_back`] then; without that they are told again after `lease`.
    pub async fn lapsed(&self, count: usize, lease: Duration) -> Result<Vec<Reservation>> {
        const OP: &str = ops::SWEEP;
        super::sweep::check_count(OP, count)?;
        check_lease(OP, lease)?;
        let reply = self.bound.run(OP, ops::lapsed(self, count, lease)?).await?;
        let upload_lapsed::Reply::Lapsed { names } = upload_lapsed::Reply::read(OP, reply)?;
        Ok(names.iter().filter_map(|name| Reservation::parse(&tell::text_of(name))).collect())
    }

    /// How much is in flight over all nodes.
    pub async fn in_flight(&self) -> Result<InFlight> {
        const OP: &str = ops::ADMIT;
        let reply = self.bound.run(OP, ops::in_flight(self, 0, 0)?).await?;
        let upload_flight::Reply::Flight { total, names, .. } = upload_flight::Reply::read(OP, reply)?;
        let (bytes, names) = (tell::counted(total), tell::counted(names));
        Ok(InFlight { bytes, names, max_bytes: self.spec.max_bytes_in_flight })
    }
}

pub(super) fn check_lease(op: &'static str, lease: Duration) -> Result<()> {
    if lease < Duration::from_millis(1) || lease > LEASE_MAX {
        let detail = format!("lease_ms: 1 to {}, got {}", LEASE_MAX.as_millis(), lease.as_millis());
        return Err(Error::new(op, Code::RequestInvalid, detail).field("lease_ms"));
    }
    Ok(())
}
