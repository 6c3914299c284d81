//! A stand-in for the API: dockets made up from their ids, a quota of its own, and moods to try the pipeline with.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Path as Segment, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The window of its quota.
const HOUR_S: i64 = 3600;

/// What a stand-in is told at its start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Temper {
    /// The token that callers must have.
    pub(crate) token: Option<String>,
    /// Calls it answers in an hour; any number without one.
    pub(crate) quota: Option<u64>,
    /// How long a call takes.
    pub(crate) delay: Duration,
    /// The share of calls it fails with 500, from 0 to 1.
    pub(crate) fail: f64,
    /// Ids divisible by it are not there.
    pub(crate) missing: Option<u64>,
    /// Ids divisible by it fail always.
    pub(crate) broken: Option<u64>,
    /// What `Retry-After` says of a 429; the rest of the hour unless told.
    pub(crate) retry_after: Option<u64>,
    /// The same seed fails the same calls.
    pub(crate) seed: u64,
}

#[derive(Debug)]
struct Api {
    temper: Temper,
    state: Mutex<Calls>,
}

#[derive(Debug)]
struct Calls {
    chance: fastrand::Rng,
    journal: Option<File>,
    /// Calls by their status; every call is in it once.
    statuses: BTreeMap<u16, u64>,
    /// The hour under way, and calls answered in it.
    hour: i64,
    in_hour: u64,
}

/// Serves until `stop`.
pub(crate) async fn serve(
    listener: TcpListener,
    temper: Temper,
    journal: Option<&Path>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let journal = journal
        .map(|file| {
            let open = OpenOptions::new().create(true).append(true).open(file);
            open.with_context(|| format!("cannot write {}", file.display()))
        })
        .transpose()?;
    let chance = fastrand::Rng::with_seed(temper.seed);
    let state = Calls { chance, journal, statuses: BTreeMap::new(), hour: 0, in_hour: 0 };
    let api = Arc::new(Api { temper, state: Mutex::new(state) });
    let router = Router::new()
        .route("/api/rest/v4/dockets/{id}/", get(docket))
        .route("/count", get(count))
        .with_state(api);
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await?;
    Ok(())
}

async fn docket(State(api): State<Arc<Api>>, headers: HeaderMap, Segment(id): Segment<String>) -> Response {
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let known =
        api.temper.token.as_ref().is_none_or(|token| given == Some(format!("Token {token}").as_bytes()));
    // Counted when it comes: whoever hangs up has called nevertheless.
    let (status, retry_after) = api.call(&id, known, Timestamp::now());
    if !api.temper.delay.is_zero() {
        tokio::time::sleep(api.temper.delay).await;
    }
    let told = |detail: &str| (status, axum_json(&json!({ "detail": detail }))).into_response();
    match status {
        StatusCode::OK => (status, axum_json(&made_up(&id))).into_response(),
        StatusCode::TOO_MANY_REQUESTS => {
            let after = [(header::RETRY_AFTER, retry_after.to_string())];
            (status, after, axum_json(&json!({ "detail": "Request was throttled." }))).into_response()
        }
        StatusCode::UNAUTHORIZED => told("Invalid token."),
        StatusCode::NOT_FOUND => told("No Docket matches the given query."),
        _ => told("The stand-in was told to fail."),
    }
}

/// How many calls there were, by their status.
async fn count(State(api): State<Arc<Api>>) -> Response {
    let state = api.state.lock();
    let by_status: BTreeMap<String, u64> =
        state.statuses.iter().map(|(status, calls)| (status.to_string(), *calls)).collect();
    let calls: u64 = state.statuses.values().sum();
    axum_json(&json!({ "calls": calls, "by_status": by_status })).into_response()
}

fn axum_json(value: &serde_json::Value) -> impl axum::response::IntoResponse + use<> {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string())
}

