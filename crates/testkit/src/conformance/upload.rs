//! What the store's side of every upload must do: taking chunks, handing them out, bytes in flight.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use quaymaster::upload::{
    Accepted, Admitted, Chunk, Claim, Created, Digest, Failed, Held, Last, Lease, MAX_CHUNKS, MAX_PIECE,
    Metadata, New, Next, Offer, Place, Receipt, Refusal, Reservation, Shipped, Source, Stage, State, Status,
    Upload,
};
use quaymaster::{Code, Quaymaster};
use quaymaster_schema::{Kind, Spelling};
use quaymaster_store::{Message, Reply, Topology};
use serde_json::{Value, json};

use super::{Subject, command, command_int, command_text};

pub(super) const LEASE: Duration = Duration::from_secs(60);

/// `docs` has chunks of 4 to 16 bytes and 64 in flight; the others say what differs by their names.
pub(super) fn uploads(subject: &Subject) -> Quaymaster {
    let upload = |name: &str, rest: &str| {
        format!("[upload.{name}]\nkey = \"{name}:{{upload_id}}:state\"\nchunk_min = 4\n{rest}\n")
    };
    let small = "chunk_max = 16\nmax_bytes_in_flight = 64";
    subject.schema(
        &[
            upload("docs", &format!("{small}\nstate_ttl = \"24h\"\nchunk_ttl = \"1h\"")),
            upload("brief", &format!("{small}\nkeep_after_done = \"400ms\"\nchunk_ttl = \"300ms\"")),
            upload("roomy", "chunk_max = \"8MiB\"\nmax_bytes_in_flight = \"64MiB\""),
        ]
        .concat(),
    )
}

pub(super) fn docs(quaymaster: &Quaymaster) -> &Upload {
    quaymaster.upload("docs").expect("declared")
}

pub(super) fn new<'a>(upload: &Upload, size: Option<u64>) -> New<'a> {
    New {
        node_id: "550e8400-e29b-41d4-a716-446655440000",
        key: "connectors/default/550e8400.pb",
        multipart_id: "multi \"1\"",
        drive: "documents",
        mime_type: "application/pdf",
        expected_size: size,
        time_left: upload.time_limit(),
        metadata: Metadata { name: "a.pdf", custom_metadata: "{\"a\": 1}", ..Metadata::default() },
    }
}

pub(super) async fn begin(upload: &Upload, id: &str, size: Option<u64>) {
    assert_eq!(upload.create(id, &new(upload, size)).await.expect("create"), Created::New);
}

/// Some digest: the store compares digests and looks at no bytes.
pub(super) fn digest(bytes: &[u8]) -> Digest {
    let mut out = [bytes.len() as u8; 32];
    for (at, byte) in bytes.iter().enumerate() {
        out[at % 32] = out[at % 32].wrapping_mul(31).wrapping_add(*byte);
    }
    Digest::Blake3(out)
}

/// Sends a chunk as a node does: staged, then offered.
pub(super) async fn send(upload: &Upload, id: &str, number: u32, bytes: &[u8], last: Last) -> Accepted {
    let stage = Stage::fresh();
    for (at, piece) in bytes.chunks(MAX_PIECE).enumerate() {
        let offset = (at * MAX_PIECE) as u64;
        upload.write(id, &stage, offset, piece, Some(bytes.len() as u64)).await.expect("write");
    }
    let digest = digest(bytes);
    let offer = Offer {
        number,
        size: bytes.len() as u64,
        digest: &digest,
        last,
        source: Source::Staged(&stage),
        reservation: None,
    };
    upload.accept(id, &offer).await.expect("accept")
}

