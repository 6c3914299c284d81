//! One call judged and counted in SQL, by the arithmetic of the scripts.

use quaymaster_schema::Algorithm;
use ring::digest;

use super::Counting;
use super::connection::{Arg, Cell, Database, Session, bounded};
use crate::limit::{Raw, Verb, Word, increment};
use crate::outage::pending::{past_at, slot, window_ms, window_us};
use crate::{Code, Error, Result};

/// How long a repeated `request_id` is recognised, like the store does.
const REQUEST_MS: i64 = 600_000;

/// How a key stands before a call.
struct Standing {
    fits: bool,
    raw: Raw,
    /// What the numbers are once the call is counted.
    after: Raw,
    /// When the window ends that a fixed window's call falls into.
    end_ms: i64,
    now_us: i64,
}

impl Database {
    /// Judges a call and counts it if it may go ahead; also whether something waits for the store now and nothing
    /// did before.
    pub(crate) async fn count(&self, ask: &Counting<'_>) -> Result<(Word, Raw, bool)> {
        bounded(ask.op, async {
            match self.try_count(ask).await {
                // The connection may have ended while nobody used it; a new one says whether the database is there.
                Err(error) if error.code == Code::StoreRefused => {
                    self.forget_idle();
                    self.try_count(ask).await
                }
                other => other,
            }
        })
        .await
    }

    async fn try_count(&self, ask: &Counting<'_>) -> Result<(Word, Raw, bool)> {
        let mut session = self.session().await?;
        session.begin(lock_of(&format!("{}:{}", self.store(), ask.request))).await?;
        let now_us = session.now_us().await?;
        let now_ms = now_us.div_euclid(1000);
        let request = ask.request_id.map(|id| format!("{}:{id}", ask.request));
        if let Some(request) = &request
            && let Some(kept) = kept(&mut session, request, now_ms).await?
        {
            session.roll_back().await?;
            return replay(ask, &kept).map(|(word, raw)| (word, raw, false));
        }
        let (key, bucket) = (ask.spell)(now_us)?;
        let bucket_ms = bucket.map_or(0, |bucket| bucket.end_ms);
        let units = if ask.verb == Verb::Refund { 1 } else { ask.units };
        let standing = stand(&mut session, ask, &key, units, bucket_ms, now_us).await?;
        let (word, raw) = match ask.verb {
            Verb::Take if standing.fits => {
                write(&mut session, ask, &key, bucket_ms, &standing).await?;
                (Word::Allowed, standing.after)
            }
            Verb::Take | Verb::Peek | Verb::Reset => {
                session.roll_back().await?;
                return Ok((if standing.fits { Word::Allowed } else { Word::Limited }, standing.raw, false));
            }
            Verb::Refund => {
                give_back(&mut session, ask, &key, now_us).await?;
                let left = stand(&mut session, ask, &key, 1, bucket_ms, now_us).await?;
                (Word::Changed, left.raw)
            }
        };
        if let Some(request) = &request {
            keep(&mut session, request, &answer_text(ask.verb, word, raw), now_ms).await?;
        }
        session.commit().await?;
        Ok((word, raw, ask.verb == Verb::Take && self.count_one()))
    }
}

/// Calls of one key are judged one after the other; another key under the same number only waits a moment more.
fn lock_of(text: &str) -> i64 {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(8).fold(0i64, |number, byte| (number << 8) | i64::from(*byte))
}

async fn kept(session: &mut Session<'_>, request: &str, now_ms: i64) -> Result<Option<String>> {
    let sql =
        "SELECT answer FROM quaymaster_outage_requests WHERE store = $3 AND request = $1 AND past_ms > $2";
    let args = [Arg::Text(request), Arg::Int(now_ms), Arg::Text(session.store())];
    let rows = session.fetch(sql, &args).await?;
    Ok(rows.first().and_then(|row| row.first()).map(|cell| cell.text().to_owned()))
}

async fn keep(session: &mut Session<'_>, request: &str, answer: &str, now_ms: i64) -> Result<()> {
    let sql = "INSERT INTO quaymaster_outage_requests (request, answer, past_ms, store)
        VALUES ($1, $2, $3, $4) ON CONFLICT (store, request) DO UPDATE SET answer = excluded.answer, past_ms = excluded.past_ms";
    let args =
        [Arg::Text(request), Arg::Text(answer), Arg::Int(now_ms + REQUEST_MS), Arg::Text(session.store())];
    session.execute(sql, &args).await.map(drop)
}

fn answer_text(verb: Verb, word: Word, raw: Raw) -> String {
    let word = match word {
        Word::Allowed => "allowed",
        Word::Limited => "limited",
        Word::Changed => "changed",
    };
    format!("{} {word} {} {} {}", verb.op(), raw.x, raw.y, raw.z)
}

