        stage.call("first with a request", dedupe.first(A, asked)).await;
        stage.call("forget", dedupe.forget(A, None)).await;
