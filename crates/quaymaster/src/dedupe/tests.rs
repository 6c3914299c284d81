//! What needs no store.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use quaymaster_schema::{Source, load};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};

use super::{First, MAX_BYTES};
use crate::{Code, Quaymaster};

#[tokio::test]
async fn answers_are_counted_and_a_value_too_large_is_refused() {
    let text = "[schema]\nname = \"t\"\nowner = \"tests\"\n[dedupe.d]\nkey = \"d:{id}\"\nttl = \"1h\"\n";
    let schema = load(&[Source { name: "t.toml", text }], &|_| None).schema.unwrap();
    let engine = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let quaymaster = Quaymaster::new(Arc::new(schema), Arc::new(engine));
    let dedupe = quaymaster.dedupe("d").unwrap();
    let large = vec![0; MAX_BYTES + 1];
    let first = First { value: Some(&large), ..First::default() };
    let error = dedupe.first(&[("id", "a")], first).await.unwrap_err();
    assert_eq!((error.code, error.detail.starts_with("value ")), (Code::RequestTooLarge, true));
    assert!(dedupe.first(&[("id", "a")], First::default()).await.unwrap().is_first());
    assert!(!dedupe.first(&[("id", "a")], First::default()).await.unwrap().is_first());
    let counts = dedupe.counts();
    assert_eq!((counts.first(), counts.duplicates(), counts.errors()), (1, 1, 1));
}
