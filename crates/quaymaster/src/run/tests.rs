#![expect(clippy::unwrap_used, reason = "tests")]
use super::list::foreign;
use super::pulse::hour_text;
use super::*;

#[test]
fn a_made_up_id_is_the_moment() {
    assert_eq!(fresh_id(1_769_250_600_123_456), "manual_2026-01-24T10:30:00.123456+00:00");
    assert_eq!(hour_text(1_705_327_200_000), "2024-01-15_14");
}

#[test]
fn lists_of_other_programs_are_read_whether_they_are_json_or_python() {
    let read = |text| foreign(text).unwrap();
    assert_eq!(read("['12345', '12346', '12347']"), ["12345", "12346", "12347"]);
    assert_eq!(read(r#"["a", 7, "b\"c"]"#), ["a", "7", "b\"c"]);
    assert_eq!(read(r#"['it\'s', "it's", 12, 'ä']"#), ["it's", "it's", "12", "ä"]);
    assert_eq!(read("[]"), Vec::<String>::new());
    for bad in ["", "12345", "['a'", "['a' 'b']", "[{}]", "[None, {'a': 1}]", "['a\\x']"] {
        assert_eq!(foreign(bad), None, "{bad:?}");
    }
}
