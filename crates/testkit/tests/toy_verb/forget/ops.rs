
pub(super) const FORGET: &str = "dedupe.forget";

pub(super) fn forget(
    bound: &Bound,
    key: Key<'_>,
    request_id: Option<&str>,
    now_us: i64,
) -> Result<Invocation> {
    let call = dedupe_forget::Call {
        first: bound.key(key, now_us),
        request: request_id.map(|id| bound.request(key, id)),
        keep_ms: KEEP_MS,
    };
    let call = call.on(bound.at(FORGET, Workload::Default))?;
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}
