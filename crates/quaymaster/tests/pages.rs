//! Schemas shown in the pages load without a complaint.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::Path;

use quaymaster::schema::{Source, load};

/// The fenced `toml` blocks of a page that are whole schemas.
fn schemas(page: &str) -> Vec<String> {
    page.split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|block| block.contains("[schema]"))
        .map(str::to_string)
        .collect()
}

#[test]
fn every_schema_in_the_pages_loads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    pages.extend(fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let mut seen = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|ext| ext == "md")) {
        for text in schemas(&fs::read_to_string(page).unwrap()) {
            seen += 1;
            // Secrets come from the environment only, so a page that shows one cannot give it a default.
            let secret =
                |name: &str| name.ends_with("_SECRET").then(|| "a secret of the reader's".to_owned());
            let loaded = load(&[Source { name: "page.toml", text: &text }], &secret);
            assert!(loaded.schema.is_some(), "{}:\n{text}\n{:#?}", page.display(), loaded.diagnostics);
        }
    }
    assert!(seen >= 1, "no page shows a schema");
}
