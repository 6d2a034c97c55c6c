//! One message there and one back over gRPC (its document PROTOCOL-HTTP2), for services whose messages are written by
//! hand. The stubs of tonic are for the others; they panic at details that are no base64.

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

/// Before each message: whether it is compressed, and its length in four bytes ("Length-Prefixed-Message").
const PREFIX_BYTES: usize = 5;

/// Base64 with `=` at its end and without ("Binary-Header").
const BINARY: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Codes that are found here and not told by a server.
const UNKNOWN: u32 = 2;
const RESOURCE_EXHAUSTED: u32 = 8;

/// Asks services of gRPC; clones share the connections.
#[derive(Clone, Debug)]
pub struct UnaryClient(H2Client<Full<Bytes>>);

/// How a call ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnaryResponse {
    /// The code; 0 for success. An answer that is none of gRPC has the one that its conventions give to the HTTP status.
    pub code: u32,
    /// The server's words, as it wrote them.
    pub status_message: Vec<u8>,
    /// `google.rpc.Status` in protobuf, as it was sent; empty where there is none, or none that can be read.
    pub details: Vec<u8>,
    /// The message; empty where there is none, or none that can be read.
    pub message: Bytes,
}

impl Client {
    /// The same authorities, proxies and addresses for services of gRPC.
    #[must_use]
    pub fn unary_client(&self) -> UnaryClient {
        UnaryClient(self.h2_client())
    }
}

impl UnaryClient {
    /// Sends one message to the method that `url` names, and waits for the end of the call, for as long as the caller
    /// does. `headers` go with it. Of the answer at most `limit` bytes are taken: a longer one is RESOURCE_EXHAUSTED.
    ///
    /// # Errors
    /// [`ClientError`]: there is no answer, or not all of it.
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

/// The one message of an answer. One that is compressed was not asked for.
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

/// The status stands in the trailers, or in the head of an answer that is nothing else ("Trailers-Only").
fn to_response(status: StatusCode, said: [&HeaderMap; 2], body: Bytes) -> UnaryResponse {
    let with_status = |headers: &&HeaderMap| headers.contains_key("grpc-status");
    let Some(said) = said.into_iter().find(with_status) else {
        return map_http_status(status);
    };
    let text = |name| said.get(name).and_then(|value| value.to_str().ok());
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

/// An answer without a status of gRPC: a proxy's, or a server's that does not speak it ("HTTP to gRPC Status Code
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

    /// PROTOCOL-HTTP2, "Length-Prefixed-Message": what is written is read; what is torn, more than one or compressed
    /// is no message.
    #[test]
    fn a_message_has_its_length_before_it() {
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

    /// PROTOCOL-HTTP2, "Responses": the status is found in the head and in the trailers, and what in it cannot be read
    /// is left out.
    #[test]
    fn a_status_is_read_wherever_it_stands() {
        let none = HeaderMap::new();
        let said = map(&[
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
            to_response(StatusCode::OK, [&said, &none], Bytes::new()),
            answer
        );
        assert_eq!(
            to_response(StatusCode::OK, [&none, &said], Bytes::new()),
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
