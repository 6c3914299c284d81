//! `Z:` and base64 of zstd.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quaymaster_testkit::foreign::{Foreign, Language};
use quaymaster_testkit::stage::{Stage, Store};
use serde_json::{Value, json};

use super::{ANALYSIS, DETECTION, claim, list, push};

/// A payload of so many bytes as JSON.
fn payload(bytes: usize) -> Value {
    json!("x".repeat(bytes - 2))
}

fn l302_large_items_are_compressed(s: &Stage) {
    for queue in [DETECTION, ANALYSIS] {
        push(s, queue, payload(1024));
        push(s, queue, payload(1025));
        let items = list(s, queue);
        assert_eq!(items[0], payload(1024).to_string(), "1 KB is not over 1 KB");
        let squeezed = STANDARD.decode(items[1].strip_prefix("Z:").unwrap()).unwrap();
        assert_eq!(zstd::decode_all(&squeezed[..]).unwrap(), payload(1025).to_string().as_bytes());
        assert!(items[1].len() < 200, "{}", items[1]);
    }
    if s.store() == Store::Redis {
        for language in Language::ALL {
            push(s, DETECTION, json!({"note": "é".repeat(600)}));
            let mut foreign = Foreign::start(language, &s.url());
            let popped: Vec<_> = (0..if language == Language::Python { 3 } else { 1 })
                .map(|_| foreign.pop(DETECTION))
                .collect();
            assert_eq!(popped.last(), Some(&(json!({"note": "é".repeat(600)}), true)), "{language:?}");
        }
    }
}

fn l308_both_forms_are_read(s: &Stage) {
    let (small, large) = (json!({"n": 1}), json!({"note": "é".repeat(600)}));
    let text = large.to_string();
    s.address();
    // Frames with and without their size.
    let whole = zstd::bulk::compress(text.as_bytes(), 3).unwrap();
    let streamed = zstd::encode_all(text.as_bytes(), 3).unwrap();
    assert_ne!(whole, streamed);
    for item in [
        small.to_string(),
        text,
        format!("Z:{}", STANDARD.encode(whole)),
        format!("Z:{}", STANDARD.encode(streamed)),
    ] {
        s.raw::<i64>(&["RPUSH", DETECTION, &item]);
    }
    if s.store() == Store::Redis {
        for language in Language::ALL {
            Foreign::start(language, &s.url()).push(DETECTION, &[small.clone(), large.clone()]);
        }
        assert_eq!(list(s, DETECTION).iter().filter(|item| item.starts_with("Z:")).count(), 4);
    }
    let peeked = s.get("/v1/queue/detection_queue/peek").expect(200)["items"].take();
    let items = peeked.as_array().unwrap();
    assert_eq!(items[..4], [small, large.clone(), large.clone(), large]);
    for item in items {
        assert_eq!(claim(s, DETECTION)["payload"], *item);
    }
}

cases! {
    l302_large_items_are_compressed
    l308_both_forms_are_read
}
