//! Rows on their way back into the store.
//!
//! A row says how many units it counted, how many of them the store knows (`carried`) and how many somebody is
//! about to tell it (`sending`). The number about to be told is fixed in the row before it is told, under an id
//! made of the row's `generation` and `batch`: whoever finds the row tells the same number under the same id, so a
//! node that ends half-way costs nothing and two nodes at once tell it once.

use quaymaster_schema::{Algorithm, LimitSpec};

use super::connection::{Arg, Cell, Database, Session, bounded};
use super::{Place, Position, Taken, Uncounted};
use crate::Result;
use crate::outage::pending::most;

const OP: &str = "database.carry";
/// Rows looked at in one go.
const PAGE: &str = "SELECT store_key, slot, limit_name, request, bucket_ms, units, tat_us, tat_part,
    carried, sending, batch, generation, past_ms FROM quaymaster_outage
    WHERE store = $4 AND (sending > 0 OR units > carried) AND past_ms > $1
    AND (store_key > $2 OR (store_key = $2 AND slot > $3)) ORDER BY store_key, slot LIMIT 256";
/// Fixes what is about to be told, unless somebody else was quicker.
const SEND: &str = "UPDATE quaymaster_outage SET carried = $5, sending = $6
    WHERE store_key = $1 AND slot = $2 AND generation = $3 AND batch = $4 AND sending = 0
    AND units = $7 AND carried = $8 AND store = $9";
const CARRIED: &str =
    "UPDATE quaymaster_outage SET carried = carried + sending, sending = 0, batch = batch + 1
    WHERE store_key = $1 AND slot = $2 AND generation = $3 AND batch = $4 AND sending > 0
    AND store = $5";
/// Rows that count nowhere any more are kept for a while: somebody may be about to tell them.
const GRACE_MS: i64 = 60_000;

impl Database {
    /// Rows that the store does not know, from `after` on, each with what to tell it; and where to go on.
    pub(in crate::outage) async fn uncarried<'l>(
        &self,
        after: Option<Position>,
        limit: impl Fn(&str) -> Option<&'l LimitSpec> + Send,
    ) -> Result<(Vec<Uncounted>, Option<Position>)> {
        let (key, slot) = after.unwrap_or((String::new(), i64::MIN));
        bounded(OP, async {
            let mut session = self.session().await?;
            let now_us = session.now_us().await?;
            let store = self.store();
            let args = [Arg::Int(now_us.div_euclid(1000)), Arg::Text(&key), Arg::Int(slot), Arg::Text(store)];
            let rows = session.fetch(PAGE, &args).await?;
            let mut found = Vec::new();
            for row in &rows {
                // A limit that no schema of this node has stays for a node that knows it.
                if let Some(spec) = limit(row[2].text()) {
                    found.extend(fix(&mut session, store, row, spec, now_us).await?);
                }
            }
            session.done();
            Ok((found, rows.last().map(|row| (row[0].text().to_owned(), row[1].int()))))
        })
        .await
    }

    /// The store knows what was about to be told.
    pub(in crate::outage) async fn carried(&self, row: &Uncounted) -> Result<()> {
        bounded(OP, async {
            let mut session = self.session().await?;
            let key = String::from_utf8_lossy(&row.place.key);
            let args = [
                Arg::Text(&key),
                Arg::Int(row.row_slot),
                Arg::Text(&row.generation),
                Arg::Int(row.batch),
                Arg::Text(self.store()),
            ];
            session.execute(CARRIED, &args).await?;
            session.done();
            Ok(())
        })
        .await
    }

    /// Removes what counts nowhere any more.
    pub(in crate::outage) async fn purge(&self) {
        if !self.purge_is_due() {
            return;
        }
        let purged = bounded(OP, async {
            let mut session = self.session().await?;
            session.begin_housekeeping().await?;
            let before_ms = session.now_us().await?.div_euclid(1000) - GRACE_MS;
            session
                .execute("DELETE FROM quaymaster_outage WHERE past_ms < $1", &[Arg::Int(before_ms)])
                .await?;
            let requests = "DELETE FROM quaymaster_outage_requests WHERE past_ms < $1";
            session.execute(requests, &[Arg::Int(before_ms)]).await?;
            session.commit().await
        });
        if let Err(error) = purged.await {
            self.forget_idle();
            tracing::debug!(%error, "old rows stay for now");
        }
    }
}

/// What of a row is to be told; nothing when somebody else changed it meanwhile, and so looks after it.
async fn fix(
    session: &mut Session<'_>,
    store: &str,
    row: &[Cell],
    spec: &LimitSpec,
    now_us: i64,
) -> Result<Option<Uncounted>> {
    let (units, carried, sending) = (row[5].int(), row[8].int(), row[9].int());
    let (key, generation, batch) = (row[0].text(), row[11].text(), row[10].int());
    let mut amount = sending;
    if sending == 0 {
        let wanted = u64::try_from(units - carried).unwrap_or(0);
        let (from, now) = if spec.algorithm == Algorithm::TokenBucket {
            // Tokens that have come back meanwhile are nobody's concern.
            let out = tokens_out(spec, row[6].int() - now_us, row[7].int()).min(wanted);
            (units - out as i64, out)
        } else {
            (carried, wanted.min(most(spec)))
        };
        amount = now as i64;
        let args = [
            Arg::Text(key),
            row[1].as_int(),
            Arg::Text(generation),
            Arg::Int(batch),
            Arg::Int(from),
            Arg::Int(amount),
            Arg::Int(units),
            Arg::Int(carried),
            Arg::Text(store),
        ];
        if session.execute(SEND, &args).await? == 0 {
            return Ok(None);
        }
    }
    if amount <= 0 {
        return Ok(None);
    }
    let slot = if spec.algorithm == Algorithm::TokenBucket { row[12].int() } else { row[1].int() };
    Ok(Some(Uncounted {
        place: Place {
            limit: row[2].text().to_owned(),
            key: key.as_bytes().to_vec(),
            request: row[3].text().as_bytes().to_vec(),
            bucket_ms: row[4].int(),
        },
        taken: Taken { slot, units: amount as u64 },
        id: format!("sql-{generation}-{batch}"),
        row_slot: row[1].int(),
        generation: generation.to_owned(),
        batch,
    }))
}

/// Tokens that are out, rounded up.
fn tokens_out(spec: &LimitSpec, ahead_us: i64, part: i64) -> u64 {
    let (Ok(ahead), Ok(part)) = (u128::try_from(ahead_us), u128::try_from(part)) else { return 0 };
    let out = (ahead * u128::from(spec.effective()) + part).div_ceil(spec.window.as_micros().max(1));
    u64::try_from(out).unwrap_or(u64::MAX)
}
