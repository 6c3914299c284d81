//! docs/layers.md: its program is the example, and answers what the page shows.

use std::process::Command;
use std::sync::Arc;

use quaymaster::Quaymaster;
use quaymaster::schema::{Source, load};
use quaymaster::store::{StoreOptions, open};

use crate::client::listener;

#[expect(dead_code, reason = "the program's own main")]
#[path = "../../../quaymaster/examples/layers.rs"]
mod example;

const PAGE: &str = include_str!("../../../../docs/layers.md");
const PROGRAM: &str = include_str!("../../../quaymaster/examples/layers.rs");

/// Where the page says the program is.
const SHOWN: &str = "http://127.0.0.1:8080";

/// Every `sh` block that is followed by an `http` block.
fn examples() -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut fences = PAGE.split("\n```");
    fences.next();
    while let (Some(block), Some(_)) = (fences.next(), fences.next()) {
        let (language, text) = block.split_once('\n').unwrap();
        blocks.push((language, text));
    }
    let pairs = blocks.windows(2).filter(|pair| pair[0].0 == "sh" && pair[1].0 == "http");
    pairs.map(|pair| (pair[0].1.to_owned(), pair[1].1.to_owned())).collect()
}

/// Seconds until a window ends depend on the moment.
fn timeless(line: &str) -> String {
    for mark in [";t=", "retry-after: "] {
        if let Some((before, seconds)) = line.split_once(mark) {
            assert!((1..=60).contains(&seconds.parse::<u64>().unwrap()), "{line}");
            return format!("{before}{mark}");
        }
    }
    line.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_of_the_page_answers_as_it_shows() {
    assert!(PAGE.contains(PROGRAM), "the page shows another program than the example");
    let loaded = load(&[Source { name: "page.toml", text: example::SCHEMA }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let store = open(StoreOptions::from_url("memory", "data".as_ref()).unwrap()).await.unwrap();
    let (listener, address) = listener().await;
    let quaymaster = Quaymaster::new(Arc::new(schema), store);
    tokio::spawn(
        async move { example::serve(quaymaster, listener).await.map_err(|error| error.to_string()) },
    );
    let examples = examples();
    assert_eq!(examples.len(), 3);
    for (script, shown) in examples {
        let script = script.replace("curl ", "curl -m 20 ").replace(SHOWN, &format!("http://{address}"));
        let ran = Command::new("sh").args(["-euc", &script]).output().unwrap();
        assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
        let told = String::from_utf8(ran.stdout).unwrap();
        let mut lines = told.lines().map(|line| timeless(line.trim_end()));
        // The page leaves out lines that say nothing here (date, content-length).
        for line in shown.lines().map(timeless) {
            assert!(lines.any(|told| told == line), "{script}\nwants {line:?} where it was told\n{told}");
        }
    }
}
