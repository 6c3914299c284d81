//! Parts that are durable, and how many there are to be.

use super::Ledger;
use super::connection::{Arg, Cell, Cells, Session};
use super::facts::{Part, RecordPart, Sending, Step, Total, Upload};
use super::rows::stored;
use crate::{Digest, Error, Result, Trouble};

const FIND: &str = "SELECT part_number, etag, size, digest FROM quaymaster_upload_parts
    WHERE upload_id = $1 AND part_number = $2";
const SENDING: &str = "SELECT part.part_number, part.etag, part.size, part.digest, ours.token
    FROM quaymaster_uploads AS ours LEFT JOIN quaymaster_upload_parts AS part
    ON part.upload_id = ours.upload_id AND part.part_number = $2 WHERE ours.upload_id = $1";
const ALL: &str = "SELECT part_number, etag, size, digest FROM quaymaster_upload_parts
    WHERE upload_id = $1 ORDER BY part_number";
const SUM: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT),
    CAST(COALESCE(MAX(part_number), 0) AS BIGINT) FROM quaymaster_upload_parts WHERE upload_id = $1";
const PUT: &str = "INSERT INTO quaymaster_upload_parts (upload_id, part_number, etag, size, digest)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (upload_id, part_number) DO UPDATE SET etag = excluded.etag";
const DELETE: &str = "DELETE FROM quaymaster_upload_parts WHERE upload_id = $1";

/// The parts of an upload, counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum {
    pub(super) count: u32,
    pub(super) bytes: u64,
    /// The highest number.
    pub(super) highest: u32,
}

impl Sum {
    /// Whether every part is there. The highest number tells a set with a gap and one too many from a whole one.
    pub(super) fn is_all(self, total: Option<u32>) -> bool {
        total == Some(self.count) && self.highest == self.count
    }
}

impl Session<'_> {
    pub(super) async fn sum_of_parts(&mut self, upload_id: &str) -> Result<Sum> {
        let row = self.one(SUM, &[Arg::Text(upload_id)]).await?.unwrap_or_default();
        let number = |at: usize| u32::try_from(row.get(at).map_or(0, Cell::int)).unwrap_or(u32::MAX);
        Ok(Sum { count: number(0), bytes: row.get(1).map_or(0, Cell::size), highest: number(2) })
    }

    pub(super) async fn has_part(&mut self, upload_id: &str, number: u32) -> Result<bool> {
        Ok(self.one(FIND, &[Arg::Text(upload_id), Arg::Int(i64::from(number))]).await?.is_some())
    }

    pub(super) async fn delete_parts(&mut self, upload_id: &str) -> Result<u64> {
        self.execute(DELETE, &[Arg::Text(upload_id)]).await
    }
}

impl Ledger {
    /// A part is in the object store: from now on it is durable, and its bytes may be removed elsewhere.
    ///
    /// `multipart_id` is the one it was sent to; a part sent to another than the upload's own is refused, since it
    /// is not in the object. The same bytes again take the newer ETag (an object store that encrypts gives a new one
    /// each time); other bytes under the same number are refused.
    pub async fn record_part(&self, upload_id: &str, multipart_id: &str, part: &Part) -> Result<RecordPart> {
        if !(1..=crate::objects::MAX_PARTS).contains(&part.number) {
            let detail = format!("part {}: numbers are 1 to {}", part.number, crate::objects::MAX_PARTS);
            return Err(Error::new("ledger.record_part", Trouble::Never, detail));
        }
        self.database.bounded("ledger.record_part", self.try_record_part(upload_id, multipart_id, part)).await
    }

    async fn try_record_part(&self, upload_id: &str, multipart_id: &str, part: &Part) -> Result<RecordPart> {
        let mut session = self.database.begin().await?;
        let Some(was) = session.lock(upload_id).await? else {
            session.roll_back().await?;
            return Ok(RecordPart::Unknown);
        };
        if was.multipart_id.as_deref() != Some(multipart_id) {
            session.roll_back().await?;
            return Ok(RecordPart::Closed(Box::new(was)));
        }
        let number = i64::from(part.number);
        let there = session.one(FIND, &[Arg::Text(upload_id), Arg::Int(number)]).await?;
        let there = there.as_ref().map(read).transpose()?;
        if let Some(there) = &there
            && there.digest != part.digest
        {
            session.roll_back().await?;
            return Ok(RecordPart::Differs(there.clone()));
        }
        if there.as_ref() != Some(part) {
            if was.step != Step::Open {
                session.roll_back().await?;
                return Ok(RecordPart::Closed(Box::new(was)));
            }
            if let Some(total) = was.total_chunks
                && part.number > total
            {
                session.roll_back().await?;
                let detail = format!("part {} of an upload of {total}", part.number);
                return Err(Error::new("ledger.record_part", Trouble::Never, detail));
            }
            let digest = part.digest.to_string();
            let args = [
                Arg::Text(upload_id),
                Arg::Int(number),
                Arg::Text(&part.etag),
                Arg::Int(stored(part.size)),
                Arg::Text(&digest),
            ];
            session.execute(PUT, &args).await?;
        }
        let sum = session.sum_of_parts(upload_id).await?;
        let all = sum.is_all(was.total_chunks);
        if all && was.step == Step::Open {
            ready(&mut session, &was, was.total_chunks).await?;
        }
        session.commit().await?;
        Ok(RecordPart::Durable { durable: sum.count, durable_bytes: sum.bytes, all })
    }

