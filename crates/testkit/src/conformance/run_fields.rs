//! What every run must do on every store: the names in its hash, how long it is kept, its busiest hour.

use quaymaster::Code;
use quaymaster::limit::Charge;
use quaymaster::run::{Fields, Items};

use super::run::{hash, run, runs, show, spelled};
use super::{Subject, command_int};

crate::cases! {
    async fn the_hash_has_the_names_of_the_schema_and_answers_have_their_own(subject: &Subject) {
        let quaymaster = runs(subject);
        let (engine, named) = (&*subject.engine, run(&quaymaster, "named"));
        let key = spelled(&quaymaster, "named", "state", &[("job", "r")], 0);
        let _ = named.start(Some("r"), None).await.expect("start");
        let _ = named.processed("r", &["1", "2"], None).await.expect("processed");
        let calls = quaymaster.limit("calls").expect("declared");
        assert!(calls.take(&[], Charge::of(3)).await.expect("take").is_allowed());
        let state = show(named, "r").await;
        assert_eq!((state.calls_this_hour, state.items.expect("the list").to_vec()), (3, vec!["1".into(), "2".into()]));
        let seen = hash(&quaymaster, &key).await;
        let names: Vec<&str> = seen.keys().map(String::as_str).collect();
        assert_eq!(names, ["calls", "current_hour", "job", "pages.done", "redis_keys", "start_time", "status"]);
        assert_eq!((seen["calls"].as_str(), seen["pages.done"].as_str()), ("3", "[\"1\",\"2\"]"));
        // What is rendered is not the caller's; the names of other schemas are.
        for (name, code) in [("calls", Some(Code::RunField)), ("pages.done", Some(Code::RunField)), ("api_calls_this_hour", None)] {
            let set = Fields { own: &[(name, "7")], ..Fields::default() };
            let told = named.update("r", &set, None).await;
            assert_eq!(told.err().map(|error| error.code), code, "{name}");
        }
        let _ = named.processed("r", &["3"], None).await.expect("processed");
        let _ = named.finish("r", "completed", None).await.expect("finish");
        assert_eq!(hash(&quaymaster, &key).await["pages.done"], "[\"1\",\"2\",\"3\"]");
        // A run that another program began under these names.
        let key = spelled(&quaymaster, "named", "state", &[("job", "theirs")], 0);
        for (name, value) in [("job", "theirs"), ("status", "processing"), ("pages.done", "['7', '8']")] {
            command_int(engine, &["HSET", &key, name, value]).await;
        }
        let state = named.show("theirs", Items::With).await.expect("show").expect("a run");
        assert_eq!(state.items.expect("the list").to_vec(), ["7", "8"]);
    }
}
