//! Binds the schema's key table to one call of an upload.

use quaymaster_schema::Spelling;
use quaymaster_store::Words;

use super::Upload;
use crate::bound::{self, Key, KeyBinding};
use crate::scripts::{FlightKeys, KeyList, UploadKeys};
use crate::{Code, Error, Result};

/// The longest id of an upload, and of a stage.
const ID_MAX: usize = 64;

/// Refuses what is no id of ours: ids stand in keys, channels and JSON as they are.
pub(super) fn check_id(op: &'static str, what: &'static str, id: &str) -> Result<()> {
    let fine = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(fine) {
        let detail = format!("{what}: 1 to {ID_MAX} letters, digits, - and _");
        return Err(Error::new(op, Code::RequestInvalid, detail).field(what));
    }
    Ok(())
}

impl Upload {
    /// What names an upload in its keys.
    pub(super) fn named<'a>(&'a self, id: &'a str) -> [(&'a str, &'a str); 1] {
        [(&self.id_name, id)]
    }

    fn bind(&self, op: &'static str, role: &str, values: Key<'_>, keys: &mut Words) -> Result<()> {
        self.bound.role(op, role, values)?.spell(op, self.bound.engine.topology(), keys)
    }

    /// The keys of the upload that `named` names.
    pub(super) fn own<'a>(&'a self, op: &'static str, named: Key<'a>) -> Result<UploadKeys<'a>> {
        check_id(op, "upload_id", named.first().map_or("", |(_, id)| id))?;
        let of = |role| self.bound.role(op, role, named);
        Ok(UploadKeys {
            state: of("state")?,
            work: of("work")?,
            received: of("received")?,
            map: of("map")?,
            todo: of("todo")?,
            leases: of("leases")?,
            etags: of("etags")?,
            metadata: of("metadata")?,
        })
    }

    /// Appends the key of a chunk's bytes.
    pub(super) fn bind_chunk(&self, op: &'static str, id: &str, number: u32, keys: &mut Words) -> Result<()> {
        check_id(op, "upload_id", id)?;
        let mut digits = itoa::Buffer::new();
        self.bind(op, "chunk", &self.chunk_named(id, digits.format(number)), keys)
    }

    /// What names a chunk in its key.
    pub(super) fn chunk_named<'a>(&'a self, id: &'a str, number: &'a str) -> [(&'a str, &'a str); 2] {
        [(&self.id_name, id), ("chunk_number", number)]
    }

    /// Puts the keys of these chunks.
    pub(super) fn put_chunks(
        &self,
        op: &'static str,
        id: &str,
        numbers: impl Iterator<Item = u32>,
        keys: &mut KeyList<'_, '_>,
    ) -> Result<()> {
        let mut digits = itoa::Buffer::new();
        for number in numbers {
            keys.put(self.bound.role(op, "chunk", &self.chunk_named(id, digits.format(number)))?)?;
        }
        Ok(())
    }

    /// What names staged bytes in their key.
    pub(super) fn staging_named<'a>(
        &'a self,
        op: &'static str,
        id: &'a str,
        stage: &'a str,
    ) -> Result<[(&'a str, &'a str); 2]> {
        check_id(op, "upload_id", id)?;
        check_id(op, "stage", stage)?;
        Ok([(&self.id_name, id), ("stage_id", stage)])
    }

    pub(super) fn bind_staging(
        &self,
        op: &'static str,
        id: &str,
        stage: &str,
        keys: &mut Words,
    ) -> Result<()> {
        self.bind(op, "staging", &self.staging_named(op, id, stage)?, keys)
    }

    /// One of the keys that all uploads share.
    pub(super) fn index(&self, op: &'static str, role: &str) -> Result<KeyBinding<'_>> {
        self.bound.role(op, role, &[])
    }

    /// The account of bytes in flight.
    pub(super) fn flight(&self, op: &'static str) -> Result<FlightKeys<'_>> {
        Ok(FlightKeys {
            names: self.index(op, "in_flight")?,
            ends: self.index(op, "in_flight_until")?,
            sum: self.index(op, "in_flight_total")?,
        })
    }

    /// The name of a channel; channels are spelled alike on every topology.
    fn channel(&self, op: &'static str, role: &str, values: Key<'_>) -> Result<Vec<u8>> {
        let resource = &self.bound.resource;
        let row = resource.channel(role).ok_or_else(|| {
            let detail = format!("{}.{} has no channel {role:?}", resource.kind, resource.name);
            Error::new(op, Code::Internal, detail)
        })?;
        let mut name = Vec::new();
        row.pattern
            .render(values, 0, Spelling::Single, &mut name)
            .map_err(|error| bound::unspellable(op, error))?;
        Ok(name)
    }

    /// Where progress of the upload `id` is published.
    pub(super) fn progress_channel(&self, op: &'static str, id: &str) -> Result<Vec<u8>> {
        self.channel(op, "progress", &[(&self.id_name, id)])
    }

    /// Where arrivals of chunks are published.
    pub(super) fn arrival_channel(&self, op: &'static str) -> Result<Vec<u8>> {
        self.channel(op, "received", &[])
    }
}

/// What an attempt to send a chunk is called in the account of bytes in flight.
pub(super) fn flight_name(id: &str, number: u32, attempt: &str) -> String {
    format!("{id}/{number}/{attempt}")
}

/// Upload and number of such a name.
pub(super) fn flight_chunk(name: &str) -> Option<(&str, u32)> {
    let mut parts = name.split('/');
    let (id, number, _attempt) = (parts.next()?, parts.next()?, parts.next()?);
    Some((id, number.parse().ok()?))
}
