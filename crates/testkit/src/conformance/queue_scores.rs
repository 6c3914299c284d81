//! Items of a priority queue by their score.

use quaymaster::queue::{Item, Push, Queue, Scores, Trim};
use quaymaster::{Code, Quaymaster};

use super::queue::{claim, code, declare, payloads, places, push, spelled};
use super::{Subject, command, command_int};

fn ranked(subject: &Subject) -> (Quaymaster, Queue) {
    declare(subject, "order = \"priority\"")
}

async fn filled(queue: &Queue) {
    for (priority, payload) in
        [(5.0, "\"five\""), (-1.5, "\"low\""), (9.0, "\"nine\""), (5.0, "\"five again\"")]
    {
        let push = Push { priority: Some(priority), ..Push::one(payload) };
        assert_eq!(queue.push(push).await.expect("push").accepted, 1);
    }
}

fn between(min: f64, max: f64) -> Scores {
    Scores { min: Some(min), max: Some(max) }
}

fn from(min: f64) -> Scores {
    Scores { min: Some(min), max: None }
}

fn up_to(max: f64) -> Scores {
    Scores { min: None, max: Some(max) }
}

/// Scores and payloads of a page, and how many there are in all.
async fn shown(queue: &Queue, scores: Scores, count: usize, offset: u64) -> (Vec<(f64, String)>, u64) {
    let page = queue.range(scores, count, offset).await.expect("range");
    let text = |item: &Item| String::from_utf8_lossy(item.bytes()).into_owned();
    (page.items.iter().map(|(score, item)| (*score, text(item))).collect(), page.length)
}

fn of(items: &[(f64, &str)], length: u64) -> (Vec<(f64, String)>, u64) {
    (items.iter().map(|(score, item)| (*score, (*item).to_owned())).collect(), length)
}

