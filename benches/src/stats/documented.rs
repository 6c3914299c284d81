//! One request as the document records it: a command for every counter. Connections and speeds are left out, which
//! would be more commands still.

use anyhow::Result;
use redis::Pipeline;

use super::{Served, Traffic};
use crate::process::Redis;

/// How the commands are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// One after the other, each waiting for its reply, as the document's example does.
    Separate,
    /// In one transaction a request.
    Transaction,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Separate => "as documented, command by command",
            Way::Transaction => "as documented, one MULTI a request",
        }
    }

    /// The command whose reply is waited for; every one unless there is but one.
    pub(super) fn waits_for(self) -> Option<&'static str> {
        match self {
            Way::Separate => None,
            // Sent together, answered together.
            Way::Transaction => Some("exec"),
        }
    }
}

pub(super) fn record(redis: &Redis, way: Way, mut traffic: Traffic, requests: u64) -> Result<()> {
    let mut connection = redis.connect()?;
    for number in 0..requests {
        let served = traffic.next();
        match way {
            Way::Separate => {
                for command in commands(&served, number).cmd_iter() {
                    command.exec(&mut connection)?;
                }
            }
            Way::Transaction => commands(&served, number).atomic().exec(&mut connection)?,
        }
    }
    Ok(())
}

fn commands(served: &Served, number: u64) -> Pipeline {
    let endpoint = format!("GET {}", served.route);
    let milliseconds = served.elapsed.as_micros() as f64 / 1e3;
    let now_ms = 1_700_000_000_000 + number;
    let hourly = format!("ha:requests:hourly:{}", now_ms / 3_600_000 * 3_600_000);
    let mut pipeline = redis::pipe();
    for key in [
        "ha:requests:total".to_owned(),
        "ha:requests:accepted".to_owned(),
        format!("ha:requests:endpoint:{endpoint}"),
        "ha:requests:instance:bench".to_owned(),
        format!("ha:response_count:{endpoint}"),
    ] {
        pipeline.cmd("INCRBY").arg(key).arg(1);
    }
    pipeline.cmd("INCRBY").arg(&hourly).arg(1);
    pipeline.cmd("EXPIRE").arg(&hourly).arg(86_400);
    let times = format!("ha:response_times:{endpoint}");
    pipeline.cmd("ZADD").arg(&times).arg(now_ms).arg(milliseconds);
    pipeline.cmd("ZREMRANGEBYRANK").arg(&times).arg(0).arg(-1001);
    pipeline.cmd("INCRBYFLOAT").arg(format!("ha:avg_response:{endpoint}")).arg(milliseconds);
    if served.status >= 400 {
        for key in [
            "ha:errors:total".to_owned(),
            format!("ha:errors:endpoint:{endpoint}"),
            format!("ha:errors:status:{}", served.status),
        ] {
            pipeline.cmd("INCRBY").arg(key).arg(1);
        }
    }
    pipeline
}
