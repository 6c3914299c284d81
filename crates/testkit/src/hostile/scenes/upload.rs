//! Uploads: chunks that come, wait, are shipped and lost, and the account of bytes in flight.

use std::time::Duration;

use futures_util::future::BoxFuture;
use quaymaster::upload::{
    Chunk, Claim, Digest, Known, Last, Metadata, New, Next, Offer, Reopen, Reservation, Source,
    Stage as Staged, Upload,
};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "
[upload.docs]
key = \"docs:{upload_id}:state\"
chunk_min = 4
chunk_max = 16
max_bytes_in_flight = 1000
";

const VALUES: &[(&str, &str)] = &[("upload_id", "one"), ("chunk_number", "0")];

const ROWS: &[Row] = &[
    (Kind::Upload, "docs", "state"),
    (Kind::Upload, "docs", "chunk"),
    (Kind::Upload, "docs", "etags"),
    (Kind::Upload, "docs", "metadata"),
    (Kind::Upload, "docs", "received"),
    (Kind::Upload, "docs", "map"),
    (Kind::Upload, "docs", "todo"),
    (Kind::Upload, "docs", "leases"),
    (Kind::Upload, "docs", "work"),
];

/// What all uploads share. Steps on an upload's own keys come before those on these, so only calls of one step are played.
const SHARED: &[Row] = &[
    (Kind::Upload, "docs", "uploads"),
    (Kind::Upload, "docs", "ready"),
    (Kind::Upload, "docs", "in_flight"),
    (Kind::Upload, "docs", "in_flight_until"),
    (Kind::Upload, "docs", "in_flight_total"),
];

/// Keys of an upload that another program began.
const FOREIGN: &[Row] = &[
    (Kind::Upload, "docs", "state"),
    (Kind::Upload, "docs", "chunk"),
    (Kind::Upload, "docs", "etags"),
    (Kind::Upload, "docs", "metadata"),
    (Kind::Upload, "docs", "received"),
    (Kind::Upload, "docs", "map"),
    (Kind::Upload, "docs", "todo"),
    (Kind::Upload, "docs", "leases"),
    (Kind::Upload, "docs", "work"),
];

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "upload", schema: SCHEMA, values: VALUES, rows: ROWS, play },
    Scene { name: "uploads, shared keys", schema: SCHEMA, values: VALUES, rows: SHARED, play: shared },
    Scene { name: "upload of another program", schema: SCHEMA, values: VALUES, rows: FOREIGN, play: adopt },
];

const LEASE: Duration = Duration::from_secs(60);
const ID: &str = "one";

fn docs(stage: &Stage) -> &Upload {
    stage.quaymaster.upload("docs").expect("declared")
}

async fn send(stage: &Stage, number: u32, last: Last) {
    let staged = Staged::fresh();
    let bytes = [b'a' + number as u8; 8];
    if stage.call("write", docs(stage).write(ID, &staged, 0, &bytes, Some(8))).await.is_none() {
        return;
    }
    let digest = Digest::Blake3([number as u8; 32]);
    let offer =
        Offer { number, size: 8, digest: &digest, last, source: Source::Staged(&staged), reservation: None };
    stage.call("accept", docs(stage).accept(ID, &offer)).await;
}

async fn claim(stage: &Stage, count: usize) -> Vec<Chunk> {
    let claim = Claim { count, lease: LEASE, ..Claim::default() };
    stage.call("claim", docs(stage).claim(claim)).await.map(|claimed| claimed.chunks).unwrap_or_default()
}

fn new(docs: &Upload) -> New<'static> {
    New {
        node_id: "550e8400-e29b-41d4-a716-446655440000",
        key: "connectors/550e8400.pb",
        multipart_id: "multi",
        drive: "documents",
        mime_type: "application/pdf",
        expected_size: None,
        time_left: docs.time_limit(),
        metadata: Metadata { name: "a.pdf", ..Metadata::default() },
    }
}

fn shared(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let docs = docs(stage);
        let reserved = Reservation::fresh(ID, 7);
        stage.call("create", docs.create(ID, &new(docs))).await;
        for number in 0..3 {
            send(stage, number, Last::No).await;
        }
        stage.call("admit", docs.admit(&reserved, 8, LEASE)).await;
        stage.spoil().await;
        stage.call("admit", docs.admit(&Reservation::fresh(ID, 8), 8, LEASE)).await;
        stage.call("renew", docs.renew(&[&reserved], LEASE)).await;
        stage.call("due", docs.due(10, 0)).await;
        stage.call("page", docs.page(0, 10)).await;
        claim(stage, 1).await;
        claim(stage, 10).await;
        stage.call("lapsed", docs.lapsed(10, LEASE)).await;
        stage.call("give_back", docs.give_back(&reserved)).await;
        stage.call("in_flight", docs.in_flight()).await;
        stage.call("audit", docs.audit(0, 10)).await;
        stage.call("admit", docs.admit(&Reservation::fresh(ID, 9), 8, LEASE)).await;
    })
}

