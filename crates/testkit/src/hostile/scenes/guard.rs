//! Guards: whose keys are those of their limits, their idempotency and their lock.

use futures_util::future::BoxFuture;
use quaymaster::guard::{Enter, Entered, Leave};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "
[idempotency.pay]
key = \"idem:{id}\"
ttl = \"1h\"
in_progress_ttl = \"1m\"
[lock.door]
key = \"lock:{id}\"
ttl = \"1h\"
[limit.fixed]
key = \"fixed:{id}\"
algorithm = \"fixed_window\"
limit = 5
window = \"1h\"
[limit.log]
key = \"log:{id}\"
algorithm = \"sliding_log\"
limit = 5
window = \"1h\"
[limit.window]
key = \"window:{id}\"
algorithm = \"sliding_window\"
limit = 5
window = \"1h\"
[limit.bucket]
key = \"bucket:{id}\"
algorithm = \"token_bucket\"
limit = 5
window = \"1h\"
[guard.enter]
limits = [\"fixed\", \"log\", \"window\", \"bucket\"]
idempotency = \"pay\"
lock = \"door\"
";

const KEY: &[(&str, &str)] = &[("id", "1")];
const ROWS: &[Row] = &[
    (Kind::Idempotency, "pay", "record"),
    (Kind::Lock, "door", "lock"),
    (Kind::Lock, "door", "fence"),
    (Kind::Lock, "door", "queue"),
    (Kind::Lock, "door", "alive"),
    (Kind::Limit, "fixed", "limit"),
    (Kind::Limit, "log", "limit"),
    (Kind::Limit, "window", "limit"),
    (Kind::Limit, "bucket", "limit"),
];

pub(crate) const SCENES: &[Scene] = &[Scene { name: "guard", schema: SCHEMA, values: KEY, rows: ROWS, play }];

async fn enter(stage: &Stage) -> Option<quaymaster::Token> {
    let guard = stage.quaymaster.guard("enter").expect("declared");
    match stage.call("enter", guard.enter(KEY, Enter::default())).await? {
        Entered::Entered(pass) => {
            pass.fence.into_iter().for_each(|fence| stage.fence(fence));
            Some(pass.token)
        }
        _ => None,
    }
}

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let guard = stage.quaymaster.guard("enter").expect("declared");
        let token = enter(stage).await.expect("nobody has entered");
        stage.spoil().await;
        enter(stage).await;
        let abandon = Leave { abandon: true, ..Leave::default() };
        stage.call_in_parts("leave", guard.leave(KEY, &token, abandon)).await;
        for leave in [abandon, Leave { response: Some(b"{}"), ..Leave::default() }] {
            if let Some(token) = enter(stage).await {
                stage.call_in_parts("leave", guard.leave(KEY, &token, leave)).await;
            }
        }
    })
}
