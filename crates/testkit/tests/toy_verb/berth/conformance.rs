//! What every berth must do on every store, and a scene of hostile keys.

use futures_util::future::BoxFuture;
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const A: &[(&str, &str)] = &[("id", "a")];
const SCHEMA: &str = "[berth.pier]\nkey = \"berth:{id}\"\nttl = \"10s\"\n";

crate::cases! {
    async fn a_berth_is_for_one_ship_until_its_time_is_over(subject: &Subject) {
        let quaymaster = subject.schema(SCHEMA);
        let pier = quaymaster.berth("pier").expect("declared");
        assert!(pier.take(A, Some("r1")).await.expect("take"));
        assert!(pier.take(A, Some("r1")).await.expect("take"), "the same request");
        assert!(!pier.take(A, None).await.expect("take"));
        subject.pass(10_001).await;
        assert!(pier.take(A, None).await.expect("take"));
    }
}

const VALUES: &[(&str, &str)] = &[("id", "a"), ("request_id", "asked")];
const ROWS: &[Row] = &[(Kind::Berth, "pier", "berth"), (Kind::Berth, "pier", "request")];

pub(crate) const SCENES: &[Scene] =
    &[Scene { name: "berth", schema: SCHEMA, values: VALUES, rows: ROWS, play }];

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let pier = stage.quaymaster.berth("pier").expect("declared");
        stage.call("take", pier.take(A, None)).await;
        stage.spoil().await;
        stage.call("take", pier.take(A, None)).await;
        stage.call("take with a request", pier.take(A, Some("asked"))).await;
    })
}
