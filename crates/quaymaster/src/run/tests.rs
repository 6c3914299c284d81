#![expect(clippy::unwrap_used, reason = "tests")]
use super::list::foreign;
use super::pulse::hour_text;
use super::*;

#[test]
fn a_made_up_id_is_the_moment() {
    assert_eq!(fresh_id(1_769_250_600_123_456), "manual_2026-01-24T10:30:00.123456+00:00");
    assert_eq!(hour_text(1_705_327_200_000), "2024-01-15_14");
}

#[test]
fn an_error_is_cut_between_characters() {
    assert_eq!((cut("aä", 2), cut("aä", 3), cut("", 3), cut("ää", 1)), ("a", "aä", "", ""));
}

#[test]
fn lists_of_other_programs_are_read_whether_they_are_json_or_python() {
    let read = |text| foreign(text).unwrap();
    assert_eq!(read("['12345', '12346', '12347']"), ["12345", "12346", "12347"]);
    assert_eq!(read(r#"["a", 7, "b\"c"]"#), ["a", "7", "b\"c"]);
    assert_eq!(read(r#"['it\'s', "it's", 12, 'ä']"#), ["it's", "it's", "12", "ä"]);
    assert_eq!(read("[]"), Vec::<String>::new());
    for bad in ["", "12345", "['a'", "['a' 'b']", "[{}]", "[None, {'a': 1}]", "['a\\x']"] {
        assert_eq!(foreign(bad), None, "{bad:?}");
    }
}

/// Every call can be made from any thread: this compiles.
fn sendable<'a>(run: &'a Run, id: &'a str) -> futures_util::future::BoxFuture<'a, Result<()>> {
    async move {
        let _ = run.start(Some(id), None).await?;
        let _ = run.update(id, &Fields::default(), None).await?;
        let _ = run.finish(id, "completed", None).await?;
        let _ = run.show(id, Items::With).await?;
        let _ = run.list(1, None).await?;
        let _ = run.task_start(id, "t", None).await?;
        let _ = run.task_finish(id, "t", None).await?;
        let _ = run.processed(id, &["a"], None).await?;
        let _ = run.failed(id, "a", None, None).await?;
        let _ = run.failures(FailuresAsk::default()).await?;
        let _ = run.retry(RetryAsk::default()).await?;
        let _ = run.remaining(id, &["a"]).await?;
        run.sweep().await.map(drop)
    }
    .boxed()
}

#[tokio::test]
async fn a_run_begins_and_ends_on_the_store_in_memory() {
    let text = "[run.r]\nkey = \"r:{run_id}\"\nstate_ttl = \"1h\"\nhour_ttl = \"2h\"\n";
    let source = quaymaster_schema::Source { name: "r.toml", text };
    let schema = quaymaster_schema::load(&[source], &|_| None).schema.unwrap();
    let store = quaymaster_store::embedded::EmbeddedStore::memory(
        quaymaster_store::embedded::EmbeddedOptions::default(),
    )
    .await
    .unwrap();
    let quaymaster = crate::Quaymaster::new(Arc::new(schema), Arc::new(store));
    sendable(quaymaster.run("r").unwrap(), "one").await.unwrap();
    let state = quaymaster.run("r").unwrap().show("one", Items::With).await.unwrap().unwrap();
    assert_eq!((state.status.as_str(), state.processed_count, state.failed_count), ("completed", 1, 0));
}
