    writes("dedupe", "forget", "seen", &[KEY, REQUEST]).tried(&[case(
        "seen",
        &[(("dedupe", "first", "seen"), "{}", None)],
        "{}",
    )]),
