//! `RateLimit-Policy` and `RateLimit`, structured fields as draft-ietf-httpapi-ratelimit-headers-11 has them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use quaymaster_schema::{LimitSpec, Outage};

use crate::layer::OUTAGE;
use crate::limit::{Quota, Verdict};
use crate::problem::whole_seconds;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STANDING: HeaderName = HeaderName::from_static("ratelimit");

/// The largest integer of a structured field.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// `"name";q=100;w=900`: units a window, and its length in seconds. A window that is no whole number of seconds is
/// told longer than it is, so that whoever keeps to it keeps to the limit.
pub(super) fn policy(name: &str, spec: &LimitSpec) -> HeaderValue {
    let quota = spec.effective().min(INTEGER_MAX);
    let window = whole_seconds(spec.window).clamp(1, INTEGER_MAX);
    // Names are letters, digits, `_` and `-`: nothing to escape.
    header(format!("\"{name}\";q={quota};w={window}"))
}

/// `"name";r=50;t=30`: units left, and for how many seconds they must do.
fn standing(name: &str, quota: &Quota, within: Duration) -> HeaderValue {
    let (left, within) = (quota.remaining.min(INTEGER_MAX), whole_seconds(within).min(INTEGER_MAX));
    header(format!("\"{name}\";r={left};t={within}"))
}

fn header(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Appends what an answer says of one limit. Several limits, of this layer and of layers around it, each have a
/// field line of their own: together they are one list.
pub(super) fn append(headers: &mut HeaderMap, name: &str, policy: &HeaderValue, verdict: &Verdict) {
    headers.append(POLICY, policy.clone());
    let quota = verdict.quota();
    if let Some(outage) = quota.outage {
        headers.insert(OUTAGE, HeaderValue::from_static(outage.name()));
    }
    // Nothing is counted under `allow`, so there is nothing to tell.
    if quota.outage != Some(Outage::Allow) {
        let within = match verdict {
            Verdict::Allowed(_) => quota.reset_after,
            // Never past the moment that `Retry-After` names.
            Verdict::Limited { retry_after, .. } => retry_after.unwrap_or(quota.reset_after),
        };
        headers.append(STANDING, standing(name, quota, within));
    }
}

/// Appends the policy of a limit that is told nothing more about: it would have let the call pass.
pub(super) fn append_policy(headers: &mut HeaderMap, policy: &HeaderValue) {
    headers.append(POLICY, policy.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use quaymaster_schema::Algorithm;

    fn quota(remaining: u64, reset_ms: u64) -> Quota {
        let reset_after = Duration::from_millis(reset_ms);
        Quota { limit: remaining, used: 0, remaining, reset_after, outage: None }
    }

    #[test]
    fn numbers_are_what_a_structured_field_can_hold() {
        let spec = |limit: u64, window: Duration| LimitSpec {
            algorithm: Algorithm::FixedWindow,
            limit,
            window,
            safety_buffer: 0,
            ttl: window,
        };
        let text = |limit, window| policy("api", &spec(limit, window));
        assert_eq!(text(100, Duration::from_secs(900)), "\"api\";q=100;w=900");
        assert_eq!(text(0, Duration::from_millis(1)), "\"api\";q=0;w=1");
        assert_eq!(text(u64::MAX, Duration::from_millis(1001)), "\"api\";q=999999999999999;w=2");
        assert_eq!(standing("api", &quota(5, 1), Duration::from_millis(1)), "\"api\";r=5;t=1");
        assert_eq!(standing("api", &quota(5, 0), Duration::ZERO), "\"api\";r=5;t=0");
    }

    #[test]
    fn the_window_told_ends_when_retry_after_does() {
        let refused = |retry_after| Verdict::Limited { quota: quota(0, 60_000), retry_after };
        let told = |verdict: &Verdict| {
            let mut headers = HeaderMap::new();
            append(&mut headers, "api", &HeaderValue::from_static("\"api\";q=9;w=60"), verdict);
            headers.get(STANDING).cloned()
        };
        let soon = refused(Some(Duration::from_millis(9_001)));
        assert_eq!(told(&soon), Some(HeaderValue::from_static("\"api\";r=0;t=10")));
        assert_eq!(told(&refused(None)), Some(HeaderValue::from_static("\"api\";r=0;t=60")));
        let passed = Verdict::Allowed(quota(3, 60_000));
        assert_eq!(told(&passed), Some(HeaderValue::from_static("\"api\";r=3;t=60")));
        assert_eq!(told(&passed.under(Outage::Allow)), None, "nothing is counted");
    }
}
