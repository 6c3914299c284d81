//! A build without SQL: there is never a database.
#![expect(clippy::unused_async, reason = "the shape of the real one")]

use quaymaster_schema::LimitSpec;

use super::{Counting, DatabaseOptions, Position, Uncounted};
use crate::Result;
use crate::limit::{Raw, Word};

/// Cannot be made: [`DatabaseOptions::from_url`] refuses.
#[derive(Debug)]
pub(crate) enum Database {}

impl Database {
    pub(crate) fn new(_: DatabaseOptions) -> Self {
        unreachable!("no options without SQL")
    }
    pub(crate) async fn count(&self, _: &Counting<'_>) -> Result<(Word, Raw, bool)> {
        match *self {}
    }
    pub(crate) fn is_waiting(&self) -> bool {
        match *self {}
    }
    pub(in crate::outage) fn counted(&self) -> u64 {
        match *self {}
    }
    pub(in crate::outage) fn clean(&self, _: u64) {
        match *self {}
    }
    pub(in crate::outage) async fn purge(&self) {
        match *self {}
    }
    pub(in crate::outage) async fn uncarried<'l>(
        &self,
        _: Option<Position>,
        _: impl Fn(&str) -> Option<&'l LimitSpec>,
    ) -> Result<(Vec<Uncounted>, Option<Position>)> {
        match *self {}
    }
    pub(in crate::outage) async fn carried(&self, _: &Uncounted) -> Result<()> {
        match *self {}
    }
}
