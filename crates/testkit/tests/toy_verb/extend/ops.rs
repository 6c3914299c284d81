
pub(super) const EXTEND: &str = "dedupe.extend";

pub(super) fn extend(
    bound: &Bound,
    key: Key<'_>,
    ttl: Duration,
    request_id: Option<&str>,
    now_us: i64,
) -> Result<Invocation> {
    let call = dedupe_extend::Call {
        first: bound.key(key, now_us),
        request: request_id.map(|id| bound.request(key, id)),
        ttl_ms: i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX),
        keep_ms: KEEP_MS,
    };
    let call = call.on(bound.at(EXTEND, Workload::Default))?;
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}
