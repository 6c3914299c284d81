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
        let mut names = self.prefixed().filter_map(|document| {
            let named = [document.prefix.as_bytes(), key].concat();
            let found = self.explain(&named)?;
            let owner = self.documents.iter().find(|document| document.name == found.resource.document)?;
            let moved = is_moved(&found.row.pattern, &document.prefix, found.spelling);
            (owner.prefix == document.prefix && moved).then_some(named)
        });
        // Schemas that would both have made it could not be loaded together then: nobody can tell whose it is.
        names.next().filter(|_| names.next().is_none())
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
        patterns.filter(move |pattern| is_moved(pattern, &document.prefix, spelling))
    }

    /// Whether a document has a prefix: no others have keys with old names.
    pub fn has_prefixes(&self) -> bool {
        self.prefixed().next().is_some()
    }

    fn prefixed(&self) -> impl Iterator<Item = &Document> {
        self.documents.iter().filter(|document| !document.prefix.is_empty())
    }
}

/// Whether the prefix was put in front of the pattern's hash tag. A tag around a part of the documented key,
/// `p:{a}:b` for `p:a:b`, has always stood behind it.
fn is_moved(pattern: &Pattern, prefix: &str, spelling: Spelling) -> bool {
    let tagged =
        pattern.literal_head(spelling).strip_prefix(prefix).is_some_and(|rest| rest.starts_with('{'));
    tagged && without_tag(pattern.spelled(spelling), prefix.len()) != pattern.spelled(Spelling::Single)
}

/// `spelled` without the braces of the tag that begins at `at`. A tag may have placeholders in it.
fn without_tag(spelled: &str, at: usize) -> String {
    let mut depth = 0;
    let end = spelled[at..].find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    });
    let end = at + end.unwrap_or(spelled.len() - at - 1);
    [&spelled[..at], &spelled[at + 1..end], &spelled[end + 1..]].concat()
}
