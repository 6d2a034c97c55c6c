//! Reads the single message of a request completely before the call starts.

use bytes::Bytes;
use mgp_grpc::prost::Message;
use mgp_grpc::tonic::{Code, Status};
use mgp_transports::http::body::{BodyError, RequestBody, collect};

use super::reply::new_status;
use crate::http_endpoint::BODY_DEADLINE;
use crate::message_budgets::MessageBudgets;
use mgp_protocol::ids::AgentId;

/// The size of a message header: a compression flag and the length.
const HEAD: usize = 5;

/// Reads the framed message.
///
/// # Errors
/// RESOURCE_EXHAUSTED for a message that is too long, UNIMPLEMENTED for a compressed one, INVALID_ARGUMENT
/// for a body that is not one message.
pub(super) async fn read_message(
    body: RequestBody,
    bodies: &MessageBudgets,
    agent: &AgentId,
) -> Result<Bytes, Status> {
    let longest = bodies.message_max();
    let budget = || bodies.agent_budget(agent);
    let body = collect(body, longest.saturating_add(HEAD), BODY_DEADLINE, budget).await;
    let body = body.map_err(|untaken| match untaken.error {
        BodyError::TooLarge { .. } => too_long_status(longest),
        BodyError::OverBudget => new_status(
            Code::ResourceExhausted,
            "NO_ROOM",
            &bodies.overload_message(),
        ),
        why @ BodyError::TooSlow { .. } => {
            new_status(Code::DeadlineExceeded, "TIMEOUT", &why.to_string())
        }
        why @ BodyError::Broken(_) => invalid_argument(&why.to_string()),
    })?;
    check_frame(body)
}

/// Rejects a malformed message of this kind as the caller's error, like over HTTP.
pub(super) fn check_message<M: Message + Default>(framed: &Bytes) -> Result<(), Status> {
    let message = framed.get(HEAD..).unwrap_or_default();
    M::decode(message).map_err(|error| invalid_argument(&error.to_string()))?;
    Ok(())
}

fn check_frame(body: Bytes) -> Result<Bytes, Status> {
    let Some(([compressed, length @ ..], message)) = body.split_first_chunk::<HEAD>() else {
        return Err(invalid_argument("the request has no message"));
    };
    if *compressed != 0 {
        let message = "compressed messages are not supported: use the encoding `identity`";
        return Err(new_status(Code::Unimplemented, "COMPRESSED", message));
    }
    if u64::from(u32::from_be_bytes(*length)) == message.len() as u64 {
        Ok(body)
    } else {
        Err(invalid_argument(
            "the request must have one message of the length it names",
        ))
    }
}

fn too_long_status(longest: usize) -> Status {
    let message = format!("the message is longer than {longest} bytes, the limit");
    new_status(Code::ResourceExhausted, "MESSAGE_TOO_LARGE", &message)
}

fn invalid_argument(message: &str) -> Status {
    new_status(Code::InvalidArgument, "INVALID_REQUEST", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &'static [u8]) -> Result<usize, Code> {
        let framed = check_frame(Bytes::from_static(body));
        framed
            .map(|body| body.len())
            .map_err(|status| status.code())
    }

    /// A body has exactly one message.
    #[test]
    fn request_has_exactly_one_message() {
        assert_eq!(code(b"\0\0\0\0\0"), Ok(5));
        assert_eq!(code(b"\0\0\0\0\x02ab"), Ok(7));
        assert_eq!(code(b"\x01\0\0\0\x02ab"), Err(Code::Unimplemented));
        let others: [&'static [u8]; 5] = [
            b"",
            b"\0\0\0\0",
            b"\0\0\0\0\x03ab",
            b"\0\0\0\0\x01ab",
            b"\0\0\0\0\0\0\0\0\0\0",
        ];
        for other in others {
            assert_eq!(code(other), Err(Code::InvalidArgument), "{other:?}");
        }
    }
}
