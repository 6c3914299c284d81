//! The stand-in analyser: a risk and a sentence a batch, told by what is in it.

use axum::http::StatusCode;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::Refusal;
use crate::item::{Announcement, Batch, Event};

/// The event of a batch, whoever analyses it and however often: derived from the batch's id.
pub(crate) fn event_id(batch_id: &str) -> u64 {
    digest(&SHA256, batch_id.as_bytes())
        .as_ref()
        .iter()
        .take(6)
        .fold(0, |id, byte| id << 8 | u64::from(*byte))
}

/// The event that is announced, and the journal's line.
pub(super) fn analyse(body: &[u8]) -> Result<(String, Value), Refusal> {
    let batch: Batch = serde_json::from_slice(body)
        .map_err(|error| Refusal(StatusCode::UNPROCESSABLE_ENTITY, format!("no batch: {error}")))?;
    let (batch_id, detection_ids) = (batch.batch_id.clone(), batch.detection_ids.clone());
    let answer = Announcement { r#type: "event".to_owned(), data: event(batch) };
    let line =
        json!({ "batch_id": batch_id, "detection_ids": detection_ids, "event_id": answer.data.event_id });
    let answer = serde_json::to_string(&answer)
        .map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok((answer, line))
}

fn event(batch: Batch) -> Event {
    let id = event_id(&batch.batch_id);
    let count = batch.detection_ids.len();
    let risk_score = risk(&batch.detection_ids);
    let noun = if count == 1 { "detection" } else { "detections" };
    Event {
        id,
        event_id: id,
        risk_score,
        risk_level: level(risk_score).to_owned(),
        summary: format!("{count} {noun} at {}", batch.camera_id.replace('_', " ")),
        batch_id: batch.batch_id,
        camera_id: batch.camera_id,
        started_at: batch.started_at,
        detection_count: count,
    }
}

fn risk(detection_ids: &[u64]) -> u8 {
    let sum = detection_ids.iter().fold(0_u64, |sum, id| sum.wrapping_mul(31).wrapping_add(*id));
    (sum % 101) as u8
}

fn level(score: u8) -> &'static str {
    match score {
        0..30 => "low",
        30..60 => "medium",
        60..85 => "high",
        _ => "critical",
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn batch(batch_id: &str, ids: &[u64]) -> String {
        json!({
            "batch_id": batch_id, "camera_id": "front_door", "detection_ids": ids,
            "started_at": "2026-01-24T12:00:00.000000", "ended_at": "2026-01-24T12:01:30.000000",
        })
        .to_string()
    }

    #[test]
    fn an_event_has_the_documented_fields() {
        let (text, line) = analyse(batch("abc123", &[1, 2, 3]).as_bytes()).unwrap();
        assert!(text.starts_with("{\"type\":\"event\",\"data\":{\"id\":"), "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let id = event_id("abc123");
        let score = answer["data"]["risk_score"].as_u64().unwrap();
        assert_eq!(
            answer,
            json!({ "type": "event", "data": {
                "id": id, "event_id": id, "batch_id": "abc123", "camera_id": "front_door",
                "risk_score": score, "risk_level": level(score as u8), "summary": "3 detections at front door",
                "started_at": "2026-01-24T12:00:00.000000", "detection_count": 3,
            } })
        );
        assert_eq!(line["detection_ids"], json!([1, 2, 3]));
    }

    #[test]
    fn a_batch_has_one_event_id_however_often_it_is_analysed() {
        let told = |id: &str, ids: &[u64]| {
            let (text, _) = analyse(batch(id, ids).as_bytes()).unwrap();
            serde_json::from_str::<Value>(&text).unwrap()["data"]["event_id"].clone()
        };
        assert_eq!(told("a", &[1]), told("a", &[1]));
        assert_ne!(told("a", &[1]), told("b", &[1]));
        assert_eq!(level(29), "low");
        assert_eq!(level(75), "high");
        assert_eq!(level(100), "critical");
    }

    #[test]
    fn what_is_no_batch_is_not_worth_another_attempt() {
        assert_eq!(analyse(b"[]").unwrap_err().0, StatusCode::UNPROCESSABLE_ENTITY);
    }
}
