//! Binds the schema's key table to one call of an upload.

use quaymaster_schema::Spelling;
use quaymaster_store::Words;

use super::Upload;
use crate::bound::{self, Key};
use crate::{Code, Error, Result};

/// An upload's own keys, in the order of `lua/inc/upload.lua`.
const OWN: [&str; 8] = ["state", "work", "received", "map", "todo", "leases", "etags", "metadata"];

/// The account of bytes in flight, in the order every script takes it.
pub(super) const FLIGHT: [&str; 3] = ["in_flight", "in_flight_until", "in_flight_total"];

/// The longest id of an upload, and of a stage.
const ID_MAX: usize = 64;

/// Refuses what is no id of ours: ids stand in keys, channels and JSON as they are.
pub(super) fn check_id(op: &'static str, what: &str, id: &str) -> Result<()> {
    let fine = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(fine) {
        let detail = format!("{what}: 1 to {ID_MAX} letters, digits, - and _");
        return Err(Error::new(op, Code::RequestInvalid, detail));
    }
    Ok(())
}

impl Upload {
    fn bind(&self, op: &'static str, role: &str, values: Key<'_>, keys: &mut Words) -> Result<()> {
        let resource = &self.bound.resource;
        let row = resource.key(role).ok_or_else(|| {
            Error::new(op, Code::Internal, format!("{}.{} has no key {role:?}", resource.kind, resource.name))
        })?;
        bound::bind(op, &row.pattern, values, 0, self.bound.engine.topology(), keys).map(drop)
    }

    /// Appends the eight keys of the upload `id`.
    pub(super) fn bind_own(&self, op: &'static str, id: &str, keys: &mut Words) -> Result<()> {
        check_id(op, "upload_id", id)?;
        OWN.iter().try_for_each(|role| self.bind(op, role, &[(&self.id_name, id)], keys))
    }

    pub(super) fn bind_metadata(&self, op: &'static str, id: &str, keys: &mut Words) -> Result<()> {
        check_id(op, "upload_id", id)?;
        self.bind(op, "metadata", &[(&self.id_name, id)], keys)
    }

    /// Appends the key of a chunk's bytes.
    pub(super) fn bind_chunk(&self, op: &'static str, id: &str, number: u32, keys: &mut Words) -> Result<()> {
        check_id(op, "upload_id", id)?;
        let mut digits = itoa::Buffer::new();
        let values = [(self.id_name.as_str(), id), ("chunk_number", digits.format(number))];
        self.bind(op, "chunk", &values, keys)
    }

    pub(super) fn bind_staging(
        &self,
        op: &'static str,
        id: &str,
        stage: &str,
        keys: &mut Words,
    ) -> Result<()> {
        check_id(op, "upload_id", id)?;
        check_id(op, "stage", stage)?;
        self.bind(op, "staging", &[(&self.id_name, id), ("stage_id", stage)], keys)
    }

    pub(super) fn bind_claim(&self, op: &'static str, id: &str, token: &str, keys: &mut Words) -> Result<()> {
        self.bind(op, "claim", &[(&self.id_name, id), ("claim_id", token)], keys)
    }

    /// Appends one of the keys that all uploads share.
    pub(super) fn bind_index(&self, op: &'static str, role: &str, keys: &mut Words) -> Result<()> {
        self.bind(op, role, &[], keys)
    }

    pub(super) fn bind_flight(&self, op: &'static str, keys: &mut Words) -> Result<()> {
        FLIGHT.iter().try_for_each(|role| self.bind_index(op, role, keys))
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
            .map_err(|error| Error::new(op, error.code, error.detail))?;
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