    /// How many chunks there are: known when the last one came.
    pub async fn learn_total(&self, upload_id: &str, total: u32) -> Result<Total> {
        self.database
            .bounded("ledger.learn_total", async {
                let mut session = self.database.begin().await?;
                let Some(was) = session.lock(upload_id).await? else {
                    session.roll_back().await?;
                    return Ok(Total::Unknown);
                };
                let sum = session.sum_of_parts(upload_id).await?;
                let answer = match was.total_chunks {
                    Some(known) if known != total => Total::Differs { total: known },
                    _ if sum.highest > total => Total::Differs { total: sum.highest },
                    Some(_) => Total::Known { all: sum.is_all(Some(total)) },
                    None if !matches!(was.step, Step::Created | Step::Open | Step::Failed) => {
                        Total::Closed(Box::new(was))
                    }
                    None => {
                        let all = was.step == Step::Open && sum.is_all(Some(total));
                        if all {
                            ready(&mut session, &was, Some(total)).await?;
                        } else {
                            let updated_ms = session.now_ms().await?;
                            let now = Upload { total_chunks: Some(total), updated_ms, ..was.clone() };
                            session.put(&was, &now).await?;
                        }
                        session.commit().await?;
                        return Ok(Total::Known { all });
                    }
                };
                session.roll_back().await?;
                Ok(answer)
            })
            .await
    }

    /// What is known of a part before it is sent; nothing of an unknown upload's.
    pub async fn sending(&self, upload_id: &str, number: u32) -> Result<Sending> {
        self.database
            .bounded("ledger.sending", async {
                let mut session = self.database.session().await?;
                let args = [Arg::Text(upload_id), Arg::Int(i64::from(number))];
                let row = session.one(SENDING, &args).await?;
                session.done();
                let Some(row) = row else { return Ok(Sending::default()) };
                let part = row[0].maybe_int().map(|_| read(&row)).transpose()?;
                Ok(Sending { adopted: row[4].text().is_empty(), part })
            })
            .await
    }

    /// One durable part.
    pub async fn part(&self, upload_id: &str, number: u32) -> Result<Option<Part>> {
        self.database
            .bounded("ledger.part", async {
                let mut session = self.database.session().await?;
                let row = session.one(FIND, &[Arg::Text(upload_id), Arg::Int(i64::from(number))]).await?;
                session.done();
                row.as_ref().map(read).transpose()
            })
            .await
    }

    /// The durable parts, by number.
    pub async fn parts(&self, upload_id: &str) -> Result<Vec<Part>> {
        self.database
            .bounded("ledger.parts", async {
                let mut session = self.database.session().await?;
                let rows = session.fetch(ALL, &[Arg::Text(upload_id)]).await?;
                session.done();
                rows.iter().map(read).collect()
            })
            .await
    }
}

/// Every part is recorded: due at once, so that a sweep completes it if nobody else does.
async fn ready(session: &mut Session<'_>, was: &Upload, total_chunks: Option<u32>) -> Result<()> {
    let now_ms = session.now_ms().await?;
    let due_ms = was.due_ms.min(now_ms);
    let now = Upload { total_chunks, due_ms, updated_ms: now_ms, ..was.clone() };
    session.put(was, &now).await
}

fn read(row: &Cells) -> Result<Part> {
    let digest = row[3].text();
    let digest: Digest = digest.parse().map_err(|error| {
        Error::new("ledger", Trouble::Never, format!("{digest:?}: {error}")).because(error)
    })?;
    Ok(Part {
        number: u32::try_from(row[0].int()).unwrap_or(0),
        etag: row[1].text(),
        size: row[2].size(),
        digest,
    })
}
