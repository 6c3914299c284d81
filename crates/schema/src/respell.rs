//! Names from before the prefix stood in front of a hash tag: `{ha:stats}:beats` is `ha:{ha:stats}:beats` now.

use crate::kind::Spelling;
use crate::pattern::Pattern;
use crate::schema::{Document, Schema};

impl Schema {
    /// The name of today for a key that an earlier version named; `None` for every other key.
    pub fn respelled(&self, key: &[u8]) -> Option<Vec<u8>> {
        // A key that the schema makes today keeps its name.
        if !key.starts_with(b"{") || self.explain(key).is_some() {
            return None;
        }
        self.prefixed().find_map(|document| {
            let named = [document.prefix.as_bytes(), key].concat();
            let found = self.explain(&named)?;
            let owner = self.documents.iter().find(|document| document.name == found.resource.document)?;
            (owner.prefix == document.prefix).then_some(named)
        })
    }

    /// The names of earlier versions that have no placeholder: they can be looked up without a scan.
    pub fn old_names(&self, spelling: Spelling) -> Vec<String> {
        let fixed =
            |pattern: &&Pattern| pattern.placeholders().next().is_none() && pattern.bucket().is_none();
        let old = |document: &Document| -> Vec<String> {
            let patterns = self.moved(document, spelling).filter(fixed);
            patterns.map(|pattern| pattern.spelled(spelling)[document.prefix.len()..].to_owned()).collect()
        };
        self.prefixed().flat_map(old).collect()
    }

    /// Documents whose keys had other names in one keyspace, with the patterns of these keys.
    pub fn respelled_patterns(&self) -> Vec<(&Document, Vec<&str>)> {
        let patterns =
            |document| self.moved(document, Spelling::Single).map(Pattern::text).collect::<Vec<_>>();
        let all = self.prefixed().map(|document| (document, patterns(document)));
        all.filter(|(_, patterns)| !patterns.is_empty()).collect()
    }

    /// Patterns of a document that had no prefix in front of their tag.
    fn moved<'s>(&'s self, document: &'s Document, spelling: Spelling) -> impl Iterator<Item = &'s Pattern> {
        let resources = self.resources.iter().filter(|resource| resource.document == document.name);
        let patterns = resources.flat_map(|resource| &resource.keys).map(|row| &row.pattern);
        patterns.filter(move |pattern| {
            pattern
                .literal_head(spelling)
                .strip_prefix(&document.prefix)
                .is_some_and(|rest| rest.starts_with('{'))
        })
    }

    /// Whether a document has a prefix: no others have keys with old names.
    pub fn has_prefixes(&self) -> bool {
        self.prefixed().next().is_some()
    }

    fn prefixed(&self) -> impl Iterator<Item = &Document> {
        self.documents.iter().filter(|document| !document.prefix.is_empty())
    }
}
