        stage.call("extend", dedupe.extend(A, None)).await;
