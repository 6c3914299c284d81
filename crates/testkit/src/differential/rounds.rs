//! What every kind of history is compared by: answers round by round, and what is held at the end.

use std::fmt::Debug;

use super::{Pair, Side};

/// One history on one store.
pub(super) trait World {
    /// Everything it has left there, in an order of its own.
    async fn everything(&self, side: &Side) -> Vec<String>;
}

/// The first of a round's answers that are not alike; those that are are noted. `deed_of` says what was done by place.
pub(super) fn unlike<'a, D: Debug + 'a>(
    said: impl IntoIterator<Item = Option<(String, String)>>,
    deed_of: impl Fn(usize) -> &'a D,
    mut note: impl FnMut(&'a D, &str),
) -> Option<(usize, String)> {
    for (index, said) in said.into_iter().enumerate() {
        let Some((ours, theirs)) = said else { continue };
        let deed = deed_of(index);
        if ours != theirs {
            return Some((index, format!("  {deed:?}\n  ours   {ours}\n  theirs {theirs}")));
        }
        note(deed, &ours);
    }
    None
}

impl Pair {
    /// Both clocks at once.
    pub(super) async fn set_time(&self, us: i64) {
        self.ours.set_time(us).await;
        self.theirs.set_time(us).await;
    }

    /// How many keys the worlds hold alike, or the first that do not. Then everything under `base` is removed.
    pub(super) async fn alike_at_end<W: World>(
        &self,
        base: &str,
        worlds: &[(W, W)],
    ) -> Result<u64, (usize, String)> {
        let mut keys = 0;
        for (index, (ours, theirs)) in worlds.iter().enumerate() {
            let (held, wanted) = (ours.everything(&self.ours).await, theirs.everything(&self.theirs).await);
            if held != wanted {
                let differs = held.iter().zip(&wanted).find(|(ours, theirs)| ours != theirs);
                return Err((
                    index,
                    format!("  at the end {differs:?} of {} and {}", held.len(), wanted.len()),
                ));
            }
            keys += held.len() as u64;
        }
        for side in [&self.ours, &self.theirs] {
            side.clear(base).await;
        }
        Ok(keys)
    }
}
