//! Files of the repository that the declarations of the fields make.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

/// Writes the files anew instead of comparing them.
const REGENERATE: &str = "QUAYMASTER_REGENERATE";

fn is_as_made(file: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os(REGENERATE).is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = found.lines().zip(made.lines()).take_while(|(found, made)| found == made).count() + 1;
    assert!(
        found == made,
        "{file}:{line} is not what crates/schema/src/field declares; write it anew with\n  \
         {REGENERATE}=1 cargo test -p quaymaster-schema --test generated"
    );
}

#[test]
fn the_page_of_schema_files_is_made_from_the_declarations() {
    is_as_made("docs/schema.md", &quaymaster_schema::reference());
}

#[test]
fn the_json_schema_is_made_from_the_declarations() {
    is_as_made("schemas/quaymaster.schema.json", &quaymaster_schema::json_schema());
}
