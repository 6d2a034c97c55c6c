//! Sanitizes the details of a gRPC status before tonic parses them: tonic panics if they are not base64.

use ::http::Response;
use ::http::header::HeaderMap;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine};
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use http_body_util::combinators::MapFrame;

const DETAILS_HEADER: &str = "grpc-status-details-bin";

/// The engine that tonic uses (gRPC over HTTP2, "Binary-Header": with padding or without).
const BASE64_ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A body with sanitized trailers.
pub(super) type ReadableBody<B> = MapFrame<B, fn(Frame<Bytes>) -> Frame<Bytes>>;

/// Removes details that are not base64 from the headers and trailers of a response.
pub(super) fn sanitize_details<B: Body<Data = Bytes>>(
    response: Response<B>,
) -> Response<ReadableBody<B>> {
    let (mut head, body) = response.into_parts();
    remove_malformed_details(&mut head.headers);
    let frame: fn(Frame<Bytes>) -> Frame<Bytes> = |frame| match frame.into_trailers() {
        Ok(mut trailers) => {
            remove_malformed_details(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    };
    Response::from_parts(head, body.map_frame(frame))
}

fn remove_malformed_details(headers: &mut HeaderMap) {
    let is_none = |details: &::http::HeaderValue| BASE64_ENGINE.decode(details).is_err();
    if headers.get_all(DETAILS_HEADER).iter().any(is_none) {
        headers.remove(DETAILS_HEADER);
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use http_body_util::Full;
    use mgp_grpc::tonic::{Code, Status};

    use super::*;

    fn headers(details: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from_static("5"));
        headers.insert(DETAILS_HEADER, HeaderValue::from_static(details));
        headers
    }

    /// LITE-075: the status is read whatever the details contain, in headers or trailers.
    #[tokio::test]
    async fn malformed_details_are_removed_from_headers_and_trailers() {
        for (details, read) in [("CA4", 2), ("CA4=", 2), ("!no", 0), ("A", 0), ("CA 4", 0)] {
            let trailers = async { Some(Ok(headers(details))) };
            let body = Full::new(Bytes::from_static(b"m")).with_trailers(trailers);
            let mut response = Response::new(body);
            *response.headers_mut() = headers(details);
            let (head, body) = sanitize_details(response).into_parts();
            let body = body.collect().await.unwrap();
            for headers in [&head.headers, body.trailers().unwrap()] {
                let status = Status::from_header_map(headers).unwrap();
                assert_eq!(status.code(), Code::NotFound);
                assert_eq!(status.details().len(), read, "{details}");
            }
            assert_eq!(body.to_bytes(), "m");
        }
    }
}