fn replay(ask: &Counting<'_>, kept: &str) -> Result<(Word, Raw)> {
    let mut words = kept.split(' ');
    if words.next() != Some(ask.verb.op()) {
        let detail = "request_id was already used for another verb on this limit";
        return Err(Error::new(ask.op, Code::RequestReused, detail).field("request_id"));
    }
    let word = match words.next() {
        Some("allowed") => Word::Allowed,
        Some("limited") => Word::Limited,
        _ => Word::Changed,
    };
    let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    Ok((word, Raw { x: number(), y: number(), z: number() }))
}

fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

async fn stand(
    session: &mut Session<'_>,
    ask: &Counting<'_>,
    key: &str,
    units: u64,
    bucket_ms: i64,
    now_us: i64,
) -> Result<Standing> {
    let spec = ask.spec;
    let (limit, window, now_ms) = (spec.effective(), window_ms(spec), now_us.div_euclid(1000));
    let standing = |fits, raw, after, end_ms| Standing { fits, raw, after, end_ms, now_us };
    match spec.algorithm {
        Algorithm::FixedWindow => {
            let sql = "SELECT slot, units FROM quaymaster_outage WHERE store_key = $1 AND slot > $2
                AND store = $3 ORDER BY slot LIMIT 1";
            let args = [Arg::Text(key), Arg::Int(now_ms), Arg::Text(session.store())];
            let rows = session.fetch(sql, &args).await?;
            let live = rows.first().map(|row| (row[0].int(), natural(row[1].int())));
            let used = live.map_or(0, |(_, units)| units);
            // A window without a bucket begins with its first call.
            let end_ms = if bucket_ms > 0 { bucket_ms } else { live.map_or(now_ms + window, |(end, _)| end) };
            let begun = bucket_ms > 0 || live.is_some();
            let reset = natural(end_ms - now_ms);
            let raw = Raw { x: used, y: if begun { reset } else { 0 }, z: 0 };
            let after = Raw { x: used + units, y: reset, z: 0 };
            Ok(standing(used.saturating_add(units) <= limit, raw, after, end_ms))
        }
        Algorithm::SlidingLog => {
            let sql = "SELECT CAST(COALESCE(SUM(units), 0) AS BIGINT), MAX(slot) FROM quaymaster_outage
                WHERE store_key = $1 AND slot > $2 AND store = $3";
            let live = [Arg::Text(key), Arg::Int(now_ms - window), Arg::Text(session.store())];
            let rows = session.fetch(sql, &live).await?;
            let row = rows.first().map_or(&[][..], |row| row);
            let used = row.first().map_or(0, |cell| natural(cell.int()));
            let newest = row.get(1).map_or(0, Cell::int);
            let fits = used.saturating_add(units) <= limit;
            let mut raw = Raw { x: used, y: natural(newest + window - now_ms), z: 0 };
            if !fits && units <= limit {
                let leaving = i64::try_from(used + units - limit).unwrap_or(i64::MAX);
                let sql = "SELECT slot FROM (SELECT slot, SUM(units) OVER (ORDER BY slot) AS gone
                    FROM quaymaster_outage WHERE store_key = $1 AND slot > $2 AND store = $3) AS left_by
                    WHERE gone >= $4 ORDER BY slot LIMIT 1";
                let rows = session.fetch(sql, &[live[0], live[1], live[2], Arg::Int(leaving)]).await?;
                let oldest = rows.first().and_then(|row| row.first()).map_or(now_ms, Cell::int);
                raw.z = natural(oldest + window - now_ms).max(1);
            }
            let after = Raw { x: used + units, y: natural(window), z: 0 };
            Ok(standing(fits, raw, after, 0))
        }
        Algorithm::SlidingWindow => {
            let start = slot(spec, now_ms, 0);
            let sql = "SELECT slot, units FROM quaymaster_outage
                WHERE store_key = $1 AND slot >= $2 AND store = $3";
            let args = [Arg::Text(key), Arg::Int(start - window), Arg::Text(session.store())];
            let rows = session.fetch(sql, &args).await?;
            let sum = |wanted: &dyn Fn(i64) -> bool| -> u64 {
                rows.iter().filter(|row| wanted(row[0].int())).map(|row| natural(row[1].int())).sum()
            };
            let (previous, current) = (sum(&|slot| slot < start), sum(&|slot| slot >= start));
            let elapsed = natural(now_ms - start);
            let covered = u128::from(natural(window) - elapsed);
            let share = (u128::from(previous) * covered).div_ceil(u128::from(natural(window).max(1)));
            let used = current.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
            let raw = Raw { x: previous, y: current, z: elapsed };
            let after = Raw { y: current + units, ..raw };
            Ok(standing(used.saturating_add(units) <= limit, raw, after, 0))
        }
        Algorithm::TokenBucket => {
            let (ahead_us, part) = backlog(session, key, now_us).await?;
            let (inc_us, inc_part) = increment(spec, units);
            let (mut next_us, mut next_part) = (ahead_us + inc_us, part + inc_part);
            if next_part >= limit.max(1) {
                (next_us, next_part) = (next_us + 1, next_part - limit.max(1));
            }
            let window_us = natural(window_us(spec));
            let fits = limit > 0 && (next_us < window_us || (next_us == window_us && next_part == 0));
            let raw = Raw { x: ahead_us, y: part, z: 0 };
            Ok(standing(fits, raw, Raw { x: next_us, y: next_part, z: 0 }, 0))
        }
    }
}

