    /// Lets the next one be the first again; whether there was one.
    pub async fn forget(&self, key: Key<'_>, request_id: Option<&str>) -> Result<bool> {
        use crate::scripts::dedupe_forget::Reply;
        let call = ops::forget(&self.bound, key, request_id, self.bound.engine.now_us())?;
        match Reply::read(ops::FORGET, self.bound.run(ops::FORGET, call).await?)? {
            Reply::Forgotten => Ok(true),
            Reply::Absent => Ok(false),
            Reply::Conflict => {
                let detail = "request_id was already used for another verb on this key";
                Err(Error::new(ops::FORGET, Code::RequestReused, detail).field("request_id"))
            }
        }
    }

