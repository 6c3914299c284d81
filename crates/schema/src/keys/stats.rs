//! Request metrics: the documented counters and what keeps them honest.

use std::time::Duration;

use super::{RowDraft, never, request, row, side};
use crate::kind::RedisType;
use crate::pattern::{Class, Template};
use crate::schema::Ttl;
use crate::spec::StatsSpec;

/// How long hours and processes are remembered.
const DAY: Duration = Duration::from_secs(86_400);

/// The last two minutes, and what a late flush may add to them.
const SECONDS_TTL: Duration = Duration::from_secs(150);

/// Every key of a statistics resource lies under `base`; one flush writes many of them in one step.
pub(crate) fn stats_rows(base: &str, tag: &Template, spec: &StatsSpec) -> Vec<RowDraft> {
    let total = || never("one integer");
    let of_endpoint = || never("one per endpoint, at most max_endpoints");
    let text = |name: &str| Template::of_text(&format!("{base}{name}"));
    let with = |name: &str, placeholder: &'static str, class| {
        let mut template = text(name);
        template.push_name(placeholder);
        (template, placeholder, class)
    };
    let counter = |role, name: &str, purpose: &str| {
        row(role, text(name), RedisType::String, total(), purpose).format("a decimal integer")
    };
    // Gone, and so 0, when nobody flushes.
    let gauge = |role, name: &str, purpose: &str| {
        let ttl = Ttl::For(spec.heartbeat);
        row(role, text(name), RedisType::String, ttl, purpose).format("a decimal integer")
    };
    let keyed = |role, (template, placeholder, class), holds, ttl, purpose: &str| {
        row(role, template, holds, ttl, purpose).class(placeholder, class)
    };
    let endpoint = |name| with(name, "endpoint", Class::Wide);
    let day = || Ttl::For(DAY);
    let kept =
        |suffix: &'static str, holds, ttl, purpose| side(suffix, tag, suffix, None, holds, ttl, purpose);
    let of_route = |role: &'static str, ttl, purpose| {
        side(role, tag, role, Some(("endpoint", Class::Wide)), RedisType::Hash, ttl, purpose)
    };
    // `{tag}:sketch_hour:1672531200000:GET /users`: the hour in front, since an endpoint may contain anything.
    let mut hour_of_route = side(
        "sketch_hour",
        tag,
        "sketch_hour",
        Some(("timestamp", Class::Digits)),
        RedisType::Hash,
        day(),
        "Response times of an endpoint in one hour",
    );
    hour_of_route.template.push_text(":");
    hour_of_route.template.push_name("endpoint");
    hour_of_route.classes.push(("endpoint", Class::Wide));
    vec![
        gauge("connections_current", "connections:http:current", "HTTP connections open now"),
        counter("connections_max", "connections:http:max_since_startup", "The most there were since startup"),
        counter("requests_accepted", "requests:accepted", "Requests that were not refused"),
        counter("requests_total", "requests:total", "Requests of all instances and endpoints"),
        gauge("speed", "requests:speed_per_second", "Requests a second now"),
        counter("max_speed", "requests:max_speed_per_second", "The most a second since startup"),
        keyed(
            "requests_endpoint",
            endpoint("requests:endpoint:"),
            RedisType::String,
            of_endpoint(),
            "Requests of an endpoint",
        )
        .format("a decimal integer; the endpoint is `METHOD /template`"),
        keyed(
            "requests_instance",
            with("requests:instance:", "instance_id", Class::Wide),
            RedisType::String,
            never("instances are capped and leave after a day"),
            "Requests of an instance",
        )
        .format("a decimal integer"),
        keyed(
            "requests_hourly",
            with("requests:hourly:", "timestamp", Class::Digits),
            RedisType::String,
            day(),
            "Requests of an hour",
        )
        .format("a decimal integer; the timestamp is the hour's start in epoch milliseconds"),
        counter("errors_total", "errors:total", "Responses with a status from 400"),
        keyed(
            "errors_endpoint",
            endpoint("errors:endpoint:"),
            RedisType::String,
            of_endpoint(),
            "Errors of an endpoint",
        )
        .format("a decimal integer"),
        keyed(
            "errors_status",
            with("errors:status:", "status_code", Class::Digits),
            RedisType::String,
            never("one per HTTP status"),
            "Errors with a status",
        )
        .format("a decimal integer"),
        keyed(
            "response_times",
            endpoint("response_times:"),
            RedisType::Zset,
            never(&format!("the last {} per endpoint", spec.samples)),
            "The last response times of an endpoint",
        )
        .format("score: epoch milliseconds; member: milliseconds, made unique by a suffix"),
        keyed(
            "avg_response",
            endpoint("avg_response:"),
            RedisType::String,
            of_endpoint(),
            "The sum of an endpoint's response times",
        )
        .format("milliseconds, a decimal fraction rendered from integer microseconds"),
        keyed(
            "response_count",
            endpoint("response_count:"),
            RedisType::String,
            of_endpoint(),
            "How many response times were summed",
        )
        .format("a decimal integer"),
        kept(
            "instances",
            RedisType::Zset,
            never("instances are capped and leave after a day"),
            "Instances by their last flush, in milliseconds",
        ),
        kept(
            "beats",
            RedisType::Zset,
            day(),
            "Processes that are alive, by their last flush, in milliseconds",
        ),
        kept("connections", RedisType::Hash, day(), "Open connections by process"),
        kept(
            "gauge",
            RedisType::Hash,
            day(),
            "Open connections of all processes, and when the first one started",
        ),
        kept(
            "flushes",
            RedisType::Hash,
            day(),
            "The last flush of each process, so that a repeated one counts once",
        ),
        kept("flushed", RedisType::Zset, day(), "Processes by their last flush, in milliseconds"),
        kept("endpoints", RedisType::Zset, of_endpoint(), "Endpoints told apart, by last use"),
        kept(
            "statuses",
            RedisType::Set,
            never("one per HTTP status"),
            "The statuses that errors were counted with",
        ),
        kept(
            "micros",
            RedisType::Hash,
            of_endpoint(),
            "Response time sums by endpoint, in integer microseconds",
        ),
        kept(
            "seconds",
            RedisType::Hash,
            Ttl::For(SECONDS_TTL),
            "Requests of the last two minutes, by second",
        ),
        of_route("sketch", of_endpoint(), "Response times of an endpoint in mergeable buckets"),
        hour_of_route,
        request(tag),
    ]
}
