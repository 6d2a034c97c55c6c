//! The details of an error: `google.rpc.ErrorInfo` in the trailer `grpc-status-details-bin` (MCP-lite 0.042, section 5.5
//! and A.5).

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

/// The type URL of [`ErrorDetails`] in `google.protobuf.Any`.
const TYPE_URL: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// The machine-readable reason (`google.rpc.ErrorInfo`).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ErrorDetails {
    /// A constant in `UPPER_SNAKE_CASE`.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The domain that defines the reason.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// Further details.
    #[prost(map = "string, string", tag = "3")]
    pub metadata: HashMap<String, String>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, Message)]
struct AnyMessage {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<AnyMessage>,
}

impl ErrorDetails {
    /// A status with these details.
    #[must_use]
    pub fn to_status(&self, code: Code, message: String) -> Status {
        let details = RpcStatus {
            code: i32::from(code),
            message: message.clone(),
            details: vec![AnyMessage {
                type_url: TYPE_URL.into(),
                value: self.encode_to_vec().into(),
            }],
        };
        Status::with_details(code, message, details.encode_to_vec().into())
    }

    /// The details of a status; `None` if they are missing or malformed.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        let details = RpcStatus::decode(status.details()).ok()?.details;
        let details_message = details.iter().find(|any| any.type_url == TYPE_URL)?;
        Self::decode(details_message.value.clone()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-062: details round-trip, and malformed ones are ignored.
    #[test]
    fn a_status_carries_its_details() {
        let info = ErrorDetails {
            reason: "TOOL_NOT_FOUND".into(),
            domain: "mcplite".into(),
            metadata: HashMap::from([("requested_tool".into(), "x".into())]),
        };
        let status = info.to_status(Code::NotFound, "Tool not found: x".into());
        assert_eq!(status.message(), "Tool not found: x");
        assert_eq!(ErrorDetails::from_status(&status), Some(info));
        assert_eq!(ErrorDetails::from_status(&Status::internal("broken")), None);
        let torn = Status::with_details(Code::Internal, "m", Bytes::from_static(b"\x1a\xff"));
        assert_eq!(ErrorDetails::from_status(&torn), None);
    }
}
