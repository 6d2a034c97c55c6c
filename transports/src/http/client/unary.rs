//! Unary gRPC calls (its document PROTOCOL-HTTP2), for services whose messages are encoded by hand. Other services use
//! the stubs of tonic, which panic at details that are no base64.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use super::{Client, ClientError, H2Client};
use crate::http::body::BodyError;
use crate::http::dial::host_and_port;
use crate::http::proxy::percent_decode;
use crate::http::root_cause;

/// The bytes before each message: the compression flag, and the length in four bytes ("Length-Prefixed-Message").
const PREFIX_BYTES: usize = 5;

/// Base64 with `=` at its end and without ("Binary-Header").
const BINARY: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Codes that are determined here, not by a server.
const UNKNOWN: u32 = 2;
const RESOURCE_EXHAUSTED: u32 = 8;

/// Calls gRPC services; clones share the connections.
#[derive(Clone, Debug)]
pub struct UnaryClient(H2Client<Full<Bytes>>);

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnaryResponse {
    /// The code; 0 for success. An answer that is no gRPC has the code that its conventions map the HTTP status to.
    pub code: u32,
    /// The server's message, unchanged.
    pub status_message: Vec<u8>,
    /// `google.rpc.Status` in protobuf, unchanged; empty if missing or malformed.
    pub details: Vec<u8>,
    /// The message; empty if missing or malformed.
    pub message: Bytes,
}

impl Client {
    /// A client with the same authorities, proxies and addresses for gRPC services.
    #[must_use]
    pub fn unary_client(&self) -> UnaryClient {
        UnaryClient(self.h2_client())
    }
}

impl UnaryClient {
    /// Sends one message to the method in `url`, and waits for the end of the call, without a timeout. Reads at most `limit`
    /// bytes of the answer: a longer one is RESOURCE_EXHAUSTED.
    ///
    /// # Errors
    /// [`ClientError`]: there is no complete answer.
    pub async fn call(
        &self,
        url: &Uri,
        headers: HeaderMap,
        message: &[u8],
        limit: usize,
    ) -> Result<UnaryResponse, ClientError> {
        let mut request = Request::new(Full::new(encode_frame(message)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        let (head, body) = self.0.request(request).await?.into_parts();
        match read_body(body, limit.saturating_add(PREFIX_BYTES)).await {
            Ok((body, trailers)) => Ok(to_response(
                head.status,
                [&head.headers, &trailers],
                body.freeze(),
            )),
            Err(BodyError::Broken(why)) => Err(ClientError::Closed {
                at: host_and_port(url),
                why,
            }),
            Err(too_long) => Ok(UnaryResponse {
                code: RESOURCE_EXHAUSTED,
                status_message: too_long.to_string().into(),
                ..UnaryResponse::default()
            }),
        }
    }
}

fn encode_frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// The one message of an answer. Compression was not requested, so a compressed message is malformed.
fn decode_frame(body: &Bytes) -> Bytes {
    let whole = body
        .split_first_chunk::<PREFIX_BYTES>()
        .is_some_and(|(prefix, rest)| {
            let [compressed, length @ ..] = *prefix;
            compressed == 0 && u32::from_be_bytes(length) as usize == rest.len()
        });
    if whole {
        body.slice(PREFIX_BYTES..)
    } else {
        Bytes::new()
    }
}

/// A body of at most `limit` bytes, and its trailers.
async fn read_body(mut body: Incoming, limit: usize) -> Result<(BytesMut, HeaderMap), BodyError> {
    let (mut bytes, mut trailers) = (BytesMut::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| BodyError::Broken(root_cause(&e)))?;
        match frame.into_data() {
            Ok(more) if bytes.len() + more.len() > limit => {
                return Err(BodyError::TooLarge { limit });
            }
            Ok(more) => bytes.extend_from_slice(&more),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Ok((bytes, trailers))
}

/// The status is in the trailers, or in the head of an answer without a body ("Trailers-Only").
fn to_response(status: StatusCode, headers: [&HeaderMap; 2], body: Bytes) -> UnaryResponse {
    let with_status = |headers: &&HeaderMap| headers.contains_key("grpc-status");
    let Some(headers) = headers.into_iter().find(with_status) else {
        return map_http_status(status);
    };
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let details = text("grpc-status-details-bin").and_then(|text| BINARY.decode(text).ok());
    UnaryResponse {
        code: text("grpc-status")
            .and_then(|code| code.parse().ok())
            .unwrap_or(UNKNOWN),
        status_message: percent_decode(text("grpc-message").unwrap_or_default()),
        details: details.unwrap_or_default(),
        message: decode_frame(&body),
    }
}

/// The response for an answer without a gRPC status: from a proxy, or a server without gRPC ("HTTP to gRPC Status Code
/// Mapping").
fn map_http_status(status: StatusCode) -> UnaryResponse {
    let code = match status.as_u16() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => 14,
        _ => UNKNOWN,
    };
    UnaryResponse {
        code,
        status_message: format!("HTTP {status} without a status of gRPC").into(),
        ..UnaryResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PROTOCOL-HTTP2, "Length-Prefixed-Message": encoded messages are decoded; incomplete, multiple or compressed ones are
    /// malformed.
    #[test]
    fn a_message_is_prefixed_with_its_length() {
        let one = encode_frame(b"ab");
        assert_eq!(&one[..], b"\0\0\0\0\x02ab");
        assert_eq!(decode_frame(&one), "ab");
        assert_eq!(decode_frame(&encode_frame(b"")), "");
        let two = [&one[..], &one].concat();
        for bad in [&two[..], &one[..6], &one[..3], b"", b"\x01\0\0\0\x02ab"] {
            assert_eq!(decode_frame(&Bytes::copy_from_slice(bad)), "", "{bad:?}");
        }
    }

    fn map(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (name.parse().unwrap(), HeaderValue::from_static(value))
        };
        of.iter().map(pair).collect()
    }

    /// PROTOCOL-HTTP2, "Responses": the status is found in the head and in the trailers; malformed parts are dropped.
    #[test]
    fn a_status_is_found_in_head_and_trailers() {
        let none = HeaderMap::new();
        let headers = map(&[
            ("grpc-status", "14"),
            ("grpc-message", "gone %C3%BC%0A%zz"),
            ("grpc-status-details-bin", "CA4"),
        ]);
        let answer = UnaryResponse {
            code: 14,
            status_message: "gone ü\n%zz".into(),
            details: vec![8, 14],
            message: Bytes::new(),
        };
        assert_eq!(
            to_response(StatusCode::OK, [&headers, &none], Bytes::new()),
            answer
        );
        assert_eq!(
            to_response(StatusCode::OK, [&none, &headers], Bytes::new()),
            answer
        );
        let odd = map(&[("grpc-status", "x"), ("grpc-status-details-bin", "!no")]);
        let odd = to_response(StatusCode::OK, [&none, &odd], encode_frame(b"x"));
        assert_eq!((odd.code, odd.details.len()), (UNKNOWN, 0));
        for (status, code) in [(200, 2), (404, 12), (401, 16), (503, 14), (301, 2)] {
            let status = StatusCode::from_u16(status).unwrap();
            let answer = to_response(status, [&none, &none], Bytes::new());
            assert_eq!(answer.code, code, "{status}");
            let words = String::from_utf8(answer.status_message).unwrap();
            assert!(words.contains(status.as_str()), "{words}");
        }
    }
}
