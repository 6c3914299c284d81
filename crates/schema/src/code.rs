//! The one table of error codes: HTTP status, exit code, whether trying again can help, and what to do.
//!
//! Every crate above names its errors from this table; HTTP, the command line and the documents derive from it.

/// What a caller may expect from trying the same call again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The same call will fail the same way until somebody changes something.
    Useless,
    /// The call did not run; trying again later can help.
    Later,
    /// The call may have run: repeat it only with the `request_id` it carried.
    MayHaveRun,
}

macro_rules! codes {
    ($($variant:ident $name:literal $status:literal $exit:literal $retry:ident $title:literal, $advice:literal;)*) => {
        /// A stable error code; see [`Code::ALL`] for the whole table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $title] $variant,)*
        }

        impl Code {
            /// Every code, in table order.
            pub const ALL: &'static [Code] = &[$(Code::$variant),*];

            /// The stable name, `store.timed_out`.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $name),* }
            }
            /// The HTTP status this code answers with.
            pub const fn http_status(self) -> u16 {
                match self { $(Code::$variant => $status),* }
            }
            /// The exit code of the command line: 1 no, 2 usage, 3 the store cannot be reached.
            pub const fn exit_code(self) -> u8 {
                match self { $(Code::$variant => $exit),* }
            }
            /// Whether trying again can help.
            pub const fn retry(self) -> Retry {
                match self { $(Code::$variant => Retry::$retry),* }
            }
            /// One line that says what happened.
            pub const fn title(self) -> &'static str {
                match self { $(Code::$variant => $title),* }
            }
            /// One line that says what to do about it.
            pub const fn advice(self) -> &'static str {
                match self { $(Code::$variant => $advice),* }
            }
        }
    };
}

