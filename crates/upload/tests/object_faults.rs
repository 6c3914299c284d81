//! What goes wrong on the way to an object store: never taken for success, always told with what may be done.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/servers.rs"]
mod servers;
mod support;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use quaymaster_upload::ledger::Part;
use quaymaster_upload::objects::{Credentials, MultipartId, Objects, ObjectsOptions, PartBody};
use quaymaster_upload::{Sha256, Trouble};
use support::parts::{about, bytes, done, in_pieces, read, recorded, send, unknown};
use support::seaweed::{self, Seaweed};
use support::tamper::{Fault, PROBE, Tamper};

const PART: &str = "partNumber=";
const COMPLETE: &str = "uploadId=";
const INTERNAL: &str =
    "<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code><Message>Please try again.</Message></Error>";
const NO_SUCH_UPLOAD: &str = "<Error><Code>NoSuchUpload</Code><Message>It does not exist.</Message></Error>";
const EXPIRED: &str = "<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>";
const DENIED: &str = "<Error><Code>AccessDenied</Code><Message>Bodies are signed here.</Message></Error>";
const KEY: &str = "faults/object.pb";

/// A server behind a proxy that tampers, and a store that knows only the proxy.
struct Weather {
    server: Seaweed,
    tamper: Tamper,
    objects: Objects,
}

impl Weather {
    async fn fair() -> Self {
        let server = Seaweed::start().await;
        let tamper = Tamper::start(server.address()).await;
        let objects = Objects::open("s3://quay/p", &seaweed::options(tamper.address())).await.unwrap();
        Self { server, tamper, objects }
    }

    /// A multipart upload with its only part, and its bytes.
    async fn begun(&self) -> (MultipartId, Vec<Part>, Bytes) {
        let id = self.objects.begin(KEY, &about("ours")).await.unwrap();
        let bytes = bytes(1, 300_000);
        let part = send(&self.objects, KEY, &id, 1, &bytes).await;
        (id, vec![part], bytes)
    }

