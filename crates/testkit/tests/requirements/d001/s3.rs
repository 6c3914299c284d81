//! An object store that speaks S3, behind a proxy that may answer in its place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::TryStreamExt as _;
use quaymaster_testkit::stage::{Stage, Store};
use quaymaster_upload::objects::{Head, Objects};
use tokio::runtime::Runtime;

use super::seaweed::{self, SECRET, Seaweed};
use super::tamper::{Fault, Tamper};
use crate::servers::free_address;

/// More often than anything is asked.
const ALWAYS: usize = 1_000_000;
const BEGUN: &str = "<InitiateMultipartUploadResult><Bucket>quay</Bucket><Key>k</Key>\
                     <UploadId>s3-upload-xyz789</UploadId></InitiateMultipartUploadResult>";
const NOTHING: &str =
    "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>";

pub(super) struct S3 {
    tamper: Tamper,
    seaweed: Option<Seaweed>,
    runtime: Runtime,
}

impl S3 {
    /// SeaweedFS. It compares the time of requests with its own, so the stage lives now.
    pub(super) fn real(s: &Stage) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
        match s.store() {
            Store::Redis => s.clock().freeze(now),
            Store::Embedded => s.clock().run_from(now),
        }
        let runtime = runtime();
        let seaweed = runtime.block_on(Seaweed::start());
        let tamper = runtime.block_on(Tamper::start(seaweed.address()));
        Self { tamper, seaweed: Some(seaweed), runtime }.told(s)
    }

    /// One that begins multipart uploads, and answers 500 to every part.
    pub(super) fn failing(s: &Stage) -> Self {
        Self::taking_no_parts(s, Fault::Answer(500, ""))
    }

    /// One that begins multipart uploads, and lets every part wait.
    pub(super) fn silent(s: &Stage) -> Self {
        Self::taking_no_parts(s, Fault::Late(Duration::from_secs(3600)))
    }

    fn taking_no_parts(s: &Stage, fault: Fault) -> Self {
        let runtime = runtime();
        let tamper = runtime.block_on(Tamper::start(free_address()));
        tamper.next("POST", "uploads=", ALWAYS, Fault::Answer(200, BEGUN));
        tamper.next("DELETE", "", ALWAYS, Fault::Answer(204, ""));
        tamper.next("GET", "uploads=", ALWAYS, Fault::Answer(200, NOTHING));
        tamper.next("HEAD", "", ALWAYS, Fault::Answer(404, ""));
        tamper.next("PUT", "", ALWAYS, fault);
        Self { tamper, seaweed: None, runtime }.told(s)
    }

    /// The stage's uploads go there.
    fn told(self, s: &Stage) -> Self {
        s.var("UPLOAD_OBJECTS", "s3://quay/repository");
        s.var("AWS_ENDPOINT_URL", &format!("http://{}", self.tamper.address()));
        for (name, value) in [
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "quay"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ] {
            s.var(name, value);
        }
        // A request is one request, and one without an answer stays under way.
        s.settings("[uploads.s3]\nchecksums = \"signature\"\nretries = 0\ntimeout = \"5m\"");
        self
    }

    /// The next `times` parts of this number are answered with 500.
    pub(super) fn refuse(&self, part: &'static str, times: usize) {
        self.tamper.next("PUT", part, times, Fault::Answer(500, ""));
    }

    /// Every completion is done, its answer is lost, and nobody may look.
    pub(super) fn hide_completions(&self) {
        self.tamper.next("POST", "uploadId=", ALWAYS, Fault::DoneBut(500, ""));
        self.tamper.next("HEAD", "", ALWAYS, Fault::Answer(500, ""));
    }

    /// The next parts reach it too late.
    pub(super) fn delay_parts(&self) {
        self.tamper.next("PUT", "partNumber=", ALWAYS, Fault::Late(Duration::from_secs(3600)));
    }

    pub(super) fn clear(&self) {
        self.tamper.clear();
    }

    /// The numbers of the parts that were sent, in the order in which they began.
    pub(super) fn parts(&self) -> Vec<u32> {
        let number = |target: &String| target.split("partNumber=").nth(1)?.split('&').next()?.parse().ok();
        self.tamper.heard().iter().filter_map(number).collect()
    }

    fn bucket(&self) -> Objects {
        let address = self.seaweed.as_ref().unwrap().address();
        self.runtime.block_on(Objects::open("s3://quay", &seaweed::options(address))).unwrap()
    }

    /// The object of the whole bucket at a key.
    pub(super) fn head(&self, key: &str) -> Option<Head> {
        let bucket = self.bucket();
        self.runtime.block_on(bucket.head(key)).unwrap()
    }

    pub(super) fn read(&self, key: &str) -> Vec<u8> {
        let bucket = self.bucket();
        let pieces = self.runtime.block_on(bucket.read(key, None)).unwrap().unwrap();
        let bytes = pieces.try_fold(Vec::new(), async |whole, piece| Ok([&whole[..], &piece].concat()));
        self.runtime.block_on(bytes).unwrap()
    }

    /// The keys and ids of multipart uploads that are not completed.
    pub(super) fn pending(&self) -> Vec<(String, String)> {
        let bucket = self.bucket();
        let page = self.runtime.block_on(bucket.pending("", None)).unwrap();
        page.uploads.into_iter().map(|one| (one.key, one.id.as_str().to_owned())).collect()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