crate::cases! {
    async fn a_range_shows_scores_and_items_lowest_first_and_both_ends_count(subject: &Subject) {
        let (quaymaster, queue) = ranked(subject);
        let key = spelled(subject, &quaymaster, "items", &[]);
        assert_eq!(shown(&queue, Scores::default(), 10, 0).await, of(&[], 0));
        filled(&queue).await;
        command_int(&*subject.engine, &["ZADD", &key, "7", "item_id"]).await;
        // Members of one score lie as ZPOPMAX takes them, the oldest last.
        let all = [(-1.5, "\"low\""), (5.0, "\"five again\""), (5.0, "\"five\""), (7.0, "\"item_id\""), (9.0, "\"nine\"")];
        assert_eq!(shown(&queue, Scores::default(), 10, 0).await, of(&all, 5));
        assert_eq!(shown(&queue, between(5.0, 7.0), 10, 0).await, of(&all[1..4], 3));
        assert_eq!(shown(&queue, up_to(4.999), 10, 0).await, of(&all[..1], 1));
        assert_eq!(shown(&queue, from(7.5), 10, 0).await, of(&all[4..], 1));
        assert_eq!(shown(&queue, between(5.0, 9.0), 2, 1).await, of(&all[2..4], 4), "a page");
        assert_eq!(shown(&queue, between(5.0, 9.0), 2, 4).await, of(&[], 4), "behind the last");
        assert_eq!(shown(&queue, between(5.0, 9.0), 2, 1 << 53).await, of(&[], 4));
        assert_eq!(shown(&queue, between(9.0, 5.0), 10, 0).await, of(&[], 0), "nothing is between");
        assert_eq!(places(&queue).await, (5, 0, 0, 0), "nothing was taken");
        command(&*subject.engine, key.as_bytes(), &[b"ZADD", key.as_bytes(), b"99", b"\xff"]).await.expect("ZADD");
        let page = queue.range(from(99.0), 1, 0).await.expect("range");
        assert!(matches!(&page.items[..], [(_, Item::Raw { .. })]), "{page:?}");
    }

    async fn a_range_of_large_items_ends_early_and_pages_meet(subject: &Subject) {
        let (_, queue) = ranked(subject);
        let large = format!("\"{}\"", "a".repeat(900_000));
        for n in 0..20 {
            let push = Push { priority: Some(f64::from(n)), ..Push::one(large.clone()) };
            assert_eq!(queue.push(push).await.expect("push").accepted, 1);
        }
        let (mut seen, mut offset) = (Vec::new(), 0);
        while seen.len() < 20 {
            let page = queue.range(from(0.0), 1000, offset).await.expect("range");
            assert!((1..20).contains(&page.items.len()) && page.length == 20, "{} items", page.items.len());
            offset += page.items.len() as u64;
            seen.extend(page.items.iter().map(|(score, _)| *score));
        }
        assert_eq!(seen, (0..20).map(f64::from).collect::<Vec<_>>());
    }

    async fn a_trim_removes_what_is_between_and_nothing_else(subject: &Subject) {
        let (_, queue) = ranked(subject);
        filled(&queue).await;
        let mut heard = Vec::new();
        assert_eq!(queue.trim(Trim::up_to(-2.0), |removed| heard.push(removed)).await.expect("trim"), 0);
        let one = Trim { min: Some(-1.5), count: Some(1), ..Trim::up_to(5.0) };
        assert_eq!(queue.trim(one, |removed| heard.push(removed)).await.expect("trim"), 1);
        assert_eq!(heard, [1]);
        let (left, _) = shown(&queue, Scores::default(), 10, 0).await;
        assert_eq!(left.len(), 3, "the lowest went first: {left:?}");
        assert!(left[0].0 > 4.9, "{left:?}");
        let fives = Trim { min: Some(5.0), ..Trim::up_to(5.0) };
        assert_eq!(queue.trim(fives, |_| ()).await.expect("trim"), 2);
        let totals = queue.pressure().await.expect("pressure").totals;
        assert_eq!((totals.pushed, totals.dropped), (4, 3), "they count as dropped");
        assert_eq!(payloads(&claim(&queue, 5).await), ["\"nine\""]);
        assert_eq!(queue.trim(Trim::up_to(100.0), |_| ()).await.expect("trim"), 0, "a claimed job stays");
        assert_eq!(places(&queue).await, (0, 1, 0, 0));
    }

    async fn a_trim_that_is_asked_again_removes_nothing_more(subject: &Subject) {
        let (_, queue) = ranked(subject);
        filled(&queue).await;
        let which = Trim { request_id: Some("t".into()), ..Trim::up_to(5.0) };
        assert_eq!(queue.trim(which.clone(), |_| ()).await.expect("trim"), 3);
        filled(&queue).await;
        let other = Push { request_id: Some("t".into()), ..Push::one("1") };
        assert_eq!(code(queue.push(other).await), Code::RequestReused, "it is no foreign record");
        assert_eq!(queue.trim(which, |_| ()).await.expect("trim"), 3, "the first answer");
        assert_eq!(places(&queue).await.0, 5);
        let none = Trim { request_id: Some("none".into()), ..Trim::up_to(-9.0) };
        assert_eq!(queue.trim(none.clone(), |_| ()).await.expect("trim"), 0);
        let low = Push { priority: Some(-9.0), ..Push::one("0") };
        assert_eq!(queue.push(low).await.expect("push").accepted, 1);
        assert_eq!(queue.trim(none, |_| ()).await.expect("trim"), 0);
    }

    async fn only_a_priority_queue_has_scores_and_only_numbers_are_some(subject: &Subject) {
        let (_, fifo) = declare(subject, "");
        push(&fifo, "1").await;
        for (scores, field) in [(Scores::default(), "max"), (between(1.0, 2.0), "min")] {
            let refused = fifo.range(scores, 10, 0).await.expect_err("a fifo queue");
            assert_eq!((refused.code, refused.field.as_deref()), (Code::ResourceMismatch, Some(field)));
        }
        assert_eq!(code(fifo.trim(Trim::up_to(9.0), |_| ()).await), Code::ResourceMismatch);
        assert_eq!(places(&fifo).await.0, 1);
        let (quaymaster, queue) = ranked(&subject.apart("ranked"));
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(code(queue.range(from(wrong), 10, 0).await), Code::RequestInvalid);
            assert_eq!(code(queue.trim(Trim::up_to(wrong), |_| ()).await), Code::RequestInvalid);
        }
        for count in [0, 1001] {
            assert_eq!(code(queue.range(Scores::default(), count, 0).await), Code::RequestInvalid);
        }
        let key = spelled(&subject.apart("ranked"), &quaymaster, "items", &[]);
        command_int(&*subject.engine, &["RPUSH", &key, "x"]).await;
        assert_eq!(code(queue.range(Scores::default(), 10, 0).await), Code::KeyWrongType);
        assert_eq!(code(queue.trim(Trim::up_to(9.0), |_| ()).await), Code::KeyWrongType);
    }
}
