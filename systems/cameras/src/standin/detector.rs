//! The stand-in detector: one to three detections an image, told by its bytes.

use axum::http::StatusCode;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::Refusal;
use crate::item::{Image, hex};

/// The ids of an image's detections. Numbers, as the document has them, that any JSON reader keeps exactly.
pub(crate) fn detections(sha256: &[u8]) -> Vec<u64> {
    let first = sha256.iter().take(6).fold(0, |number, byte| number << 8 | u64::from(*byte)) * 4;
    let count = 1 + sha256.get(6).map_or(0, |byte| u64::from(byte % 3));
    (first..first + count).collect()
}

/// Reads the image and says what goes into its camera's batch; and the journal's line.
pub(super) async fn detect(body: &[u8]) -> Result<(String, Value), Refusal> {
    let image: Image = serde_json::from_slice(body)
        .map_err(|error| Refusal(StatusCode::UNPROCESSABLE_ENTITY, format!("no image: {error}")))?;
    let bytes = tokio::fs::read(&image.file_path).await.map_err(|error| {
        // Nothing brings a file back: another attempt would find the same.
        let gone = error.kind() == std::io::ErrorKind::NotFound;
        let status = if gone { StatusCode::NOT_FOUND } else { StatusCode::INTERNAL_SERVER_ERROR };
        Refusal(status, format!("{}: {error}", image.file_path))
    })?;
    let sha256 = digest(&SHA256, &bytes);
    let ids = detections(sha256.as_ref());
    let answer = answer(&image.camera_id, &ids).to_string();
    let line = json!({ "file_path": image.file_path, "sha256": hex(sha256.as_ref()), "detection_ids": ids });
    Ok((answer, line))
}

/// One addition to the camera's batch a detection. A detection has its own id as the item's id, so that an image
/// that is detected twice is in its batch once.
fn answer(camera_id: &str, ids: &[u64]) -> Value {
    let add = |id: &u64| json!({ "key": { "camera_id": camera_id }, "item": id, "id": id.to_string() });
    ids.iter().map(add).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn detections_are_told_by_the_bytes_and_fit_any_json_reader() {
        let mut all = std::collections::HashSet::new();
        for n in 0..1_000_u32 {
            let sha256 = digest(&SHA256, &n.to_le_bytes());
            let ids = detections(sha256.as_ref());
            assert_eq!(ids, detections(sha256.as_ref()));
            assert!((1..=3).contains(&ids.len()));
            assert!(ids.iter().all(|id| *id < 1 << 53 && all.insert(*id)), "{ids:?}");
        }
        assert!(detections(&[0xff; 32]).iter().all(|id| *id < 1 << 53));
    }

    #[tokio::test]
    async fn an_image_that_is_gone_is_not_worth_another_attempt() {
        let body = json!({ "camera_id": "c", "file_path": "/nowhere/a.jpg", "timestamp": "t" }).to_string();
        let Refusal(status, why) = detect(body.as_bytes()).await.unwrap_err();
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(why.contains("/nowhere/a.jpg"), "{why}");
        assert_eq!(detect(b"{}").await.unwrap_err().0, StatusCode::UNPROCESSABLE_ENTITY);
    }

    #[tokio::test]
    async fn every_detection_goes_into_its_cameras_batch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        std::fs::write(&path, "an image").unwrap();
        let body = json!({ "camera_id": "door", "file_path": path, "timestamp": "t" }).to_string();
        let (answer, line) = detect(body.as_bytes()).await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let ids = detections(digest(&SHA256, b"an image").as_ref());
        let items: Vec<u64> =
            answer.as_array().unwrap().iter().map(|add| add["item"].as_u64().unwrap()).collect();
        assert_eq!(items, ids);
        assert!(answer.as_array().unwrap().iter().all(|add| add["key"]["camera_id"] == "door"));
        assert_eq!(line["detection_ids"], json!(ids));
    }
}