codes! {
    // The caller asked wrongly.
    RequestInvalid   "request.invalid"   400 2 Useless "The request is not valid", "Correct the field that the detail names.";
    RequestField     "request.field"     400 2 Useless "The request has an unknown field", "Remove the field or use the nearest valid one.";
    RequestReused    "request.reused"    409 2 Useless "The request's id was used for another call", "Use a new id for a new call, and an old one only to repeat its call.";
    RequestTooLarge  "request.too_large" 413 2 Useless "The request body is too large", "Send less, or raise the bound in [server].";
    KeyValue         "key.value"         400 2 Useless "A key value is not usable", "Values are 1 to 512 characters, without control characters and { } * ? [ ].";
    KeyMissing       "key.missing"       400 2 Useless "A placeholder has no value", "Give every placeholder of the pattern a value.";
    KeyUnknown       "key.unknown"       400 2 Useless "The pattern has no such placeholder", "Use the placeholders the detail names.";
    LimitCost        "limit.cost"        400 2 Useless "The cost is not usable", "Costs are integers from 1.";
    ResourceUnknown  "resource.unknown"  404 2 Useless "The schema has no such resource", "Use a name the schema declares; `quaymaster docs` lists them.";
    ResourceMismatch "resource.mismatch" 422 2 Useless "The resource is not declared for this", "The detail names what the schema declares; ask within that, or change the schema.";
    CursorUnknown    "cursor.unknown"    404 1 Useless "There is no such page", "Give the `next` of an earlier answer as it was, or start from the first page.";
    RouteUnknown     "route.unknown"     404 2 Useless "There is no such call", "See /openapi.json for the calls there are.";
    MethodWrong      "route.method"      405 2 Useless "The call exists under another method", "See /openapi.json for its method.";
    MediaType        "request.media_type" 415 2 Useless "The body is not JSON", "Send `content-type: application/json`.";
    RequestTimeout   "request.timeout"   408 2 Later "The request took too long to arrive", "Send it faster, or raise request_timeout in [server].";
    AuthRequired     "auth.required"     401 2 Useless "Credentials are required", "Send the configured bearer token.";
    AuthForbidden    "auth.forbidden"    403 2 Useless "These credentials may not do this", "Use a token with the needed role; for a web page, list its origin in `origins` in [server].";
    AuthResource     "auth.resource"     403 2 Useless "The token does not reach this resource", "Use a token whose `resources` in [server] list it, or list it there.";
    AuthHost         "auth.host"         403 2 Useless "The server does not answer under this host name", "Ask it as localhost, 127.0.0.1 or [::1]. For another name set tokens in [server], or list the name's origin in `origins`.";
    SchemaInvalid    "schema.invalid"    422 1 Useless "The schema has errors", "Run `quaymaster check` and correct what it names.";
    ConfigInvalid    "config.invalid"    422 2 Useless "The configuration is not valid", "Correct the setting that the detail names.";
    KeyWrongType     "key.wrong_type"    409 1 Useless "The key holds another type", "Another program wrote this key with another type; run `quaymaster explain KEY`.";
    KeyMalformed     "key.malformed"     409 1 Useless "The key's value is not what its kind holds", "Another program wrote it; inspect it with `quaymaster explain KEY`.";
    SealKey          "seal.key"          409 1 Useless "No configured key opens this value", "Add the key it was sealed with to the seal keys, behind the new one.";
    IdempotencyKey   "idempotency.key"   400 2 Useless "The Idempotency-Key header is missing or not usable", "Send one `Idempotency-Key`, the same one for every attempt at the same operation.";
    IdempotencyBusy  "idempotency.in_progress" 409 1 Later "The operation is being run for another request", "Wait, then repeat the request with the same key.";
    IdempotencyOther "idempotency.mismatch" 422 1 Useless "The key was used for another request", "Use a new key for a new operation, and the same request for the same key.";
    IdempotencyDone  "idempotency.no_response" 409 1 Useless "The operation has run and its answer was not kept", "Do not repeat it; look the result up where the operation left it.";

    LimitExceeded    "limit.exceeded"    429 1 Later "The limit is used up", "Wait as long as Retry-After says, then send the request again; it was not counted.";
    QueueFull        "queue.full"        429 1 Later "The queue is full", "Wait until jobs have been claimed, then push again; nothing was added.";
    QueueApart       "queue.apart"       422 2 Useless "One step cannot reach all of these on a cluster", "Give the queue and what it is joined with the same `colocate`.";

    EventFull        "event.full"        429 1 Later "The event's status holds as many values as it may", "Wait until reported values end, or report fewer names; nothing was changed.";

    RunMissing       "run.missing"       404 1 Useless "There is no such run", "Start it; a run is forgotten `state_ttl` after its last sign of life.";
    RunTask          "run.task"          404 1 Useless "The task was not started in this run", "Call task_start first; a task is forgotten with its run.";
    RunField         "run.field"         422 2 Useless "The field is not the caller's to set", "The detail names who sets it; `status` and fields of your own can be set.";
    RunFinished      "run.finished"      409 1 Useless "The run is finished", "Start it again to go on with it, or start another.";
    RunFull          "run.full"          429 1 Later "The run holds as much as a run may", "Retry what failed, or start another run; nothing was changed.";

    UploadBusy       "upload.busy"       429 1 Later "The chunk cannot be taken now", "Wait as long as Retry-After says, then send the chunk again.";
    UploadUnknown    "upload.unknown"    404 1 Useless "There is no such upload", "Create it; an ended upload is forgotten `keep_after_done` after its end.";
    UploadConflict   "upload.conflict"   409 1 Useless "Other bytes have come under this number", "Send the bytes that came first, or create another upload.";
    UploadClosed     "upload.closed"     409 1 Useless "The upload is not in a state for this", "Look at its status; `resume` goes on with one that has FAILED.";
    UploadMismatch   "upload.mismatch"   409 1 Useless "The idempotency key was used for another request", "Use a new key for a new upload.";
    UploadNode       "upload.node"       409 1 Useless "Another upload is for this node", "Call that one off, or wait until it is forgotten, `keep_after_done` after its end. A node of another resource stays that one's: name another node.";
    UploadForeign    "upload.foreign"    409 1 Useless "Another program began the upload, and it cannot be gone on with here", "Let that program finish it, or send the file as a new upload; `quaymaster upload doctor` lists such uploads and says why.";
    UploadTooLarge   "upload.too_large"  413 2 Useless "The chunk is too large", "Cut the file into chunks of at most `chunk_max_bytes`.";
    UploadMediaType  "upload.media_type" 415 2 Useless "The chunk is not sent as raw bytes", "Send its bytes as they are, unpacked, with `content-type: application/octet-stream` or none.";
    UploadRefused    "upload.refused"    422 1 Useless "This cannot be a chunk of the upload", "The detail says what contradicts what came before.";
    UploadDigest     "upload.digest"     422 1 Useless "The bytes are not those that were announced", "Send the chunk again.";
    UploadChanged    "upload.changed"    412 1 Useless "The content is not the one that was named", "Ask for its ETag again, and repeat the request with that.";
    UploadRange      "upload.range"      416 1 Useless "The range lies outside the content", "Ask for bytes that the content has.";
    UploadGone       "upload.gone"       410 1 Useless "The object was removed from the object store", "Upload the file again; whoever may remove objects there can tell why it is gone.";
    // 410 as for one that is gone: what was put there is not there any more, and no repetition brings it back, which clients
    // and proxies would try after a 500 or 503.
    UploadDamaged    "upload.damaged"    410 1 Useless "The object is damaged", "Restore what the detail names from a backup, or upload the file again.";
    // 503, since clients repeat that by themselves: whoever ends it is done in a moment, or has died and loses it in a minute.
    UploadEnding     "upload.ending"     503 1 Later "The upload is being ended by somebody else", "Wait as long as Retry-After says, then call it off again, or look at its status.";
    UploadBackend    "upload.backend"    503 3 Later "The object store or the database of uploads cannot be used", "Check that it is there and may be used; what was acknowledged is kept.";

    // For the command line's `--server`: a proxy answered, another program, or a newer server.
    ServerAnswer     "server.answer"      502 3 MayHaveRun "The server's answer is not understood", "Check the URL of --server, what stands between, and that the server is not newer than this command; repeat with the same request_id.";
    ServerBusy       "server.busy"        503 3 Later "The server has too many requests at once", "Wait, or raise the bounds in [server].";

    // The store cannot be asked, or we cannot tell what it did.
    StoreRefused     "store.refused"      503 3 Later "The store refuses connections", "Start the store, or correct its address.";
    StoreTimedOut    "store.timed_out"    503 3 MayHaveRun "The store did not answer in time", "Check its load and the network; repeat with the same request_id.";
    StoreLost        "store.lost"         503 3 MayHaveRun "The connection ended before the reply came", "Repeat with the same request_id; without one the call may count twice.";
    StoreBreaker     "store.breaker_open" 503 3 Later "The store failed repeatedly; calls are held back", "Wait; it is probed in the background and calls resume by themselves.";
    StoreAuth        "store.auth"         503 3 Later "The store wants other credentials", "Check user and password of the store's URL (NOAUTH, WRONGPASS).";
    StorePermission  "store.permission"   503 3 Later "The store's user may not run this", "Grant the ACL user the commands and keys that `quaymaster docs` lists (NOPERM).";
    StoreScript      "store.script_refused" 503 3 MayHaveRun "The store's user may not run a command of the script", "Grant the ACL user what `quaymaster docs` lists; what the script wrote before that command stays.";
    StoreReadOnly    "store.read_only"    503 3 Later "The store is a replica", "Point at the primary, or wait for the failover to end (READONLY).";
    StoreLoading     "store.loading"      503 3 Later "The store is loading its data", "Wait until it has loaded (LOADING).";
    StoreBusy        "store.busy"         503 3 Later "The store is busy with a long script", "Find it with SLOWLOG; SCRIPT KILL ends it (BUSY).";
    StoreMisconf     "store.misconf"      503 3 Later "The store cannot persist and refuses writes", "Its disk is full or its last save failed (MISCONF).";
    StoreReplicas    "store.no_replicas"  503 3 Later "The store has too few replicas and refuses writes", "Bring its replicas back, or lower min-replicas-to-write (NOREPLICAS).";
    StoreOom         "store.out_of_memory" 503 3 Later "The store is out of memory", "Raise its maxmemory, or max_memory of an embedded store, or remove data (OOM).";
    StoreClusterDown "store.cluster_down" 503 3 Later "The cluster does not serve this slot", "Wait for its failover, or repair it (CLUSTERDOWN, TRYAGAIN).";
    StoreCrossSlot   "store.cross_slot"   503 3 Useless "Keys of one script lie in different slots", "Declare `colocate` for these resources; `quaymaster check` names them.";
    StoreTls         "store.tls"          503 3 Later "The TLS handshake with the store failed", "Check its certificate, the CA file and the client certificate.";
    StoreUnsafe      "store.unsafe"       503 3 Useless "The store's settings would destroy data", "Change the setting the detail names, or pass the flag it names.";
    StoreVersion     "store.version"      503 3 Useless "The store's version does not fit", "Use Redis 6.2 or newer, or 6.0 where the schema has no queues; processes on one data folder must be of one version.";
    StoreNames       "store.names"        503 3 Useless "The store has keys under names of an earlier version", "Stop every server and worker of these schemas, run `quaymaster respell --apply`, and start again.";
    StoreCorrupt     "store.corrupt"      503 3 Useless "The data folder is damaged", "Restore a backup, or move the folder away; nothing was changed.";
    StoreDisk        "store.disk"         503 3 MayHaveRun "The disk failed or is full", "Free space or repair it: the folder is opened again by itself. What was acknowledged is safe, this call may or may not be.";
    StoreFolder      "store.folder"       503 3 Later "The data folder cannot be used", "Free space, or correct its path or permissions, as the detail says; it is tried again by itself. The call did not run.";
    StoreClock       "store.clock"        503 3 Later "The store's clock cannot be used", "Check the clocks of this node and of the store; the detail says what is wrong.";
    StoreContended   "store.contended"    503 3 Later "Others changed the keys again and again", "Repeat the call.";
    StoreProtocol    "store.protocol"     503 3 MayHaveRun "The store does not speak its protocol", "Check that it is Redis or Valkey and that nothing between changes what it says; repeat with the same request_id.";
    // No outage: the store was asked and has answered. No policy answers for it.
    StoreReply       "store.reply"        500 1 MayHaveRun "The store's reply is not understood", "Check that nothing between changes what the store says, else report it as a defect; repeat with the same request_id.";
    ScriptFailed     "script.failed"      500 1 Useless "A script failed", "This is a defect of Quaymaster; nothing was changed on the embedded store.";
    ScriptEndless    "script.endless"     500 1 Useless "A script ran too long and was stopped", "This is a defect of Quaymaster; nothing was changed.";
    Internal         "internal"           500 1 Useless "Something unexpected happened", "The log has the cause; report it as a defect.";
}

impl Code {
    /// The code of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// Whether it is the store's trouble, `store.…`, and not the caller's.
    pub fn is_store(self) -> bool {
        self.name().split('.').next() == Some("store")
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_statuses_are_errors() {
        let names: HashSet<_> = Code::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.http_status()), "{code}");
            assert!((1..=3).contains(&code.exit_code()), "{code}");
        }
    }
}
