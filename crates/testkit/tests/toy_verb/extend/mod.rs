    /// Remembers the first one for its whole time again; whether there was one.
    pub async fn extend(&self, key: Key<'_>, request_id: Option<&str>) -> Result<bool> {
        use crate::scripts::dedupe_extend::Reply;
        let call = ops::extend(&self.bound, key, self.spec.ttl, request_id, self.bound.engine.now_us())?;
        match Reply::read(ops::EXTEND, self.bound.run(ops::EXTEND, call).await?)? {
            Reply::Extended => Ok(true),
            Reply::Absent => Ok(false),
            Reply::Conflict => {
                let detail = "request_id was already used for another verb on this key";
                Err(Error::new(ops::EXTEND, Code::RequestReused, detail).field("request_id"))
            }
        }
    }

