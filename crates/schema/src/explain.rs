//! From a key to the resource it belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use crate::kind::Spelling;
use crate::pattern::Part;
use crate::schema::{Explained, Resource};

#[derive(Debug, Clone, Copy)]
struct Entry {
    resource: usize,
    row: usize,
    spelling: Spelling,
}

/// The patterns by the text before their first `:`; an audit explains every key of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    by_head: HashMap<Vec<u8>, Vec<Entry>>,
    /// Patterns that begin with a value.
    headless: Vec<Entry>,
}

fn head(key: &[u8]) -> Option<&[u8]> {
    key.iter().position(|byte| *byte == b':').map(|at| &key[..at])
}

impl Index {
    pub(crate) fn new(resources: &[Arc<Resource>]) -> Self {
        let mut index = Index::default();
        for (r, resource) in resources.iter().enumerate() {
            for (k, row) in resource.keys.iter().enumerate() {
                for spelling in [Spelling::Single, Spelling::Cluster] {
                    let parts = row.pattern.parts(spelling);
                    if spelling == Spelling::Cluster && parts == row.pattern.parts(Spelling::Single) {
                        continue;
                    }
                    let entry = Entry { resource: r, row: k, spelling };
                    let text = match parts {
                        [Part::Text(text)] => Some(head(text.as_bytes()).unwrap_or(text.as_bytes())),
                        [Part::Text(text), ..] => head(text.as_bytes()),
                        _ => None,
                    };
                    match text {
                        Some(text) => index.by_head.entry(text.to_vec()).or_default().push(entry),
                        None => index.headless.push(entry),
                    }
                }
            }
        }
        index
    }

    pub(crate) fn explain<'s>(&self, resources: &'s [Arc<Resource>], key: &[u8]) -> Option<Explained<'s>> {
        let candidates = self.by_head.get(head(key).unwrap_or(key)).into_iter().flatten();
        candidates.chain(&self.headless).find_map(|entry| {
            let resource = resources.get(entry.resource)?;
            let row = resource.keys.get(entry.row)?;
            let parsed = row.pattern.parse_as(key, entry.spelling)?;
            Some(Explained {
                resource,
                row,
                spelling: entry.spelling,
                values: parsed.values,
                bucket: parsed.bucket,
            })
        })
    }
}
