//! `berth`: a place for one ship at a time.

mod ops;

use quaymaster_schema::BerthSpec;

use crate::bound::{Bound, Key};
use crate::scripts::berth_take::Reply;
use crate::{Code, Error, Result};

/// A berth of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Berth {
    bound: Bound,
    spec: BerthSpec,
}

impl Berth {
    pub(crate) fn new(bound: Bound, spec: BerthSpec) -> Self {
        Self { bound, spec }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// Takes the berth; false while another ship lies there.
    pub async fn take(&self, key: Key<'_>, request_id: Option<&str>) -> Result<bool> {
        let call = ops::take(&self.bound, key, self.spec.ttl, request_id)?;
        match Reply::read(ops::TAKE, self.bound.run(ops::TAKE, call).await?)? {
            Reply::Taken => Ok(true),
            Reply::Occupied => Ok(false),
            Reply::Conflict => {
                let detail = "request_id was already used for another verb on this key";
                Err(Error::new(ops::TAKE, Code::RequestReused, detail).field("request_id"))
            }
        }
    }
}
