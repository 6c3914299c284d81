//! Rebuilding the data model from the journal.

use std::collections::HashSet;

use fjall::PersistMode;

use super::place::{read_element, read_generation, read_key};
use super::{Journal, open};
use crate::embedded::change::{Change, Generation};
use crate::{Code, Error, Result};

/// Expired keys are deleted from disk in pieces of this many.
const PIECE: usize = 10_000;

/// What loading found besides the data.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Keys handed on.
    pub(crate) keys: u64,
    /// Keys whose time had passed; they are gone from disk too.
    pub(crate) expired: u64,
    /// Collections that are gone and whose elements are still there.
    pub(crate) garbage: Vec<Generation>,
}

impl Journal {
    /// Hands everything that is alive at `now_ms` to `restore`, each collection before its elements. Of
    /// each collection that is gone one element is handed on too: its generation is not to be used again.
    pub(crate) fn load(&self, now_ms: i64, mut restore: impl FnMut(Change)) -> Result<Loaded> {
        let mut loaded = Loaded::default();
        let mut alive = HashSet::new();
        let mut expired = Vec::new();
        let damage = |what| open::damaged(&self.dir, what);
        for guard in self.keys.iter() {
            let (place, text) =
                guard.into_inner().map_err(|error| damage("a table of keys").because(error))?;
            let change = read_key(&place, &text).ok_or_else(|| damage("a key that cannot be read"))?;
            let (Change::PutString { expires_at_ms, .. } | Change::PutCollection { expires_at_ms, .. }) =
                &change
            else {
                return Err(Error::new("store.open", Code::Internal, "a key was read as something else"));
            };
            if expires_at_ms.is_some_and(|at| at < now_ms) {
                loaded.expired += 1;
                expired.push(place);
                if expired.len() == PIECE {
                    self.forget(&mut expired)?;
                }
                continue;
            }
            if let Change::PutCollection { generation, .. } = change {
                alive.insert(generation);
            }
            loaded.keys += 1;
            restore(change);
        }
        self.forget(&mut expired)?;
        for guard in self.elements.iter() {
            let (place, text) =
                guard.into_inner().map_err(|error| damage("a table of elements").because(error))?;
            let generation =
                read_generation(&place).ok_or_else(|| damage("an element that cannot be read"))?;
            if !alive.contains(&generation) {
                if loaded.garbage.last() == Some(&generation) {
                    continue;
                }
                loaded.garbage.push(generation);
            }
            restore(read_element(&place, &text).ok_or_else(|| damage("an element that cannot be read"))?);
        }
        Ok(loaded)
    }

    fn forget(&self, places: &mut Vec<fjall::Slice>) -> Result<()> {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        for place in places.drain(..) {
            batch.remove(&self.keys, place);
        }
        batch.commit().map_err(|error| open::failed(&self.dir, error))
    }
}