    async fn is_whole(&self, bytes: &Bytes) {
        let head = self.objects.head(KEY).await.unwrap().expect("a look finds it");
        assert_eq!((head.size, head.token.as_deref()), (bytes.len() as u64, Some("ours")));
        assert!(read(&self.objects, KEY, None).await == *bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_may_pass_are_told_as_such_or_outlived() {
    let weather = Weather::fair().await;
    let (objects, tamper) = (&weather.objects, &weather.tamper);
    let id = objects.begin(KEY, &about("ours")).await.unwrap();
    let part = bytes(1, 300_000);
    tamper.next("PUT", PART, 1, Fault::Answer(500, INTERNAL));
    tamper.next("PUT", PART, 1, Fault::Answer(503, ""));
    tamper.next("PUT", PART, 1, Fault::CutBodyAfter(100_000));
    tamper.next("PUT", PART, 1, Fault::LoseAnswerAfter(0));
    for code in [Some("InternalError"), Some("503"), None, None] {
        let error = objects.part(KEY, &id, 1, in_pieces(&part)).await.unwrap_err();
        assert_eq!((error.trouble(), error.said()), (Trouble::Passing, code), "{error}");
    }
    let sent = send(objects, KEY, &id, 1, &part).await;
    done(objects.complete(KEY, &id, &[sent]).await.unwrap());
    weather.is_whole(&part).await;

    // Whoever may repeat here does so before anybody hears of it.
    let patient = ObjectsOptions { retries: 2, ..seaweed::options(tamper.address()) };
    let patient = Objects::open("s3://quay/p", &patient).await.unwrap();
    tamper.next("POST", "uploads=", 2, Fault::Answer(503, INTERNAL));
    tamper.next("HEAD", "", 2, Fault::LoseAnswerAfter(0));
    let id = patient.begin(KEY, &about("ours")).await.unwrap();
    patient.head(KEY).await.unwrap().unwrap();
    tamper.next("DELETE", COMPLETE, 3, Fault::Answer(500, ""));
    assert_eq!(patient.abort(KEY, &id).await.unwrap_err().trouble(), Trouble::Passing);
    let _ = patient.abort(KEY, &id).await.unwrap();
    assert_eq!(tamper.left(), 0, "every fault was met");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_or_wrong_completes_nothing_by_itself() {
    let weather = Weather::fair().await;
    let (objects, tamper) = (&weather.objects, &weather.tamper);
    // The store did nothing of the kind.
    for fault in [Fault::Answer(200, INTERNAL), Fault::Answer(200, ""), Fault::Answer(500, INTERNAL)] {
        let (id, parts, bytes) = weather.begun().await;
        let before = objects.head(KEY).await.unwrap();
        tamper.next("POST", COMPLETE, 1, fault.clone());
        let error = unknown(objects.complete(KEY, &id, &parts).await.unwrap());
        assert!(error.trouble().may_pass() || error.said() == Some("200"), "{fault:?}: {error}");
        assert_eq!(objects.head(KEY).await.unwrap(), before, "{fault:?}");
        done(objects.complete(KEY, &id, &parts).await.unwrap());
        weather.is_whole(&bytes).await;
    }
    // It did it, and whoever asked does not know.
    let faults = [
        Fault::DoneBut(200, INTERNAL),
        Fault::DoneBut(500, INTERNAL),
        Fault::DoneBut(404, NO_SUCH_UPLOAD),
        Fault::LoseAnswerAfter(0),
        Fault::LoseAnswerAfter(40),
        Fault::LoseAnswerAfter(350),
    ];
    for fault in faults {
        let (id, parts, bytes) = weather.begun().await;
        tamper.next("POST", COMPLETE, 1, fault.clone());
        unknown(objects.complete(KEY, &id, &parts).await.unwrap());
        weather.is_whole(&bytes).await;
    }
    assert_eq!(tamper.left(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_reached_did_nothing() {
    let nobody = crate::servers::free_address();
    let objects = Objects::open("s3://quay", &seaweed::options(nobody)).await.unwrap();
    let error = objects
        .complete(KEY, &MultipartId::new("x"), &[recorded(1, "e".to_owned(), &bytes(1, 1))])
        .await
        .unwrap_err();
    assert_eq!(error.trouble(), Trouble::Passing, "{error}");
    assert_eq!(objects.head(KEY).await.unwrap_err().trouble(), Trouble::Passing);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_change_on_their_way_are_refused() {
    let weather = Weather::fair().await;
    let id = weather.objects.begin(KEY, &about("ours")).await.unwrap();
    let part = bytes(1, 300_000);
    weather.tamper.next("PUT", PART, 1, Fault::FlipByte);
    let error = weather.objects.part(KEY, &id, 1, in_pieces(&part)).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Passing, "{error}");
    let sent = send(&weather.objects, KEY, &id, 1, &part).await;
    done(weather.objects.complete(KEY, &id, &[sent]).await.unwrap());
    weather.is_whole(&part).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_left_to_compare_parts_only_after_it_refused_a_wrong_one() {
    let weather = Weather::fair().await;
    let tamper = &weather.tamper;
    let right = bytes(1, 300_000);
    let wrong = || PartBody { digest: Sha256::of(&right).into(), ..in_pieces(&bytes(2, 300_000)) };
    let by_the_store = |error: &quaymaster_upload::Error| {
        assert_eq!((error.trouble(), error.said()), (Trouble::Passing, Some("BadDigest")), "{error}");
        error.to_string().contains("400 Bad Request")
    };
    // What it says to the first part of all, which is a wrong one.
    for (first, trusted, known) in [
        (None, true, true),
        (Some(Fault::Answer(200, "")), false, true),
        (Some(Fault::Answer(403, DENIED)), false, true),
        (Some(Fault::Answer(500, INTERNAL)), false, false),
        (Some(Fault::LoseAnswerAfter(0)), false, false),
    ] {
        let objects = Objects::open("s3://quay/p", &seaweed::options(tamper.address())).await.unwrap();
        let said = format!("{first:?}");
        if let Some(fault) = first {
            tamper.next(PROBE, "", 1, fault);
        }
        let id = objects.begin(KEY, &about("ours")).await.unwrap();
        assert_eq!(tamper.left(), 0, "{said}: it is asked with the first upload");
        let error = objects.part(KEY, &id, 1, wrong()).await.unwrap_err();
        assert_eq!(by_the_store(&error), trusted, "{said}: {error}");
        let part = send(&objects, KEY, &id, 1, &right).await;
        done(objects.complete(KEY, &id, &[part]).await.unwrap());
        weather.is_whole(&right).await;
        // Without a clear answer it is asked again, with one never.
        let asked = || tamper.heard().iter().filter(|heard| heard.starts_with(PROBE)).count();
        let before = asked();
        let id = objects.begin(KEY, &about("ours")).await.unwrap();
        assert_eq!(asked() > before, !known, "{said}");
        let error = objects.part(KEY, &id, 1, wrong()).await.unwrap_err();
        assert_eq!(by_the_store(&error), trusted || !known, "{said}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_part_that_may_come_late_finds_no_upload_and_vain_trials_end() {
    let weather = Weather::fair().await;
    let (objects, tamper) = (&weather.objects, &weather.tamper);
    tamper.next(PROBE, "", 10, Fault::LoseAnswerAfter(0));
    for _ in 0..5 {
        let id = objects.begin(KEY, &about("ours")).await.unwrap();
        let probes = tamper.heard().into_iter().filter(|heard| heard.starts_with(PROBE));
        let met = probes.filter(|heard| heard.contains(id.as_str())).count();
        assert_eq!(met, 0, "the upload that goes on was not tried");
    }
    assert_eq!(tamper.left(), 7, "three are enough");
    let pending = objects.pending("", None).await.unwrap().uploads;
    assert_eq!(pending.len(), 5, "those that were tried are gone: {pending:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_late_is_not_waited_for() {
    let late = Duration::from_secs(4);
    let weather = Weather::fair().await;
    let (objects, tamper) = (&weather.objects, &weather.tamper);
    let (id, parts, bytes) = weather.begun().await;
    let impatient = ObjectsOptions {
        patience: Duration::from_secs(1),
        slowest: 1024 * 1024,
        ..seaweed::options(tamper.address())
    };
    let impatient = Objects::open("s3://quay/p", &impatient).await.unwrap();
    tamper.next("PUT", PART, 1, Fault::Late(late));
    let error = impatient.part(KEY, &id, 1, in_pieces(&bytes)).await.unwrap_err();
    assert_eq!((error.trouble(), error.said()), (Trouble::Passing, Some("timeout")), "{error}");
    tamper.next("POST", COMPLETE, 1, Fault::Late(late));
    assert_eq!(unknown(impatient.complete(KEY, &id, &parts).await.unwrap()).said(), Some("timeout"));
    // It happens after all, and a look finds it.
    let deadline = Instant::now() + Duration::from_secs(60);
    while objects.head(KEY).await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "the late request was done");
    }
    weather.is_whole(&bytes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_do_not_hold_are_told_apart() {
    let weather = Weather::fair().await;
    let (id, parts, bytes) = weather.begun().await;
    let (objects, tamper) = (&weather.objects, &weather.tamper);
    tamper.next("PUT", PART, 1, Fault::Answer(400, EXPIRED));
    tamper.next("POST", COMPLETE, 1, Fault::Answer(400, EXPIRED));
    let error = objects.part(KEY, &id, 1, in_pieces(&bytes)).await.unwrap_err();
    assert_eq!((error.trouble(), error.said()), (Trouble::Credentials, Some("ExpiredToken")));
    let error = objects.complete(KEY, &id, &parts).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Credentials, "it was refused, so nothing was done");
    done(objects.complete(KEY, &id, &parts).await.unwrap());

    // A real server's own judgement.
    for (key_id, secret) in [("quay", "wrong"), ("nobody", "wrong")] {
        let mut options = seaweed::options(weather.server.address());
        options.credentials =
            Some(Credentials { key_id: key_id.to_owned(), secret: secret.to_owned(), token: None });
        let stranger = Objects::open("s3://quay/p", &options).await.unwrap();
        let error = stranger.begin(KEY, &about("theirs")).await.unwrap_err();
        assert_eq!(error.trouble(), Trouble::Credentials, "{error}");
        assert_eq!(stranger.head(KEY).await.unwrap_err().trouble(), Trouble::Credentials);
        assert!(!format!("{options:?} {stranger:?} {error:?}").contains("wrong"), "no secret is shown");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_cut_off_does_not_end_like_a_whole_one() {
    let weather = Weather::fair().await;
    let (id, parts, bytes) = weather.begun().await;
    done(weather.objects.complete(KEY, &id, &parts).await.unwrap());
    weather.tamper.next("GET", KEY, 1, Fault::LoseAnswerAfter(200_000));
    let pieces = weather.objects.read(KEY, None).await.unwrap().unwrap();
    let error = pieces.try_for_each(async |_| Ok(())).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Passing, "{error}");
    weather.is_whole(&bytes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_would_never_end_is_refused() {
    let weather = Weather::fair().await;
    let first = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>";
    let again = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>p/a</NextKeyMarker>\
                 <NextUploadIdMarker>1</NextUploadIdMarker></ListMultipartUploadsResult>";
    weather.tamper.next("GET", "uploads=", 1, Fault::Answer(200, first));
    let error = weather.objects.pending("", None).await.unwrap_err();
    assert_eq!((error.trouble(), error.said()), (Trouble::Passing, Some("answer")), "{error}");
    weather.tamper.next("GET", "uploads=", 2, Fault::Answer(200, again));
    let page = weather.objects.pending("", None).await.unwrap();
    let error = weather.objects.pending("", page.next.as_ref()).await.unwrap_err();
    assert_eq!(error.said(), Some("answer"), "{error}");
    assert_eq!(weather.tamper.left(), 0, "every answer was met");
}
