//! What a refusal says beside its code: `google.rpc.ErrorInfo` in the trailer `grpc-status-details-bin`
//! (MCP-lite 0.042, section 5.5 and A.5).

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

/// What `google.protobuf.Any` calls an [`ErrorDetails`].
const TYPE_URL: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// Why, in words for programs (`google.rpc.ErrorInfo`).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ErrorDetails {
    /// One of few words, `UPPER_SNAKE_CASE`.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// Whose words they are.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// What else is known.
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
    /// A status that says this.
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

    /// What a status says; `None` where it says nothing that can be read.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        let details = RpcStatus::decode(status.details()).ok()?.details;
        let said = details.iter().find(|any| any.type_url == TYPE_URL)?;
        Self::decode(said.value.clone()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-062: what was said is read again, and nothing is read from nothing.
    #[test]
    fn a_status_carries_why() {
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