pub(super) fn taken(accepted: &Accepted) -> Receipt {
    match accepted {
        Accepted::Taken { receipt, .. } => *receipt,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn claim(upload: &Upload, count: usize) -> Vec<Chunk> {
    let claim = Claim { count, lease: LEASE, ..Claim::default() };
    upload.claim(claim).await.expect("claim").chunks
}

pub(super) async fn ship(upload: &Upload, lease: &Lease) -> Receipt {
    match upload.shipped(lease, &format!("\"etag-{}\"", lease.number())).await.expect("shipped") {
        Shipped::Durable(receipt) => receipt,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn state(upload: &Upload, id: &str) -> State {
    upload.status(id).await.expect("status").expect("it is there")
}

/// A key as this store spells it.
pub(super) fn spelled(quaymaster: &Quaymaster, name: &str, role: &str, values: &[(&str, &str)]) -> String {
    let spelling = match quaymaster.engine().topology() {
        Topology::Single => Spelling::Single,
        Topology::Cluster => Spelling::Cluster,
    };
    let mut key = Vec::new();
    let resource = quaymaster.schema().resource(Kind::Upload, name).expect("declared");
    resource.key(role).expect("a role").pattern.render(values, 0, spelling, &mut key).expect("a key");
    String::from_utf8(key).expect("text")
}

pub(super) async fn hash(quaymaster: &Quaymaster, key: &str) -> BTreeMap<String, String> {
    let words: [&[u8]; 2] = [b"HGETALL", key.as_bytes()];
    let text = |part: &Reply| match part {
        Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    match command(&**quaymaster.engine(), key.as_bytes(), &words).await.expect("a hash") {
        Reply::Array(parts) => parts.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn message(messages: &mut futures_util::stream::BoxStream<'static, Message>) -> Value {
    match tokio::time::timeout(Duration::from_secs(20), messages.next()).await.expect("a message") {
        Some(Message::Data(data)) => serde_json::from_slice(&data).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

async fn refused(upload: &Upload, id: &str, number: u32, bytes: &[u8], last: Last) -> Refusal {
    match send(upload, id, number, bytes, last).await {
        Accepted::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Offers `twelve bytes` under a reservation.
async fn offer_reserved(upload: &Upload, number: u32, reservation: &Reservation) -> Accepted {
    let (stage, digest) = (Stage::fresh(), digest(b"twelve bytes"));
    upload.write("u", &stage, 0, b"twelve bytes", None).await.expect("write");
    let source = Source::Staged(&stage);
    let offer =
        Offer { number, size: 12, digest: &digest, last: Last::No, source, reservation: Some(reservation) };
    upload.accept("u", &offer).await.expect("accept")
}

fn busy(admitted: Admitted) -> bool {
    match admitted {
        Admitted::Admitted { .. } => false,
        Admitted::Busy { retry_after, .. } => {
            assert!((1..=5).contains(&retry_after.as_secs()), "{retry_after:?}");
            true
        }
    }
}

async fn busy_with(upload: &Upload, name: &Reservation, bytes: u64, lease: Duration) -> bool {
    busy(upload.admit(name, bytes, lease).await.expect("admit"))
}

async fn in_flight(upload: &Upload) -> u64 {
    upload.in_flight().await.expect("in flight").bytes
}

crate::cases! {
    async fn an_upload_lies_under_the_documented_keys_and_tells_the_documented_messages(subject: &Subject) {
        let quaymaster = uploads(subject);
        let (engine, upload) = (&*subject.engine, docs(&quaymaster));
        let prefix = &subject.prefix;
        let arrivals = format!("{prefix}docs:chunk:received");
        let mut arrivals = engine.subscribe(arrivals.as_bytes()).await.expect("subscribe");
        let progress = format!("{prefix}docs:progress:abc123");
        let mut progress = engine.subscribe(progress.as_bytes()).await.expect("subscribe");
        begin(upload, "abc123", Some(20)).await;
        let of = |role: &str| spelled(&quaymaster, "docs", role, &[("upload_id", "abc123")]);
        let chunk = |number: &str| {
            spelled(&quaymaster, "docs", "chunk", &[("upload_id", "abc123"), ("chunk_number", number)])
        };
        if engine.topology() == Topology::Single {
            assert_eq!(of("state"), format!("{prefix}docs:abc123:state"));
            assert_eq!(chunk("0"), format!("{prefix}docs:abc123:chunks:0"));
        }
        let held = hash(&quaymaster, &of("state")).await;
        for (field, value) in [
            ("node_id", "550e8400-e29b-41d4-a716-446655440000"),
            ("s3_upload_id", "multi \"1\""),
            ("s3_key", "connectors/default/550e8400.pb"),
            ("drive", "documents"),
            ("status", "PENDING"),
            ("expected_size", "20"),
            ("received_chunks", "0"),
            ("uploaded_chunks", "0"),
            ("total_chunks", "0"),
            ("is_last_received", "false"),
            ("mime_type", "application/pdf"),
        ] {
            assert_eq!(held.get(field).map(String::as_str), Some(value), "{field}");
        }
        assert_eq!(hash(&quaymaster, &of("metadata")).await.get("name").map(String::as_str), Some("a.pdf"));
        let kept = upload.metadata("abc123").await.expect("metadata").expect("it is there");
        assert_eq!((kept.name.as_str(), kept.custom_metadata.as_str(), kept.path.as_str()), ("a.pdf", "{\"a\": 1}", ""));
        let described = upload.described("abc123").await.expect("status").expect("it is there");
        assert_eq!((described.0.expected_size, described.1), (Some(20), kept), "both in one step");
        assert_eq!(upload.described("nobody").await.expect("status"), None);

        assert_eq!(taken(&send(upload, "abc123", 0, b"0123456789", Last::No).await).received_chunks, 1);
        assert_eq!(command_text(engine, &["GET", &chunk("0")]).await.as_deref(), Some("0123456789"));
        let ttl = command_int(engine, &["PTTL", &chunk("0")]).await;
        assert!((3_500_000..=3_600_000).contains(&ttl), "{ttl}");
        let told = message(&mut arrivals).await;
        assert_eq!((&told["upload_id"], &told["chunk_number"], &told["is_last"]), (&json!("abc123"), &json!(0), &json!(false)));
        let ago = subject.time_us().await / 1000 - told["timestamp"].as_i64().expect("a moment");
        assert!((0..60_000).contains(&ago), "{told}");
        taken(&send(upload, "abc123", 1, b"abcdefghij", Last::Yes).await);
        assert_eq!(message(&mut arrivals).await["is_last"], json!(true));
        for received in 1..=2 {
            let told = message(&mut progress).await;
            assert_eq!((&told["received_chunks"], &told["uploaded_chunks"]), (&json!(received), &json!(0)));
        }

        let chunks = claim(upload, 10).await;
        assert_eq!(chunks.len(), 2);
        assert_eq!(&*chunks[0].multipart_id, "multi \"1\"");
        assert_eq!((&*chunks[0].key, chunks[0].size, &chunks[0].place), ("connectors/default/550e8400.pb", 10, &Place::Store));
        assert_eq!(chunks[0].digest, digest(b"0123456789"));
        assert_eq!(&upload.read("abc123", 0, 3, 4).await.expect("read")[..], b"3456");
        assert!(!ship(upload, &chunks[0].lease).await.complete);
        let told = message(&mut progress).await;
        assert_eq!(told["bytes_uploaded"], json!(10));
        assert_eq!(told["total_bytes"], json!(20));
        assert_eq!(told["percent"], json!(50.0));
        assert_eq!((&told["uploaded_chunks"], &told["total_chunks"], &told["status"]), (&json!(1), &json!(2), &json!("UPLOADING")));
        assert_eq!(command_int(engine, &["EXISTS", &chunk("0")]).await, 0, "its bytes are gone");
        assert!(ship(upload, &chunks[1].lease).await.complete);
        let etags = of("etags");
        let words: [&[u8]; 5] = [b"ZRANGE", etags.as_bytes(), b"0", b"-1", b"WITHSCORES"];
        let listed = command(engine, etags.as_bytes(), &words).await.expect("etags");
        let texts = ["\"etag-0\"", "0", "\"etag-1\"", "1"].map(|text| Reply::Bytes(text.into()));
        assert_eq!(listed, Reply::Array(texts.to_vec()));
        let held = hash(&quaymaster, &of("state")).await;
        for (field, value) in
            [("received_chunks", "2"), ("uploaded_chunks", "2"), ("total_chunks", "2"), ("is_last_received", "true"), ("status", "UPLOADING")]
        {
            assert_eq!(held.get(field).map(String::as_str), Some(value), "{field}");
        }
        for role in ["state", "work", "received", "map", "etags", "metadata"] {
            let ttl = command_int(engine, &["PTTL", &of(role)]).await;
            assert!((86_000_000..=86_400_000).contains(&ttl), "{role} {ttl}");
        }
    }

    async fn a_chunk_is_taken_once_and_other_bytes_under_its_number_never(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        let first = taken(&send(upload, "u", 3, b"chunk", Last::No).await);
        assert_eq!((first.received_chunks, first.durable_chunks, first.total_chunks), (1, 0, None));
        let again = send(upload, "u", 3, b"chunk", Last::No).await;
        assert_eq!(again, Accepted::Known { receipt: first, status: Status::Uploading, durable: false });
        for other in [&b"other"[..], b"chunks"] {
            assert_eq!(send(upload, "u", 3, other, Last::No).await, Accepted::Conflict);
        }
        let stored = state(upload, "u").await;
        assert_eq!((stored.receipt, stored.bytes_received), (first, 5));
        let came = stored.first_chunk_ms;
        assert!(came.is_some_and(|at| (stored.created_ms..=stored.now_ms).contains(&at)), "{stored:?}");
        let chunks = claim(upload, 9).await;
        assert_eq!(chunks.len(), 1, "it is claimed once");
        ship(upload, &chunks[0].lease).await;
        let Accepted::Known { receipt, durable, .. } = send(upload, "u", 3, b"chunk", Last::No).await else {
            panic!("long shipped, still known")
        };
        assert_eq!((receipt.received_chunks, receipt.durable_chunks, durable), (1, 1, true));
        assert_eq!(send(upload, "u", 3, b"other", Last::No).await, Accepted::Conflict);
        assert_eq!(claim(upload, 9).await, [], "nothing is shipped twice");
        let key = spelled(&quaymaster, "docs", "chunk", &[("upload_id", "u"), ("chunk_number", "3")]);
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &key]).await, 0);
        assert_eq!(send(upload, "nobody", 0, b"chunk", Last::No).await, Accepted::Unknown);
    }

    async fn identical_chunks_in_any_order_are_parts_of_their_own(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", Some(22)).await;
        for (number, bytes, last) in
            [(3, &b"same56"[..], Last::No), (0, b"same56", Last::No), (4, b"last", Last::Yes), (1, b"same56", Last::No)]
        {
            if number == 1 {
                // Three sixes and four are the announced 22: one more chunk would be too much.
                assert_eq!(taken(&send(upload, "u", number, bytes, last).await).received_chunks, 4);
            } else {
                taken(&send(upload, "u", number, bytes, last).await);
            }
        }
        assert_eq!(
            send(upload, "u", 2, b"same56", Last::No).await,
            Accepted::Refused(Refusal::Over { bytes: 28 })
        );
        let chunks = claim(upload, 9).await;
        for chunk in &chunks {
            let Shipped::Durable(_) = upload.shipped(&chunk.lease, "\"equal\"").await.expect("shipped") else {
                panic!("ours")
            };
        }
        let stored = state(upload, "u").await;
        assert_eq!(stored.receipt.durable_chunks, 4);
        assert_eq!((stored.durable(), stored.bytes_durable), (vec![0..=1, 3..=4], 22));
        // The first of them has the documented member; the others have their parts' numbers before it.
        let etags = spelled(&quaymaster, "docs", "etags", &[("upload_id", "u")]);
        let first = chunks[0].lease.number();
        for chunk in &chunks {
            let numbered = format!("{}:\"equal\"", chunk.lease.number() + 1);
            let member = if chunk.lease.number() == first { "\"equal\"" } else { &numbered };
            let score = command_text(&*subject.engine, &["ZSCORE", &etags, member]).await;
            assert_eq!(score, Some(chunk.lease.number().to_string()), "{member}");
        }
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &etags]).await, 4);
        assert!(!stored.receipt.complete, "chunk 2 is missing");
    }

    async fn what_cannot_be_a_chunk_of_the_upload_is_refused_and_changes_nothing(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        let id = "u";
        assert_eq!(refused(upload, id, MAX_CHUNKS, b"chunk", Last::No).await, Refusal::TooMany { most: MAX_CHUNKS });
        assert_eq!(refused(upload, id, 0, &[7; 17], Last::No).await, Refusal::TooLarge { most: 16 });
        assert_eq!(refused(upload, id, 0, b"abc", Last::No).await, Refusal::TooSmall { least: 4, announced: None });
        assert_eq!(refused(upload, id, 0, b"", Last::No).await, Refusal::Empty);
        assert_eq!(refused(upload, id, 1, b"", Last::Yes).await, Refusal::Empty);
        taken(&send(upload, "u", 5, b"chunk", Last::No).await);
        assert_eq!(refused(upload, id, 4, b"chunk", Last::Yes).await, Refusal::Passed { highest: 5 });
        taken(&send(upload, "u", 6, b"end", Last::Yes).await);
        assert_eq!(refused(upload, id, 7, b"chunk", Last::No).await, Refusal::AfterLast { last: 6 });
        assert_eq!(refused(upload, id, 7, b"chunk", Last::Yes).await, Refusal::OtherLast { last: 6 });
        assert_eq!(refused(upload, id, 5, b"chunk", Last::Yes).await, Refusal::OtherLast { last: 6 });
        let stored = state(upload, "u").await;
        assert_eq!((stored.receipt.received_chunks, stored.receipt.total_chunks), (2, Some(7)));
        assert_eq!((stored.bytes_received, stored.received()), (8, vec![5..=6]));

        begin(upload, "sized", Some(10)).await;
        let id = "sized";
        taken(&send(upload, "sized", 0, b"12345", Last::No).await);
        assert_eq!(refused(upload, id, 1, b"123456", Last::No).await, Refusal::Over { bytes: 11 });
        assert_eq!(refused(upload, id, 1, b"1234", Last::Yes).await, Refusal::Under { bytes: 9 });
        taken(&send(upload, "sized", 1, b"12345", Last::Yes).await);
        // Fewer bytes are staged than the chunk has.
        begin(upload, "half", None).await;
        let (stage, digest) = (Stage::fresh(), digest(b"whole"));
        upload.write("half", &stage, 0, b"who", None).await.expect("write");
        let offer = Offer { number: 0, size: 5, digest: &digest, last: Last::No, source: Source::Staged(&stage), reservation: None };
        assert_eq!(upload.accept("half", &offer).await.expect("accept"), Accepted::Refused(Refusal::Unstaged { bytes: 3 }));
        assert_eq!(state(upload, "half").await.receipt.received_chunks, 0);
    }

    async fn an_empty_file_and_a_last_chunk_found_out_late_are_complete(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "empty", Some(0)).await;
        let receipt = taken(&send(upload, "empty", 0, b"", Last::Yes).await);
        assert_eq!((receipt.received_chunks, receipt.total_chunks, receipt.complete), (1, Some(1), false));
        let chunks = claim(upload, 9).await;
        assert_eq!((chunks.len(), chunks[0].size), (1, 0));
        assert!(ship(upload, &chunks[0].lease).await.complete);
        // Whoever reads a stream may learn only afterwards that there is no more.
        begin(upload, "late", None).await;
        taken(&send(upload, "late", 0, b"first", Last::No).await);
        taken(&send(upload, "late", 1, b"second", Last::No).await);
        for chunk in claim(upload, 9).await {
            assert!(!ship(upload, &chunk.lease).await.complete);
        }
        let Accepted::Known { receipt, durable, .. } = send(upload, "late", 1, b"second", Last::Yes).await else {
            panic!("it has come before")
        };
        assert_eq!((receipt.total_chunks, receipt.complete, durable), (Some(2), true, true));
        assert_eq!(state(upload, "late").await.receipt.total_chunks, Some(2));
    }

    async fn bytes_are_staged_and_read_by_pieces(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = quaymaster.upload("roomy").expect("declared");
        let whole: Vec<u8> = (0..4 * MAX_PIECE + 5).map(|at| (at % 253) as u8).collect();
        begin(upload, "u", None).await;
        taken(&send(upload, "u", 0, &whole, Last::Yes).await);
        let mut read = Vec::new();
        loop {
            let piece = upload.read("u", 0, read.len() as u64, usize::MAX).await.expect("read");
            assert!(piece.len() <= MAX_PIECE);
            if piece.is_empty() {
                break;
            }
            read.extend_from_slice(&piece);
        }
        assert!(read == whole, "the bytes come back");
        let stage = Stage::fresh();
        upload.write("u", &stage, 0, b"given up", None).await.expect("write");
        let key = spelled(&quaymaster, "roomy", "staging", &[("upload_id", "u"), ("stage_id", stage.as_str())]);
        let ttl = command_int(&*subject.engine, &["PTTL", &key]).await;
        assert!((1..=600_000).contains(&ttl), "{ttl}");
        upload.unstage("u", &stage).await.expect("unstage");
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &key]).await, 0);
    }

    async fn bytes_that_lie_elsewhere_are_found_by_the_name_they_were_given(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        let digest = digest(b"spooled");
        let offer = |place| Offer {
            number: 0,
            size: 7,
            digest: &digest,
            last: Last::Yes,
            source: Source::Elsewhere(place),
            reservation: None,
        };
        let first = upload.accept("u", &offer("node-1/17")).await.expect("accept");
        taken(&first);
        // The same attempt again, whose answer was lost, must not be told to remove its own bytes.
        assert_eq!(upload.accept("u", &offer("node-1/17")).await.expect("accept"), first);
        let other = upload.accept("u", &offer("node-2/4")).await.expect("accept");
        assert!(matches!(other, Accepted::Known { durable: false, .. }), "{other:?}");
        let chunks = claim(upload, 1).await;
        assert_eq!(chunks[0].place, Place::Elsewhere("node-1/17".to_owned()));
        for place in ["", "store", "a b", &"x".repeat(257)] {
            let error = upload.accept("u", &offer(place)).await.expect_err("refused");
            assert_eq!(error.code, Code::RequestInvalid);
        }
    }

    async fn a_chunk_belongs_to_one_worker_until_its_lease_ends(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        taken(&send(upload, "u", 0, b"chunk", Last::No).await);
        let short = Claim { lease: Duration::from_millis(400), ..Claim::default() };
        let first = upload.claim(short).await.expect("claim").chunks.remove(0);
        assert_eq!(first.attempt, 1);
        let none = upload.claim(short).await.expect("claim");
        assert_eq!(none.chunks, []);
        let next = none.next.expect("the lease ends");
        assert!(next <= Duration::from_millis(400), "{next:?}");
        // A chunk that comes meanwhile is handed out, and not the one that is held.
        taken(&send(upload, "u", 1, b"chunk", Last::Yes).await);
        let other = claim(upload, 5).await;
        assert_eq!(other.iter().map(|chunk| chunk.lease.number()).collect::<Vec<_>>(), [1]);
        ship(upload, &other[0].lease).await;
        if subject.clock.is_some() {
            subject.pass(399).await;
            assert_eq!(upload.claim(short).await.expect("claim").chunks, []);
            subject.pass(1).await;
        } else {
            subject.pass(401).await;
        }
        // Whoever died had an attempt.
        let second = claim(upload, 5).await.remove(0);
        assert_eq!(second.attempt, 2);
        assert_eq!(upload.shipped(&first.lease, "e").await.expect("shipped"), Shipped::Lost);
        assert_eq!(upload.failed(&first.lease, "late", Next::GiveUp).await.expect("failed"), Failed::Lost);
        assert_eq!(upload.missing(&first.lease).await.expect("missing"), Held::Lost);
        assert_eq!(upload.release(&first.lease).await.expect("release"), Held::Lost);
        assert_eq!(upload.extend(&[&first.lease, &second.lease], LEASE).await.expect("extend"), [Held::Lost, Held::Ours]);
        assert_eq!(state(upload, "u").await.status, Status::Uploading);
        // Said twice it is the same, also by another hand.
        let done = ship(upload, &second.lease).await;
        assert_eq!(upload.shipped(&second.lease, "\"etag-0\"").await.expect("shipped"), Shipped::Durable(done));
        assert!(done.complete);
    }

    async fn a_lease_that_is_extended_goes_on_and_keeps_the_bytes(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = quaymaster.upload("brief").expect("declared");
        begin(upload, "u", None).await;
        taken(&send(upload, "u", 0, b"chunk", Last::Yes).await);
        let short = Duration::from_millis(300);
        let chunk = upload.claim(Claim { lease: short, ..Claim::default() }).await.expect("claim").chunks.remove(0);
        for _ in 0..8 {
            subject.pass(100).await;
            assert_eq!(upload.extend(&[&chunk.lease], short).await.expect("extend"), [Held::Ours]);
        }
        // Bytes of a chunk live 300 ms unless they are wanted.
        assert_eq!(&upload.read("u", 0, 0, 9).await.expect("read")[..], b"chunk");
        assert_eq!(in_flight(upload).await, 5);
        assert_eq!(claim(upload, 1).await, []);
        assert!(ship(upload, &chunk.lease).await.complete);
    }

    async fn a_chunk_that_failed_comes_again_later_and_a_released_one_at_once(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        taken(&send(upload, "u", 0, b"chunk", Last::No).await);
        let chunk = claim(upload, 1).await.remove(0);
        assert_eq!(upload.release(&chunk.lease).await.expect("release"), Held::Ours);
        assert_eq!(upload.release(&chunk.lease).await.expect("release"), Held::Ours, "said twice");
        let chunk = claim(upload, 1).await.remove(0);
        assert_eq!(chunk.attempt, 1, "a released attempt does not count");
        let soon = Next::Retry(Duration::from_millis(300));
        for _ in 0..2 {
            assert_eq!(upload.failed(&chunk.lease, "503", soon).await.expect("failed"), Failed::Retry { attempt: 1 });
        }
        assert_eq!(upload.shipped(&chunk.lease, "e").await.expect("shipped"), Shipped::Lost, "it was given back");
        // Whoever looks for another chunk does not get it before its time.
        taken(&send(upload, "u", 1, b"chunk", Last::Yes).await);
        let other = claim(upload, 5).await;
        assert_eq!(other.iter().map(|chunk| chunk.lease.number()).collect::<Vec<_>>(), [1]);
        ship(upload, &other[0].lease).await;
        let none = upload.claim(Claim::default()).await.expect("claim");
        assert_eq!(none.chunks, []);
        assert!(none.next.is_some_and(|next| next <= Duration::from_millis(300)), "{:?}", none.next);
        subject.pass(301).await;
        let chunk = claim(upload, 1).await.remove(0);
        assert_eq!(chunk.attempt, 2);
        assert_eq!(
            upload.failed(&chunk.lease, "no such bucket", Next::GiveUp).await.expect("failed"),
            Failed::GivenUp { attempt: 2 }
        );
        let stored = state(upload, "u").await;
        assert_eq!((stored.status, stored.error.as_deref()), (Status::Failed, Some("no such bucket")));
        assert_eq!(claim(upload, 1).await, [], "nothing of a failed upload is shipped");
        let refused = send(upload, "u", 2, b"chunk", Last::No).await;
        assert_eq!(refused, Accepted::Closed { status: Status::Failed, error: "no such bucket".to_owned() });
        let reopened = upload.reopen("u", &quaymaster::upload::Reopen::default()).await.expect("reopen");
        assert!(matches!(reopened, quaymaster::upload::Reopened::Open { waiting: 1, .. }), "{reopened:?}");
        let chunk = claim(upload, 1).await.remove(0);
        assert_eq!(chunk.attempt, 1, "every attempt begins anew");
        assert!(ship(upload, &chunk.lease).await.complete);
        assert_eq!(state(upload, "u").await.error, None);
    }

    async fn bytes_that_are_gone_are_asked_for_again_and_nothing_else_is(subject: &Subject) {
        let quaymaster = uploads(subject);
        let (engine, upload) = (&*subject.engine, docs(&quaymaster));
        begin(upload, "u", Some(15)).await;
        for number in 0..3 {
            taken(&send(upload, "u", number, b"chunk", if number == 2 { Last::Yes } else { Last::No }).await);
        }
        let chunks = claim(upload, 3).await;
        let key = |number: &str| spelled(&quaymaster, "docs", "chunk", &[("upload_id", "u"), ("chunk_number", number)]);
        // Evicted while it was held: the worker finds nothing.
        command_int(engine, &["DEL", &key("1")]).await;
        assert_eq!(upload.read("u", 1, 0, 9).await.expect("read").len(), 0);
        assert_eq!(upload.missing(&chunks[1].lease).await.expect("missing"), Held::Ours);
        assert_eq!(upload.missing(&chunks[1].lease).await.expect("missing"), Held::Ours, "said twice");
        assert_eq!(upload.shipped(&chunks[1].lease, "e").await.expect("shipped"), Shipped::Lost);
        let stored = state(upload, "u").await;
        assert_eq!((stored.resend(), stored.receipt.received_chunks, stored.bytes_received), (vec![1..=1], 2, 10));
        assert_eq!(in_flight(upload).await, 10);
        ship(upload, &chunks[0].lease).await;
        assert_eq!(upload.release(&chunks[2].lease).await.expect("release"), Held::Ours);
        // Evicted while it waited: the sweep finds it.
        command_int(engine, &["DEL", &key("2")]).await;
        let tended = upload.tend("u").await.expect("tend");
        assert_eq!((tended.lost, tended.waiting), (vec![2], 0));
        let stored = state(upload, "u").await;
        assert_eq!((stored.resend(), stored.durable(), stored.received()), (vec![1..=2], vec![0..=0], vec![]));
        assert_eq!(in_flight(upload).await, 0);
        assert_eq!(stored.receipt.total_chunks, Some(3), "the last one is known though it is lost");
        assert_eq!(send(upload, "u", 2, b"other", Last::Yes).await, Accepted::Conflict, "the same bytes are wanted");
        for number in [1, 2] {
            taken(&send(upload, "u", number, b"chunk", Last::No).await);
        }
        assert_eq!(state(upload, "u").await.resend(), []);
        // Lost and not yet noticed: the same chunk again brings the bytes back.
        command_int(engine, &["DEL", &key("1")]).await;
        let known = send(upload, "u", 1, b"chunk", Last::No).await;
        assert!(matches!(known, Accepted::Known { durable: false, .. }), "{known:?}");
        assert_eq!(&upload.read("u", 1, 0, 9).await.expect("read")[..], b"chunk");
        let chunks = claim(upload, 3).await;
        assert_eq!(chunks.len(), 2);
        for chunk in &chunks {
            ship(upload, &chunk.lease).await;
        }
        let stored = state(upload, "u").await;
        assert!(stored.receipt.complete);
        assert_eq!((stored.bytes_received, stored.bytes_durable), (15, 15));
    }

    async fn bytes_in_flight_never_exceed_their_bound_and_come_back(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        let names: Vec<Reservation> = (0..6).map(|number| Reservation::fresh("u", number)).collect();
        assert!(!busy_with(upload, &names[0], 40, LEASE).await);
        assert!(!busy_with(upload, &names[0], 40, LEASE).await, "the same name again is the same bytes");
        assert!(busy_with(upload, &names[1], 25, LEASE).await, "65 would be in flight");
        assert!(!busy_with(upload, &names[1], 24, Duration::from_millis(300)).await);
        assert_eq!(in_flight(upload).await, 64);
        assert!(busy_with(upload, &names[0], 41, LEASE).await, "a name may not grow over the bound either");
        assert_eq!(in_flight(upload).await, 64, "what did not fit has changed nothing");
        assert!(!busy_with(upload, &names[0], 30, LEASE).await, "it may shrink");
        assert!(!busy_with(upload, &names[2], 10, LEASE).await);
        assert!(busy_with(upload, &names[3], 1, LEASE).await);
        // A node died: its bytes come back by themselves when its lease is over.
        subject.pass(301).await;
        assert!(!busy_with(upload, &names[3], 24, LEASE).await);
        assert_eq!(
            upload.renew(&[&names[0], &names[1], &names[3]], LEASE).await.expect("renew"),
            [Held::Ours, Held::Lost, Held::Ours]
        );
        for name in &names {
            upload.give_back(name).await.expect("give back");
            upload.give_back(name).await.expect("said twice");
        }
        let after = upload.in_flight().await.expect("in flight");
        assert_eq!((after.bytes, after.names), (0, 0));
        let error = upload.admit(&names[0], 65, LEASE).await.expect_err("never");
        assert_eq!(error.code, Code::RequestTooLarge);
        // Many at once: whatever is admitted fits.
        let racing: Vec<Reservation> = (0..24).map(|number| Reservation::fresh("u", number)).collect();
        let asked = racing.iter().map(|name| upload.admit(name, 10, LEASE));
        let admitted = join_all(asked).await.into_iter().filter(|asked| !busy(*asked.as_ref().expect("admit"))).count();
        assert_eq!((admitted, in_flight(upload).await), (6, 60));
    }

    async fn a_reservation_becomes_its_chunk_and_ends_when_that_is_durable(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        let name = Reservation::fresh("u", 0);
        // More was reserved than came, as when a request does not say how long it is.
        assert!(!busy(upload.admit(&name, 16, LEASE).await.expect("admit")));
        taken(&offer_reserved(upload, 0, &name).await);
        assert_eq!(in_flight(upload).await, 12);
        let again = Reservation::fresh("u", 0);
        assert!(!busy(upload.admit(&again, 16, LEASE).await.expect("admit")));
        assert!(matches!(offer_reserved(upload, 0, &again).await, Accepted::Known { .. }));
        assert_eq!(in_flight(upload).await, 12, "a duplicate weighs nothing");
        // A node that stood still for too long has nothing to offer.
        let late = Reservation::fresh("u", 1);
        assert!(!busy(upload.admit(&late, 12, Duration::from_millis(200)).await.expect("admit")));
        subject.pass(201).await;
        let others = Reservation::fresh("u", 7);
        assert!(!busy(upload.admit(&others, 45, LEASE).await.expect("admit")));
        assert!(matches!(offer_reserved(upload, 1, &late).await, Accepted::Busy { .. }));
        let digest = digest(b"twelve bytes");
        let source = Source::Elsewhere("x");
        let another = Offer { number: 2, size: 12, digest: &digest, last: Last::No, source, reservation: Some(&late) };
        let error = upload.accept("u", &another).await.expect_err("the reservation of another chunk");
        assert_eq!(error.code, Code::RequestInvalid);
        assert_eq!(state(upload, "u").await.receipt.received_chunks, 1);
        upload.give_back(&others).await.expect("give back");
        assert!(matches!(offer_reserved(upload, 1, &late).await, Accepted::Busy { .. }), "given up for good");
        let anew = Reservation::fresh("u", 1);
        assert!(!busy(upload.admit(&anew, 12, LEASE).await.expect("admit")));
        taken(&offer_reserved(upload, 1, &anew).await);
        upload.give_back(&late).await.expect("nothing was staged under it");
        assert_eq!(in_flight(upload).await, 24);
        for chunk in claim(upload, 9).await {
            ship(upload, &chunk.lease).await;
        }
        let after = upload.in_flight().await.expect("in flight");
        assert_eq!((after.bytes, after.names, after.max_bytes), (0, 0, 64));
        let duplicate = Reservation::fresh("u", 0);
        assert!(!busy(upload.admit(&duplicate, 12, LEASE).await.expect("admit")));
        assert!(matches!(offer_reserved(upload, 0, &duplicate).await, Accepted::Known { durable: true, .. }));
        assert_eq!(in_flight(upload).await, 0);
    }

    async fn what_a_dead_node_had_on_its_way_is_named_once(subject: &Subject) {
        let quaymaster = uploads(subject);
        // Whose chunks are given up after 300 ms, too.
        let upload = quaymaster.upload("brief").expect("declared");
        begin(upload, "u", None).await;
        let names: Vec<Reservation> = (0..4).map(|number| Reservation::fresh("u", number)).collect();
        for name in &names[..3] {
            assert!(!busy_with(upload, name, 12, Duration::from_millis(300)).await);
        }
        let (digest, source) = (digest(b"twelve bytes"), Source::Elsewhere("there"));
        let reservation = Some(&names[2]);
        let offer = Offer { number: 2, size: 12, digest: &digest, last: Last::No, source, reservation };
        taken(&upload.accept("u", &offer).await.expect("accept"));
        assert!(upload.waits_at("u", "there").await.expect("waits_at"));
        assert!(!upload.waits_at("u", names[2].stage().as_str()).await.expect("waits_at"));
        assert_eq!(upload.renew(&[&names[1]], LEASE).await.expect("renew"), [Held::Ours]);
        let brief = Duration::from_millis(400);
        let told = async || upload.lapsed(100, brief).await.expect("lapsed");
        assert_eq!(told().await, [], "nothing before its time");
        subject.pass(301).await;
        let lapsed = told().await;
        assert_eq!(lapsed, [names[0].clone()], "not the one that is held, nor what became a chunk");
        assert_eq!((lapsed[0].chunk(), lapsed[0].stage()), (("u", 0), names[0].stage()));
        assert_eq!(in_flight(upload).await, 12);
        assert_eq!(told().await, [], "one asker has it");
        // Its owner learns of it, and brings nothing in under it, however much room there is.
        assert_eq!(upload.renew(&[&names[0]], LEASE).await.expect("renew"), [Held::Lost]);
        assert!(busy_with(upload, &names[0], 12, LEASE).await);
        assert!(matches!(offer_reserved(upload, 0, &names[0]).await, Accepted::Busy { .. }));
        // The asker died as well: the next one is told.
        subject.pass(401).await;
        assert_eq!(told().await, [names[0].clone()]);
        upload.give_back(&names[0]).await.expect("give back");
        subject.pass(401).await;
        assert_eq!(told().await, [], "it is removed");
        // Whether an admission or the sweep finds one first.
        assert!(!busy_with(upload, &names[3], 12, Duration::from_millis(300)).await);
        subject.pass(301).await;
        let other = Reservation::fresh("u", 5);
        assert!(!busy_with(upload, &other, 52, LEASE).await, "its bytes have come back");
        assert_eq!(told().await, [names[3].clone()]);
    }

    async fn uploads_are_claimed_from_in_turn(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        for id in ["a", "b", "c"] {
            begin(upload, id, None).await;
            for number in 0..3 {
                taken(&send(upload, id, number, b"chunk", Last::No).await);
                // Where the clock stands still nobody has waited longer than the others.
                subject.pass(1).await;
            }
        }
        let mut order = Vec::new();
        for _ in 0..9 {
            subject.pass(1).await;
            order.extend(claim(upload, 1).await.iter().map(|chunk| chunk.lease.upload_id().to_owned()));
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "c", "a", "b", "c"]);
        assert_eq!(claim(upload, 1).await, []);
    }

    async fn racing_senders_and_workers_ship_every_chunk_once(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        let ids = ["a", "b", "c"];
        for id in ids {
            begin(upload, id, None).await;
        }
        let senders = (0..2).flat_map(|_| ids).map(|id| async move {
            for number in 0..12 {
                let last = if number == 11 { Last::Yes } else { Last::No };
                let sent = send(upload, id, number, b"chunk", last).await;
                assert!(matches!(sent, Accepted::Taken { .. } | Accepted::Known { .. }), "{sent:?}");
            }
        });
        let workers = (0..4).map(|_| async move {
            let (mut shipped, mut idle) = (0, 0);
            while idle < 2 {
                let wait = Duration::from_millis(if subject.clock.is_some() { 0 } else { 300 });
                let claimed = upload.claim(Claim { count: 2, lease: LEASE, wait }).await.expect("claim").chunks;
                idle = if claimed.is_empty() { idle + 1 } else { 0 };
                for chunk in claimed {
                    assert_eq!(chunk.attempt, 1);
                    ship(upload, &chunk.lease).await;
                    shipped += 1;
                }
                tokio::task::yield_now().await;
            }
            shipped
        });
        let (_, mut shipped) = tokio::join!(join_all(senders), join_all(workers));
        shipped.push(0);
        for chunk in claim(upload, 1000).await {
            ship(upload, &chunk.lease).await;
            shipped.push(1);
        }
        assert_eq!(shipped.iter().sum::<usize>(), 36);
        for id in ids {
            assert!(state(upload, id).await.receipt.complete, "{id}");
        }
        assert_eq!(in_flight(upload).await, 0);
    }

    async fn ids_that_could_be_something_else_are_refused(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        for id in ["", "a b", "a:b", "a\"b", "../a", "ä", &"x".repeat(65)] {
            for error in [
                upload.create(id, &new(upload, None)).await.expect_err("create"),
                upload.status(id).await.expect_err("status"),
                upload.read(id, 0, 0, 9).await.expect_err("read"),
                upload.forget(id).await.expect_err("forget"),
            ] {
                assert_eq!(error.code, Code::RequestInvalid, "{id:?}");
            }
        }
        for lease in [Duration::ZERO, Duration::from_secs(901)] {
            let error = upload.claim(Claim { lease, ..Claim::default() }).await.expect_err("refused");
            assert_eq!(error.code, Code::RequestInvalid);
        }
    }
}
