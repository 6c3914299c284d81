use proptest::prelude::*;

use super::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..30).prop_map(Bytes::from)
}

fn words() -> impl Strategy<Value = Words> {
    proptest::collection::vec(bytes(), 0..5).prop_map(|all| {
        let mut words = Words::default();
        for word in &all {
            words.push(word);
        }
        words
    })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any::<u32>(), ".{0,9}").prop_map(|(protocol, version)| Request::Hello { protocol, version }),
        (bytes(), words(), words()).prop_map(|(sha, keys, args)| Request::Run { sha, keys, args }),
        (bytes(), bytes(), words(), words()).prop_map(|(id, source, keys, args)| Request::RunSource {
            id,
            source,
            keys,
            args
        }),
        Just(Request::Time),
        bytes().prop_map(|channel| Request::Subscribe { channel }),
        (bytes(), any::<u64>()).prop_map(|(key, limit_ms)| Request::Wait { key, limit_ms }),
        bytes().prop_map(|key| Request::Facts { key }),
        (bytes(), any::<u64>(), proptest::option::of(bytes()))
            .prop_map(|(pattern, count, cursor)| Request::Scan { pattern, count, cursor }),
        Just(Request::Deployment),
        Just(Request::Ready),
        any::<u64>().prop_map(|id| Request::Cancel { id }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let leaf =
        prop_oneof![Just(Reply::Nil), any::<i64>().prop_map(Reply::Int), bytes().prop_map(Reply::Bytes)];
    leaf.prop_recursive(4, 30, 6, |inner| proptest::collection::vec(inner, 0..6).prop_map(Reply::Array))
}

fn answer() -> impl Strategy<Value = Answer> {
    let facts = (".{0,9}", any::<Option<u64>>(), any::<Option<u64>>());
    let facts = facts.prop_map(|(kind, ttl_ms, bytes)| KeyFacts { kind, ttl_ms, bytes });
    let page = (proptest::collection::vec(bytes(), 0..5), proptest::option::of(bytes()));
    let page =
        page.prop_map(|(keys, next)| ScanPage { keys, next: next.map(|next| ScanCursor(next.to_vec())) });
    let deployment =
        (".{0,9}", any::<Option<u64>>(), proptest::option::of(".{0,9}")).prop_map(|(text, n, option)| {
            Deployment {
                product: text.clone(),
                version: text,
                max_memory_bytes: n,
                connected_clients: n,
                clock_steps: n,
                persistence: option,
                ..Deployment::default()
            }
        });
    prop_oneof![
        any::<i64>().prop_map(|time_us| Answer::Welcome { time_us }),
        (any::<u32>(), ".{0,9}").prop_map(|(protocol, version)| Answer::Other { protocol, version }),
        reply().prop_map(Answer::Reply),
        (0..Code::ALL.len(), proptest::option::of(".{0,9}"), ".{0,9}", any::<bool>()).prop_map(
            |(at, field, detail, may_have_run)| {
                Answer::Failed(Failure { code: Code::ALL[at], field, detail, may_have_run })
            }
        ),
        Just(Answer::WantSource),
        any::<i64>().prop_map(Answer::Time),
        Just(Answer::Done),
        any::<bool>().prop_map(Answer::Found),
        proptest::option::of(facts).prop_map(Answer::Facts),
        page.prop_map(Answer::Page),
        deployment.prop_map(Answer::Deployment),
        bytes().prop_map(|data| Answer::Message(Message::Data(data))),
        any::<u64>().prop_map(|count| Answer::Message(Message::Missed(count))),
        any::<u64>().prop_map(|last| Answer::Goodbye { last }),
    ]
}

proptest! {
    #[test]
    fn requests_come_back_as_they_went_out(id in any::<u64>(), request in request()) {
        let frame = request.encode(id).unwrap();
        prop_assert_eq!(u32::from_le_bytes(*frame.first_chunk().unwrap()) as usize, frame.len() - 4);
        prop_assert_eq!(Request::decode(&frame[4..]), Ok((id, request)));
    }

    #[test]
    fn answers_come_back_as_they_went_out(id in any::<u64>(), answer in answer()) {
        let frame = answer.encode(id).unwrap();
        prop_assert_eq!(Answer::decode(&frame[4..]), Ok((id, answer)));
    }

    #[test]
    fn a_frame_cut_short_or_with_more_behind_it_is_garbage(answer in answer(), cut in any::<prop::sample::Index>()) {
        let frame = answer.encode(1).unwrap();
        let body = &frame[4..];
        prop_assert_eq!(Answer::decode(&body[..cut.index(body.len())]), Err(Garbage));
        prop_assert_eq!(Answer::decode(&[body, &[0]].concat()), Err(Garbage));
    }

    #[test]
    fn foreign_bytes_never_panic(tag in 0..20_u8, body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let frame = [[0; 8].as_slice(), &[tag], &body].concat();
        let _ = Request::decode(&frame);
        let _ = Answer::decode(&frame);
    }
}

#[test]
fn a_reply_nested_without_end_is_garbage() {
    let mut out = Out::frame(1, 2);
    for _ in 0..1_000_000 {
        out.0.push(3);
        out.u32(1);
    }
    assert_eq!(Answer::decode(&out.close().unwrap()[4..]), Err(Garbage));
}

#[test]
fn a_frame_longer_than_the_bound_is_not_made() {
    let args = {
        let mut args = Words::default();
        args.push(vec![0; LONGEST]);
        args
    };
    assert_eq!(Request::Run { sha: Bytes::new(), keys: Words::default(), args }.encode(1), None);
}

#[tokio::test]
async fn a_length_beyond_the_bound_ends_the_stream() {
    for length in [0, 8, LONGEST as u32 + 1, u32::MAX] {
        let bytes = length.to_le_bytes();
        assert!(read_frame(&mut bytes.as_slice()).await.is_err(), "{length}");
    }
    let whole = Request::Time.encode(7).unwrap();
    assert_eq!(read_frame(&mut whole.as_slice()).await.unwrap().as_deref(), Some(&whole[4..]));
    assert_eq!(read_frame(&mut &whole[..whole.len() - 1]).await.unwrap(), None);
}
