//! What a store in front of another one passes on as it is.

/// Methods of `Engine` that ask `self.inner`: those named, or with `rest` all that no store in front changes.
///
/// Pieces of long strings are left to the contract's own way, by scripts, so that whoever changes or counts scripts
/// meets them too.
macro_rules! passes_on {
    (run) => {
        fn run(
            &self,
            call: quaymaster_store::Invocation,
        ) -> futures_util::future::BoxFuture<'_, quaymaster_store::Result<quaymaster_store::Reply>> {
            self.inner.run(call)
        }
    };
    (now_us) => {
        fn now_us(&self) -> i64 {
            self.inner.now_us()
        }
    };
    (key_facts) => {
        fn key_facts<'a>(
            &'a self,
            key: &'a [u8],
        ) -> futures_util::future::BoxFuture<'a, quaymaster_store::Result<Option<quaymaster_store::KeyFacts>>>
        {
            self.inner.key_facts(key)
        }
    };
    (rest) => {
        fn time_us(&self) -> futures_util::future::BoxFuture<'_, quaymaster_store::Result<i64>> {
            self.inner.time_us()
        }
        fn deadline(&self) -> std::time::Duration {
            self.inner.deadline()
        }
        fn topology(&self) -> quaymaster_store::Topology {
            self.inner.topology()
        }
        fn subscribe<'a>(
            &'a self,
            channel: &'a [u8],
        ) -> futures_util::future::BoxFuture<
            'a,
            quaymaster_store::Result<
                futures_util::stream::BoxStream<'static, quaymaster_store::Message>,
            >,
        > {
            self.inner.subscribe(channel)
        }
        fn wait_for_item<'a>(
            &'a self,
            key: &'a [u8],
            limit: std::time::Duration,
        ) -> futures_util::future::BoxFuture<'a, quaymaster_store::Result<bool>> {
            self.inner.wait_for_item(key, limit)
        }
        fn scan<'a>(
            &'a self,
            pattern: &'a [u8],
            count: usize,
            cursor: Option<quaymaster_store::ScanCursor>,
        ) -> futures_util::future::BoxFuture<'a, quaymaster_store::Result<quaymaster_store::ScanPage>> {
            self.inner.scan(pattern, count, cursor)
        }
        fn health(&self) -> quaymaster_store::Health {
            self.inner.health()
        }
        fn deployment(
            &self,
        ) -> futures_util::future::BoxFuture<'_, quaymaster_store::Result<quaymaster_store::Deployment>> {
            self.inner.deployment()
        }
        fn close(&self) -> futures_util::future::BoxFuture<'_, quaymaster_store::Result<()>> {
            self.inner.close()
        }
    };
    ($first:ident $($more:ident)+) => {
        $crate::passing::passes_on!($first);
        $crate::passing::passes_on!($($more)+);
    };
}

pub(crate) use passes_on;