/// How far a token bucket is behind: microseconds and parts of 1/limit.
async fn backlog(session: &mut Session<'_>, key: &str, now_us: i64) -> Result<(u64, u64)> {
    let sql = "SELECT tat_us, tat_part FROM quaymaster_outage
        WHERE store_key = $1 AND slot = 0 AND store = $2";
    let args = [Arg::Text(key), Arg::Text(session.store())];
    let rows = session.fetch(sql, &args).await?;
    let Some(row) = rows.first() else { return Ok((0, 0)) };
    let ahead_us = row[0].int() - now_us;
    Ok(if ahead_us < 0 { (0, 0) } else { (natural(ahead_us), natural(row[1].int())) })
}

async fn write(
    session: &mut Session<'_>,
    ask: &Counting<'_>,
    key: &str,
    bucket_ms: i64,
    standing: &Standing,
) -> Result<()> {
    let sql = "INSERT INTO quaymaster_outage
        (store_key, slot, limit_name, request, bucket_ms, units, tat_us, tat_part,
         carried, sending, batch, generation, past_ms, store)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, $9, $10, $11)
        ON CONFLICT (store, store_key, slot) DO UPDATE SET units = quaymaster_outage.units + excluded.units,
        tat_us = excluded.tat_us, tat_part = excluded.tat_part, past_ms = excluded.past_ms";
    let now_us = standing.now_us;
    let slot = slot(ask.spec, now_us.div_euclid(1000), standing.end_ms);
    let (mut tat_us, mut tat_part, mut past_ms) = (0, 0, past_at(ask.spec, slot));
    if ask.spec.algorithm == Algorithm::TokenBucket {
        tat_us = now_us.saturating_add(standing.after.x as i64);
        tat_part = standing.after.y as i64;
        past_ms = tat_us.div_euclid(1000) + 1;
    }
    let generation = format!("{:016x}", fastrand::u64(..));
    let args = [
        Arg::Text(key),
        Arg::Int(slot),
        Arg::Text(ask.limit),
        Arg::Text(ask.request),
        Arg::Int(bucket_ms),
        Arg::Int(i64::try_from(ask.units).unwrap_or(i64::MAX)),
        Arg::Int(tat_us),
        Arg::Int(tat_part),
        Arg::Text(&generation),
        Arg::Int(past_ms),
        Arg::Text(session.store()),
    ];
    session.execute(sql, &args).await.map(drop)
}

/// Takes units off, the newest first; what is in the store already, or on its way there, stays.
async fn give_back(session: &mut Session<'_>, ask: &Counting<'_>, key: &str, now_us: i64) -> Result<()> {
    const ROWS: &str = "SELECT slot, units, carried + sending FROM quaymaster_outage
        WHERE store_key = $1 AND past_ms > $2 AND store = $3 ORDER BY slot DESC";
    const LESS: &str = "UPDATE quaymaster_outage SET units = units - $3, tat_us = $4, tat_part = $5
        WHERE store_key = $1 AND slot = $2 AND units - $3 >= carried + sending AND store = $6";
    let mut left = ask.units;
    let (mut tat_us, mut tat_part) = (0, 0);
    if ask.spec.algorithm == Algorithm::TokenBucket {
        let (ahead_us, part) = backlog(session, key, now_us).await?;
        let (inc_us, inc_part) = increment(ask.spec, ask.units);
        let (mut less_us, mut less_part) = (ahead_us as i64 - inc_us as i64, part as i64 - inc_part as i64);
        if less_part < 0 {
            (less_us, less_part) = (less_us - 1, less_part + ask.spec.effective() as i64);
        }
        (tat_us, tat_part) = if less_us < 0 { (now_us, 0) } else { (now_us + less_us, less_part) };
    }
    let store = session.store();
    let args = [Arg::Text(key), Arg::Int(now_us.div_euclid(1000)), Arg::Text(store)];
    for row in session.fetch(ROWS, &args).await? {
        let less = left.min(natural(row[1].int() - row[2].int()));
        if less > 0 {
            let args = [
                Arg::Text(key),
                row[0].as_int(),
                Arg::Int(less as i64),
                Arg::Int(tat_us),
                Arg::Int(tat_part),
                Arg::Text(store),
            ];
            session.execute(LESS, &args).await?;
            left -= less;
        }
    }
    Ok(())
}
