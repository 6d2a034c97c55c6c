//! The one message of a request, taken whole before anything is called.

use bytes::Bytes;
use mgp_grpc::prost::Message;
use mgp_grpc::tonic::{Code, Status};
use mgp_transports::http::body::{BodyError, RequestBody, collect};

use super::reply::status;
use crate::bodies::Bodies;
use crate::http_door::BODY_DEADLINE;
use mgp_protocol::ids::AgentId;

/// What stands before each message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// Takes the message, as it is framed.
///
/// # Errors
/// RESOURCE_EXHAUSTED for what is too long, UNIMPLEMENTED for what is compressed, INVALID_ARGUMENT for what is not
/// one message.
pub(super) async fn taken(
    body: RequestBody,
    bodies: &Bodies,
    agent: &AgentId,
) -> Result<Bytes, Status> {
    let longest = bodies.longest();
    let room = || bodies.room(agent);
    let body = collect(body, longest.saturating_add(HEAD), BODY_DEADLINE, room).await;
    let body = body.map_err(|untaken| match untaken.why {
        BodyError::TooLarge { .. } => too_long(longest),
        BodyError::NoRoom => status(Code::ResourceExhausted, "NO_ROOM", &bodies.full()),
        why @ BodyError::TooSlow { .. } => {
            status(Code::DeadlineExceeded, "TIMEOUT", &why.to_string())
        }
        why @ BodyError::Broken(_) => wrong(&why.to_string()),
    })?;
    framed(body)
}

/// Refuses what is no message of this kind: what cannot be read is the caller's mistake, as over HTTP.
pub(super) fn check<M: Message + Default>(framed: &Bytes) -> Result<(), Status> {
    let message = framed.get(HEAD..).unwrap_or_default();
    M::decode(message).map_err(|error| wrong(&error.to_string()))?;
    Ok(())
}

fn framed(body: Bytes) -> Result<Bytes, Status> {
    let Some(([compressed, length @ ..], message)) = body.split_first_chunk::<HEAD>() else {
        return Err(wrong("the request has no message"));
    };
    if *compressed != 0 {
        let words = "compressed messages are not taken: send them as they are (identity)";
        return Err(status(Code::Unimplemented, "COMPRESSED", words));
    }
    match u64::from(u32::from_be_bytes(*length)) == message.len() as u64 {
        true => Ok(body),
        false => Err(wrong(
            "the request must have one message of the length it names",
        )),
    }
}

fn too_long(longest: usize) -> Status {
    let words = format!("the message is longer than {longest} bytes, the limit");
    status(Code::ResourceExhausted, "MESSAGE_TOO_LARGE", &words)
}

fn wrong(words: &str) -> Status {
    status(Code::InvalidArgument, "INVALID_REQUEST", words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &'static [u8]) -> Result<usize, Code> {
        let framed = framed(Bytes::from_static(body));
        framed
            .map(|body| body.len())
            .map_err(|status| status.code())
    }

    /// A message is one message to every reader.
    #[test]
    fn a_request_has_one_message() {
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
