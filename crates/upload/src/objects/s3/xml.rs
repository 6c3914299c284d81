//! The documents S3 speaks in.

use base64::Engine as _;
use quick_xml::de::from_str;
use serde::Deserialize;

use super::super::answer::{Cursor, MultipartId, Pending, PendingPage};
use super::super::options::Checksums;
use crate::Digest;
use crate::ledger::Part;

#[derive(Debug, Deserialize)]
#[serde(rename = "InitiateMultipartUploadResult", rename_all = "PascalCase")]
struct Initiated {
    upload_id: String,
}

/// The id of a multipart upload that was begun.
pub(super) fn upload_id(body: &str) -> Option<String> {
    from_str::<Initiated>(body).ok().map(|begun| begun.upload_id).filter(|id| !id.is_empty())
}

#[derive(Debug, Deserialize)]
struct CompleteResult {
    #[serde(rename = "ETag")]
    etag: String,
}

/// The ETag of an object that was put together; `None` when the document says anything else, such as an error.
pub(super) fn completed_etag(body: &str) -> Option<String> {
    // Serde does not look at the name of the root.
    body.contains("<CompleteMultipartUploadResult")
        .then(|| from_str::<CompleteResult>(body).ok())
        .flatten()
        .map(|result| result.etag)
}

/// A store's refusal in its own words.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename = "Error", rename_all = "PascalCase", default)]
pub(super) struct Refusal {
    pub(super) code: String,
    pub(super) message: String,
}

pub(super) fn refusal(body: &str) -> Option<Refusal> {
    body.contains("<Error").then(|| from_str::<Refusal>(body).ok()).flatten()
}

/// A digest as S3 spells it.
pub(super) fn base64(digest: &[u8; 32]) -> String {
    base64::engine::general_purpose::STANDARD.encode(digest)
}

/// The list of parts that an object is put together of.
pub(super) fn complete_request(parts: &[Part], checksums: Checksums) -> String {
    use std::fmt::Write as _;
    let mut body = String::with_capacity(parts.len() * 96 + 128);
    body.push_str("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for Part { number, etag, digest, .. } in parts {
        let etag = quick_xml::escape::escape(etag.as_str());
        let _ = write!(body, "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>");
        if let (Checksums::Sha256, Digest::Sha256(bytes)) = (checksums, digest) {
            let _ = write!(body, "<ChecksumSHA256>{}</ChecksumSHA256>", base64(bytes));
        }
        body.push_str("</Part>");
    }
    body.push_str("</CompleteMultipartUpload>");
    body
}

#[derive(Debug, Deserialize)]
#[serde(rename = "ListMultipartUploadsResult", rename_all = "PascalCase")]
struct Listed {
    #[serde(default)]
    upload: Vec<ListedUpload>,
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: String,
    #[serde(default)]
    next_upload_id_marker: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedUpload {
    key: String,
    upload_id: String,
    #[serde(default)]
    initiated: String,
}

/// A page of multipart uploads.
pub(super) fn pending(body: &str) -> Result<PendingPage, quick_xml::DeError> {
    let listed: Listed = from_str(body)?;
    let uploads = listed.upload.into_iter().map(|upload| {
        let key = upload.key.trim_start_matches('/').to_owned();
        let initiated_ms =
            upload.initiated.parse::<jiff::Timestamp>().ok().map(|initiated| initiated.as_millisecond());
        Pending { key, id: MultipartId::new(upload.upload_id), initiated_ms }
    });
    let next = listed
        .is_truncated
        .then_some(Cursor { key: listed.next_key_marker, id: listed.next_upload_id_marker });
    Ok(PendingPage { uploads: uploads.collect(), next })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn an_error_is_never_taken_for_a_result() {
        let error = "<?xml version=\"1.0\"?>\n\n<Error><Code>InternalError</Code><Message>We &lt;failed&gt;</Message>\
                     <ETag>\"x\"</ETag></Error>";
        assert_eq!(completed_etag(error), None);
        let refused = refusal(error).unwrap();
        assert_eq!((refused.code.as_str(), refused.message.as_str()), ("InternalError", "We <failed>"));
        let done = "<CompleteMultipartUploadResult xmlns=\"x\"><Key>k</Key><ETag>&quot;e-2&quot;</ETag>\
                    </CompleteMultipartUploadResult>";
        assert_eq!(completed_etag(done).as_deref(), Some("\"e-2\""));
        for cut in 0..done.len() {
            assert_eq!(completed_etag(&done[..cut]), None, "{cut}");
        }
        assert_eq!(refusal(done), None);
        assert_eq!(refusal("upstream connect error"), None);
    }

    #[test]
    fn a_list_of_parts_escapes_its_etags() {
        let part = |number, etag: &str| Part {
            number,
            etag: etag.to_owned(),
            size: 3,
            digest: crate::Sha256::of(b"abc").into(),
        };
        let parts = [part(1, "\"a\""), part(2, "<b>&")];
        let body = complete_request(&parts, Checksums::Signature);
        assert!(!body.contains("Checksum"), "{body}");
        let body = complete_request(&parts, Checksums::Sha256);
        let checksum = "<ChecksumSHA256>ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=</ChecksumSHA256></Part>";
        assert_eq!(body.matches(checksum).count(), 2, "{body}");
        assert!(body.contains("<PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag>"), "{body}");
        assert!(body.contains("<PartNumber>2</PartNumber><ETag>&lt;b&gt;&amp;</ETag>"), "{body}");
    }

    #[test]
    fn a_page_of_uploads_keeps_its_cursor_and_whole_keys() {
        let body = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>\
            <NextKeyMarker>p/b</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>\
            <Upload><Key>p/a</Key><UploadId>1</UploadId><Initiated>2026-11-16T06:00:00.000Z</Initiated></Upload>\
            <Upload><Key>/p/b</Key><UploadId>2</UploadId></Upload></ListMultipartUploadsResult>";
        let page = pending(body).unwrap();
        let found: Vec<_> =
            page.uploads.iter().map(|found| (found.key.as_str(), found.id.as_str())).collect();
        assert_eq!(found, [("p/a", "1"), ("p/b", "2")]);
        assert_eq!(page.uploads[0].initiated_ms, Some(1_794_808_800_000));
        assert_eq!(page.next, Some(Cursor { key: "p/b".to_owned(), id: "2".to_owned() }));
        assert_eq!(pending("<ListMultipartUploadsResult/>").unwrap(), PendingPage::default());
    }
}
