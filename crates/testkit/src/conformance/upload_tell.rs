//! What whoever follows an upload is told, on every store: why it failed, that it was given up, why its completion waits.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use quaymaster::Result;
use quaymaster::upload::{ERROR_MAX, Last, Moved, Noted, Progress, Status, Upload};

use super::command_int;
use super::upload::{begin, claim, docs, message, send, ship, spelled, state, taken, uploads};

async fn told(progress: &mut (impl Stream<Item = Result<Progress>> + Unpin)) -> Progress {
    let next = tokio::time::timeout(Duration::from_secs(20), progress.next()).await;
    next.expect("in time").expect("one more").expect("progress")
}

/// An upload whose only chunk is durable.
async fn durable(upload: &Upload, id: &str) {
    begin(upload, id, None).await;
    taken(&send(upload, id, 0, b"chunk", Last::Yes).await);
    for chunk in claim(upload, 9).await {
        ship(upload, &chunk.lease).await;
    }
}

crate::cases! {
    async fn why_a_completion_waits_is_shown_while_it_waits_and_only_then(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        assert_eq!(upload.note("nobody", "why").await.expect("note"), Noted::Unknown);
        durable(upload, "u").await;
        let early = upload.note("u", "why").await.expect("note");
        assert_eq!(early, Noted::Refused { status: Status::Uploading });
        assert_eq!(upload.completing("u").await.expect("completing"), Moved::Moved { from: Status::Uploading });
        let mut progress = Box::pin(upload.progress("u").await.expect("progress"));
        let first = told(&mut progress).await;
        assert_eq!((first.status.as_str(), first.error_message.as_deref()), ("COMPLETING", None));
        let ttls = async || {
            let mut ttls = Vec::new();
            for role in ["state", "work", "received", "map", "etags", "metadata"] {
                let key = spelled(&quaymaster, "docs", role, &[("upload_id", "u")]);
                ttls.push(command_int(&*subject.engine, &["PTTL", &key]).await);
            }
            ttls
        };
        let before = ttls().await;
        subject.pass(50).await;
        // Whatever an error says goes through JSON unharmed.
        let channel = format!("{}docs:progress:u", subject.prefix);
        let mut messages = subject.engine.subscribe(channel.as_bytes()).await.expect("subscribe");
        let why = "no broker \"a:9092\" takes it \\ \u{e4}\n\t\u{1}\u{7f}";
        assert_eq!(upload.note("u", why).await.expect("note"), Noted::Noted);
        assert_eq!(message(&mut messages).await["error_message"], why);
        let noted = told(&mut progress).await;
        assert_eq!((noted.status.as_str(), noted.error_message.as_deref()), ("COMPLETING", Some(why)));
        assert_eq!(noted.seq, first.seq + 1);
        let shown = state(upload, "u").await;
        assert_eq!((shown.status, shown.error.as_deref()), (Status::Completing, Some(why)));
        assert_eq!(Progress::from(&shown), noted, "a message says what the state says");
        for (before, after) in before.iter().zip(ttls().await) {
            assert!(after < *before, "nobody lives longer by a word: {before} ms, then {after}");
        }
        for same in [why, ""] {
            assert_eq!(upload.note("u", same).await.expect("note"), Noted::Already);
        }
        assert_eq!(state(upload, "u").await.seq, noted.seq, "what is known is no news");
        assert_eq!(upload.note("u", &"x".repeat(ERROR_MAX + 1)).await.expect("note"), Noted::Noted);
        assert_eq!(told(&mut progress).await.error_message.map(|why| why.len()), Some(ERROR_MAX));
        assert_eq!(upload.completed("u", "e", 5).await.expect("completed"), Moved::Moved { from: Status::Completing });
        let last = told(&mut progress).await;
        assert_eq!((last.status.as_str(), last.error_message), ("COMPLETED", None));
        assert_eq!(state(upload, "u").await.error, None, "it waits for nothing any more");
        assert_eq!(upload.note("u", "late").await.expect("note"), Noted::Refused { status: Status::Completed });
        assert_eq!(state(upload, "u").await.error, None);
        // One of whose keys is gone is made again by others: a word alone would live for ever.
        durable(upload, "half").await;
        let _ = upload.completing("half").await.expect("completing");
        let work = spelled(&quaymaster, "docs", "work", &[("upload_id", "half")]);
        command_int(&*subject.engine, &["DEL", &work]).await;
        assert_eq!(upload.note("half", "why").await.expect("note"), Noted::Unknown);
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &work]).await, 0);
        // What has FAILED keeps its own reason.
        durable(upload, "failed").await;
        assert_eq!(upload.completing("failed").await.expect("completing"), Moved::Moved { from: Status::Uploading });
        assert_eq!(upload.note("failed", "503").await.expect("note"), Noted::Noted);
        assert_eq!(upload.fail("failed", "InvalidPart").await.expect("fail"), Moved::Moved { from: Status::Completing });
        assert_eq!(upload.note("failed", "503").await.expect("note"), Noted::Refused { status: Status::Failed });
        assert_eq!(state(upload, "failed").await.error.as_deref(), Some("InvalidPart"));
    }

    async fn a_follower_hears_why_an_upload_failed_and_that_nothing_follows_one_that_was_given_up(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        let mut progress = Box::pin(upload.progress("u").await.expect("progress"));
        assert!(!told(&mut progress).await.aborted);
        assert_eq!(upload.fail("u", "503 \"slow down\"").await.expect("fail"), Moved::Moved { from: Status::Pending });
        let failed = told(&mut progress).await;
        assert_eq!((failed.status.as_str(), failed.aborted), ("FAILED", false));
        assert_eq!(failed.error_message.as_deref(), Some("503 \"slow down\""));
        assert!(!failed.is_last(), "it may be gone on with");
        assert_eq!(upload.abort("u", "no more").await.expect("abort"), Moved::Moved { from: Status::Failed });
        let gone = told(&mut progress).await;
        assert_eq!((gone.status.as_str(), gone.aborted), ("FAILED", true));
        assert_eq!(gone.error_message.as_deref(), Some("no more"));
        assert_eq!(Progress::from(&state(upload, "u").await), gone);
        assert!(progress.next().await.is_none(), "nothing follows");
        let mut after = Box::pin(upload.progress("u").await.expect("progress"));
        assert_eq!(told(&mut after).await, gone, "whoever comes later hears the same");
        assert!(after.next().await.is_none());
    }
}