fn adopt(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let docs = docs(stage);
        let New { node_id, key, multipart_id, drive, mime_type, .. } = new(docs);
        let state: &[&str] = &[
            "HSET",
            "docs:one:state",
            "node_id",
            node_id,
            "s3_key",
            key,
            "s3_upload_id",
            multipart_id,
            "drive",
            drive,
            "mime_type",
            mime_type,
            "status",
            "UPLOADING",
            "uploaded_chunks",
            "1",
            "total_chunks",
            "2",
            "expected_size",
            "16",
            "created_at",
            "2026-11-15T12:00:00.000000",
        ];
        for words in
            [state, &["SET", "docs:one:chunks:0", "aaaaaaaa"], &["ZADD", "docs:one:etags", "1", "\"etag\""]]
        {
            stage.write(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()).await;
        }
        stage.call("admit", docs.admit(&Reservation::fresh(ID, 7), 8, LEASE)).await;
        stage.spoil().await;
        stage.call("foreign", docs.foreign(ID)).await;
        stage.call("in_place", docs.in_place(ID, 0)).await;
        stage.call("keep", docs.keep(ID, 0, 8)).await;
        stage.call_in_parts("adopt", docs.adopt(ID, node_id, docs.time_limit(), Some(16))).await;
        stage.call("status", docs.status(ID)).await;
        stage.call("rekey", docs.rekey(ID, key, "connectors/other.pb")).await;
        send(stage, 1, Last::Yes).await;
        claim(stage, 10).await;
        stage.call("abort", docs.abort(ID, "no")).await;
    })
}

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let docs = docs(stage);
        let new = new(docs);
        let reserved = Reservation::fresh(ID, 7);
        stage.call("create", docs.create(ID, &new)).await;
        for number in 0..3 {
            send(stage, number, Last::No).await;
        }
        stage.call("admit", docs.admit(&reserved, 8, LEASE)).await;
        let held = claim(stage, 2).await;
        stage.spoil().await;
        stage.call("create", docs.create(ID, &new)).await;
        stage.call("status", docs.status(ID)).await;
        stage.call("described", docs.described(ID)).await;
        stage.call("metadata", docs.metadata(ID)).await;
        stage.call("note", docs.note(ID, "waits")).await;
        stage.call("unstage", docs.unstage(ID, &Staged::fresh())).await;
        send(stage, 0, Last::No).await;
        send(stage, 3, Last::Yes).await;
        stage.call("admit", docs.admit(&Reservation::fresh(ID, 8), 8, LEASE)).await;
        stage.call("renew", docs.renew(&[&reserved], LEASE)).await;
        let leases: Vec<_> = held.iter().map(|chunk| &chunk.lease).collect();
        stage.call("extend", docs.extend(&leases, LEASE)).await;
        if let [first, second] = &held[..] {
            stage.call("shipped", docs.shipped(&first.lease, "\"etag\"")).await;
            stage.call("failed", docs.failed(&second.lease, "no", Next::Retry(Duration::ZERO))).await;
        }
        for chunk in claim(stage, 10).await {
            stage.call("read", docs.read(ID, chunk.lease.number(), 0, 8)).await;
            stage.call("release", docs.release(&chunk.lease)).await;
        }
        for chunk in claim(stage, 1).await {
            stage.call("missing", docs.missing(&chunk.lease)).await;
        }
        stage.call("due", docs.due(10, 0)).await;
        stage.call("page", docs.page(0, 10)).await;
        stage.call("tend", docs.tend(ID)).await;
        stage.call("shorten", docs.shorten(ID, 1, LEASE)).await;
        let known = Known {
            parts: &[],
            total_chunks: Some(4),
            status: None,
            error: "",
            final_etag: "",
            final_size: None,
        };
        stage.call_in_parts("restore", docs.restore(ID, &new, &known)).await;
        stage.call("lapsed", docs.lapsed(10, LEASE)).await;
        stage.call("give_back", docs.give_back(&reserved)).await;
        stage.call("in_flight", docs.in_flight()).await;
        stage.call("audit", docs.audit(0, 10)).await;
        stage.call("completing", docs.completing(ID)).await;
        stage.call("fail", docs.fail(ID, "no")).await;
        stage.call("reopen", docs.reopen(ID, &Reopen::default())).await;
        stage.call("abort", docs.abort(ID, "no")).await;
        stage.call("clear", docs.clear(ID)).await;
        stage.call("forget", docs.forget(ID)).await;
    })
}
