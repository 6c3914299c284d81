    writes("dedupe", "extend", "seen", &[KEY, REQUEST]).tried(&[case(
        "seen",
        &[(("dedupe", "first", "seen"), "{}", None)],
        "{}",
    )]),
