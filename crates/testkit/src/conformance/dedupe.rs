//! What every dedupe must do on every store, and a scene of hostile keys.

use futures_util::future::{BoxFuture, join_all};
use quaymaster::dedupe::{First, Seen};
use quaymaster::{Code, Quaymaster, Seal, Settings};
use quaymaster_schema::Kind;

use super::{Subject, command_int, command_text};
use crate::hostile::{Row, Scene, Stage};

const A: &[(&str, &str)] = &[("id", "a")];

fn dedupes(subject: &Subject) -> Quaymaster {
    subject.schema(
        "[dedupe.image]\nkey = \"image:{id}\"\nttl = \"10s\"\n\
         [dedupe.brief]\nkey = \"brief:{id}\"\nttl = \"500ms\"\n\
         [dedupe.hourly]\nkey = \"hourly:{id}:{hour}\"\nttl = \"1h\"\n\
         [dedupe.secret]\nkey = \"secret:{id}\"\nttl = \"10s\"\nsensitive = true\n",
    )
}

fn of(value: &str) -> First<'_> {
    First { value: Some(value.as_bytes()), request_id: None }
}

fn duplicate(value: &str) -> Seen {
    Seen::Duplicate { value: value.to_owned().into() }
}

crate::cases! {
    async fn of_any_number_of_callers_one_is_the_first_and_all_learn_its_value(subject: &Subject) {
        let nodes: Vec<Quaymaster> = (0..2).map(|_| dedupes(subject)).collect();
        let values: Vec<String> = (0..50).map(|caller| format!("caller {caller}")).collect();
        let calls = values.iter().enumerate().map(|(caller, value)| {
            nodes[caller % 2].dedupe("image").expect("declared").first(A, of(value))
        });
        let seen: Vec<Seen> = join_all(calls).await.into_iter().map(|seen| seen.expect("first")).collect();
        let winners: Vec<usize> = (0..50).filter(|caller| seen[*caller].is_first()).collect();
        assert_eq!(winners.len(), 1, "{seen:?}");
        let left = duplicate(&values[winners[0]]);
        assert_eq!(seen.iter().filter(|seen| **seen == left).count(), 49, "{seen:?}");
    }

    async fn it_is_forgotten_when_its_time_is_over_and_not_before(subject: &Subject) {
        let quaymaster = dedupes(subject);
        let image = quaymaster.dedupe("image").expect("declared");
        let brief = quaymaster.dedupe("brief").expect("declared");
        assert_eq!(image.first(A, First::default()).await.expect("first"), Seen::First);
        let ttl = command_int(&*subject.engine, &["PTTL", &format!("{}image:a", subject.prefix)]).await;
        assert!((1..=10_000).contains(&ttl), "{ttl}");
        assert_eq!(image.first(A, First::default()).await.expect("first"), duplicate("1"));
        let after = command_int(&*subject.engine, &["PTTL", &format!("{}image:a", subject.prefix)]).await;
        assert!(after <= ttl, "a duplicate does not prolong it");
        assert_eq!(brief.first(A, First::default()).await.expect("first"), Seen::First);
        subject.pass(501).await;
        assert_eq!(brief.first(A, First::default()).await.expect("first"), Seen::First);
    }

    async fn a_repeated_request_stays_the_first(subject: &Subject) {
        let quaymaster = dedupes(subject);
        let image = quaymaster.dedupe("image").expect("declared");
        let named = First { request_id: Some("r1"), ..of("mine") };
        for _ in 0..3 {
            assert_eq!(image.first(A, named).await.expect("first"), Seen::First);
        }
        let other = First { request_id: Some("r2"), ..of("other") };
        assert_eq!(image.first(A, other).await.expect("first"), duplicate("mine"));
    }

    async fn what_other_programs_left_counts_and_gets_an_end(subject: &Subject) {
        let quaymaster = dedupes(subject);
        let image = quaymaster.dedupe("image").expect("declared");
        let key = format!("{}image:a", subject.prefix);
        command_text(&*subject.engine, &["SET", &key, "/images/1.jpg"]).await;
        assert_eq!(image.first(A, First::default()).await.expect("first"), duplicate("/images/1.jpg"));
        assert!(command_int(&*subject.engine, &["PTTL", &key]).await > 0, "duplicates for ever would be a loss");
        command_int(&*subject.engine, &["DEL", &key]).await;
        command_int(&*subject.engine, &["RPUSH", &key, "x"]).await;
        assert_eq!(image.first(A, First::default()).await.expect_err("a list").code, Code::KeyWrongType);
    }

    async fn a_bucket_in_the_key_is_the_stores(subject: &Subject) {
        let lying = std::sync::Arc::new(crate::liar::Liar::new(subject.engine.clone(), 3_600_000));
        let wrong = Quaymaster::new(dedupes(subject).schema().clone(), lying);
        let right = dedupes(subject);
        let (wrong, right) = (wrong.dedupe("hourly"), right.dedupe("hourly"));
        assert!(wrong.expect("declared").first(A, of("a")).await.expect("first").is_first());
        // A node whose clock is an hour ahead asks in the same hour as all others.
        assert_eq!(right.expect("declared").first(A, of("b")).await.expect("first"), duplicate("a"));
    }

    async fn a_sensitive_value_lies_sealed(subject: &Subject) {
        let seal = Seal::from_text("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key");
        let settings = Settings { seal, ..Settings::default() };
        let quaymaster = Quaymaster::with(dedupes(subject).schema().clone(), subject.engine.clone(), settings);
        let secret = quaymaster.dedupe("secret").expect("declared");
        assert!(secret.first(A, of("hunter2")).await.expect("first").is_first());
        let lies = command_text(&*subject.engine, &["GET", &format!("{}secret:a", subject.prefix)]).await;
        assert!(!lies.expect("a value").contains("hunter2"));
        assert_eq!(secret.first(A, of("other")).await.expect("first"), duplicate("hunter2"));
    }
}

const SCHEMA: &str = "[dedupe.seen]\nkey = \"seen:{id}\"\nttl = \"1h\"\n";
const VALUES: &[(&str, &str)] = &[("id", "a"), ("request_id", "asked")];
const ROWS: &[Row] = &[(Kind::Dedupe, "seen", "first"), (Kind::Dedupe, "seen", "request")];

pub(crate) const SCENES: &[Scene] =
    &[Scene { name: "dedupe", schema: SCHEMA, values: VALUES, rows: ROWS, play }];

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let dedupe = stage.quaymaster.dedupe("seen").expect("declared");
        stage.call("first", dedupe.first(A, First::default())).await;
        stage.spoil().await;
        stage.call("first", dedupe.first(A, First::default())).await;
        let asked = First { request_id: Some("asked"), ..First::default() };
        stage.call("first with a request", dedupe.first(A, asked)).await;
    })
}