fn made_up(id: &str) -> serde_json::Value {
    let number = id.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let courts = ["scotus", "ca9", "nysd", "cand", "txed"];
    json!({
        "id": id,
        "court": courts[(number % courts.len() as u64) as usize],
        "docket_number": format!("1:{:02}-cv-{:05}", number % 30, number % 99_991),
        "case_name": format!("Party {} v. Party {}", number % 997, number % 991),
        "date_filed": format!("20{:02}-{:02}-{:02}", number % 26, number % 12 + 1, number % 28 + 1),
    })
}

impl Api {
    /// Counts a call: how it is answered, and when to come back if it is not.
    fn call(&self, id: &str, known: bool, now: Timestamp) -> (StatusCode, i64) {
        let mut state = self.state.lock();
        let hour = now.as_second().div_euclid(HOUR_S);
        if hour != state.hour {
            (state.hour, state.in_hour) = (hour, 0);
        }
        let of = |divisor: Option<u64>| {
            let number = id.parse::<u64>().ok();
            divisor.zip(number).is_some_and(|(divisor, number)| number.is_multiple_of(divisor))
        };
        let unlucky = state.chance.f64() < self.temper.fail;
        let status = if self.temper.quota.is_some_and(|quota| state.in_hour >= quota) {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            state.in_hour += 1;
            match () {
                () if !known => StatusCode::UNAUTHORIZED,
                () if of(self.temper.missing) => StatusCode::NOT_FOUND,
                () if of(self.temper.broken) || unlucky => StatusCode::INTERNAL_SERVER_ERROR,
                () => StatusCode::OK,
            }
        };
        *state.statuses.entry(status.as_u16()).or_default() += 1;
        if let Some(journal) = &mut state.journal {
            let line = json!({ "at_ms": now.as_millisecond(), "id": id, "status": status.as_u16() });
            // In one piece, for whoever reads along.
            if let Err(error) = journal.write_all(format!("{line}\n").as_bytes()) {
                tracing::error!(%error, "a call is not in the journal");
            }
        }
        let rest_s = HOUR_S - now.as_second().rem_euclid(HOUR_S);
        let retry_after =
            self.temper.retry_after.map_or(rest_s, |seconds| i64::try_from(seconds).unwrap_or(rest_s));
        (status, retry_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(temper: Temper) -> Api {
        let chance = fastrand::Rng::with_seed(temper.seed);
        let state = Calls { chance, journal: None, statuses: BTreeMap::new(), hour: 0, in_hour: 0 };
        Api { temper, state: Mutex::new(state) }
    }

    const CALM: Temper = Temper {
        token: None,
        quota: None,
        delay: Duration::ZERO,
        fail: 0.0,
        missing: None,
        broken: None,
        retry_after: None,
        seed: 1,
    };

    #[test]
    fn its_quota_is_the_hours_and_it_says_when_the_next_begins() {
        let api = api(Temper { quota: Some(2), ..CALM });
        let at = |second: i64| Timestamp::from_second(1_794_700_800 + second).unwrap_or_default();
        assert_eq!(at(0).as_second() % HOUR_S, 0);
        let status = |second| api.call("1", true, at(second));
        assert_eq!(status(0).0, StatusCode::OK);
        assert_eq!(status(1).0, StatusCode::OK);
        assert_eq!(status(3590), (StatusCode::TOO_MANY_REQUESTS, 10));
        assert_eq!(status(3600).0, StatusCode::OK);
    }

    #[test]
    fn it_is_told_which_dockets_fail() {
        let api = api(Temper { missing: Some(10), broken: Some(7), ..CALM });
        let status = |id: &str| api.call(id, true, Timestamp::UNIX_EPOCH).0.as_u16();
        assert_eq!([status("1"), status("10"), status("14"), status("abc")], [200, 404, 500, 200]);
        assert_eq!(made_up("12"), made_up("12"));
        assert_ne!(made_up("12"), made_up("13"));
    }
}
